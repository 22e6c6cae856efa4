//! What a server adds to objects of certain kinds that no schema can say, and the form objects are stored in.

use super::access::User;
use super::create::metadata;
use super::registry::Kind;
use super::request::Request;
use super::status::Status;
use super::update::carry;
use super::{ApiServer, crds};
use base64::Engine as _;
use serde_json::{Value, json};

mod accounts;
mod autoscalers;
mod events;
mod jobs;
mod pods;
mod services;
pub(super) mod warnings;

/// The object in the version its storage has.
pub(super) fn to_storage(kind: &Kind, mut object: Value) -> Value {
    if kind.group == "events.k8s.io" {
        return events::to_core(object);
    }
    if is_first_autoscaler(kind) {
        return autoscalers::to_v2(object);
    }
    if kind.custom {
        object["apiVersion"] = kind.storage_version.clone().into();
    }
    object
}

/// The object in the version asked for.
#[must_use]
pub(super) fn from_storage(kind: &Kind, object: &Value) -> Value {
    if kind.group == "events.k8s.io" {
        return events::from_core(object);
    }
    if is_first_autoscaler(kind) {
        return autoscalers::to_v1(object);
    }
    let mut object = object.clone();
    if kind.custom {
        object["apiVersion"] = kind.api_version().into();
        if kind.revision > 1 {
            // Kubernetes: a default that came into the schema later shows on read.
            kind.schema.default(&mut object);
        }
    }
    object
}

/// Whether `from_storage` would change nothing, so that the stored JSON can be sent as it is.
#[must_use]
pub(super) fn is_stored_form(kind: &Kind) -> bool {
    let as_it_was = || kind.api_version() == kind.storage_version && kind.revision <= 1;
    kind.group != "events.k8s.io" && !is_first_autoscaler(kind) && (!kind.custom || as_it_was())
}

fn is_first_autoscaler(kind: &Kind) -> bool {
    kind.group == "autoscaling" && kind.version == "v1"
}

/// What reading a new object means beyond its defaults; the writer owns it.
pub(super) fn convert(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            let name = metadata(object, "name").to_owned();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
        }
        ("", "Secret") => merge_string_data(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crds::defaults(object),
        _ => {}
    }
}

/// Completes a new object, and refuses what depends on other objects.
pub(super) fn before_create(
    server: &ApiServer,
    user: &User,
    request: &Request,
    object: &mut Value,
) -> Result<(), Status> {
    let kind = &*request.kind;
    if kind.custom {
        return Ok(());
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({"phase": "Active"});
        }
        ("", "Pod") => pods::before_create(server, request, object)?,
        ("", "Service") => services::allocate(server, object)?,
        ("", "Node") => not_ready_taint(object),
        ("batch", "Job") => jobs::select(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => requester(user, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crds::before_create(object),
        _ => {}
    }
    if let Some(status) = first_status(&kind.kind).filter(|_| object["status"].is_null()) {
        object["status"] = status;
    }
    Ok(())
}

/// Kubernetes: numbers that are always told, and objects that are there even when empty.
fn first_status(kind: &str) -> Option<Value> {
    Some(match kind {
        "Deployment" | "CertificateSigningRequest" | "Job" | "CronJob" => json!({}),
        "StatefulSet" => json!({"replicas": 0, "availableReplicas": 0}),
        "ReplicaSet" => json!({"replicas": 0}),
        "DaemonSet" => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0,
            "numberReady": 0,
        }),
        "PodDisruptionBudget" => json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }),
        "PersistentVolume" | "PersistentVolumeClaim" => json!({"phase": "Pending"}),
        "VolumeAttachment" => json!({"attached": false}),
        _ => return None,
    })
}

/// Completes a changed object, and takes back what this request may not change.
pub(super) fn before_update(request: &Request, old: &Value, new: &mut Value) {
    let kind = &*request.kind;
    if kind.custom {
        return;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") if request.subresource != "finalize" => carry(old, new, "spec"),
        ("", "Secret") => merge_string_data(new),
        ("", "Service") => services::keep_address(old, new),
        ("certificates.k8s.io", "CertificateSigningRequest") => carry(old, new, "spec"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crds::before_update(new),
        _ => {}
    }
}

/// Kubernetes: `stringData` of a Secret is write-only and goes into `data`.
fn merge_string_data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    for (key, text) in texts {
        let Some(text) = text.as_str() else { continue };
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        object["data"][key] = encoded.into();
    }
}

/// Kubernetes' TaintNodesByCondition: a new node takes no pods until it is Ready.
fn not_ready_taint(object: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = &mut object["spec"]["taints"];
    match taints.as_array_mut() {
        Some(list)
            if list
                .iter()
                .any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) => {}
        Some(list) => list.push(taint),
        None => *taints = json!([taint]),
    }
}

/// Kubernetes: a request for a certificate carries who asks, whatever the client wrote.
fn requester(user: &User, object: &mut Value) {
    let spec = &mut object["spec"];
    if !spec.is_object() {
        return;
    }
    spec["username"] = user.name.clone().into();
    spec["groups"] = json!(user.groups);
    let mut put = |field: &str, value: Value, empty: bool| {
        if empty {
            spec.as_object_mut().map(|map| map.remove(field));
        } else {
            spec[field] = value;
        }
    };
    put("uid", user.uid.clone().into(), user.uid.is_empty());
    put("extra", json!(user.extra), user.extra.is_empty());
}
