//! Validation of `metadata`, and of the names Kubernetes gives rules for.

use crate::schema::error::FieldError;
use serde_json::{Value, json};

/// Kubernetes: longest name of a label value, a label's name and an RFC 1123 label, in bytes.
const LABEL_MAX: usize = 63;
/// Kubernetes: longest RFC 1123 subdomain, in bytes.
const SUBDOMAIN_MAX: usize = 253;
/// Kubernetes: all annotations of an object together, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a name, in Kubernetes' words; nothing for a good one.
pub type NameRule = dyn Fn(&str) -> Vec<String>;

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn wrapped(text: &str, inner: impl Fn(u8) -> bool, edge: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.iter().all(|b| inner(*b))
        && edge(bytes[0])
        && edge(bytes[bytes.len() - 1])
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    wrapped(text, |b| lower(b) || b == b'-', lower)
}

/// RFC 1123 subdomain: the names of most kinds.
pub fn subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        wrong.push(too_long(SUBDOMAIN_MAX));
    }
    if !name.split('.').all(is_label) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// RFC 1123 label: namespaces, containers.
pub fn label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    // Kubernetes: a name that would do as a subdomain is told what it lacks as a label.
    if name.contains('.') && subdomain(name).is_empty() {
        wrong.push("must not contain dots".to_owned());
    } else if !is_label(name) {
        wrong.push(LABEL.to_owned());
    }
    wrong
}

/// RFC 1035 label: services.
pub fn label_1035(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    if !is_label(name) || !name.as_bytes()[0].is_ascii_lowercase() {
        wrong.push(LABEL_1035.to_owned());
    }
    wrong
}

/// Names of RBAC objects: anything that can stand in a URL path.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Keys of labels, annotations and taints: a name with an optional DNS prefix.
pub fn qualified(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            let what = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {what}")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !wrapped(name, word, |b| b.is_ascii_alphanumeric()) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

fn word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

/// Values of labels.
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    if !value.is_empty() && !wrapped(value, word, |b| b.is_ascii_alphanumeric()) {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// A map of labels at `path`.
pub(super) fn labels(labels: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(qualified(key).iter().map(|why| FieldError::invalid(path, &json!(key), why)));
        let text = value.as_str().unwrap_or_default();
        errors.extend(label_value(text).iter().map(|why| FieldError::invalid(path, value, why)));
    }
}

fn annotations(given: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
        let path = "metadata.annotations";
        let wrong = qualified(&key.to_lowercase());
        errors.extend(wrong.iter().map(|why| FieldError::invalid(path, &json!(key), why)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_MAX as u64));
    }
}

/// All of `metadata`. An update is held to its immutable fields only where something changed.
pub(crate) fn validate(new: &Value, old: Option<&Value>, rule: &NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = &new["metadata"];
    if let Some(old) = old {
        immutable(meta, &old["metadata"], &mut errors);
        if old["metadata"] == *meta {
            return errors;
        }
    }
    let text = |name: &str| meta.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, prefix) = (text("name"), text("generateName"));
    if !prefix.is_empty() {
        let trimmed = prefix.strip_suffix('-').unwrap_or(prefix);
        // A long prefix is cut before the random part.
        let cut: String = trimmed.chars().take(LABEL_MAX).collect();
        let path = "metadata.generateName";
        errors.extend(rule(&cut).iter().map(|why| FieldError::invalid(path, &json!(prefix), why)));
    }
    if name.is_empty() && prefix.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if !name.is_empty() {
        errors.extend(
            rule(name).iter().map(|why| FieldError::invalid("metadata.name", &json!(name), why)),
        );
    }
    labels(meta.get("labels"), "metadata.labels", &mut errors);
    annotations(meta.get("annotations"), &mut errors);
    owners(meta, &mut errors);
    finalizers(meta, &mut errors);
    errors
}

fn immutable(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        let given = new.get(field).unwrap_or(&Value::Null);
        let kept = old.get(field).unwrap_or(&Value::Null);
        let unset = given.is_null() && field != "deletionTimestamp";
        if given != kept && !unset {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                given,
                "field is immutable",
            ));
        }
    }
}

fn owners(meta: &Value, errors: &mut Vec<FieldError>) {
    let Some(owners) = meta.get("ownerReferences").and_then(Value::as_array) else { return };
    let path = "metadata.ownerReferences";
    let mut controllers: Vec<String> = Vec::new();
    for owner in owners {
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_empty() {
                let what = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                errors.push(FieldError::invalid(
                    format!("{path}.{field}"),
                    &json!(text(field)),
                    what,
                ));
            }
        }
        if owner.get("controller") == Some(&json!(true)) {
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
    }
    if let [first, second, ..] = &controllers[..] {
        let what = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        let shown: Vec<String> = owners.iter().map(owner_text).collect();
        errors.push(FieldError::invalid_text(path, &format!("[{}]", shown.join(",")), &what));
    }
}

/// An owner reference in the field order of Go's type.
fn owner_text(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let given =
        fields.iter().filter_map(|name| owner.get(*name).map(|value| format!("{name:?}:{value}")));
    format!("{{{}}}", given.collect::<Vec<_>>().join(","))
}

fn finalizers(meta: &Value, errors: &mut Vec<FieldError>) {
    for (i, value) in
        meta.get("finalizers").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let name = value.as_str().unwrap_or_default();
        let path = format!("metadata.finalizers[{i}]");
        errors.extend(qualified(name).iter().map(|why| FieldError::invalid(&path, value, why)));
    }
}

/// Built-in kinds take no plain finalizers but Kubernetes' own; custom kinds do (Kubernetes:
/// `ValidateKubeFinalizerName` is asked for built-in kinds alone).
pub(super) fn standard_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let names = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    for (i, value) in names.into_iter().flatten().enumerate() {
        let name = value.as_str().unwrap_or_default();
        let is_standard = matches!(name, "orphan" | "foregroundDeletion" | "kubernetes");
        if qualified(name).is_empty() && !name.contains('/') && !is_standard {
            let what = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{i}]"), value, what));
        }
    }
}

/// A selector at `path` (`matchLabels`, `matchExpressions`).
pub(super) fn selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    labels(selector.get("matchLabels"), &format!("{path}.matchLabels"), errors);
    for (i, one) in
        selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let at = format!("{path}.matchExpressions[{i}]");
        let count = one.get("values").and_then(Value::as_array).map_or(0, Vec::len);
        match one.get("operator").and_then(Value::as_str).unwrap_or_default() {
            "In" | "NotIn" if count == 0 => {
                let what = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{at}.values"), what));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let what = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{at}.values"), what));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let what = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{at}.operator"), &json!(other), what));
            }
        }
        let key = one.get("key").and_then(Value::as_str).unwrap_or_default();
        let at = format!("{at}.key");
        errors.extend(qualified(key).iter().map(|why| FieldError::invalid(&at, &json!(key), why)));
    }
}
