//! Replays of what a real server answered, and laws that hold for every object.

use super::{ApplyError, Writer, apply, track};
use crate::schema::Schema;
use crate::schema::builtin::{self, tests::schema};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

fn steps() -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../testdata/apply.json"))
        .expect("the test data is JSON");
    all["steps"].as_array().expect("steps").clone()
}

fn schema_of(step: &Value) -> Schema {
    if step["group"] == json!("lab.example.com") {
        let custom: Value = serde_json::from_str(include_str!("../testdata/custom.json"))
            .expect("the test data is JSON");
        return Schema::from_crd(&custom["schema"]).expect("a good schema");
    }
    schema(step)
}

fn writer<'a>(manager: &'a str, api_version: &'a str, subresource: Option<&'a str>) -> Writer<'a> {
    let now = "2024-08-01T12:00:00.5Z".parse().expect("a time");
    Writer { manager, api_version, subresource, now }
}

/// What the API server does around an apply.
fn run(step: &Value) -> Result<Value, ApplyError> {
    let schema = schema_of(step);
    let text = |name: &str| step[name].as_str();
    let mut config = step["config"].clone();
    // The endpoint decides on what it writes.
    let foreign = if text("subresource") == Some("status") { "spec" } else { "status" };
    config.as_object_mut().expect("an object").remove(foreign);
    let version = config["apiVersion"].as_str().expect("a version").to_owned();
    let ctx = writer(text("manager").expect("a manager"), &version, text("subresource"));
    let live = step.get("before");
    let mut after = apply(&schema, live, &config, &ctx, step["force"] == json!(true))?;
    schema.prune(&mut after);
    schema.default(&mut after);
    builtin::default(text("group").expect("a group"), text("kind").expect("a kind"), &mut after);
    Ok(after)
}

#[test]
fn a_real_servers_applies_are_repeated() {
    for step in steps() {
        let name = &step["name"];
        match run(&step) {
            Ok(mut after) => {
                assert_eq!(step.get("error"), None, "{name} is refused");
                let owners = after["metadata"]["managedFields"].take();
                after["metadata"].as_object_mut().expect("metadata").remove("managedFields");
                let mut expect = step["after"].clone();
                schema_of(&step).default(&mut expect);
                assert_eq!(after, expect, "{name}");
                let owners: Vec<Value> =
                    owners.as_array().into_iter().flatten().map(owner).collect();
                let wanted = step["owners"].as_array().expect("owners");
                assert_eq!(owners.len(), wanted.len(), "{name}: {owners:?}");
                for one in wanted {
                    assert!(owners.contains(one), "{name}: {one} in {owners:#?}");
                }
            }
            Err(error) => {
                assert_eq!(json!(error.to_string()), step["error"], "{name}");
                if let ApplyError::Conflicts { causes } = error {
                    assert_eq!(json!(causes), step["causes"], "{name}");
                }
            }
        }
    }
}

fn owner(entry: &Value) -> Value {
    let mut out = json!({
        "manager": entry["manager"], "operation": entry["operation"], "fields": entry["fieldsV1"]});
    if let Some(part) = entry.get("subresource") {
        out["subresource"] = part.clone();
    }
    out
}

#[test]
fn managed_fields_cannot_be_applied() {
    let schema = schema(&json!({"group": "", "kind": "ConfigMap"}));
    let config = json!({"metadata": {"name": "x", "managedFields": [{"manager": "x"}]}});
    let refused =
        apply(&schema, None, &config, &writer("a", "v1", None), false).expect_err("refused");
    assert_eq!(refused.to_string(), "metadata.managedFields must be nil");
}

static CONFIG_MAP: LazyLock<Schema> =
    LazyLock::new(|| schema(&json!({"group": "", "kind": "ConfigMap"})));

fn tracked(old: Option<&Value>, new: Value, manager: &str) -> Value {
    let mut new = new;
    track(&CONFIG_MAP, old, &mut new, &writer(manager, "v1", None));
    new
}

#[test]
fn updates_move_fields_to_who_changed_them() {
    let made =
        tracked(None, json!({"metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}}), "maker");
    let mut next = made.clone();
    next["data"] = json!({"a": "9", "c": "3"});
    let changed = tracked(Some(&made), next, "editor");
    let owners: Vec<Value> = changed["metadata"]["managedFields"]
        .as_array()
        .expect("owners")
        .iter()
        .map(owner)
        .collect();
    assert_eq!(
        json!(owners),
        json!([
            {"manager": "editor", "operation": "Update", "fields": {"f:data": {"f:a": {}, "f:c": {}}}},
            {"manager": "maker", "operation": "Update", "fields": {"f:data": {}}}])
    );
}

#[test]
fn a_write_without_change_leaves_owners_and_times() {
    let made = tracked(None, json!({"metadata": {"name": "x"}, "data": {"a": "1"}}), "maker");
    let mut again = made.clone();
    let later = Writer {
        now: "2030-01-01T00:00:00Z".parse().expect("a time"),
        ..writer("other", "v1", None)
    };
    track(&CONFIG_MAP, Some(&made), &mut again, &later);
    assert_eq!(again, made);
    let stripped = json!({"metadata": {"name": "x"}, "data": {"a": "1"}});
    assert_eq!(
        tracked(Some(&made), stripped, "other"),
        made,
        "who does not send them does not lose them"
    );
}

#[test]
fn an_empty_list_of_owners_forgets_them_until_the_next_apply() {
    let made = tracked(None, json!({"metadata": {"name": "x"}, "data": {"k": "v"}}), "maker");
    for reset in [json!([]), json!([{}])] {
        let mut next = made.clone();
        next["metadata"]["managedFields"] = reset;
        let bare = tracked(Some(&made), next, "editor");
        assert_eq!(bare["metadata"].get("managedFields"), None);
        let mut next = bare.clone();
        next["data"]["k"] = json!("w");
        let still = tracked(Some(&bare), next, "editor");
        assert_eq!(still["metadata"].get("managedFields"), None);
    }
    let mut broken = made.clone();
    broken["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Frob"}]);
    let kept = tracked(Some(&made), broken, "editor");
    assert_eq!(kept["metadata"]["managedFields"], made["metadata"]["managedFields"]);
}

#[test]
fn duplicate_keys_are_owned_as_one() {
    let schema = schema(&json!({"group": "", "kind": "Node"}));
    let mut node = json!({"metadata": {"name": "n"}, "status": {"addresses": [
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"},
        {"type": "Hostname", "address": "n"}]}});
    schema.default(&mut node);
    let mut old = json!({"metadata": {"name": "n", "managedFields": [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:metadata": {"f:labels": {}}}}]}});
    schema.default(&mut old);
    track(&schema, Some(&old), &mut node, &writer("ccm", "v1", Some("status")));
    let owners = node["metadata"]["managedFields"].as_array().expect("owners");
    let mine = owners.iter().find(|one| one["manager"] == json!("ccm")).expect("an entry");
    assert_eq!(mine["subresource"], json!("status"));
    assert_eq!(
        mine["fieldsV1"]["f:status"]["f:addresses"],
        json!({".": {}, "k:{\"type\":\"Hostname\"}": {".": {}, "f:address": {}, "f:type": {}},
               "k:{\"type\":\"InternalIP\"}": {}})
    );
}

fn any_data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-e]", "[0-9]", 0..4).prop_map(|data| json!(data))
}

fn config(data: &Value) -> Value {
    let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    if data.as_object().is_some_and(|data| !data.is_empty()) {
        config["data"] = data.clone();
    }
    config
}

fn applied(live: Option<&Value>, data: &Value, manager: &str) -> Result<Value, ApplyError> {
    let mut after = apply(&CONFIG_MAP, live, &config(data), &writer(manager, "v1", None), false)?;
    CONFIG_MAP.prune(&mut after);
    Ok(after)
}

#[test]
fn kubectl_takes_over_what_it_applied_from_its_side() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut object = config(&json!({"a": "1", "b": "1"}));
    object["metadata"]["annotations"][LAST] = object.to_string().into();
    let made = tracked(None, object, "kubectl-client-side-apply");
    let wanted = json!({"a": "2", "b": "2"});

    let refused = applied(Some(&made), &wanted, "other").expect_err("it belongs to another");
    assert!(matches!(refused, ApplyError::Conflicts { causes } if causes.len() == 2));
    let after = applied(Some(&made), &wanted, "kubectl").expect("it was its own");
    let last: Value = after["metadata"]["annotations"][LAST]
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .expect("what was applied last");
    assert_eq!(last["data"], wanted, "the older way stays open");

    let mut changed = made.clone();
    changed["data"]["b"] = "3".into();
    let changed = tracked(Some(&made), changed, "editor");
    let refused = applied(Some(&changed), &wanted, "kubectl").expect_err("b is not as it left it");
    assert!(matches!(refused, ApplyError::Conflicts { causes } if causes.len() == 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(first in any_data(), second in any_data()) {
        let live = applied(None, &first, "a").expect("nobody else is there");
        let once = applied(Some(&live), &second, "a").expect("nobody else is there");
        let twice = applied(Some(&once), &second, "a").expect("nobody else is there");
        prop_assert_eq!(&once, &twice);
        // What was dropped is gone, what was applied is there.
        let data = once.get("data").cloned().unwrap_or_else(|| json!({}));
        prop_assert_eq!(data, second);
    }

    #[test]
    fn managers_of_different_fields_never_conflict(a in any_data(), b in any_data()) {
        let mut b = b;
        let only_b = b.as_object_mut().expect("a map");
        only_b.retain(|key, _| a.get(key).is_none());
        let live = applied(None, &a, "a").expect("nobody else is there");
        let both = applied(Some(&live), &b, "b").expect("no field in common");
        for (key, value) in a.as_object().expect("a map").iter().chain(b.as_object().expect("a map")) {
            prop_assert_eq!(&both["data"][key], value);
        }
        // When one of them leaves, the other's fields stay.
        let left = applied(Some(&both), &json!({}), "b").expect("no conflict");
        let data = left.get("data").cloned().unwrap_or_else(|| json!({}));
        prop_assert_eq!(data, a);
    }

    #[test]
    fn a_dropped_field_stays_while_somebody_else_owns_it(a in any_data()) {
        let live = applied(None, &a, "a").expect("nobody else is there");
        let shared = applied(Some(&live), &a, "b").expect("the same values");
        let dropped = applied(Some(&shared), &json!({}), "a").expect("no conflict");
        prop_assert_eq!(dropped.get("data"), shared.get("data"));
        let gone = applied(Some(&dropped), &json!({}), "b").expect("no conflict");
        let left = gone.get("data").and_then(Value::as_object).map_or(0, |data| data.len());
        prop_assert_eq!(left, 0);
    }

    #[test]
    fn whoever_changes_a_field_owns_it(a in any_data(), b in any_data()) {
        let mut first = config(&a);
        // Without any owner at all, nothing would be tracked.
        first["metadata"]["labels"] = json!({"l": "1"});
        let made = tracked(None, first, "maker");
        let mut next = made.clone();
        next["data"] = b.clone();
        let changed = tracked(Some(&made), next, "editor");
        let owners = changed["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        for (key, value) in b.as_object().expect("a map") {
            let wanted = if a.get(key) == Some(value) { "maker" } else { "editor" };
            let holders: Vec<&str> = owners
                .iter()
                .filter(|one| one["fieldsV1"]["f:data"].get(format!("f:{key}")).is_some())
                .filter_map(|one| one["manager"].as_str())
                .collect();
            prop_assert_eq!(holders, vec![wanted]);
        }
    }
}
