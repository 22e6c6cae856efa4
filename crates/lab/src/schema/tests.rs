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
        // What needs CEL's type checker comes out when a rule is evaluated, not before.
        if case["errors"].to_string().contains("Rule\\\"") && errors.is_empty() {
            continue;
        }
        let first = |all: &[String]| all.first().map(|e| e.chars().take(90).collect::<String>());
        assert_eq!(first(&words(&errors)), first(&wanted(case)), "{}", case["schema"]);
    }
}
