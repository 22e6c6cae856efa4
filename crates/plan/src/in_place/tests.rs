//! What replaces machines and what does not.

use super::*;
use serde_json::from_value;

fn template(change: &[(&str, Value)]) -> MachineTemplate {
    let mut value = json!({
        "metadata": {"labels": {"group": "nodes"}},
        "spec": {
            "class": {"kind": "MachineClass", "name": "small"},
            "metadata": {"labels": {"a": "1"}},
            "drainTimeout": "1h",
        },
    });
    for (path, wish) in change {
        let mut at = &mut value;
        for part in path.split('/') {
            at = &mut at[part];
        }
        *at = wish.clone();
    }
    from_value(value).unwrap()
}

/// Gardener 10.3 scenario 40: labels, taints and timeouts are neutral, and all else is the server's.
#[test]
fn only_what_a_running_machine_cannot_take_over_is_another_server() {
    for (path, wish, is_same) in [
        ("spec/metadata/labels", json!({"a": "2"}), true),
        ("spec/metadata/annotations", json!({"a": "2"}), true),
        ("spec/metadata/name", json!("other"), false),
        ("spec/taints", json!([{"key": "a", "effect": "NoSchedule"}]), true),
        ("spec/nodeTemplate", json!({"metadata": {"labels": {"b": "1"}}}), true),
        ("spec/drainTimeout", json!("2h"), true),
        ("spec/creationTimeout", json!("2h"), true),
        ("spec/healthTimeout", json!("2h"), true),
        ("spec/deletionPolicy", json!("unsafe"), true),
        ("spec/class/name", json!("large"), false),
        ("spec/versions", json!({"kubelet": "1.31.0"}), false),
        ("metadata/labels", json!({"group": "nodes", "more": "1"}), false),
        ("metadata/annotations", json!({"kubectl.kubernetes.io/restartedAt": "now"}), false),
        (
            "metadata/annotations",
            json!({"pre-drain.delete.hook.machine.cluster.x-k8s.io/b": "me"}),
            true,
        ),
    ] {
        let changed = template(&[(path, wish)]);
        assert_eq!(is_same_server(&template(&[]), &changed), is_same, "{path}");
    }
}

#[test]
fn mirantis_labels_are_neutral_and_its_flavor_is_not() {
    let of = |value: Value| -> MachineTemplate {
        from_value(json!({"spec": {"providerSpec": {"value": value}}})).unwrap()
    };
    let one = of(json!({"flavor": "f", "nodeLabels": [{"key": "a", "value": "1"}]}));
    assert!(is_same_server(&one, &of(json!({"flavor": "f", "upgradeIndex": 3}))));
    assert!(!is_same_server(&one, &of(json!({"flavor": "g"}))));
}

#[test]
fn a_machine_takes_over_values_and_gives_up_what_is_gone() {
    let old = template(&[("spec/taints", json!([{"key": "t", "effect": "NoSchedule"}]))]);
    let mut machine = Machine::new("m", old.spec.clone());
    machine.metadata.uid = Some("u".into());
    machine.metadata.resource_version = Some("5".into());
    machine.spec.provider_id = Some("openstack:///1".into());
    assert_eq!(follow(&machine, &old), None, "a machine in step is not written");
    let hook = format!("{}backup", labels::HOOK_PRE_DRAIN);
    let new = template(&[
        ("spec/metadata/labels", json!({"b": "2"})),
        ("spec/drainTimeout", json!("2h")),
        ("metadata/annotations", json!({hook.as_str(): "me", "other": "rolls"})),
    ]);
    assert_eq!(
        follow(&machine, &new),
        Some(json!({
            "metadata": {"uid": "u", "resourceVersion": "5", "annotations": {hook: "me"}},
            "spec": {
                "metadata": {"labels": {"a": null, "b": "2"}},
                "taints": null,
                "drainTimeout": "2h",
            },
        }))
    );
}

#[test]
fn a_merge_patch_says_what_differs() {
    let from = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
    assert_eq!(merge_patch(&from, &from), json!({}));
    let to = json!({"b": {"c": 2, "f": 4}, "e": [1, 2]});
    assert_eq!(merge_patch(&from, &to), json!({"a": null, "b": {"d": null, "f": 4}, "e": [1, 2]}));
}
