//! Pods: defaults, validation and what may change in them.

use super::{Object, elements, meta, objects, set, template, text};
use crate::schema::error::{Cause, FieldError};
use crate::schema::quantity;
use serde_json::{Value, json};

pub(super) fn default(pod: &mut Object) {
    let Some(spec) = super::object(pod, "spec") else { return };
    template::default_spec(spec);
    set(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            request_limits(container);
        }
    }
}

/// Kubernetes: a limit without a request is also the request.
fn request_limits(container: &mut Object) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = super::object(resources, "requests") {
        for (name, limit) in limits {
            set(requests, &name, limit);
        }
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    match old.map(|old| &old["spec"]) {
        None => validate_spec(spec, "spec", errors),
        Some(old) if old != spec => {
            validate_spec(spec, "spec", errors);
            if !may_become(old, spec) {
                errors.push(FieldError::forbidden("spec", CHANGES));
            }
        }
        Some(_) => {}
    }
}

const CHANGES: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Whether a running pod's spec may be changed like that.
fn may_become(old: &Value, new: &Value) -> bool {
    let kept =
        elements(old, "tolerations").iter().all(|one| elements(new, "tolerations").contains(one));
    kept && rigid(old) == rigid(new)
}

/// The part of a spec that never changes.
fn rigid(spec: &Value) -> Value {
    let mut rigid = spec.clone();
    let Some(fields) = rigid.as_object_mut() else { return rigid };
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(name);
    }
    for list in ["containers", "initContainers"] {
        objects(fields, list).for_each(|container| {
            container.remove("image");
        });
    }
    rigid
}

/// A template that stands alone.
pub(super) fn validate_template(object: &Value, errors: &mut Vec<FieldError>) {
    let template = &object["template"];
    meta::labels(template["metadata"].get("labels"), "template.metadata.labels", errors);
    validate_spec(&template["spec"], "template.spec", errors);
}

/// The spec of a pod or of a template.
pub(super) fn validate_spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let volumes: Vec<&str> =
        elements(spec, "volumes").iter().map(|volume| text(volume, "name")).collect();
    let mut seen: Vec<&str> = Vec::new();
    for (i, name) in volumes.iter().enumerate() {
        validate_name(name, &format!("{path}.volumes[{i}].name"), &mut seen, errors);
    }
    if elements(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (i, container) in elements(spec, list).iter().enumerate() {
            let at = format!("{path}.{list}[{i}]");
            validate_name(text(container, "name"), &format!("{at}.name"), &mut names, errors);
            validate_container(container, &volumes, &at, errors);
        }
    }
    let policy = text(spec, "restartPolicy");
    if !["Always", "OnFailure", "Never"].contains(&policy) {
        let known = ["Always", "OnFailure", "Never"];
        errors.push(FieldError::unsupported(
            format!("{path}.restartPolicy"),
            &json!(policy),
            &known,
        ));
    }
    meta::labels(spec.get("nodeSelector"), &format!("{path}.nodeSelector"), errors);
    super::at_least(spec, "terminationGracePeriodSeconds", 0, path, errors);
    validate_tolerations(spec, path, errors);
}

fn validate_name<'a>(
    name: &'a str,
    path: &str,
    seen: &mut Vec<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    errors.extend(meta::label(name).iter().map(|why| FieldError::invalid(path, &json!(name), why)));
    if seen.contains(&name) {
        errors.push(FieldError::duplicate(path, &json!(name)));
    }
    seen.push(name);
}

fn validate_container(
    container: &Value,
    volumes: &[&str],
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (i, port) in elements(container, "ports").iter().enumerate() {
        let number = &port["containerPort"];
        let at = format!("{path}.ports[{i}].containerPort");
        if number.as_i64().unwrap_or_default() == 0 {
            errors.push(FieldError::required(at, ""));
        } else if !number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
            errors.push(FieldError::invalid(at, number, "must be between 1 and 65535, inclusive"));
        }
    }
    for (i, variable) in elements(container, "env").iter().enumerate() {
        if text(variable, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{i}].name"), ""));
        }
    }
    for (i, mount) in elements(container, "volumeMounts").iter().enumerate() {
        let name = text(mount, "name");
        if !volumes.contains(&name) {
            errors.push(FieldError {
                reason: Cause::NotFound,
                field: format!("{path}.volumeMounts[{i}].name"),
                message: format!("Not found: {name:?}"),
            });
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{path}.volumeMounts[{i}].mountPath"), ""));
        }
    }
    validate_resources(&container["resources"], path, errors);
}

fn validate_resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for kind in ["limits", "requests"] {
        for (name, amount) in resources.get(kind).and_then(Value::as_object).into_iter().flatten() {
            let parsed = amount.as_str().and_then(quantity::parse);
            if parsed.is_some_and(|q| q.is_negative()) {
                let at = format!("{path}.resources.{kind}[{name}]");
                errors.push(FieldError::invalid(at, amount, "must be greater than or equal to 0"));
            }
            let limit = resources["limits"]
                .get(name)
                .filter(|_| kind == "requests")
                .and_then(Value::as_str);
            if let Some(limit) = limit
                && parsed > quantity::parse(limit)
            {
                let what = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(
                    format!("{path}.resources.requests"),
                    amount,
                    &what,
                ));
            }
        }
    }
}

fn validate_tolerations(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (i, toleration) in elements(spec, "tolerations").iter().enumerate() {
        let at = format!("{path}.tolerations[{i}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let wrong = if key.is_empty() { Vec::new() } else { meta::qualified(key) };
        errors.extend(
            wrong.iter().map(|why| FieldError::invalid(format!("{at}.key"), &json!(key), why)),
        );
        if key.is_empty() && operator != "Exists" {
            let what = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(format!("{at}.operator"), &json!(operator), what));
        }
        if operator == "Exists" && !text(toleration, "value").is_empty() {
            let what = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(format!("{at}.operator"), &toleration["value"], what));
        }
        if !["", "Exists", "Equal"].contains(&operator) {
            let at = format!("{at}.operator");
            errors.push(FieldError::unsupported(at, &json!(operator), &["Equal", "Exists"]));
        }
    }
}
