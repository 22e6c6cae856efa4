//! Stateful sets.

use super::{Object, at_least, core, elements, object, objects, set, template, text, workload};
use crate::schema::error::FieldError;
use serde_json::{Value, json};

/// What an update may change of the spec.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

pub(super) fn default(stateful_set: &mut Object) {
    let Some(spec) = object(stateful_set, "spec") else { return };
    set(spec, "podManagementPolicy", "OrderedReady");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = object(spec, "updateStrategy") {
        if !strategy.contains_key("type") {
            set(strategy, "type", "RollingUpdate");
            set(strategy, "rollingUpdate", json!({}));
        }
        let rolling = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut);
        if let Some(rolling) = rolling {
            set(rolling, "partition", 0);
        }
    }
    if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        set(policy, "whenDeleted", "Retain");
        set(policy, "whenScaled", "Retain");
    }
    for claim in objects(spec, "volumeClaimTemplates") {
        set(claim, "kind", "PersistentVolumeClaim");
        set(claim, "apiVersion", "v1");
        core::default_claim(claim);
    }
    template::default_template(spec);
}

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    let management = &spec["podManagementPolicy"];
    if management != "OrderedReady" && management != "Parallel" {
        let what = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", management, what));
    }
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "RollingUpdate" => {
            let path = "spec.updateStrategy.rollingUpdate";
            at_least(&strategy["rollingUpdate"], "partition", 0, path, errors);
        }
        "OnDelete" if strategy["rollingUpdate"].is_null() => {}
        "OnDelete" => {
            let what = "only allowed for updateStrategy 'RollingUpdate'";
            let given = &strategy["rollingUpdate"];
            errors.push(FieldError::invalid("spec.updateStrategy.rollingUpdate", given, what));
        }
        _ => {
            let what = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid("spec.updateStrategy", strategy, what));
        }
    }
    at_least(spec, "replicas", 0, "spec", errors);
    at_least(spec, "minReadySeconds", 0, "spec", errors);
    workload::selector_and_template(&with_claims(spec), "statefulset", errors);
    let fixed = |object: &Value| {
        let mut spec = object["spec"].as_object().cloned().unwrap_or_default();
        spec.retain(|field, _| !CHANGEABLE.contains(&field.as_str()));
        spec
    };
    if old.is_some_and(|old| fixed(old) != fixed(new)) {
        let what = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", what));
    }
}

/// The spec as its pods see it: each claim template is a volume that containers may mount.
fn with_claims(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let names: Vec<Value> = elements(&spec, "volumeClaimTemplates")
        .iter()
        .map(|claim| json!({"name": claim["metadata"]["name"], "persistentVolumeClaim": {}}))
        .collect();
    if let Some(pod) = spec["template"]["spec"].as_object_mut()
        && let Some(volumes) = pod.entry("volumes").or_insert_with(|| json!([])).as_array_mut()
    {
        volumes.retain(|volume| names.iter().all(|claim| claim["name"] != volume["name"]));
        volumes.extend(names);
    }
    spec
}
