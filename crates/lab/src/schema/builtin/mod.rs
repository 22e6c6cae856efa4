//! What Kubernetes' own code adds to built-in kinds beyond their OpenAPI: defaults and validation.
//!
//! What depends on other objects (addresses of services, service accounts of pods) is admission and
//! not done here.

mod access;
mod batch;
mod core;
mod events;
pub mod meta;
mod pod;
mod stateful;
mod template;
mod workload;

use super::error::FieldError;
use serde_json::{Map, Value, json};

/// Groups of built-in kinds; everything else is a custom resource, which its schema validates
/// whole.
const GROUPS: [&str; 19] = [
    "",
    "apps",
    "policy",
    "batch",
    "coordination.k8s.io",
    "certificates.k8s.io",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "events.k8s.io",
    "scheduling.k8s.io",
    "apiextensions.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "discovery.k8s.io",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "autoscaling",
    "networking.k8s.io",
    "node.k8s.io",
];

type Object = Map<String, Value>;

/// Fills in what the server fills in for a built-in kind. `group` is empty for the core group.
pub fn default(group: &str, kind: &str, object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    match (group, kind) {
        ("", "Pod") => pod::default(object),
        ("", "PodTemplate") => template::default_template(object),
        ("", "Service") => core::default_service(object),
        ("", "Secret") => core::default_secret(object),
        ("", "Node") => core::default_node(object),
        ("", "Namespace") => core::default_namespace(object),
        ("", "PersistentVolume") => core::default_volume(object),
        ("", "PersistentVolumeClaim") => core::default_claim(object),
        ("apps", "Deployment") => workload::default_deployment(object),
        ("apps", "ReplicaSet") => workload::default_replica_set(object),
        ("apps", "DaemonSet") => workload::default_daemon_set(object),
        ("apps", "StatefulSet") => stateful::default(object),
        ("batch", "Job") => batch::default_job(object),
        ("batch", "CronJob") => batch::default_cron_job(object),
        ("", "Endpoints") => core::default_endpoints(object),
        ("rbac.authorization.k8s.io", _) => access::default_binding(object),
        ("storage.k8s.io", "StorageClass") => {
            set(object, "reclaimPolicy", "Delete");
            set(object, "volumeBindingMode", "Immediate");
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            set(object, "preemptionPolicy", "PreemptLowerPriority")
        }
        _ => {}
    }
}

/// Everything Kubernetes' validation says of `new`; immutability is checked where `old` is given.
/// Says nothing of custom resources.
#[must_use]
pub fn validate(group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !GROUPS.contains(&group) {
        return Vec::new();
    }
    let rule: &meta::NameRule = match (group, kind) {
        ("", "Namespace") => &meta::label,
        ("", "Service") => &meta::label_1035,
        ("rbac.authorization.k8s.io", _) | ("", "Event") => &meta::path_segment,
        _ => &meta::subdomain,
    };
    let mut errors = meta::validate(new, old, rule);
    meta::standard_finalizers(new, &mut errors);
    match (group, kind) {
        ("", "Pod") => pod::validate(new, old, &mut errors),
        ("", "PodTemplate") => pod::validate_template(new, &mut errors),
        ("", "Service") => core::validate_service(new, old, &mut errors),
        ("", "Secret") => core::validate_secret(new, old, &mut errors),
        ("", "ConfigMap") => core::validate_config_map(new, old, &mut errors),
        ("", "Node") => core::validate_node(new, old, &mut errors),
        ("", "Endpoints") => core::validate_endpoints(new, &mut errors),
        ("" | "events.k8s.io", "Event") => events::validate(group, new, old, &mut errors),
        ("coordination.k8s.io", "Lease") => core::validate_lease(new, &mut errors),
        ("apps", "Deployment") => workload::validate_deployment(new, old, &mut errors),
        ("apps", "ReplicaSet") => workload::validate_replica_set(new, old, &mut errors),
        ("apps", "DaemonSet") => workload::validate_daemon_set(new, old, &mut errors),
        ("apps", "StatefulSet") => stateful::validate(new, old, &mut errors),
        ("batch", "Job") => batch::validate_job(new, old, &mut errors),
        ("batch", "CronJob") => batch::validate_cron_job(new, &mut errors),
        ("storage.k8s.io", "CSINode") => core::validate_csi_node(new, &mut errors),
        ("policy", "PodDisruptionBudget") => workload::validate_budget(new, &mut errors),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            access::validate_request(new, old, &mut errors)
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            access::validate_role(kind, new, &mut errors)
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            access::validate_binding(kind, new, old, &mut errors);
        }
        _ => {}
    }
    errors
}

/// Sets a field that is not there.
fn set(object: &mut Object, name: &str, value: impl Into<Value>) {
    if !object.contains_key(name) {
        object.insert(name.to_owned(), value.into());
    }
}

/// An object inside another, made on the way if it is missing.
fn object<'a>(parent: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    parent.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

/// The objects of a list.
fn objects<'a>(parent: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = parent.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The elements of a list.
fn elements<'a>(parent: &'a Value, name: &str) -> &'a [Value] {
    parent.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text; the empty one where there is none.
fn text<'a>(parent: &'a Value, name: &str) -> &'a str {
    parent.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses a change of a field that may not change.
fn immutable(path: &str, new: Option<&Value>, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if new != old {
        let given = new.cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(path, &given, "field is immutable"));
    }
}

/// Refuses a number below `least`.
fn at_least(parent: &Value, name: &str, least: i64, path: &str, errors: &mut Vec<FieldError>) {
    let Some(value) = parent.get(name).filter(|v| v.as_i64().is_some_and(|n| n < least)) else {
        return;
    };
    let what = if least == 0 {
        "must be greater than or equal to 0".to_owned()
    } else {
        format!("must be greater than {}", least - 1)
    };
    errors.push(FieldError::invalid(format!("{path}.{name}"), value, &what));
}

#[cfg(test)]
pub(crate) mod tests;
