//! Built-in kinds against what a real server made of them.

use super::{default, validate};
use crate::schema::Schema;
use crate::schema::apply::{Writer, track};
use serde_json::{Value, json};

/// The schema of a built-in kind, as the API server has it.
pub(crate) fn schema(case: &Value) -> Schema {
    let (group, text, package) = match case["group"].as_str().expect("a group") {
        "" => ("core", include_str!("../../apiserver/data/openapi/core_v1.json"), "api.core"),
        "apps" => ("apps", include_str!("../../apiserver/data/openapi/apps_v1.json"), "api.apps"),
        "policy" => {
            ("policy", include_str!("../../apiserver/data/openapi/policy_v1.json"), "api.policy")
        }
        "coordination.k8s.io" => (
            "coordination",
            include_str!("../../apiserver/data/openapi/coordination.k8s.io_v1.json"),
            "api.coordination",
        ),
        "rbac.authorization.k8s.io" => (
            "rbac",
            include_str!("../../apiserver/data/openapi/rbac.authorization.k8s.io_v1.json"),
            "api.rbac",
        ),
        "storage.k8s.io" => (
            "storage",
            include_str!("../../apiserver/data/openapi/storage.k8s.io_v1.json"),
            "api.storage",
        ),
        "scheduling.k8s.io" => (
            "scheduling",
            include_str!("../../apiserver/data/openapi/scheduling.k8s.io_v1.json"),
            "api.scheduling",
        ),
        "events.k8s.io" => (
            "events",
            include_str!("../../apiserver/data/openapi/events.k8s.io_v1.json"),
            "api.events",
        ),
        "certificates.k8s.io" => (
            "certificates",
            include_str!("../../apiserver/data/openapi/certificates.k8s.io_v1.json"),
            "api.certificates",
        ),
        other => panic!("no schemas of {other}"),
    };
    let all: Value =
        serde_json::from_str(text).unwrap_or_else(|why| panic!("schemas of {group}: {why}"));
    let name = format!("io.k8s.{package}.v1.{}", case["kind"].as_str().expect("a kind"));
    let components = &all["components"]["schemas"];
    assert!(components.get(&name).is_some(), "{name} is in the schemas");
    // What one document refers to without having it stands in the core document.
    let mut components = components.clone();
    let core: Value =
        serde_json::from_str(include_str!("../../apiserver/data/openapi/core_v1.json"))
            .expect("core schemas");
    for (name, schema) in core["components"]["schemas"].as_object().expect("schemas") {
        components
            .as_object_mut()
            .expect("schemas")
            .entry(name.clone())
            .or_insert_with(|| schema.clone());
    }
    Schema::builtin(&components, &name)
}

fn cases(of: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../testdata/builtin.json"))
        .expect("the test data is JSON");
    all[of].as_array().expect("cases").clone()
}

fn parts(case: &Value) -> (&str, &str) {
    (case["group"].as_str().expect("a group"), case["kind"].as_str().expect("a kind"))
}

fn complete(schema: &Schema, case: &Value, object: &mut Value) {
    let (group, kind) = parts(case);
    schema.prune(object);
    schema.default(object);
    default(group, kind, object);
}

#[test]
fn new_objects_are_completed_as_by_a_real_server() {
    for case in cases("made") {
        let schema = schema(&case);
        let mut object = case["given"].clone();
        assert_eq!(schema.decode_errors(&object), None, "{}", case["name"]);
        complete(&schema, &case, &mut object);
        let (group, kind) = parts(&case);
        assert_eq!(validate(group, kind, &object, None), [], "{} {}", case["name"], object);
        assert_eq!(object, case["object"], "{}", case["name"]);
    }
}

#[test]
fn their_creator_owns_what_he_gave_and_what_was_defaulted() {
    for case in cases("made") {
        let schema = schema(&case);
        let mut object = case["given"].clone();
        complete(&schema, &case, &mut object);
        let version = object["apiVersion"].as_str().expect("a version").to_owned();
        let now = "2024-08-01T12:00:00Z".parse().expect("a time");
        let writer = Writer { manager: "me", api_version: &version, subresource: None, now };
        track(&schema, None, &mut object, &writer);
        let owners = &object["metadata"]["managedFields"];
        assert_eq!(owners[0]["fieldsV1"], case["managed"], "{}", case["name"]);
        if case["managed"].is_object() {
            assert_eq!(owners[0]["manager"], json!("me"));
            assert_eq!(owners[0]["time"], json!("2024-08-01T12:00:00Z"));
        }
    }
}

#[test]
fn bad_objects_are_refused_in_the_words_of_a_real_server() {
    for case in cases("refused") {
        let schema = schema(&case);
        let mut object = case["given"].clone();
        complete(&schema, &case, &mut object);
        let (group, kind) = parts(&case);
        let errors = validate(group, kind, &object, None);
        let words: Vec<String> =
            errors.iter().map(|e| format!("{} {}: {}", e.reason, e.field, e.message)).collect();
        assert_eq!(json!(words), case["errors"], "{}", case["name"]);
    }
}

#[test]
fn wrong_types_are_refused_in_the_words_of_gos_decoder() {
    for case in cases("undecodable") {
        assert_eq!(
            json!(schema(&case).decode_errors(&case["given"])),
            case["error"],
            "{}",
            case["name"]
        );
    }
}

fn update(group: &str, kind: &str, old: Value, new: &Value) -> Vec<String> {
    let case = json!({"group": group, "kind": kind});
    let schema = schema(&case);
    let mut before = old;
    complete(&schema, &case, &mut before);
    let mut after = before.clone();
    json_patch::merge(&mut after, new);
    complete(&schema, &case, &mut after);
    validate(group, kind, &after, Some(&before)).iter().map(ToString::to_string).collect()
}

#[test]
fn what_may_not_change_does_not() {
    let meta = json!({"name": "x"});
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}, "metadata": meta});
    let refused = update("", "Pod", pod.clone(), &json!({"spec": {"hostNetwork": true}}));
    assert!(
        refused[0].starts_with("spec: Forbidden: pod updates may not change fields other than"),
        "{refused:?}"
    );
    let images = json!({"spec": {"containers": [{"name": "c", "image": "i:2", "imagePullPolicy": "IfNotPresent"}]}});
    assert_eq!(update("", "Pod", pod, &images), Vec::<String>::new());

    let map = json!({"metadata": meta, "immutable": true, "data": {"a": "1"}});
    assert_eq!(
        update("", "ConfigMap", map.clone(), &json!({"data": {"a": "9"}})),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    assert_eq!(
        update("", "ConfigMap", map.clone(), &json!({"immutable": false})),
        ["immutable: Forbidden: field is immutable when `immutable` is set"]
    );
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(update("", "ConfigMap", map, &labels), Vec::<String>::new());

    assert_eq!(
        update("", "Secret", json!({"metadata": meta}), &json!({"type": "x"})),
        ["type: Invalid value: \"x\": field is immutable"]
    );
    let node = json!({"metadata": meta, "spec": {"providerID": "x://1", "podCIDR": "10.1.0.0/24"}});
    assert_eq!(
        update("", "Node", node.clone(), &json!({"spec": {"providerID": "x://2"}})),
        [
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"
        ]
    );
    assert_eq!(
        update("", "Node", node, &json!({"spec": {"podCIDRs": ["10.2.0.0/24"]}})),
        ["spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"]
    );
    let labels = json!({"labels": {"app": "d", "x": "y"}});
    let template =
        json!({"metadata": labels, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let deployment = json!({"metadata": meta, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}});
    assert_eq!(
        update(
            "apps",
            "Deployment",
            deployment,
            &json!({"spec": {"selector": {"matchLabels": {"x": "y"}}}})
        ),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"d\",\"x\":\"y\"}}: field is immutable"
        ]
    );
    assert_eq!(
        update("", "ConfigMap", json!({"metadata": meta}), &json!({"metadata": {"uid": "1"}})),
        ["metadata.uid: Invalid value: \"1\": field is immutable"]
    );
}

#[test]
fn an_uncordoned_node_has_no_trace_of_it() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    let case = json!({"group": "", "kind": "Node"});
    let schema = schema(&case);
    let mut after = node;
    after["spec"]["unschedulable"] = json!(false);
    complete(&schema, &case, &mut after);
    assert_eq!(after["spec"], json!({}));
}

#[test]
fn a_lease_given_up_keeps_its_empty_holder() {
    let case = json!({"group": "coordination.k8s.io", "kind": "Lease"});
    let mut lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    complete(&schema(&case), &case, &mut lease);
    assert_eq!(lease["spec"]["holderIdentity"], json!(""));
}

#[test]
fn times_are_read_and_written_as_go_does() {
    let case = json!({"group": "coordination.k8s.io", "kind": "Lease"});
    let schema = schema(&case);
    let lease = |time: &str| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    let layout = "2006-01-02T15:04:05.000000Z07:00";
    for (time, rest, wanted) in [
        ("2026-01-01T00:00:10.5Z", ".5Z", ".000000"),
        ("2026-01-01T00:00:10Z", "Z", ".000000"),
        ("2026-01-01T00:00:10.123456789Z", "789Z", "Z07:00"),
    ] {
        let text =
            format!("parsing time {time:?} as {layout:?}: cannot parse {rest:?} as {wanted:?}");
        assert_eq!(schema.decode_errors(&lease(time)), Some(text));
    }
    let mut good = lease("2026-01-01T02:00:10.000000+02:00");
    assert_eq!(schema.decode_errors(&good), None);
    complete(&schema, &case, &mut good);
    assert_eq!(good["spec"]["renewTime"], json!("2026-01-01T00:00:10.000000Z"));
}
