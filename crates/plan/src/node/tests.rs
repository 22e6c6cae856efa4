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

/// The node after Drover's writes, and whether there was one.
fn synced(machine: &Machine, node: &Node) -> (Node, bool) {
    synced_with(machine, node, &Wanted::by(machine, None))
}

fn synced_with(machine: &Machine, node: &Node, wanted: &Wanted) -> (Node, bool) {
    let Sync { status, merge, apply } = sync(machine, node, wanted, None);
    let mut next = node.clone();
    let is_written = status.is_some() || merge.is_some() || apply.is_some();
    if let Some(patch) = status {
        let capacity = patch["status"]["capacity"].as_object().expect("only that").clone();
        let has = next.status.get_or_insert_default().capacity.get_or_insert_default();
        for (key, value) in capacity {
            match value.as_str() {
                Some(text) => has.insert(key, Quantity(text.to_owned())),
                None => has.remove(&key),
            };
        }
    }
    for patch in merge.into_iter().chain(apply) {
        for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
            match value.as_str() {
                Some(text) => next.labels_mut().insert(key.clone(), text.to_owned()),
                None => next.labels_mut().remove(key),
            };
        }
        for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
            match value.as_str() {
                Some(text) => next.annotations_mut().insert(key.clone(), text.to_owned()),
                None => next.annotations_mut().remove(key),
            };
        }
        if let Some(taints) = patch.pointer("/spec/taints") {
            assert_eq!(
                patch["metadata"]["resourceVersion"], "5",
                "a list is replaced under a fence"
            );
            next.spec.get_or_insert_default().taints = from_value(taints.clone()).unwrap();
        }
    }
    (next, is_written)
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

/// MetaKube 9.2 scenario 16: a user's value of a label stays, a taint that somebody removed comes back.
#[test]
fn metakube_16_a_users_value_stays_and_a_removed_taint_returns() {
    let machine = machine(json!({"a": "1"}), json!([taint("t", "1")]));
    let (mut joined, _) = synced(&machine, &node(json!({}), json!([])));
    joined.labels_mut().insert("a".into(), "2".into());
    joined.spec.as_mut().unwrap().taints = Some(vec![]);
    let (next, _) = synced(&machine, &joined);
    assert_eq!(next.labels()["a"], "2");
    assert_eq!(taints(&next).len(), 1);
}

/// Gardener 10.3 scenario 13: of a machine of a class, a user's edit of an owned key is undone, what the
/// template dropped goes, and foreign keys stay. Choice: MetaKube's machines keep the user's value instead.
#[test]
fn gardener_13_owned_keys_are_restored_and_foreign_ones_kept() {
    let of_class = |labels: Value, taints: Value| {
        let mut machine = machine(labels, taints);
        machine.spec.class =
            Some(from_value(json!({"kind": "MachineClass", "name": "small"})).unwrap());
        machine
    };
    let first = of_class(json!({"a": "1", "b": "1"}), json!([taint("t", "1")]));
    let foreign = json!([{"key": "t", "value": "9", "effect": "NoExecute"}]);
    let (mut joined, _) = synced(&first, &node(json!({"x": "9"}), foreign));
    joined.labels_mut().insert("a".into(), "2".into());
    joined.spec.as_mut().unwrap().taints.as_mut().unwrap()[1].value = Some("2".into());
    let (next, _) = synced(&of_class(json!({"a": "1"}), json!([taint("t", "1")])), &joined);
    assert_eq!((next.labels()["a"].as_str(), next.labels()["x"].as_str()), ("1", "9"));
    assert!(!next.labels().contains_key("b"));
    let shown: Vec<_> = taints(&next).iter().map(|it| (mark(it), it.value.clone())).collect();
    let of = |mark: &str, value: &str| (mark.to_owned(), Some(value.to_owned()));
    assert_eq!(shown, [of("t:NoExecute", "9"), of("t:NoSchedule", "1")]);
}

/// Gardener 10.3 scenario 14.
#[test]
fn gardener_14_virtual_capacity_comes_changes_and_goes() {
    let machine = machine(json!({}), json!([]));
    let wants = |capacity: &[(&str, &str)]| Wanted {
        capacity: capacity
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned())))
            .collect(),
        ..Wanted::default()
    };
    let mut start = node(json!({}), json!([]));
    let own = json!({"cpu": "4", "foreign.example/fpga": "1"});
    start.status = Some(from_value(json!({ "capacity": own })).unwrap());
    let shown = |node: &Node| -> String {
        let capacity = node.status.as_ref().unwrap().capacity.as_ref().unwrap();
        capacity.iter().map(|(key, it)| format!("{key}={} ", it.0)).collect()
    };
    let (first, _) = synced_with(&machine, &start, &wants(&[("a.example/x", "2")]));
    assert_eq!(shown(&first), "a.example/x=2 cpu=4 foreign.example/fpga=1 ");
    let (second, _) = synced_with(&machine, &first, &wants(&[("a.example/x", "3")]));
    assert_eq!(shown(&second), "a.example/x=3 cpu=4 foreign.example/fpga=1 ");
    let (again, is_written) = synced_with(&machine, &second, &wants(&[("a.example/x", "3")]));
    assert!(!is_written);
    let (third, _) = synced_with(&machine, &again, &wants(&[]));
    assert_eq!(shown(&third), "cpu=4 foreign.example/fpga=1 ");
    assert!(!synced_with(&machine, &third, &wants(&[])).1, "then there is nothing to do");
}

#[test]
fn what_is_owned_is_applied_whole_and_what_the_kubelet_shares_is_taken_away_by_hand() {
    let first = machine(json!({"a": "1", "b": "2"}), json!([]));
    let (joined, _) = synced(&first, &node(json!({"a": "1", "b": "2"}), json!([])));
    let second = machine(json!({"a": "1"}), json!([]));
    let Sync { merge, apply, .. } = sync(&second, &joined, &Wanted::by(&second, None), None);
    let note = json!({labels::NODE_SYNCED: "{\"labels\":{\"a\":\"1\"}}"});
    let expected = json!({"uid": "nu", "labels": {"b": null}, "annotations": note});
    assert_eq!(merge.unwrap()["metadata"], expected);
    assert_eq!(apply, None, "the note goes with the merge patch");
}

#[test]
fn a_taint_that_is_taken_away_goes_and_nothing_else() {
    let machine = machine(json!({}), json!([]));
    let node = node(json!({}), json!([taint("x", "1"), taint(labels::TAINT_STARTUP, "")]));
    let sync = sync(&machine, &node, &Wanted::default(), Some(labels::TAINT_STARTUP));
    let patch = sync.merge.expect("one write");
    assert_eq!(patch["spec"]["taints"], json!([taint("x", "1")]));
    let note = json!({labels::NODE_SYNCED: "{\"started\":true}"});
    let expected = json!({"uid": "nu", "resourceVersion": "5", "annotations": note});
    assert_eq!((&patch["metadata"], sync.apply), (&expected, None));
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

/// What is known of a machine's server, what a Node of its name says of its own, and whether it is taken for the
/// machine's.
#[test]
fn a_node_is_not_taken_for_its_name_when_its_server_is_another_or_unknown() {
    let ordered = json!({"providerStatus": {"memory": {"promisedAt": "2026-01-01T00:00:00Z"}}});
    let named = json!({"providerStatus": {"memory": {"server": "s-1"}}});
    for (status, id, owner, is_taken) in [
        (json!({}), "", "", false),
        (json!({}), "openstack:///s-1", "", false),
        (json!({}), "openstack:///s-1", "u", true),
        (ordered.clone(), "", "", true),
        (ordered.clone(), "openstack:///s-1", "", false),
        (ordered, "", "other", false),
        (named.clone(), "openstack://region/S-1", "", true),
        (named.clone(), "openstack:///s-2", "", false),
        (named, "openstack:///s-2", "u", false),
    ] {
        let case = format!("{status} {id:?} {owner:?}");
        let mut machine = machine(json!({}), json!([]));
        machine.status = from_value(status).unwrap();
        let mut node = node(json!({}), json!([]));
        node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        match owner {
            "" => drop(node.labels_mut().remove(labels::NODE_OWNED_BY)),
            uid => drop(node.labels_mut().insert(labels::NODE_OWNED_BY.into(), uid.into())),
        }
        assert_eq!(of_machine(&machine, &[Arc::new(node)]).is_some(), is_taken, "{case}");
    }
}
