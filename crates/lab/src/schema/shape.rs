//! Unknown fields, pruning and defaulting: the shape of an object as its schema wants it.

use super::node::{Arena, Id, Node, Type};
use super::quantity;
use serde_json::{Map, Value};

/// Paths of fields that the schema does not know.
pub(super) fn unknown(arena: &Arena, id: Id, value: &Value, path: &str, found: &mut Vec<String>) {
    let node = arena.get(id);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match child(node, name) {
                    Child::Known(id) => unknown(arena, id, value, &at, found),
                    Child::Free => {}
                    Child::Unknown => found.push(at),
                }
            }
        }
        Value::Array(items) => {
            let Some(id) = node.items else { return };
            for (i, item) in items.iter().enumerate() {
                unknown(arena, id, item, &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}

enum Child {
    Known(Id),
    /// Not described, and kept.
    Free,
    Unknown,
}

fn child(node: &Node, name: &str) -> Child {
    if let Some(field) = node.properties.get(name) {
        return Child::Known(field.node);
    }
    match node.additional {
        Some(id) => Child::Known(id),
        None if node.preserve || node.kind != Type::Object => Child::Free,
        None => Child::Unknown,
    }
}

/// Drops unknown fields from a custom resource.
pub(super) fn prune(arena: &Arena, id: Id, value: &mut Value) {
    let node = arena.get(id);
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| match child(node, name) {
                Child::Known(id) => {
                    prune(arena, id, value);
                    true
                }
                Child::Free => true,
                Child::Unknown => false,
            });
        }
        Value::Array(items) => {
            if let Some(id) = node.items {
                items.iter_mut().for_each(|item| prune(arena, id, item));
            }
        }
        Value::Number(_) => whole(node, value),
        _ => {}
    }
}

/// `3.0` in an integer field is 3.
fn whole(node: &Node, value: &mut Value) {
    let integral = matches!(node.kind, Type::Integer | Type::IntOrString | Type::Any);
    // Beyond this, a float no longer tells neighbouring integers apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if integral
        && let Some(f) =
            value.as_f64().filter(|f| value.is_f64() && f.fract() == 0.0 && f.abs() <= EXACT)
    {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
        let number = f as i64;
        *value = number.into();
    }
}

/// Fills in the defaults of a custom resource; a null where none is allowed gives way to the
/// default, or vanishes.
pub(super) fn default(arena: &Arena, id: Id, value: &mut Value) {
    let node = arena.get(id);
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !value.is_null() || null_stays(arena, node, name));
            for (name, field) in &node.properties {
                if let Some(default) = &field.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Child::Known(id) = child(node, name) {
                    default(arena, id, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(id) = node.items {
                items.iter_mut().for_each(|item| default(arena, id, item));
            }
        }
        _ => {}
    }
}

fn null_stays(arena: &Arena, node: &Node, name: &str) -> bool {
    match child(node, name) {
        Child::Known(id) => arena.get(id).nullable || arena.get(id).kind == Type::Any,
        Child::Free | Child::Unknown => true,
    }
}

/// What Go's types do to a built-in object on its way through: unknown fields, nulls and empty
/// optional values vanish.
pub(super) fn normalize(arena: &Arena, id: Id, value: &mut Value) {
    let node = arena.get(id);
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| match child(node, name) {
                Child::Known(id) => {
                    if value.is_null()
                        && is_map_value(node, name, id)
                        && arena.get(id).kind == Type::String
                    {
                        // Go reads a null into a text as the empty one.
                        *value = "".into();
                    }
                    normalize(arena, id, value);
                    !omitted(arena, node, name, id, value)
                }
                Child::Free => true,
                Child::Unknown => false,
            });
        }
        Value::Array(items) => {
            if let Some(id) = node.items {
                items.iter_mut().for_each(|item| normalize(arena, id, item));
            }
        }
        Value::Number(n) if node.kind == Type::Quantity => *value = n.to_string().into(),
        Value::Number(_) => whole(node, value),
        Value::String(text) => canonical(node, text),
        _ => {}
    }
}

/// Go parses quantities and times and prints them in its own way.
fn canonical(node: &Node, text: &mut String) {
    let printed = match (node.kind, node.format.as_str()) {
        (Type::Quantity, _) => quantity::parse(text).map(|quantity| quantity.to_string()),
        (Type::String, "date-time") => text.parse::<jiff::Timestamp>().ok().map(|time| {
            let layout = if node.go.ends_with("MicroTime") {
                "%Y-%m-%dT%H:%M:%S.%6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            time.strftime(layout).to_string()
        }),
        _ => None,
    };
    if let Some(printed) = printed.filter(|printed| printed != text) {
        *text = printed;
    }
}

/// Texts behind a pointer in Go: the empty text is a value in its own right.
const POINTER_TEXTS: [&str; 11] = [
    "holderIdentity",
    "strategy",
    "preferredHolder",
    "storageClassName",
    "volumeMode",
    "runtimeClassName",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "appProtocol",
    "hostnameOverride",
    "persistentVolumeName",
];

/// Numbers and truths without a pointer in Go: zero is as good as absent.
const PLAIN_ZEROS: [&str; 26] = [
    "unschedulable",
    "paused",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "publishNotReadyAddresses",
    "minReadySeconds",
    "initialDelaySeconds",
    "hostPort",
    "nodePort",
    "healthCheckNodePort",
    "generation",
    "observedGeneration",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "unavailableReplicas",
    "fullyLabeledReplicas",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "count",
];

/// Whether Go leaves a field out of its JSON.
fn omitted(arena: &Arena, parent: &Node, name: &str, id: Id, value: &Value) -> bool {
    if is_map_value(parent, name, id) {
        return value.is_null();
    }
    let has_default = parent.properties.get(name).is_some_and(|field| field.default.is_some());
    let always = has_default || parent.required.iter().any(|one| one == name);
    let node = arena.get(id);
    match value {
        Value::Null => true,
        _ if always => false,
        // An empty list of managers asks for a reset.
        Value::Array(items) => items.is_empty() && name != "managedFields",
        // An empty map; an empty struct, such as `subresources.status`, says something.
        Value::Object(fields) => fields.is_empty() && node.additional.is_some(),
        Value::String(text) => {
            let pointer = POINTER_TEXTS.contains(&name)
                || (name == "type" && parent.go.ends_with(".HostPathVolumeSource"));
            text.is_empty() && !pointer
        }
        Value::Bool(false) => PLAIN_ZEROS.contains(&name),
        Value::Number(n) => n.as_i64() == Some(0) && PLAIN_ZEROS.contains(&name),
        _ => false,
    }
}

/// Whether the field is a value of a map, not one that the type names.
fn is_map_value(parent: &Node, name: &str, id: Id) -> bool {
    parent.additional == Some(id) && !parent.properties.contains_key(name)
}

/// Fields of a built-in object that Go writes even where nobody gave them, and Kubernetes' defaults
/// said in OpenAPI.
pub(super) fn complete(arena: &Arena, id: Id, value: &mut Value) {
    let node = arena.get(id);
    match value {
        Value::Object(fields) => {
            for (name, field) in &node.properties {
                if let Some(default) = &field.default
                    && !fields.contains_key(name)
                    && !arena.get(id).go.ends_with(".ObjectMeta")
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            add_nulls(arena, node, fields);
            for (name, value) in fields.iter_mut() {
                if let Child::Known(id) = child(node, name) {
                    complete(arena, id, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(id) = node.items {
                items.iter_mut().for_each(|item| complete(arena, id, item));
            }
        }
        _ => {}
    }
}

/// What Go writes as null when unset: lists and pointers that it always has, and some times.
fn add_nulls(arena: &Arena, node: &Node, fields: &mut Map<String, Value>) {
    for name in node.required.iter().filter(|name| !fields.contains_key(*name)).collect::<Vec<_>>()
    {
        let field = node.properties.get(name).filter(|field| field.default.is_none());
        if field.is_some_and(|f| matches!(arena.get(f.node).kind, Type::Array | Type::Object)) {
            fields.insert(name.clone(), Value::Null);
        }
    }
    let names: &[&str] = match node.go.as_str() {
        "v1.NodeCondition" => &["lastHeartbeatTime", "lastTransitionTime"],
        "v1.PodCondition" => &["lastProbeTime", "lastTransitionTime"],
        "v1.DeploymentCondition" | "v1.CertificateSigningRequestCondition" => {
            &["lastUpdateTime", "lastTransitionTime"]
        }
        "v1.Role" | "v1.ClusterRole" => &["rules"],
        "v1.ReplicaSetCondition" | "v1.DaemonSetCondition" => &["lastTransitionTime"],
        "v1.Event" if fields.contains_key("involvedObject") => {
            &["eventTime", "firstTimestamp", "lastTimestamp"]
        }
        "v1.Event" if fields.contains_key("regarding") => {
            &["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"]
        }
        _ => &[],
    };
    for name in names {
        fields.entry(*name).or_insert(Value::Null);
    }
}
