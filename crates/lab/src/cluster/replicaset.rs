//! ReplicaSets: as many pods as wanted, in the simplest form. Pods are not adopted.

use super::object::{
    controlled_by, controller, is_deleting, is_over, is_true, meta, node_of, number,
};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const SETS: &str = "replicasets.apps";
/// Pods made in one go (Kubernetes: 500).
const BURST: usize = 500;

/// Makes and deletes pods.
pub(super) struct ReplicaSets;

/// A pod from a template, controlled by its owner.
pub(super) fn pod_of(owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", meta(owner, "name")),
        "ownerReferences": [controlled_by(owner)],
    });
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// The pods that an owner controls, by name.
pub(super) fn pods_of(view: &View, owner: &Value) -> Vec<(Address, Arc<Value>)> {
    let uid = meta(owner, "uid");
    let mut pods = view.dependents(uid);
    pods.retain(|(at, pod)| {
        *at.id == *"pods" && controller(pod).is_some_and(|owner| owner["uid"] == uid)
    });
    pods
}

/// Kubernetes: who goes first when there are too many. Without a node, pending, unready, younger.
fn rank(pod: &Value) -> (bool, bool, bool, std::cmp::Reverse<String>, String) {
    (
        !node_of(pod).is_empty(),
        pod["status"]["phase"] == "Running",
        is_true(pod, "Ready"),
        std::cmp::Reverse(meta(pod, "creationTimestamp").to_owned()),
        meta(pod, "name").to_owned(),
    )
}

/// The status by the pods that count, and how many are on the way out.
fn status(set: &Value, pods: &[(Address, Arc<Value>)], terminating: usize) -> Value {
    let count = |test: &dyn Fn(&Value) -> bool| pods.iter().filter(|(_, pod)| test(pod)).count();
    let ready = count(&|pod| is_true(pod, "Ready"));
    let mut status = Map::new();
    status.insert("replicas".to_owned(), pods.len().into());
    status.insert("terminatingReplicas".to_owned(), terminating.into());
    // Go leaves zeroes out.
    let mut put = |field: &str, value: usize| {
        if value > 0 {
            status.insert(field.to_owned(), value.into());
        }
    };
    put("fullyLabeledReplicas", pods.len());
    put("readyReplicas", ready);
    put("availableReplicas", ready);
    status.insert("observedGeneration".to_owned(), set["metadata"]["generation"].clone());
    Value::Object(status)
}

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        "replica sets"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of(SETS) && change.now.is_some() {
            wake(change.address.clone());
        }
        if change.is_of("pods") {
            let uids = change.states().filter_map(|pod| controller(pod)?["uid"].as_str());
            let sets = uids.filter_map(|uid| view.by_uid(uid)).filter(|(at, _)| *at.id == *SETS);
            sets.for_each(|(at, _)| wake(at));
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(set) = hands.view.at(at) else { return Ok(Next::Change) };
        let mut pods = pods_of(&hands.view, &set);
        pods.retain(|(_, pod)| !is_over(pod));
        let terminating = pods.iter().filter(|(_, pod)| is_deleting(pod)).count();
        pods.retain(|(_, pod)| !is_deleting(pod));
        let status = status(&set, &pods, terminating);
        if set["status"] != status {
            let mut new = (*set).clone();
            new["status"] = status;
            hands.replace(at, "/status", &new).await?;
        }
        if is_deleting(&set) {
            return Ok(Next::Change);
        }
        let wanted = usize::try_from(number(&set["spec"]["replicas"])).unwrap_or(0);
        for _ in 0..wanted.saturating_sub(pods.len()).min(BURST) {
            hands.create("pods", &at.namespace, &pod_of(&set, &set["spec"]["template"])).await?;
        }
        let surplus = pods.len().saturating_sub(wanted);
        pods.sort_by_cached_key(|(_, pod)| rank(pod));
        for (pod_at, pod) in &pods[..surplus] {
            hands.delete(pod_at, meta(pod, "uid"), "Background").await?;
        }
        Ok(Next::Change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_useful_pod_goes_first() {
        let pod = |name: &str, node: &str, phase: &str, ready: &str, made: &str| {
            json!({
                "metadata": {"name": name, "creationTimestamp": made},
                "spec": {"nodeName": node},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let mut pods = [
            pod("old", "n", "Running", "True", "2026-01-01"),
            pod("young", "n", "Running", "True", "2026-01-02"),
            pod("sick", "n", "Running", "False", "2026-01-01"),
            pod("pending", "n", "Pending", "False", "2026-01-01"),
            pod("homeless", "", "Pending", "False", "2026-01-01"),
        ];
        pods.sort_by_cached_key(rank);
        let names: Vec<&str> = pods.iter().map(|pod| meta(pod, "name")).collect();
        assert_eq!(names, ["homeless", "pending", "sick", "young", "old"]);
    }
}
