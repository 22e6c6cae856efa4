//! Patches against what a real server answered.

use super::{json as json_patch, merge, strategic};
use crate::schema::Schema;
use crate::schema::builtin::{self, tests::schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn data() -> Value {
    serde_json::from_str(include_str!("../testdata/strategic.json")).expect("the test data is JSON")
}

#[test]
fn strategic_patches_merge_as_on_a_real_server() {
    for case in data()["merged"].as_array().expect("cases") {
        let schema = schema(case);
        let mut after = strategic(&schema, &case["before"], &case["patch"]).expect("a good patch");
        schema.prune(&mut after);
        schema.default(&mut after);
        let (group, kind) =
            (case["group"].as_str().expect("text"), case["kind"].as_str().expect("text"));
        builtin::default(group, kind, &mut after);
        let mut expect = case["after"].clone();
        schema.default(&mut expect);
        assert_eq!(after, expect, "{}", case["patch"]);
    }
}

#[test]
fn bad_strategic_patches_get_the_real_servers_texts() {
    let data = data();
    let schema = schema(&json!({"group": "apps", "kind": "Deployment"}));
    for case in data["refused"].as_array().expect("cases") {
        let error =
            strategic(&schema, &data["deployment"], &case["patch"]).expect_err("a bad patch");
        assert_eq!(
            (json!(error.code), json!(error.message)),
            (case["code"].clone(), case["error"].clone())
        );
    }
    let error = strategic(&schema, &data["deployment"], &json!([])).expect_err("a list");
    assert_eq!(
        error.message,
        "json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}

#[test]
fn primitive_lists_lose_and_gain_elements() {
    let schema = schema(&json!({"group": "", "kind": "Pod"}));
    let pod = json!({"metadata": {"finalizers": ["e.x/0", "e.x/a", "e.x/b"]}});
    let gone = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["e.x/a", "e.x/b"]}});
    let after = strategic(&schema, &pod, &gone).expect("a good patch");
    assert_eq!(after, json!({"metadata": {"finalizers": ["e.x/0"]}}));
    let more = json!({"metadata": {"finalizers": ["e.x/m"]}});
    let after = strategic(&schema, &after, &more).expect("a good patch");
    assert_eq!(after["metadata"]["finalizers"].as_array().map(Vec::len), Some(2));
}

#[test]
fn kubectl_cordon_and_taint() {
    let schema = schema(&json!({"group": "", "kind": "Node"}));
    let node = json!({"spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}], "unschedulable": true}});
    let uncordon = json!({"spec": {"unschedulable": null}});
    let after = strategic(&schema, &node, &uncordon).expect("a good patch");
    assert_eq!(after["spec"].get("unschedulable"), None);
    let taints = json!({"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}});
    let after = strategic(&schema, &node, &taints).expect("a good patch");
    assert_eq!(after["spec"]["taints"], json!([{"key": "b", "effect": "NoSchedule"}]));
}

#[test]
fn json_patches_have_kubernetes_quirks() {
    let doc = json!({"data": {"a": "1", "b": "2"}, "list": [1]});
    let good = |patch: Value| json_patch(&doc, &patch).expect("a good patch");
    let bad = |patch: Value| json_patch(&doc, &patch).expect_err("a bad patch");
    assert_eq!(
        good(json!([{"op": "replace", "path": "/data/new", "value": "1"}]))["data"]["new"],
        json!("1")
    );
    assert_eq!(good(json!([{"op": "test", "path": "/data/zz", "value": null}])), doc);
    assert_eq!(
        good(json!([{"op": "move", "from": "/data/b", "path": "/data/d"}]))["data"]["d"],
        json!("2")
    );
    assert_eq!(good(json!([{"op": "add", "path": "/list/-", "value": 2}]))["list"], json!([1, 2]));
    for patch in [
        json!([{"op": "remove", "path": "/data/zz"}]),
        json!([{"op": "add", "path": "/spec/x/y", "value": 1}]),
        json!([{"op": "test", "path": "/data/a", "value": "no"}]),
        json!([{"op": "remove", "path": "/list/9"}]),
        json!([{"op": "frob", "path": "/data/a"}]),
    ] {
        let error = bad(patch);
        assert_eq!(error.code, 422);
        assert_eq!(error.message, "the server rejected our request due to an error in our request");
    }
    let error = bad(json!({"op": "add"}));
    assert_eq!(error.code, 400);
    let text = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    assert_eq!(error.message, text);
}

#[test]
fn merge_patches_remove_by_null() {
    let doc = json!({"data": {"a": "1", "b": "2"}});
    let after = merge(&doc, &json!({"data": {"a": null, "n": "7"}})).expect("a good patch");
    assert_eq!(after, json!({"data": {"b": "2", "n": "7"}}));
    let error = merge(&doc, &json!([])).expect_err("a list");
    let text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!((error.code, error.message.as_str()), (400, text));
}

fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..9).prop_map(Value::from),
        "[a-c]".prop_map(Value::from)
    ];
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]", inner, 0..3)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-c]", tree, 0..3)
        .prop_map(|m| Value::Object(m.into_iter().collect()))
}

/// The merge patch that leads from one object to another.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Value {
    let mut patch: Map<String, Value> =
        from.keys().map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in to {
        match (from.get(name), value) {
            (Some(old), new) if old == new => {
                patch.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(name.clone(), difference(old, new));
            }
            (_, new) => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    Value::Object(patch)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_difference_applied_gives_the_other_document(from in any_document(), to in any_document()) {
        let operations = serde_json::to_value(::json_patch::diff(&from, &to)).expect("a JSON patch");
        prop_assert_eq!(json_patch(&from, &operations).expect("it fits"), to.clone());
        let patch = difference(from.as_object().expect("an object"), to.as_object().expect("an object"));
        prop_assert_eq!(merge(&from, &patch).expect("it fits"), to.clone());
        // A schema that says nothing merges maps and replaces lists, as a merge patch does.
        let blank = Schema::builtin(&json!({}), "");
        prop_assert_eq!(strategic(&blank, &from, &patch).expect("it fits"), to);
    }
}
