//! What a CustomResourceDefinition must look like.

use super::{storage, text};
use crate::apiserver::registry::Kind;
use crate::schema::{FieldError, Schema};
use serde_json::{Value, json};

/// What is wrong with a definition, its schemas included.
pub(in crate::apiserver) fn mistakes(
    kind: &Kind,
    crd: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    if kind.storage != storage() {
        return Vec::new();
    }
    let mut errors = if old.is_none() { names(crd) } else { Vec::new() };
    if let Some(old) = old {
        for field in ["/group", "/scope", "/names/plural"] {
            let (now, was) = (crd["spec"].pointer(field), old["spec"].pointer(field));
            if let Some(value) = now.filter(|_| now != was) {
                let field = format!("spec{}", field.replace('/', "."));
                errors.push(FieldError::invalid(field, value, "field is immutable"));
            }
        }
    }
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &crd["spec"]["versions"], why));
    }
    if versions.is_empty() {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, why));
    }
    if crd["spec"]["preserveUnknownFields"] == true {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    for (at, version) in versions.iter().enumerate() {
        errors.extend(schema_mistakes(versions.len(), at, version));
        // Kubernetes tells of a single version's parts as if they were the whole's.
        let home =
            if versions.len() == 1 { "spec".to_owned() } else { format!("spec.versions[{at}]") };
        errors.extend(column_mistakes(&home, version));
        errors.extend(scale_mistakes(&home, &version["subresources"]["scale"]));
    }
    errors
}

/// Whether a path can be one, as `.spec.replicas`.
fn is_simple(path: &str) -> bool {
    path.starts_with('.') && path.contains('[') == path.contains(']')
}

fn column_mistakes(home: &str, version: &Value) -> Vec<FieldError> {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let mut errors = Vec::new();
    for (at, column) in columns.enumerate() {
        let field = |name: &str| format!("{home}.additionalPrinterColumns[{at}].{name}");
        let of_type = text(column, "type");
        if !matches!(of_type, "boolean" | "date" | "integer" | "number" | "string") {
            let why = "must be one of boolean,date,integer,number,string";
            errors.push(FieldError::invalid(field("type"), &json!(of_type), why));
        }
        let path = text(column, "jsonPath");
        if !is_simple(path) {
            let why = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field("JSONPath"), &json!(path), why));
        }
    }
    errors
}

fn scale_mistakes(home: &str, scale: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let paths = [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")];
    for (name, under) in paths.into_iter().filter(|_| scale.is_object()) {
        let path = text(scale, name);
        let field = format!("{home}.subresources.scale.{name}");
        if !is_simple(path) {
            let why = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field, &json!(path), why));
        } else if !path.starts_with(&format!("{under}.")) {
            let why = format!("should be a json path under {under}");
            errors.push(FieldError::invalid(field, &json!(path), &why));
        }
    }
    errors
}

fn names(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Vec::new();
    let name = text(&crd["metadata"], "name");
    if name != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group")) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &json!(name), why));
    }
    let group = text(spec, "group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|home| group == *home || group.ends_with(&format!(".{home}")));
    let approval = "api-approved.kubernetes.io";
    if protected && text(&crd["metadata"]["annotations"], approval).is_empty() {
        let field = format!("metadata.annotations[{approval}]");
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::required(field, why));
    }
    if !matches!(text(spec, "scope"), "Cluster" | "Namespaced") {
        let known = ["Cluster", "Namespaced"];
        errors.push(FieldError::unsupported("spec.scope", &spec["scope"], &known));
    }
    errors
}

fn schema_mistakes(count: usize, at: usize, version: &Value) -> Vec<FieldError> {
    // Kubernetes moves the schema of a single version to a field of the whole before it looks at it.
    let home = if count == 1 {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("spec.versions[{at}].schema.openAPIV3Schema")
    };
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
        return vec![FieldError::required(field, "")];
    }
    let Err(mut errors) = Schema::from_crd(schema) else { return Vec::new() };
    for error in &mut errors {
        let dot = if error.field.is_empty() || error.field.starts_with('[') { "" } else { "." };
        error.field = format!("{home}{dot}{}", error.field);
    }
    errors
}
