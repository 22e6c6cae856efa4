//! The node lifecycle controller: a Node that falls silent becomes Unknown, and taints follow its conditions.

mod taints;

use crate::client::{ApiError, Client, Informer, PatchKind};
use crate::clock::{Clock, Pace};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use taints::Outage;
use tokio::time::Instant;

/// Kubernetes: --node-monitor-grace-period.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// Kubernetes: --node-monitor-period.
const PERIOD: Duration = Duration::from_secs(5);
/// Changes within this time are looked at together.
const GATHER: Duration = Duration::from_millis(500);
/// Kubernetes: --node-startup-grace-period, of a kubelet that never told its status.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// What a kubelet tells of its node; other conditions are the business of others.
const TOLD: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

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
        let outage = Outage::of(&all);
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
            let grace = if ready(node).is_some() { GRACE } else { STARTUP_GRACE };
            let is_silent = renewed.unwrap_or(seen).duration_until(now) > grace;
            let judged = judge(&client, node, name, is_silent, &outage, now).await;
            if let Err(error) = judged {
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

/// The status of the condition Ready, if it was ever told.
fn ready(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["status"].as_str()
}

async fn judge(
    client: &Client,
    node: &Value,
    name: &str,
    is_silent: bool,
    outage: &Outage,
    now: Timestamp,
) -> Result<(), ApiError> {
    let path = format!("/api/v1/nodes/{name}");
    let mut latest = None;
    if is_silent && ready(node) != Some("Unknown") {
        let patch = json!({"status": {"conditions": unknown(node, now)}});
        latest = Some(client.patch(&format!("{path}/status"), PatchKind::Strategic, &patch).await?);
        if ready(node) == Some("True") {
            give_up_pods(client, name, now).await?;
        }
    }
    let node = latest.as_ref().unwrap_or(node);
    if let Some(taints) = taints::settled(node, outage, now) {
        let patch = json!({
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": taints},
        });
        client.patch(&path, PatchKind::Merge, &patch).await?;
    }
    Ok(())
}

/// The conditions of a node that nobody hears of any more, as far as they change.
fn unknown(node: &Value, now: Timestamp) -> Vec<Value> {
    let known = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = crate::kubelet::seconds(now);
    let lost = known.iter().filter(|told| {
        TOLD.iter().any(|kind| told["type"] == *kind) && told["status"] != "Unknown"
    });
    let lost = lost.map(|told| {
        json!({
            "type": told["type"], "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": now,
        })
    });
    let never = TOLD.iter().filter(|kind| known.iter().all(|told| told["type"] != **kind));
    let never = never.map(|kind| {
        json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.", "lastTransitionTime": now,
            "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
        })
    });
    lost.chain(never).collect()
}

/// Kubernetes (`MarkPodsNotReady`): no pod of a silent node counts as ready, so that budgets and services see it.
async fn give_up_pods(client: &Client, node: &str, now: Timestamp) -> Result<(), ApiError> {
    let all = client.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName={node}")).await?;
    for pod in all["items"].as_array().into_iter().flatten() {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut told = conditions.filter(|one| one["type"] == "Ready" && one["status"] != "False");
        if told.next().is_none() {
            continue;
        }
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", text("namespace"), text("name"));
        let condition = json!({
            "type": "Ready", "status": "False", "lastTransitionTime": crate::kubelet::seconds(now),
        });
        let patch = json!({
            "metadata": {"uid": text("uid")}, "status": {"conditions": [condition]},
        });
        match client.patch(&path, PatchKind::Strategic, &patch).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
