//! The parts that all objects have.

use serde_json::Value;

/// A text of `metadata`; empty where there is none.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether the object was told to go.
pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the object waits for this finalizer.
pub(super) fn has_finalizer(object: &Value, name: &str) -> bool {
    items(&object["metadata"]["finalizers"]).iter().any(|one| one == name)
}

/// A list, or none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The owners of an object.
pub(super) fn owners(object: &Value) -> &[Value] {
    items(&object["metadata"]["ownerReferences"])
}

/// The owner that controls an object.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    owners(object).iter().find(|owner| owner["controller"] == true)
}

/// A number, or zero.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The revision of an object.
pub(super) fn revision(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or(0)
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|one| one["type"] == kind)
}

/// Whether the condition of this type is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|one| one["status"] == "True")
}

/// Whether a pod has come to its end.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The node a pod is bound to; empty while it has none.
pub(super) fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The node a pod is for: the one it is bound to, or the only one its affinity allows.
pub(super) fn target_of(pod: &Value) -> &str {
    let bound = node_of(pod);
    if !bound.is_empty() {
        return bound;
    }
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    match items(terms) {
        [term] => {
            let mut named = items(&term["matchFields"])
                .iter()
                .filter(|one| one["key"] == "metadata.name" && one["operator"] == "In");
            let only = named.find_map(|one| match items(&one["values"]) {
                [name] => name.as_str(),
                _ => None,
            });
            only.unwrap_or_default()
        }
        _ => "",
    }
}

/// The reference that makes an object the controller of another.
pub(super) fn controlled_by(owner: &Value) -> Value {
    serde_json::json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
