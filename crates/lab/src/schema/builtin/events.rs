//! Events: little is asked of those of the core group, more of those of events.k8s.io.

use super::{immutable, meta, text};
use crate::schema::error::FieldError;
use serde_json::{Value, json};

/// Kubernetes: longest reason, action and reporting instance, in bytes.
const WORD_MAX: usize = 128;
/// Kubernetes: longest message, in bytes.
const MESSAGE_MAX: usize = 1024;

/// An event of either group, by the field names of the core group.
struct Event<'a> {
    object: &'a Value,
    is_core: bool,
}

impl<'a> Event<'a> {
    fn field(&self, name: &'a str) -> Option<&'a Value> {
        let own = match name {
            _ if self.is_core => name,
            "message" => "note",
            "involvedObject" => "regarding",
            "source" => "deprecatedSource",
            "firstTimestamp" => "deprecatedFirstTimestamp",
            "lastTimestamp" => "deprecatedLastTimestamp",
            "count" => "deprecatedCount",
            "reportingComponent" => "reportingController",
            _ => name,
        };
        self.object.get(own).filter(|value| !value.is_null())
    }

    fn text(&self, name: &'a str) -> &'a str {
        self.field(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether Go would hold anything but its zero in this field.
    fn is_set(&self, name: &'a str) -> bool {
        self.field(name)
            .is_some_and(|value| *value != json!(0) && *value != json!("") && *value != json!({}))
    }
}

/// Kubernetes names fields by the core group, whichever group was asked (`ValidateEventCreate`, `ValidateEventUpdate`).
pub(super) fn validate(
    group: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let is_core = group.is_empty();
    // The rules of its own come before those of its metadata.
    let of_metadata = std::mem::take(errors);
    let event = Event { object: new, is_core };
    legacy(&event, errors);
    errors.extend(of_metadata);
    if is_core {
        return;
    }
    match old {
        None => strict(&event, errors),
        Some(old) => unchanged(&event, &Event { object: old, is_core }, errors),
    }
}

fn legacy(event: &Event<'_>, errors: &mut Vec<FieldError>) {
    let own = text(&event.object["metadata"], "namespace");
    let of = event.field("involvedObject").map(|of| text(of, "namespace")).unwrap_or_default();
    let is_new = event.is_set("eventTime");
    let fits = match (is_new, of) {
        (false, "") => own == "default",
        (false, of) => own == of,
        // Kubernetes: events about objects without a namespace live in these two.
        (true, "") => own == "default" || own == "kube-system",
        (true, _) => true,
    };
    if !own.is_empty() && !fits {
        let what = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(of), what));
    }
    if !is_new {
        return;
    }
    let reporter = if event.is_core { "reportingComponent" } else { "reportingController" };
    let name = event.text("reportingComponent");
    if name.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    let wrong = meta::qualified(name);
    errors.extend(wrong.iter().map(|why| FieldError::invalid(reporter, &json!(name), why)));
    for field in ["reportingInstance", "action", "reason"] {
        match event.text(field).len() {
            0 => errors.push(FieldError::required(field, "")),
            size if size > WORD_MAX => errors.push(too_long(field, WORD_MAX)),
            _ => {}
        }
    }
    if event.text("message").len() > MESSAGE_MAX {
        errors.push(too_long("message", MESSAGE_MAX));
    }
}

fn too_long(field: &str, most: usize) -> FieldError {
    FieldError::invalid(field, &json!(""), &format!("can have at most {most} characters"))
}

fn series(event: &Event<'_>, errors: &mut Vec<FieldError>) {
    let Some(series) = event.field("series") else { return };
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if text(series, "lastObservedTime").is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

fn strict(event: &Event<'_>, errors: &mut Vec<FieldError>) {
    series(event, errors);
    if !event.is_set("eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        let what = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid("type", &json!(""), &what));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if event.is_set(field) {
            errors.push(FieldError::invalid(field, &json!(""), "needs to be unset"));
        }
    }
}

fn unchanged(new: &Event<'_>, old: &Event<'_>, errors: &mut Vec<FieldError>) {
    if new.field("series") != old.field("series") {
        series(new, errors);
    }
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        // Kubernetes looks at the reason twice.
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        let path = if field == "reportingComponent" { "reportingController" } else { field };
        immutable(path, new.field(field), old.field(field), errors);
    }
}
