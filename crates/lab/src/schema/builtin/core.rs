//! Services, secrets, config maps, nodes, namespaces, volumes and leases.

use super::{Object, at_least, elements, immutable, meta, object, objects, set, text};
use crate::schema::error::FieldError;
use crate::schema::format;
use base64::Engine as _;
use serde_json::{Value, json};

/// Kubernetes: all of a secret's or config map's data together, in bytes.
const DATA_MAX: usize = 1024 * 1024;

pub(super) fn default_service(service: &mut Object) {
    let Some(spec) = object(service, "spec") else { return };
    set(spec, "sessionAffinity", "None");
    set(spec, "type", "ClusterIP");
    if spec.get("type") != Some(&json!("ExternalName")) {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in objects(spec, "ports") {
        set(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        set(port, "targetPort", number);
    }
}

pub(super) fn validate_service(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let headless = text(spec, "clusterIP") == "None";
    if elements(spec, "ports").is_empty() && !headless && text(spec, "type") != "ExternalName" {
        // Kubernetes names an address that cannot be read first and alone.
        if text(spec, "clusterIP").is_empty()
            || text(spec, "clusterIP").parse::<std::net::IpAddr>().is_ok()
        {
            errors.push(FieldError::required("spec.ports", ""));
        }
    }
    let many = elements(spec, "ports").len() > 1;
    for (i, port) in elements(spec, "ports").iter().enumerate() {
        let at = format!("spec.ports[{i}]");
        if many && text(port, "name").is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        }
        let number = &port["port"];
        if !number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
            errors.push(FieldError::invalid(
                format!("{at}.port"),
                number,
                "must be between 1 and 65535, inclusive",
            ));
        }
    }
    let address = text(spec, "clusterIP");
    if !address.is_empty() && !headless && address.parse::<std::net::IpAddr>().is_err() {
        let what = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &spec["clusterIP"], what));
    }
    meta::labels(spec.get("selector"), "spec.selector", errors);
    if let Some(old) = old.map(|old| &old["spec"])
        && !text(old, "clusterIP").is_empty()
        && text(old, "clusterIP") != address
        && text(spec, "type") != "ExternalName"
    {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &spec["clusterIPs"],
            "may not change once set",
        ));
    }
}

pub(super) fn default_secret(secret: &mut Object) {
    set(secret, "type", "Opaque");
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    if let Some(data) = object(secret, "data") {
        for (name, value) in plain {
            let value = value.as_str().unwrap_or_default();
            data.insert(name, base64::engine::general_purpose::STANDARD.encode(value).into());
        }
    }
}

pub(super) fn validate_secret(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    data_keys(new, &["data"], errors);
    let required: &[&str] = match text(new, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required.iter().filter(|key| new["data"].get(**key).is_none()) {
        errors.push(FieldError::required(format!("data[{key}]"), ""));
    }
    let account = "kubernetes.io/service-account.name";
    if text(new, "type") == "kubernetes.io/service-account-token"
        && text(&new["metadata"]["annotations"], account).is_empty()
    {
        errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
    }
    if let Some(old) = old {
        immutable("type", new.get("type"), old.get("type"), errors);
        frozen(new, old, &["data"], errors);
    }
}

pub(super) fn validate_config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    data_keys(new, &["data", "binaryData"], errors);
    if let Some(old) = old {
        frozen(new, old, &["data", "binaryData"], errors);
    }
}

fn data_keys(object: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for field in fields {
        for (key, value) in object.get(*field).and_then(Value::as_object).into_iter().flatten() {
            size += value.as_str().map_or(0, str::len);
            let path = format!("{field}[{key}]");
            if key.len() > 253 {
                errors.push(FieldError::invalid(
                    path,
                    &json!(key),
                    "must be no more than 253 bytes",
                ));
            } else if key.is_empty()
                || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            {
                let what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                            or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(path, &json!(key), what));
            }
        }
    }
    if size > DATA_MAX {
        errors.push(FieldError::too_long("[]", DATA_MAX as u64));
    }
}

/// What has been marked immutable stays as it is.
fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    if old.get("immutable") != Some(&json!(true)) {
        return;
    }
    let what = "field is immutable when `immutable` is set";
    let changed =
        ["immutable"].iter().chain(fields).filter(|name| new.get(**name) != old.get(**name));
    errors.extend(changed.map(|name| FieldError::forbidden(*name, what)));
}

pub(super) fn default_node(node: &mut Object) {
    let Some(spec) = object(node, "spec") else { return };
    if let Some(range) = spec.get("podCIDR").cloned() {
        set(spec, "podCIDRs", json!([range]));
    }
}

pub(super) fn validate_node(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, taint) in elements(spec, "taints").iter().enumerate() {
        // Kubernetes says `metadata` here.
        let path = format!("metadata.taints[{i}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.extend(
            meta::qualified(key)
                .iter()
                .map(|why| FieldError::invalid(format!("{path}.key"), &json!(key), why)),
        );
        let value = text(taint, "value");
        let wrong = meta::label_value(value);
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid(format!("{path}.value"), &json!(value), why)),
        );
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{path}.effect"), ""));
        } else if !known.contains(&effect) {
            errors.push(FieldError::unsupported(format!("{path}.effect"), &json!(effect), &known));
        }
        if seen.contains(&(key, effect)) {
            let mut error = FieldError::duplicate(&path, taint);
            error.message =
                format!("{}: taints must be unique by key and effect pair", error.message);
            errors.push(error);
        }
        seen.push((key, effect));
    }
    for (i, range) in elements(spec, "podCIDRs").iter().enumerate() {
        if !range.as_str().is_some_and(format::is_cidr) {
            let what = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("spec.podCIDRs[{i}]"), range, what));
        }
    }
    let Some(old) = old.map(|old| &old["spec"]) else { return };
    if !elements(old, "podCIDRs").is_empty()
        && elements(old, "podCIDRs") != elements(spec, "podCIDRs")
    {
        let what = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", what));
    }
    if !text(old, "providerID").is_empty() && text(old, "providerID") != text(spec, "providerID") {
        let what = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", what));
    }
}

pub(super) fn default_namespace(namespace: &mut Object) {
    let Some(meta) = object(namespace, "metadata") else { return };
    let Some(name) =
        meta.get("name").cloned().filter(|name| name.as_str().is_some_and(|n| !n.is_empty()))
    else {
        return;
    };
    if let Some(labels) = object(meta, "labels") {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

pub(super) fn default_volume(volume: &mut Object) {
    if let Some(spec) = object(volume, "spec") {
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
            set(path, "type", "");
        }
    }
    if let Some(status) = object(volume, "status") {
        set(status, "phase", "Pending");
    }
}

pub(super) fn default_claim(claim: &mut Object) {
    if let Some(spec) = object(claim, "spec") {
        set(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = object(claim, "status") {
        set(status, "phase", "Pending");
    }
}

pub(super) fn validate_csi_node(new: &Value, errors: &mut Vec<FieldError>) {
    let drivers = elements(&new["spec"], "drivers");
    for (at, driver) in drivers.iter().enumerate() {
        if drivers[..at].iter().any(|other| other["name"] == driver["name"]) {
            let field = format!("spec.drivers[{at}].name");
            errors.push(FieldError::duplicate(field, &driver["name"]));
        }
    }
}

pub(super) fn default_endpoints(endpoints: &mut Object) {
    for subset in objects(endpoints, "subsets") {
        for port in objects(subset, "ports") {
            set(port, "protocol", "TCP");
        }
    }
}

pub(super) fn validate_endpoints(new: &Value, errors: &mut Vec<FieldError>) {
    for (i, subset) in elements(new, "subsets").iter().enumerate() {
        let ports = elements(subset, "ports");
        for (j, port) in ports.iter().enumerate() {
            if ports.len() > 1 && text(port, "name").is_empty() {
                errors.push(FieldError::required(format!("subsets[{i}].ports[{j}].name"), ""));
            }
        }
    }
}

pub(super) fn validate_lease(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    at_least(spec, "leaseDurationSeconds", 1, "spec", errors);
    at_least(spec, "leaseTransitions", 0, "spec", errors);
}
