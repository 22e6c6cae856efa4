//! The CustomResourceDefinitions of all kinds.

use crate::{Cluster, Machine, MachineClass, MachineDeployment, MachineSet, rules};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::{Map, Value};

/// The CustomResourceDefinitions of all kinds, in the order of their names.
///
/// Their schemas know no null: clients tell an absent field from a null one, and the autoscaler fails
/// on the latter.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        Cluster::crd(),
        MachineClass::crd(),
        MachineDeployment::crd(),
        with_rules_of_changes(Machine::crd()),
        MachineSet::crd(),
    ]
    .into_iter()
    .map(tidied)
    .collect()
}

fn with_rules_of_changes(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for root in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        for (path, rule, message) in rules::of_changes() {
            let place = path.split('.').fold(&mut *root, |schema, name| {
                let properties = schema.properties.as_mut();
                properties.and_then(|it| it.get_mut(name)).expect("a Machine has this field")
            });
            let rule = ValidationRule { rule, message: Some(message), ..ValidationRule::default() };
            place.x_kubernetes_validations.get_or_insert_default().push(rule);
        }
    }
    crd
}

fn tidied(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).expect("a CustomResourceDefinition is JSON");
    if let Some(versions) = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for version in versions {
            if let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") {
                tidy(root, false);
                let about = root.pointer("/properties/spec/description").cloned();
                if let (Some(about), Some(root)) = (about, root.as_object_mut()) {
                    root.insert("description".to_owned(), about);
                }
            }
        }
    }
    serde_json::from_value(value).expect("tidying a schema leaves it a schema")
}

/// Takes out what Rust's types say and Kubernetes does not want: null as a value, formats it does not
/// know, and defaults inside of a status, which is never defaulted but seen.
fn tidy(schema: &mut Value, in_status: bool) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("nullable");
    if in_status {
        schema.remove("default");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        // The lines of a comment are no lines of a text; only its paragraphs are.
        let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    match schema.get("format").and_then(Value::as_str) {
        Some("uint32" | "uint16" | "uint8") => set(schema, "format", "int32"),
        Some("uint64") => set(schema, "format", "int64"),
        _ => {}
    }
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema.get_mut(key) {
            tidy(inner, in_status);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            // Go writes `creationTimestamp: null` into every template.
            if name != "creationTimestamp" {
                tidy(property, in_status || name == "status");
            }
        }
    }
}

fn set(schema: &mut Map<String, Value>, key: &str, value: &str) {
    schema.insert(key.to_owned(), value.into());
}
