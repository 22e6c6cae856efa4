//! The node lifecycle controller: a Node that falls silent becomes Unknown, and taints follow its conditions.

use crate::client::{ApiError, Client, Informer, PatchKind};
use crate::clock::{Clock, Pace};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Kubernetes: --node-monitor-grace-period.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// Kubernetes: --node-monitor-period.
const PERIOD: Duration = Duration::from_secs(5);
/// Changes within this time are looked at together.
const GATHER: Duration = Duration::from_millis(500);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Runs for ever.
pub async fn run(client: Client, clock: Clock, pace: Pace) {
    let mut nodes = Informer::start(&client, "/api/v1/nodes");
    let leases =
        Informer::start(&client, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    nodes.ready().await;
    leases.ready().await;
    let mut next = Instant::now();
    // When a Node without a Lease was first seen: it gets the grace from there.
    let mut first_seen: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut judged: BTreeMap<String, Value> = BTreeMap::new();
    loop {
        let now = clock.now();
        let mut all = nodes.list();
        if next <= Instant::now() {
            next = Instant::now() + PERIOD;
            judged.clear();
        }
        // Between two rounds only what changed is looked at.
        let version = |node: &Value| node["metadata"]["resourceVersion"].clone();
        all.retain(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            judged.insert(name.to_owned(), version(node)) != Some(version(node))
        });
        first_seen.retain(|name, _| nodes.get("", name).is_some());
        for node in &all {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let seen = *first_seen.entry(name.to_owned()).or_insert(now);
            let renewed = leases.get("kube-node-lease", name).and_then(|lease| renewed(&lease));
            let is_silent = renewed.unwrap_or(seen).duration_until(now) > GRACE;
            if let Err(error) = judge(&client, node, name, is_silent, now).await {
                tracing::debug!(node = name, "node lifecycle: {error}");
            }
        }
        tokio::time::sleep(pace.of(GATHER)).await;
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = nodes.changed() => {}
        }
    }
}

fn renewed(lease: &Arc<Value>) -> Option<Timestamp> {
    lease["spec"]["renewTime"].as_str()?.parse().ok()
}

async fn judge(
    client: &Client,
    node: &Value,
    name: &str,
    is_silent: bool,
    now: Timestamp,
) -> Result<(), ApiError> {
    let path = format!("/api/v1/nodes/{name}");
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let mut status = ready.and_then(|ready| ready["status"].as_str()).unwrap_or("Unknown");
    let mut latest = None;
    if is_silent && status != "Unknown" {
        status = "Unknown";
        let unknown: Vec<Value> = conditions
            .iter()
            .map(|condition| {
                json!({
                    "type": condition["type"], "status": "Unknown", "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": crate::kubelet::seconds(now),
                })
            })
            .collect();
        let patch = json!({"status": {"conditions": unknown}});
        latest = Some(client.patch(&format!("{path}/status"), PatchKind::Strategic, &patch).await?);
    }
    let node = latest.as_ref().unwrap_or(node);
    let before = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let wanted = match status {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    };
    // Kubernetes: one that is cordoned says so by a taint too, which DaemonSets tolerate.
    let cordoned = (node["spec"]["unschedulable"] == true).then_some(UNSCHEDULABLE);
    let mut taints = before.clone();
    taints.retain(|taint| {
        let key = taint["key"].as_str();
        let is_ours = key.is_some_and(|key| [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key));
        !is_ours || key == wanted || key == cordoned
    });
    let both = wanted.into_iter().flat_map(|key| [(key, "NoSchedule"), (key, "NoExecute")]);
    for (key, effect) in both.chain(cordoned.map(|key| (key, "NoSchedule"))) {
        let is_there = |taint: &Value| taint["key"] == *key && taint["effect"] == *effect;
        if !taints.iter().any(is_there) {
            taints.push(json!({
                "key": key, "effect": effect, "timeAdded": crate::kubelet::seconds(now),
            }));
        }
    }
    if taints != before {
        let patch = json!({
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": taints},
        });
        client.patch(&path, PatchKind::Merge, &patch).await?;
    }
    Ok(())
}
