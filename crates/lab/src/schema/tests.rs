//! Whole objects through a schema, against what a real server answered.

use super::{FieldError, Schema};
use serde_json::{Value, json};

fn custom() -> Value {
    serde_json::from_str(include_str!("testdata/custom.json")).expect("the test data is JSON")
}

fn words(errors: &[FieldError]) -> Vec<String> {
    let mut all: Vec<String> =
        errors.iter().map(|e| format!("{} {}: {}", e.reason, e.field, e.message)).collect();
    // The real server walks maps in no order.
    all.sort();
    all
}

fn wanted(case: &Value) -> Vec<String> {
    let mut all: Vec<String> =
        serde_json::from_value(case["errors"].clone()).expect("a list of texts");
    all.sort();
    all
}

#[test]
fn objects_a_real_server_refused_are_refused_in_its_words() {
    let data = custom();
    let schema = Schema::from_crd(&data["schema"]).expect("a good schema");
    for case in data["invalid"].as_array().expect("cases") {
        let mut object = case["object"].clone();
        schema.prune(&mut object);
        schema.default(&mut object);
        assert_eq!(words(&schema.validate(&object, None)), wanted(case), "{}", case["object"]);
    }
}

#[test]
fn objects_a_real_server_took_come_out_alike() {
    let data = custom();
    let schema = Schema::from_crd(&data["schema"]).expect("a good schema");
    for case in data["good"].as_array().expect("cases") {
        let mut object = case["given"].clone();
        assert_eq!(
            json!(
                schema
                    .unknown_fields(&object)
                    .iter()
                    .map(|f| format!("unknown field \"{f}\""))
                    .collect::<Vec<_>>()
            ),
            case["warnings"]
        );
        schema.prune(&mut object);
        schema.default(&mut object);
        assert_eq!(object["spec"], case["spec"]);
        assert_eq!(words(&schema.validate(&object, None)), Vec::<String>::new());
    }
}

#[test]
fn schemas_a_real_server_refused_are_refused() {
    for case in custom()["bad_schemas"].as_array().expect("cases") {
        let errors = Schema::from_crd(&case["schema"]).err().unwrap_or_default();
        // Regular expressions are another library's, with its own words for what is wrong.
        let plain = |all: Vec<String>| -> Vec<String> {
            all.into_iter()
                .map(|e| e.split(": error parsing regexp").next().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(plain(words(&errors)), plain(wanted(case)), "{}", case["schema"]);
    }
}

/// A schema with these properties of `spec`.
fn spec(properties: &Value) -> Schema {
    let spec = json!({"type": "object", "properties": properties});
    Schema::from_crd(&json!({"type": "object", "properties": {"spec": spec}}))
        .expect("a good schema")
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "e.x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec})
}

fn check(schema: &Schema, old: Option<&Value>, new: &Value, expect: &[&str]) {
    let old = old.map(object);
    let errors = schema.validate(&object(new), old.as_ref());
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expect, "{new}");
}

#[test]
fn what_was_wrong_before_is_no_reason_to_refuse_a_change_elsewhere() {
    let rule = json!([{"rule": "self.size() > 3", "message": "too short"}]);
    let schema = spec(&json!({
        "a": {"type": "string", "maxLength": 3}, "b": {"type": "string"},
        "c": {"type": "string", "x-kubernetes-validations": rule}}));
    let old = json!({"a": "longvalue", "b": "1", "c": "x"});
    check(&schema, Some(&old), &json!({"a": "longvalue", "b": "2", "c": "x"}), &[]);
    let other = json!({"a": "otherlong", "b": "1", "c": "abcd"});
    let skipped = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                   invalid; correct the existing errors to complete validation";
    check(
        &schema,
        Some(&old),
        &other,
        &["spec.a: Too long: may not be more than 3 bytes", skipped],
    );
    check(
        &schema,
        Some(&old),
        &json!({"a": "a", "c": "y"}),
        &["spec.c: Invalid value: \"y\": too short"],
    );
}

#[test]
fn rules_about_changes_follow_the_elements_of_a_list_map() {
    let rules = json!([{"rule": "self.v == oldSelf.v", "message": "v is fixed"}]);
    let schema = spec(&json!({"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "x-kubernetes-validations": rules,
                  "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}}));
    let old = json!({"list": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]});
    check(
        &schema,
        Some(&old),
        &json!({"list": [{"k": "b", "v": 2}, {"k": "a", "v": 1}, {"k": "c", "v": 9}]}),
        &[],
    );
    let changed = json!({"list": [{"k": "b", "v": 3}]});
    check(&schema, Some(&old), &changed, &["spec.list[0]: Invalid value: v is fixed"]);
}

#[test]
fn an_unchanged_value_is_still_held_to_rules_about_changes() {
    let rules = json!([{"rule": "self > oldSelf", "message": "must grow"}]);
    let schema = spec(&json!({"n": {"type": "integer", "x-kubernetes-validations": rules}}));
    let old = json!({"n": 1});
    check(&schema, Some(&old), &json!({"n": 2}), &[]);
    for _ in 0..2 {
        check(&schema, Some(&old), &old, &["spec.n: Invalid value: 1: must grow"]);
    }
    check(&schema, None, &old, &[]);
}

#[test]
fn rules_know_kubernetes_types_and_functions() {
    for (property, rule, good, bad) in [
        (
            json!({"type": "string", "format": "date-time"}),
            "self < timestamp('2030-01-01T00:00:00Z')",
            json!("2024-01-01T00:00:00Z"),
            json!("2031-01-01T00:00:00Z"),
        ),
        (
            json!({"type": "string", "format": "duration"}),
            "self <= duration('1h')",
            json!("30m"),
            json!("2h"),
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            "self != 0 && self != '0%'",
            json!("25%"),
            json!(0),
        ),
        (
            json!({"type": "string"}),
            "quantity(self).isLessThan(quantity('1Gi'))",
            json!("500Mi"),
            json!("2Gi"),
        ),
        (json!({"type": "string"}), "self.matches('^[a-z]+$')", json!("abc"), json!("a1")),
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            "self.all(x, x > 0) && self.isSorted()",
            json!([1, 2]),
            json!([2, 1]),
        ),
        (
            json!({"type": "object", "properties": {"a-b": {"type": "integer"}, "c_d": {"type": "integer"}, "e__f": {"type": "integer"}}}),
            "self.a__dash__b < self.c_d && self.e__underscores__f > 0",
            json!({"a-b": 1, "c_d": 2, "e__f": 1}),
            json!({"a-b": 3, "c_d": 2, "e__f": 1}),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "self.all(k, k.startsWith('e.x/'))",
            json!({"e.x/a": "1"}),
            json!({"a": "1"}),
        ),
        (json!({"type": "number"}), "self < 1.5", json!(1), json!(2)),
        (
            json!({"type": "string"}),
            "self.lowerAscii() == self && url('http://' + self).getHost() == self",
            json!("host"),
            json!("Host"),
        ),
    ] {
        let mut property = property;
        property["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
        let schema = spec(&json!({"f": property}));
        let wrong = |value: &Value| schema.validate(&object(&json!({"f": value})), None);
        assert_eq!(wrong(&good), [], "{rule} for {good}");
        let errors = wrong(&bad);
        assert!(
            errors.len() == 1 && errors[0].message.ends_with("no"),
            "{rule} for {bad}: {errors:?}"
        );
    }
}

#[test]
fn optional_old_self_is_asked_on_creation_too() {
    let rules = json!([{
        "rule": "!oldSelf.hasValue() ? self == 'new' : true", "optionalOldSelf": true, "message": "begin with new"}]);
    let schema = spec(&json!({"phase": {"type": "string", "x-kubernetes-validations": rules}}));
    check(&schema, None, &json!({"phase": "new"}), &[]);
    check(
        &schema,
        None,
        &json!({"phase": "old"}),
        &["spec.phase: Invalid value: \"old\": begin with new"],
    );
    check(&schema, Some(&json!({"phase": "new"})), &json!({"phase": "old"}), &[]);
}

#[test]
fn whole_floats_are_integers() {
    let schema = spec(&json!({"n": {"type": "integer"}, "f": {"type": "number"}}));
    let mut given = object(&json!({"n": 3.0, "f": 3.5}));
    schema.prune(&mut given);
    assert_eq!(given["spec"], json!({"n": 3, "f": 3.5}));
}

#[test]
fn metadata_of_custom_resources_is_decoded_like_any() {
    let schema = spec(&json!({}));
    let object = |meta: Value| json!({"apiVersion": "e.x/v1", "kind": "X", "metadata": meta});
    for (meta, error) in [
        (
            json!({"labels": "str"}),
            "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string",
        ),
        (
            json!({"labels": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ] {
        assert_eq!(schema.decode_errors(&object(meta)).as_deref(), Some(error));
    }
    let found = schema.unknown_fields(
        &json!({"bar": 1, "metadata": {"name": "x", "foo": 1}, "spec": {"nope": 1}}),
    );
    assert_eq!(found, ["metadata.foo", "bar", "spec.nope"]);
}
