//! The roles and bindings that every cluster starts with, as a real server makes them.

use super::rbac::GROUP;
use serde_json::{Value, json};

const DATA: &str = include_str!("data/bootstrap.json");

fn data() -> Vec<Value> {
    serde_json::from_str(DATA).expect("the recorded roles are JSON")
}

/// The default roles and bindings. Those of the controllers in kube-controller-manager are left out:
/// the lab's controllers act as one user of the group `system:masters`.
#[must_use]
pub fn bootstrap_objects() -> Vec<Value> {
    data().into_iter().map(complete).collect()
}

/// The default ClusterRole of this name.
pub(super) fn role(name: &str) -> Value {
    let found = data().into_iter().find(|one| one["kind"] == "ClusterRole" && one["name"] == name);
    found.expect("the role is one of the recorded ones")
}

fn complete(mut object: Value) -> Value {
    let mut metadata = json!({
        "name": object["name"].take(),
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    let labels = object["labels"].take();
    for (key, value) in labels.as_object().into_iter().flatten() {
        metadata["labels"][key] = value.clone();
    }
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.insert("apiVersion".to_owned(), format!("{GROUP}/v1").into());
        map.insert("metadata".to_owned(), metadata);
    }
    object
}
