//! What admission does to a new pod: its ServiceAccount must exist, its priority class gives a number.

use crate::apiserver::create::metadata;
use crate::apiserver::{ApiServer, Key, Request, Status};
use serde_json::{Value, json};

/// Completes a new pod.
pub(super) fn before_create(
    server: &ApiServer,
    request: &Request,
    object: &mut Value,
) -> Result<(), Status> {
    object["status"] = json!({"phase": "Pending"});
    if !object["spec"].is_object() {
        return Ok(());
    }
    let name = metadata(object, "name").to_owned();
    let namespace = request.namespace.as_str();
    let account = account(object);
    let refuse = |why: String| Status::forbidden("", "pods", &name, &why);
    let key = Key::new("", "serviceaccounts", namespace, &account);
    if server.store().get(&key).is_none() {
        return Err(refuse(format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        )));
    }
    object["spec"]["serviceAccountName"] = account.clone().into();
    object["spec"]["serviceAccount"] = account.into();
    priority(server, object).map_err(refuse)
}

fn account(object: &Value) -> String {
    let spec = &object["spec"];
    let given = spec["serviceAccountName"].as_str().or(spec["serviceAccount"].as_str());
    given.filter(|name| !name.is_empty()).unwrap_or("default").to_owned()
}

fn priority(server: &ApiServer, object: &mut Value) -> Result<(), String> {
    let spec = &mut object["spec"];
    let Some(class) = spec["priorityClassName"].as_str().filter(|name| !name.is_empty()) else {
        spec["priority"] = 0.into();
        spec["preemptionPolicy"] = "PreemptLowerPriority".into();
        return Ok(());
    };
    let key = Key::new("scheduling.k8s.io", "priorityclasses", "", class);
    let found = server
        .store()
        .get(&key)
        .ok_or_else(|| format!("no PriorityClass with name {class} was found"))?;
    spec["priority"] = found["value"].clone();
    spec["preemptionPolicy"] = found["preemptionPolicy"].clone();
    Ok(())
}
