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
        with_update_rules(Machine::crd()),
        MachineSet::crd(),
    ]
    .into_iter()
    .map(tidied)
    .collect()
}

/// A Machine's spec is also the spec of a template, which may change; hence the rules about changes are
/// not part of the type.
fn with_update_rules(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let root = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let spec = root.and_then(|root| root.properties.as_mut()?.get_mut("spec"));
        let rules = rules::MACHINE_UPDATE.iter().map(|rule| ValidationRule {
            rule: rule.rule.to_owned(),
            message: Some(rule.message.to_owned()),
            ..ValidationRule::default()
        });
        if let Some(spec) = spec {
            spec.x_kubernetes_validations.get_or_insert_default().extend(rules);
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
