//! What is put on nodes, and what is left alone.

use super::*;
use serde_json::from_value;

fn machine(labels: Value, taints: Value) -> Machine {
    from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "n", "uid": "u"},
        "spec": {"metadata": {"labels": labels}, "taints": taints},
    }))
    .unwrap()
}

fn node(labels: Value, taints: Value) -> Node {
    let mut node: Node = from_value(json!({
        "metadata": {
            "name": "m", "uid": "nu", "resourceVersion": "5", "labels": labels,
            "annotations": {labels::NODE_MACHINE: "n/m"},
        },
        "spec": {"taints": taints},
    }))
    .unwrap();
    node.labels_mut().insert(labels::NODE_OWNED_BY.into(), "u".into());
    node
}

/// The node after Drover's patch, and whether there was one.
fn synced(machine: &Machine, node: &Node) -> (Node, bool) {
    let Some(patch) = sync(machine, node, &Wanted::by(machine, None), None) else {
        return (node.clone(), false);
    };
    let mut next = node.clone();
    for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => next.labels_mut().insert(key.clone(), text.to_owned()),
            None => next.labels_mut().remove(key),
        };
    }
    for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
        let text = value.as_str().expect("no annotation goes here").to_owned();
        next.annotations_mut().insert(key.clone(), text);
    }
    if let Some(taints) = patch.pointer("/spec/taints") {
        assert_eq!(patch["metadata"]["resourceVersion"], "5", "a list is replaced under a fence");
        next.spec.get_or_insert_default().taints = from_value(taints.clone()).unwrap();
    }
    (next, true)
}

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

#[test]
fn missing_labels_come_and_those_of_others_stay() {
    let machine = machine(json!({"a": "1", "b": "2"}), json!([]));
    let (next, _) = synced(&machine, &node(json!({"b": "theirs", "c": "3"}), json!([])));
    let labels = next.labels();
    assert_eq!(
        (labels["a"].as_str(), labels["b"].as_str(), labels["c"].as_str()),
        ("1", "theirs", "3")
    );
    let (_, again) = synced(&machine, &next);
    assert!(!again, "a node that is in step is not written");
}

/// Gardener's scenario 13 and MetaKube's 16.
#[test]
fn own_labels_change_and_go_with_the_template_and_edited_ones_stay() {
    let first = machine(json!({"a": "1", "b": "2", "c": "3"}), json!([]));
    let (mut joined, _) = synced(&first, &node(json!({"a": "1"}), json!([])));
    joined.labels_mut().insert("c".into(), "edited".into());
    let second = machine(json!({"a": "9"}), json!([]));
    let (next, _) = synced(&second, &joined);
    assert_eq!(next.labels()["a"], "9");
    assert!(!next.labels().contains_key("b"), "what Drover put there goes");
    assert_eq!(next.labels()["c"], "edited", "what somebody changed is theirs");
}

/// Gardener's scenario 13 and MetaKube's 16.
#[test]
fn taints_follow_likewise() {
    let first = machine(json!({}), json!([taint("a", "1"), taint("b", "2")]));
    let (joined, _) =
        synced(&first, &node(json!({}), json!([taint("x", "theirs"), taint("a", "1")])));
    let keys = |node: &Node| -> Vec<String> {
        taints(node)
            .iter()
            .map(|it| format!("{}={}", it.key, it.value.clone().unwrap_or_default()))
            .collect()
    };
    assert_eq!(keys(&joined), ["x=theirs", "a=1", "b=2"]);
    let second = machine(json!({}), json!([taint("a", "9")]));
    let (next, _) = synced(&second, &joined);
    assert_eq!(keys(&next), ["x=theirs", "a=9"]);
    assert!(!synced(&second, &next).1);
}

#[test]
fn a_taint_that_is_taken_away_goes_and_nothing_else() {
    let machine = machine(json!({}), json!([]));
    let node = node(json!({}), json!([taint("x", "1"), taint(labels::TAINT_STARTUP, "")]));
    let patch = sync(&machine, &node, &Wanted::default(), Some(labels::TAINT_STARTUP)).unwrap();
    assert_eq!(patch["spec"]["taints"], json!([taint("x", "1")]));
    assert_eq!(patch["metadata"], json!({"uid": "nu", "resourceVersion": "5"}));
}

#[test]
fn the_startup_taint_stays_until_everything_holds() {
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    let fit = json!({"conditions": ready("True"), "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]});
    let with = |status: Value, taints: Value| {
        let mut node = node(json!({}), taints);
        node.status = Some(from_value(status).unwrap());
        node
    };
    let pod = |class: &str, kind: &str, ready: &str| -> Arc<Pod> {
        Arc::new(from_value(json!({
            "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]},
            "spec": {"containers": [], "priorityClassName": class},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })).unwrap())
    };
    let none = json!([]);
    assert_eq!(unfit(&with(fit.clone(), none.clone()), &[]), None);
    assert_eq!(
        unfit(&with(json!({"conditions": ready("False")}), none.clone()), &[]),
        Some(Reason::NodeNotReady)
    );
    assert_eq!(
        unfit(&with(json!({"conditions": ready("True")}), none.clone()), &[]),
        Some(Reason::NodeUninitialized)
    );
    let raw = with(fit.clone(), json!([taint(labels::TAINT_UNINITIALIZED, "true")]));
    assert_eq!(unfit(&raw, &[]), Some(Reason::NodeUninitialized));
    let node = with(fit, none);
    for (class, kind, ready, expect) in [
        ("system-node-critical", "DaemonSet", "False", Some(Reason::CriticalPodsAwaited)),
        ("system-node-critical", "DaemonSet", "True", None),
        ("system-cluster-critical", "ReplicaSet", "False", None),
        ("ordinary", "DaemonSet", "False", None),
    ] {
        assert_eq!(unfit(&node, &[pod(class, kind, ready)]), expect, "{class} {kind} {ready}");
    }
}
