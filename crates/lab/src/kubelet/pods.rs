//! What a kubelet says of a pod while it starts, runs and stops.

use super::node::seconds;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Says how long a pod of the lab takes to stop after SIGTERM, in seconds; it never takes longer than its grace.
pub const STOP_SECONDS: &str = "lab.drover.dev/stop-seconds";
/// How long a pod takes to stop unless it says so itself.
const STOP: Duration = Duration::from_secs(1);
/// How long an image takes to pull and a container to start.
const START: Duration = Duration::from_secs(2);
/// Where the container runtime looks for the network's configuration.
const NETWORK_FOLDER: &str = "/etc/cni/net.d";

/// How long the pod takes from being bound to running, at the pace of life.
pub fn start_time(pod: &Value, dice: &mut fastrand::Rng) -> Duration {
    let probe = &pod["spec"]["containers"][0]["readinessProbe"]["initialDelaySeconds"];
    START.mul_f64(0.5 + dice.f64()) + Duration::from_secs(probe.as_u64().unwrap_or_default())
}

/// How long the pod takes to stop at the pace of life.
pub fn stop_time(pod: &Value) -> Duration {
    let told = pod["metadata"]["annotations"][STOP_SECONDS].as_str();
    told.and_then(|told| told.parse().ok()).map_or(STOP, Duration::from_secs)
}

/// The grace that its deletion left the pod.
pub fn grace(pod: &Value) -> Duration {
    let seconds = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Whether the pod was asked to go.
pub fn is_going(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether the pod has ended: succeeded or failed.
pub fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether the pod needs no network of its own.
pub fn on_host_network(pod: &Value) -> bool {
    pod["spec"]["hostNetwork"].as_bool().unwrap_or_default()
}

/// Whether the pod brings the network: it writes to the runtime's folder on the host.
pub fn brings_network(pod: &Value) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["hostPath"]["path"].as_str()).any(|path| {
        path.trim_end_matches('/') == NETWORK_FOLDER || path.trim_end_matches('/') == "/etc/cni"
    })
}

/// The n-th pod address of a node; the node's number makes them differ between nodes.
pub fn address(node: u32, pod: u32) -> IpAddr {
    let low = u8::try_from(pod % 250 + 2).unwrap_or(2);
    let high = (node >> 8) & 0xff;
    let high = u8::try_from(high).unwrap_or_default();
    let middle = u8::try_from(node & 0xff).unwrap_or_default();
    IpAddr::V4(Ipv4Addr::new(10, 128 | (high & 0x7f), middle, low))
}

/// The status patch of a pod that runs and is ready.
pub fn running(pod: &Value, host: Option<IpAddr>, own: Option<IpAddr>, now: Timestamp) -> Value {
    let now = seconds(now);
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        })
    };
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];
    let mut status = json!({
        "phase": "Running",
        "startTime": now,
        "conditions": kinds.map(condition),
        "containerStatuses": containers(pod, &now),
    });
    if let Some(host) = host {
        status["hostIP"] = host.to_string().into();
        status["hostIPs"] = json!([{"ip": host.to_string()}]);
    }
    let own = if on_host_network(pod) { host } else { own };
    if let Some(own) = own {
        status["podIP"] = own.to_string().into();
        status["podIPs"] = json!([{"ip": own.to_string()}]);
    }
    json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})
}

fn containers(pod: &Value, now: &str) -> Vec<Value> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().replace('-', "");
    let all = pod["spec"]["containers"].as_array().into_iter().flatten().enumerate();
    all.map(|(i, container)| {
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "containerID": format!("containerd://{uid}{i:032x}"),
            "ready": true,
            "started": true,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "lastState": {},
        })
    })
    .collect()
}
