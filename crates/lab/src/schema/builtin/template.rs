//! Defaults that pods and pod templates share.

use super::{Object, object, objects, set};
use serde_json::{Value, json};

/// Kubernetes: mode of files in volumes, 0644.
const FILE_MODE: u32 = 420;

/// Fills in the spec of a pod or of a template.
pub(super) fn default_spec(spec: &mut Object) {
    set(spec, "restartPolicy", "Always");
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", "default-scheduler");
    // Kubernetes: an old name of the same field, always told with it.
    let account = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    if let Some(account) = account.filter(|name| name != "") {
        spec.insert("serviceAccountName".to_owned(), account.clone());
        spec.insert("serviceAccount".to_owned(), account);
    }
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            default_container(container, host_network);
        }
    }
    objects(spec, "volumes").for_each(default_volume);
}

fn default_container(container: &mut Object, host_network: bool) {
    set(container, "resources", json!({}));
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", policy);
    for port in objects(container, "ports") {
        set(port, "protocol", "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            set(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            set(probe, "timeoutSeconds", 1);
            set(probe, "periodSeconds", 10);
            set(probe, "successThreshold", 1);
            set(probe, "failureThreshold", 3);
            default_http(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook).and_then(Value::as_object_mut) {
                default_http(hook);
            }
        }
    }
    for variable in objects(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) {
            default_field_ref(from);
        }
    }
}

fn default_http(action: &mut Object) {
    if let Some(http) = action.get_mut("httpGet").and_then(Value::as_object_mut) {
        set(http, "path", "/");
        set(http, "scheme", "HTTP");
    }
}

fn default_field_ref(from: &mut Object) {
    if let Some(field) = from.get_mut("fieldRef").and_then(Value::as_object_mut) {
        set(field, "apiVersion", "v1");
    }
}

/// Whether an image's tag is `latest`, said or not.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn default_volume(volume: &mut Object) {
    if volume.len() == 1 && volume.contains_key("name") {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            set(source, "defaultMode", FILE_MODE);
            objects(source, "items").for_each(default_field_ref);
            for part in objects(source, "sources") {
                if let Some(token) =
                    part.get_mut("serviceAccountToken").and_then(Value::as_object_mut)
                {
                    set(token, "expirationSeconds", 3600);
                }
                if let Some(items) = part.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                    objects(items, "items").for_each(default_field_ref);
                }
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        set(path, "type", "");
    }
}

/// Fills in `spec.template` of a workload.
pub(super) fn default_template(spec: &mut Object) {
    let Some(template) = object(spec, "template") else { return };
    if let Some(spec) = object(template, "spec") {
        default_spec(spec);
    }
}
