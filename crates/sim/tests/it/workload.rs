//! What runs on the nodes of these tests, and how to wait for it.

use drover_api::{Condition, Machine};
use drover_plan::drain::is_ready;
use drover_sim::stage::{NAMESPACE, Stage};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long anything may take, in the time of the world.
pub const CHAPTER: Duration = Duration::from_secs(4 * 3600);
/// How often a wait looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A Deployment of this name, whose pods carry the label `app` with it.
pub fn workload(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "registry.example/c:1" }] },
            },
        },
    })
}

/// A Deployment of one pod with a volume that only one node can have, and that volume.
pub fn with_volume(name: &str) -> [Value; 3] {
    let (volume, size) = (format!("pv-{name}"), json!({ "storage": "1Gi" }));
    let mut deployment = workload(name, 1);
    deployment["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
    let volume_object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": size, "storageClassName": "",
            "csi": { "driver": "cinder.csi.openstack.org", "volumeHandle": name },
            "claimRef": { "namespace": NAMESPACE, "name": name },
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": size },
            "storageClassName": "", "volumeName": volume,
        },
    });
    [volume_object, claim, deployment]
}

/// A budget of the pods of this workload.
pub fn budget(name: &str, min_available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": name } } },
    })
}

/// The pods of this workload.
pub async fn pods(stage: &Stage, name: &str) -> anyhow::Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(stage.admin.clone(), NAMESPACE);
    Ok(pods.list(&ListParams::default().labels(&format!("app={name}"))).await?.items)
}

/// Waits until a workload has exactly so many pods and all are Ready.
pub async fn running(stage: &Stage, name: &str, count: usize) -> anyhow::Result<Vec<Pod>> {
    let what = format!("{name} has exactly {count} Ready pods");
    until(&what, async || {
        let pods = pods(stage, name).await?;
        Ok((pods.len() == count && pods.iter().all(is_ready)).then_some(pods))
    })
    .await
}

/// The node of a pod.
pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

/// Waits until `look` finds something.
pub async fn until<T, F>(what: &str, look: F) -> anyhow::Result<T>
where
    F: AsyncFn() -> anyhow::Result<Option<T>>,
{
    let deadline = Instant::now() + CHAPTER;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A condition of a machine.
pub fn condition(machine: &Machine, type_: &str) -> Condition {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().find(|it| it.type_ == type_).cloned().unwrap_or_default()
}

/// Waits until a machine's condition has this reason, and answers with its message.
pub async fn reason(
    stage: &Stage,
    machine: &str,
    type_: &str,
    why: &str,
) -> anyhow::Result<String> {
    until(&format!("{type_} of {machine} for {why}"), async || {
        let machine = stage.machines().get(machine).await?;
        let condition = condition(&machine, type_);
        Ok((condition.reason == why).then_some(condition.message))
    })
    .await
}

/// Waits until a machine is gone.
pub async fn gone(stage: &Stage, machine: &Machine) -> anyhow::Result<()> {
    let name = machine.name_any();
    until(&format!("{name} is gone"), async || {
        let there = stage.machines().get_opt(&name).await?;
        Ok(there.is_none_or(|it| it.uid() != machine.uid()).then_some(()))
    })
    .await
}

/// Changes a machine by a merge patch.
pub async fn change(stage: &Stage, machine: &str, patch: Value) -> anyhow::Result<()> {
    stage.machines().patch(machine, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Keeps new pods off a node, or lets them come again.
pub async fn cordon(stage: &Stage, node: &str, on: bool) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": on } }));
    stage.nodes().patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Where a volume is attached, or about to be.
pub async fn attachments(stage: &Stage, volume: &str) -> anyhow::Result<Vec<VolumeAttachment>> {
    let api = Api::<VolumeAttachment>::all(stage.admin.clone());
    let mut all = api.list(&ListParams::default()).await?.items;
    all.retain(|it| it.spec.source.persistent_volume_name.as_deref() == Some(volume));
    Ok(all)
}

/// Waits until a volume is attached, and only to this node.
pub async fn attached(stage: &Stage, volume: &str, node: &str) -> anyhow::Result<()> {
    until(&format!("{volume} is attached to {node} alone"), async || {
        let all = attachments(stage, volume).await?;
        let is_there = |it: &VolumeAttachment| {
            it.spec.node_name == node && it.status.as_ref().is_some_and(|it| it.attached)
        };
        Ok((all.len() == 1 && all.iter().all(is_there)).then_some(()))
    })
    .await
}
