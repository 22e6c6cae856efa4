//! What admission does to a new pod beside its account: its priority class gives a number, short outages are tolerated.

use super::accounts;
use crate::apiserver::create::metadata;
use crate::apiserver::{ApiServer, Key, Request, Status};
use serde_json::{Value, json};

/// Completes a new pod.
pub(super) fn before_create(
    server: &ApiServer,
    request: &Request,
    object: &mut Value,
) -> Result<(), Status> {
    object["status"] = json!({"phase": "Pending", "qosClass": quality(&object["spec"])});
    if !object["spec"].is_object() {
        return Ok(());
    }
    tolerate_short_outages(&mut object["spec"]);
    accounts::admit(server, request, object)?;
    let name = metadata(object, "name").to_owned();
    priority(server, object).map_err(|why| Status::forbidden("", "pods", &name, &why))
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

/// Seconds a pod stays on a node that is lost (Kubernetes' DefaultTolerationSeconds).
const OUTAGE: u64 = 300;

fn tolerate_short_outages(spec: &mut Value) {
    if !spec["tolerations"].is_array() {
        spec["tolerations"] = json!([]);
    }
    let Some(list) = spec["tolerations"].as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |one: &Value| {
            let of_key = one["key"] == key || one["key"].as_str().is_none_or(str::is_empty);
            let effect = one["effect"].as_str().unwrap_or_default();
            of_key && matches!(effect, "" | "NoExecute")
        };
        if !list.iter().any(covers) {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": OUTAGE,
            }));
        }
    }
}

/// Kubernetes' class of a pod by what its containers ask for.
fn quality(spec: &Value) -> &'static str {
    let containers = || {
        let of = |field: &str| spec[field].as_array().into_iter().flatten();
        of("containers").chain(of("initContainers"))
    };
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    let of = |one: &Value| (size(&one["resources"]["requests"]), size(&one["resources"]["limits"]));
    if containers().all(|one| of(one) == (0, 0)) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|one| {
        let (requests, limits) = (&one["resources"]["requests"], &one["resources"]["limits"]);
        ["cpu", "memory"].iter().all(|kind| {
            !limits[kind].is_null() && (requests[kind].is_null() || requests[kind] == limits[kind])
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
