//! Roles and their bindings, and certificate signing requests.

use super::{Object, elements, immutable, objects, set, text};
use crate::schema::error::FieldError;
use base64::Engine as _;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Kubernetes: shortest life of a certificate that may be asked for, in seconds.
const SHORTEST_LIFE: i64 = 600;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn default_binding(binding: &mut Object) {
    if let Some(role) = binding.get_mut("roleRef").and_then(Value::as_object_mut) {
        set_if_empty(role, "apiGroup", RBAC);
    }
    for subject in objects(binding, "subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            set(subject, "apiGroup", RBAC);
        }
    }
}

fn set_if_empty(object: &mut Object, name: &str, value: &str) {
    if object.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
        object.insert(name.to_owned(), value.into());
    }
}

pub(super) fn validate_role(kind: &str, new: &Value, errors: &mut Vec<FieldError>) {
    for (i, rule) in elements(new, "rules").iter().enumerate() {
        let at = format!("rules[{i}]");
        if elements(rule, "verbs").is_empty() {
            errors.push(FieldError::required(
                format!("{at}.verbs"),
                "verbs must contain at least one value",
            ));
        }
        if !elements(rule, "nonResourceURLs").is_empty() {
            if kind == "Role" {
                let what = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(
                    format!("{at}.nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    what,
                ));
            }
            continue;
        }
        if elements(rule, "apiGroups").is_empty() {
            let what = "resource rules must supply at least one api group";
            errors.push(FieldError::required(format!("{at}.apiGroups"), what));
        }
        if elements(rule, "resources").is_empty() {
            let what = "resource rules must supply at least one resource";
            errors.push(FieldError::required(format!("{at}.resources"), what));
        }
    }
}

pub(super) fn validate_binding(
    kind: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let role = &new["roleRef"];
    if text(role, "apiGroup") != RBAC {
        errors.push(FieldError::unsupported("roleRef.apiGroup", &role["apiGroup"], &[RBAC]));
    }
    let known: &[&str] =
        if kind == "ClusterRoleBinding" { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
    if !known.contains(&text(role, "kind")) {
        errors.push(FieldError::unsupported("roleRef.kind", &role["kind"], known));
    }
    if text(role, "name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (i, subject) in elements(new, "subjects").iter().enumerate() {
        let at = format!("subjects[{i}]");
        if text(subject, "name").is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if kind == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                    errors.push(FieldError::required(format!("{at}.namespace"), ""));
                }
            }
            "User" | "Group" => {
                if text(subject, "apiGroup") != RBAC {
                    errors.push(FieldError::unsupported(
                        format!("{at}.apiGroup"),
                        &subject["apiGroup"],
                        &[RBAC],
                    ));
                }
            }
            other => {
                let known = ["ServiceAccount", "User", "Group"];
                errors.push(FieldError::unsupported(format!("{at}.kind"), &json!(other), &known));
            }
        }
    }
    if let Some(old) = old
        && old["roleRef"] != *role
    {
        // As Go prints the type inside the server.
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            role["apiGroup"], role["kind"], role["name"]
        );
        errors.push(FieldError::invalid_text("roleRef", &shown, "cannot change roleRef"));
    }
}

pub(super) fn validate_request(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if let Some(old) = old {
        immutable("spec", Some(spec), old.get("spec"), errors);
        return;
    }
    let request =
        base64::engine::general_purpose::STANDARD.decode(text(spec, "request")).unwrap_or_default();
    if !String::from_utf8_lossy(&request).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        let what = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid("spec.request", &spec["request"], what));
    }
    if elements(spec, "usages").is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    for (i, usage) in elements(spec, "usages").iter().enumerate() {
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            errors.push(FieldError::unsupported(format!("spec.usages[{i}]"), usage, &USAGES));
        }
        if elements(spec, "usages")[..i].contains(usage) {
            errors.push(FieldError::duplicate(format!("spec.usages[{i}]"), usage));
        }
    }
    let signer = text(spec, "signerName");
    if signer == "kubernetes.io/legacy-unknown" {
        let what = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid("spec.signerName", &json!(signer), what));
    } else if !signer
        .split_once('/')
        .is_some_and(|(domain, path)| domain.contains('.') && !path.is_empty())
    {
        let what =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", &json!(signer), what));
    }
    if spec["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < SHORTEST_LIFE) {
        let what = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            &spec["expirationSeconds"],
            what,
        ));
    }
}
