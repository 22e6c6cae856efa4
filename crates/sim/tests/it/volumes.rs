//! Volumes go where their pods go: one after another, and never away from a server that may write to them.

use crate::workload::{
    CHAPTER, attached, attachments, cordon, node_of, pods, running, until, with_volume, workload,
};
use drover_sim::faults::Life;
use drover_sim::stage::Stage;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Two nodes, of which only the first takes pods, and no manager.
pub async fn two_nodes() -> anyhow::Result<(Stage, String, String)> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(2).await?;
    let whole = stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    manager.end().await?;
    let names: Vec<String> = whole.machines.iter().map(ResourceExt::name_any).collect();
    let (here, there) = (names[0].clone(), names[1].clone());
    cordon(&stage, &there, true).await?;
    Ok((stage, here, there))
}

/// The same, and these workloads with a volume each on the first.
pub async fn stage_with(volumes: &[&str]) -> anyhow::Result<(Stage, String, String)> {
    let (stage, here, there) = two_nodes().await?;
    for name in volumes {
        for object in with_volume(name) {
            stage.create(&object).await?;
        }
        let pod = running(&stage, name, 1).await?.remove(0);
        assert_eq!(node_of(&pod), here);
        attached(&stage, &format!("pv-{name}"), &here).await?;
    }
    Ok((stage, here, there))
}

/// Gardener's scenario 19.
#[tokio::test(start_paused = true)]
async fn gardener_19_two_pods_with_exclusive_volumes_drain_serially() -> anyhow::Result<()> {
    let (stage, here, there) = stage_with(&["db-a", "db-b"]).await?;
    stage.create(&workload("web", 2)).await?;
    running(&stage, "web", 2).await?;
    cordon(&stage, &there, false).await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.machines().delete(&here, &DeleteParams::default()).await?;
    let leaves = async |name: &str| -> anyhow::Result<()> {
        until(&format!("{name} is evicted"), async || {
            let all = pods(&stage, name).await?;
            let stays = |pod: &k8s_openapi::api::core::v1::Pod| {
                node_of(pod) == here && pod.metadata.deletion_timestamp.is_none()
            };
            Ok((!all.iter().any(stays)).then_some(()))
        })
        .await
    };
    leaves("db-a").await?;
    leaves("web").await?;
    let mut looks = 0;
    loop {
        let arrived = attachments(&stage, "pv-db-a").await?;
        let other = pods(&stage, "db-b").await?.remove(0);
        let left = node_of(&other) != here || other.metadata.deletion_timestamp.is_some();
        let is_there = arrived.iter().any(|it| {
            it.spec.node_name != here && it.status.as_ref().is_some_and(|it| it.attached)
        });
        if is_there {
            break;
        }
        assert!(!left, "db-b left before the volume of db-a had arrived");
        looks += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(looks > 10, "detaching and attaching take their time");
    leaves("db-b").await?;
    stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    for name in ["db-a", "db-b"] {
        let pod = running(&stage, name, 1).await?.remove(0);
        attached(&stage, &format!("pv-{name}"), &node_of(&pod)).await?;
    }
    manager.end().await
}

/// Deletes a machine that cannot be drained, and waits until its volume is elsewhere; how long after `begun` it
/// was taken from the server, which was off then.
async fn freed_when_off(stage: &Stage, here: &str, begun: Instant) -> anyhow::Result<Duration> {
    let servers = stage.census().await?.cloud.servers;
    let server = servers.iter().find(|it| it.name == here).expect("its server").id.clone();
    let pod = pods(stage, "db").await?.remove(0).uid();
    stage.machines().delete(here, &DeleteParams::default()).await?;
    loop {
        let runs = stage.census().await?.cloud.servers.iter().any(|it| it.id == server);
        let all = attachments(stage, "pv-db").await?;
        let held = all
            .iter()
            .any(|it| it.spec.node_name == here && it.metadata.deletion_timestamp.is_none());
        assert!(held || !runs, "the volume was taken from a server that is there");
        if !held {
            break;
        }
        assert!(begun.elapsed() < CHAPTER, "the volume is held for ever");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let freed = begun.elapsed();
    let moved = running(stage, "db", 1).await?.remove(0);
    assert_ne!((moved.uid(), node_of(&moved)), (pod, here.to_owned()));
    attached(stage, "pv-db", &node_of(&moved)).await?;
    stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    Ok(freed)
}

/// Five minutes for the node to come back, and not the six more that Kubernetes waits for an unmount.
fn assert_fast(freed: Duration) {
    let seconds = freed.as_secs();
    assert!((300..480).contains(&seconds), "freed after {freed:?}");
}

/// Gardener's scenario 25 and MetaKube's 23, the fast path. What differs: attachments are deleted when the server is off, not before.
#[tokio::test(start_paused = true)]
async fn gardener_25_metakube_23_the_volume_of_a_silent_node_is_freed_when_its_server_is_off()
-> anyhow::Result<()> {
    let (stage, here, there) = stage_with(&["db"]).await?;
    cordon(&stage, &there, false).await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let server = stage.census().await?.cloud.servers;
    let server = server.iter().find(|it| it.name == here).expect("its server").id.clone();
    let begun = Instant::now();
    assert!(stage.cloud()?.crash(&server, false), "the server is there");
    until("its node is silent", async || {
        let node = stage.nodes().get(&here).await?;
        Ok((!drover_plan::node::is_ready(&node)).then_some(()))
    })
    .await?;
    assert_fast(freed_when_off(&stage, &here, begun).await?);
    manager.end().await
}

/// Gardener's scenario 25 (#839) and MetaKube's 23: a disk that became read-only is as bad as silence, for nothing can be unmounted.
#[tokio::test(start_paused = true)]
async fn the_volume_of_a_node_with_a_read_only_disk_is_freed_when_its_server_is_off()
-> anyhow::Result<()> {
    let (stage, here, there) = stage_with(&["db"]).await?;
    cordon(&stage, &there, false).await?;
    let life = Life::long();
    let manager = stage.work(stage.wires(&life))?;
    let begun = Instant::now();
    let now = stage.now().to_string();
    let ill = Patch::Strategic(json!({ "status": { "conditions": [{
        "type": "ReadonlyFilesystem", "status": "True", "reason": "FilesystemIsReadOnly",
        "message": "EXT4-fs (vda1): Remounting filesystem read-only",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}));
    stage.nodes().patch_status(&here, &PatchParams::default(), &ill).await?;
    assert_fast(freed_when_off(&stage, &here, begun).await?);
    let evicted = life.log().into_iter().find(|call| call.ends_with("/eviction"));
    assert_eq!(evicted, None, "nothing is asked of it");
    manager.end().await
}
