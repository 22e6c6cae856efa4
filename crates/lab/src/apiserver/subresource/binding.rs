//! Binding: a pod gets its node, once.

use crate::apiserver::{ApiServer, Request, Status};
use serde_json::{Value, json};

/// Answers POST of a Binding to a pod.
pub fn post(server: &ApiServer, request: &Request, body: &Value) -> Result<Value, Status> {
    let target = &body["target"];
    let node = target["name"].as_str().unwrap_or_default();
    let kind = target["kind"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if node.is_empty() {
        errors.push("target.name: Required value".to_owned());
    }
    match errors.as_slice() {
        [] => {}
        [one] => return Err(Status::new(500, "", one.clone())),
        many => return Err(Status::new(500, "", format!("[{}]", many.join(", ")))),
    }
    let entry = server.store().entry(&request.key()).ok_or_else(|| request.not_found())?;
    let mut pod = (*entry.object).clone();
    let name = &request.name;
    let conflict = |why: String| Err(Status::conflict("", "pods/binding", name, &why));
    if let Some(uid) = body["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())
        && pod["metadata"]["uid"] != uid
    {
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            pod["metadata"]["uid"].as_str().unwrap_or_default()
        ));
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(bound) = pod["spec"]["nodeName"].as_str().filter(|bound| !bound.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node {bound:?}"));
    }
    pod["spec"]["nodeName"] = node.into();
    for (key, value) in body["metadata"]["annotations"].as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True",
        "lastProbeTime": null, "lastTransitionTime": server.stamp(),
    });
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) => {
            list.retain(|one| one["type"] != "PodScheduled");
            list.push(scheduled);
        }
        None => pod["status"]["conditions"] = json!([scheduled]),
    }
    if !request.dry_run() {
        server
            .store()
            .replace(&request.key(), pod, Some(entry.revision))
            .map_err(|_| Status::outdated("", "pods", name))?;
    }
    Ok(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    }))
}
