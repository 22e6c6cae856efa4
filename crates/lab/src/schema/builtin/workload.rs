//! Deployments, replica sets, daemon sets and disruption budgets.

use super::{Object, at_least, immutable, meta, object, pod, set, template, text};
use crate::schema::error::FieldError;
use crate::schema::selector::LabelSelector;
use serde_json::{Value, json};

pub(super) fn default_deployment(deployment: &mut Object) {
    let Some(spec) = object(deployment, "spec") else { return };
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = object(spec, "strategy") {
        set(strategy, "type", "RollingUpdate");
        if strategy.get("type") == Some(&json!("RollingUpdate"))
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", "25%");
            set(rolling, "maxSurge", "25%");
        }
    }
    template::default_template(spec);
}

pub(super) fn default_replica_set(replica_set: &mut Object) {
    let Some(spec) = object(replica_set, "spec") else { return };
    set(spec, "replicas", 1);
    template::default_template(spec);
}

pub(super) fn default_daemon_set(daemon_set: &mut Object) {
    if let Some(annotations) =
        object(daemon_set, "metadata").and_then(|meta| object(meta, "annotations"))
    {
        set(annotations, "deprecated.daemonset.template.generation", "1");
    }
    let Some(spec) = object(daemon_set, "spec") else { return };
    set(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = object(spec, "updateStrategy") {
        set(strategy, "type", "RollingUpdate");
        if strategy.get("type") == Some(&json!("RollingUpdate"))
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", 1);
            set(rolling, "maxSurge", 0);
        }
    }
    template::default_template(spec);
}

pub(super) fn validate_deployment(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    at_least(spec, "replicas", 0, "spec", errors);
    selector_and_template(spec, "deployment", errors);
    let strategy = &spec["strategy"];
    match text(strategy, "type") {
        "Recreate" if !strategy["rollingUpdate"].is_null() => {
            let what = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", what));
        }
        "RollingUpdate" => {
            rolling_update(&strategy["rollingUpdate"], "spec.strategy.rollingUpdate", errors)
        }
        "Recreate" => {}
        other => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::unsupported("spec.strategy", &json!(other), &known));
        }
    }
    at_least(spec, "minReadySeconds", 0, "spec", errors);
    at_least(spec, "revisionHistoryLimit", 0, "spec", errors);
    at_least(spec, "progressDeadlineSeconds", 0, "spec", errors);
    if let Some(old) = old {
        immutable("spec.selector", spec.get("selector"), old["spec"].get("selector"), errors);
    }
}

pub(super) fn validate_replica_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    at_least(spec, "replicas", 0, "spec", errors);
    at_least(spec, "minReadySeconds", 0, "spec", errors);
    selector_and_template(spec, "ReplicaSet", errors);
    if let Some(old) = old {
        immutable("spec.selector", spec.get("selector"), old["spec"].get("selector"), errors);
    }
}

pub(super) fn validate_daemon_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    selector_and_template(spec, "daemonset", errors);
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "RollingUpdate" => {
            rolling_update(&strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate", errors)
        }
        "OnDelete" => {}
        other => {
            let known = ["OnDelete", "RollingUpdate"];
            errors.push(FieldError::unsupported("spec.updateStrategy", &json!(other), &known));
        }
    }
    if let Some(old) = old {
        immutable("spec.selector", spec.get("selector"), old["spec"].get("selector"), errors);
    }
}

pub(super) fn selector_and_template(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    let empty = selector.as_object().is_some_and(|s| s.is_empty());
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        meta::selector(selector, "spec.selector", errors);
        if empty {
            let what = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", selector, &what));
        }
    }
    let template = &spec["template"];
    let labels = template["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
    meta::labels(Some(&labels), "spec.template.metadata.labels", errors);
    if !empty
        && !selector.is_null()
        && LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches(&labels))
    {
        let what = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", &labels, what));
    }
    pod::validate_spec(&template["spec"], "spec.template.spec", errors);
    let policy = text(&template["spec"], "restartPolicy");
    if ["OnFailure", "Never"].contains(&policy) {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::unsupported(path, &json!(policy), &["Always"]));
    }
}

/// Whether a number or percentage means none at all.
fn is_none(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_str() == Some("0%")
}

fn rolling_update(rolling: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if rolling.is_null() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for name in ["maxUnavailable", "maxSurge"] {
        int_or_percent(&rolling[name], &format!("{path}.{name}"), errors);
    }
    if is_none(&rolling["maxUnavailable"]) && is_none(&rolling["maxSurge"]) {
        let what = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(
            format!("{path}.maxUnavailable"),
            &rolling["maxUnavailable"],
            what,
        ));
    }
}

fn int_or_percent(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(given) => {
            let number = given
                .strip_suffix('%')
                .filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            if number.is_none() {
                let what = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                            '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path, value, what));
            }
        }
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

pub(super) fn validate_budget(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let get = |name: &str| spec.get(name).cloned().unwrap_or(Value::Null);
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            get("selector"),
            get("unhealthyPodEvictionPolicy")
        );
        let what = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid_text("spec", &shown, what));
    }
    for (value, field) in [(least, "spec.minAvailable"), (most, "spec.maxUnavailable")] {
        int_or_percent(value, field, errors);
        let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
        if percent.is_some_and(|percent| percent > 100) {
            errors.push(FieldError::invalid(field, value, "must not be greater than 100%"));
        }
    }
    const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if policy.as_str().is_some_and(|policy| !POLICIES.contains(&policy)) {
        errors.push(FieldError::unsupported("spec.unhealthyPodEvictionPolicy", policy, &POLICIES));
    }
    meta::selector(&spec["selector"], "spec.selector", errors);
}
