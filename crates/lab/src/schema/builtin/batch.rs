//! Jobs and cron jobs.

use super::{Object, at_least, immutable, meta, object, pod, set, template, text};
use crate::schema::error::FieldError;
use crate::schema::selector::LabelSelector;
use serde_json::{Value, json};

pub(super) fn default_job(job: &mut Object) {
    let labels = job.get("spec").map(|spec| spec["template"]["metadata"]["labels"].clone());
    if let Some(labels) = labels.filter(|labels| labels.is_object())
        && let Some(metadata) = object(job, "metadata")
    {
        set(metadata, "labels", labels);
    }
    let Some(spec) = object(job, "spec") else { return };
    if !spec.contains_key("parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let fails = spec.contains_key("podFailurePolicy");
    set(spec, "podReplacementPolicy", if fails { "Failed" } else { "TerminatingOrFailed" });
    set(spec, "manualSelector", false);
    template::default_template(spec);
}

pub(super) fn default_cron_job(cron_job: &mut Object) {
    let Some(spec) = object(cron_job, "spec") else { return };
    set(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    // Kubernetes: the job's own defaults come when it is made from its template.
    let job = object(spec, "jobTemplate").and_then(|job| object(job, "spec"));
    if let Some(job) = job {
        template::default_template(job);
    }
}

fn validate_spec(spec: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"] {
        at_least(spec, field, 0, at, errors);
    }
    at_least(spec, "ttlSecondsAfterFinished", 0, at, errors);
    let mode = text(spec, "completionMode");
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        let known = ["NonIndexed", "Indexed"];
        let path = format!("{at}.completionMode");
        errors.push(FieldError::unsupported(path, &json!(mode), &known));
    }
    if mode == "Indexed" && spec["completions"].is_null() {
        let what = "when completion mode is Indexed";
        errors.push(FieldError::required(format!("{at}.completions"), what));
    }
    pod::validate_spec(&spec["template"]["spec"], &format!("{at}.template.spec"), errors);
    let path = format!("{at}.template.spec.restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "OnFailure" | "Never" => {}
        "Always" | "" => {
            let what = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(path, what));
        }
        other => {
            let known = ["OnFailure", "Never"];
            errors.push(FieldError::unsupported(path, &json!(other), &known));
        }
    }
}

pub(super) fn validate_job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    validate_spec(spec, "spec", errors);
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        meta::selector(selector, "spec.selector", errors);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let parsed = LabelSelector::from_object(selector);
    // Kubernetes: no selector selects nothing.
    if parsed.is_ok_and(|one| selector.is_null() || !one.matches(labels)) {
        let what = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, what));
    }
    let Some(old) = old else { return };
    let mut held = vec!["selector", "template", "completionMode"];
    // Kubernetes: an indexed job may be stretched together with its parallelism.
    if text(spec, "completionMode") != "Indexed" {
        held.insert(0, "completions");
    }
    for field in held {
        let path = format!("spec.{field}");
        immutable(&path, spec.get(field), old["spec"].get(field), errors);
    }
}

pub(super) fn validate_cron_job(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let found = schedule.split_whitespace().count();
        let what = format!("expected exactly 5 fields, found {found}: [{schedule}]");
        errors.push(FieldError::invalid("spec.schedule", &json!(schedule), &what));
    }
    at_least(spec, "startingDeadlineSeconds", 0, "spec", errors);
    let policy = text(spec, "concurrencyPolicy");
    if !matches!(policy, "Allow" | "Forbid" | "Replace") {
        let known = ["Allow", "Forbid", "Replace"];
        errors.push(FieldError::unsupported("spec.concurrencyPolicy", &json!(policy), &known));
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        at_least(spec, field, 0, "spec", errors);
    }
    validate_spec(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", errors);
}
