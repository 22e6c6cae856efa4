//! `metadata.managedFields`: who owns which fields of an object.

use super::fields::{self, Node as Set};
use serde_json::{Map, Value, json};

/// What a manager did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// Whom fields belong to.
#[derive(Clone, Debug)]
pub(super) struct Manager {
    pub name: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
}

impl PartialEq for Manager {
    /// Kubernetes: the version tells updates apart, not applied configurations.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

/// One manager's fields.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub manager: Manager,
    pub time: Option<String>,
    pub fields: Set,
}

/// A time as Kubernetes writes it: whole seconds.
pub(super) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a list of managers asks for a reset: an empty one, or one with an empty entry alone.
pub(super) fn is_reset(given: &Value) -> bool {
    given.as_array().is_some_and(|list| match &list[..] {
        [] => true,
        [one] => one.as_object().is_some_and(|entry| entry.values().all(Value::is_null)),
        _ => false,
    })
}

/// Reads a list of managers; `None` if one of them makes no sense.
pub(super) fn read(given: &Value) -> Option<Vec<Entry>> {
    given.as_array()?.iter().map(read_one).collect()
}

fn read_one(given: &Value) -> Option<Entry> {
    let text = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let fields = match given.get("fieldsV1") {
        Some(Value::Object(fields)) => fields.clone(),
        None | Some(Value::Null) => Set::new(),
        Some(_) => return None,
    };
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
    };
    let time = given.get("time").and_then(Value::as_str).map(str::to_owned);
    (text("fieldsType") == "FieldsV1").then_some(Entry { manager, time, fields })
}

/// Puts the managers into the object, in Kubernetes' order; without any, the field vanishes.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        let key = |e: &Entry| (e.manager.operation, e.time.clone(), e.manager.name.clone());
        key(a)
            .cmp(&key(b))
            .then_with(|| a.manager.api_version.cmp(&b.manager.api_version))
            .then_with(|| a.manager.subresource.cmp(&b.manager.subresource))
    });
    let Some(object) = object.as_object_mut() else { return };
    let meta = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(meta) = meta.as_object_mut() else { return };
    if entries.is_empty() {
        meta.remove("managedFields");
        return;
    }
    let list = entries.into_iter().map(|entry| {
        let mut one = Map::new();
        one.insert("manager".into(), entry.manager.name.into());
        let operation =
            if entry.manager.operation == Operation::Apply { "Apply" } else { "Update" };
        one.insert("operation".into(), operation.into());
        one.insert("apiVersion".into(), entry.manager.api_version.into());
        one.extend(entry.time.map(|time| ("time".to_owned(), time.into())));
        one.insert("fieldsType".into(), "FieldsV1".into());
        one.insert("fieldsV1".into(), Value::Object(entry.fields));
        if !entry.manager.subresource.is_empty() {
            one.insert("subresource".into(), entry.manager.subresource.into());
        }
        Value::Object(one)
    });
    meta.insert("managedFields".into(), Value::Array(list.collect()));
}

/// Fields of others that a write touches, as causes of a Status, by owner.
pub(super) fn conflicts(entries: &[Entry], me: &Manager, touched: &Set) -> Vec<Value> {
    let mut found: Vec<(String, Vec<String>)> = entries
        .iter()
        .filter(|entry| entry.manager != *me)
        .map(|entry| {
            (shown(&entry.manager), fields::paths(&fields::intersection(&entry.fields, touched)))
        })
        .collect();
    found.sort();
    let cause = |owner: &str, path: String| {
        let message = format!("conflict with {owner}");
        json!({"reason": "FieldManagerConflict", "message": message, "field": path})
    };
    found
        .into_iter()
        .flat_map(|(owner, paths)| paths.into_iter().map(move |path| cause(&owner, path)))
        .collect()
}

fn shown(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text = format!("{text} with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        text = format!("{text} using {}", manager.api_version);
    }
    text
}

/// Conflicts in Kubernetes' words.
pub(super) fn explain(causes: &[Value]) -> String {
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    if let [one] = causes {
        return format!(
            "Apply failed with 1 conflict: {}: {}",
            text(one, "message"),
            text(one, "field")
        );
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = String::new();
    for cause in causes {
        let owner = text(cause, "message").replacen("conflict", "conflicts", 1);
        if owner != last {
            lines.push(format!("{owner}:"));
            last = owner;
        }
        lines.push(format!("- {}", text(cause, "field")));
    }
    format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
}
