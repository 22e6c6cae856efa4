//! Strange objects that are valid all the same, and sudden changes of mind.

use crate::manifests::{good, unharmed, with};
use drover_sim::faults::Life;
use drover_sim::stage::{Stage, Working};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(3600);

async fn start() -> anyhow::Result<(Stage, Working)> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    Ok((stage, manager))
}

/// Waits until there are so many machines, each with a server and a Ready Node.
async fn nodes(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + CHAPTER;
    loop {
        let mut census = stage.census().await?;
        census.available = u32::try_from(count)?;
        match census.missing(count, &BTreeSet::new()) {
            None => return Ok(()),
            Some(missing) if tokio::time::Instant::now() > deadline => {
                anyhow::bail!("{missing}: {census}")
            }
            Some(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

async fn delete(stage: &Stage, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    stage.api(object).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sets_and_machines_live_without_their_owners() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let set = good("MachineSet", "alone");
    let dotted = good("Machine", "m.with.dots");
    let lonely =
        with(good("Machine", "lonely"), "/metadata/annotations", json!({"note": "Grüße, 世界 🐄"}));
    stage.create(&set).await?;
    stage.create(&dotted).await?;
    stage.create(&lonely).await?;
    nodes(&stage, 3).await?;
    for machine in [&dotted, &lonely] {
        delete(&stage, machine).await?;
    }
    nodes(&stage, 1).await?;
    delete(&stage, &set).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    assert_eq!(stage.census().await?.cloud.servers_made, 3);
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_another_controller_is_left_to_it() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let owner = json!([{
        "apiVersion": "example.com/v1", "kind": "Herd", "name": "other", "controller": true,
        "uid": "7a1f6a0e-0000-4000-8000-000000000001",
    }]);
    let labelled = with(good("Machine", "foreign"), "/metadata/labels", json!({"group": "nodes"}));
    let object = with(labelled, "/metadata/ownerReferences", owner);
    let object = with(object, "/metadata/finalizers", json!(["example.com/herd"]));
    stage.create(&object).await?;
    stage.apply_example(1).await?;
    tokio::time::sleep(CHAPTER / 2).await;
    let census = stage.census().await?;
    let owned = census
        .machines
        .iter()
        .filter(|it| it.owner_references().iter().any(|o| o.kind == "MachineSet"));
    assert_eq!(owned.count(), 1, "{census}");
    assert_eq!(census.available, 1, "the foreign machine does not count: {census}");
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn pools_with_overlapping_selectors_do_not_fight() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.create(&good("MachineDeployment", "nodes")).await?;
    stage.create(&good("MachineDeployment", "others")).await?;
    nodes(&stage, 4).await?;
    let before = stage.census().await?.uids();
    tokio::time::sleep(CHAPTER).await;
    let after = stage.census().await?;
    assert_eq!(after.uids(), before, "nobody takes the other's machines");
    assert_eq!(after.cloud.servers_made, 4);
    stage.pools().delete("others", &DeleteParams::default()).await?;
    nodes(&stage, 2).await?;
    assert_eq!(stage.census().await?.available, 2);
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_user_wrote_is_put_right() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(1).await?;
    let whole = stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    let name = whole.machines[0].name_any();
    let garbage = json!({"status": {"phase": "Failed", "errorMessage": "no", "conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Mood", "message": "?"},
    ], "providerStatus": null, "nodeRef": null}});
    let merge = PatchParams::default();
    stage.machines().patch_status(&name, &merge, &Patch::Merge(&garbage)).await?;
    let counts = json!({"status": {"replicas": 77, "availableReplicas": 99}});
    stage.pools().patch_status("nodes", &merge, &Patch::Merge(&counts)).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    let healed = stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    assert_eq!(healed.made_twice(), None);
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_pool_deleted_while_it_is_made_leaves_nothing() -> anyhow::Result<()> {
    for seconds in [0, 1, 5, 30, 60, 90] {
        let (stage, manager) = start().await?;
        stage.apply_example(3).await?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stage.pools().delete("nodes", &DeleteParams::default()).await?;
        stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
        tokio::time::sleep(CHAPTER / 4).await;
        assert!(stage.census().await?.cloud.is_empty(), "after {seconds} s");
        unharmed(&manager);
        manager.end().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pool_renamed_amid_its_rollout_is_another_pool() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(2).await?;
    let old = stage.whole(2, &BTreeSet::new(), CHAPTER).await?.uids();
    stage.restart().await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.create(&good("MachineDeployment", "renamed")).await?;
    nodes(&stage, 2).await?;
    let census = stage.census().await?;
    assert!(census.uids().is_disjoint(&old), "{census}");
    assert_eq!(census.made_twice(), None);
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn orphans_live_on_and_are_adopted_again() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let pool = good("MachineDeployment", "nodes");
    stage.create(&pool).await?;
    let machines = stage.whole(2, &BTreeSet::new(), CHAPTER).await?.uids();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    stage.pools().delete("nodes", &orphan).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    assert!(stage.pools().get_opt("nodes").await?.is_none(), "the pool is gone");
    assert_eq!(stage.census().await?.uids(), machines, "its machines are not");
    stage.create(&pool).await?;
    let adopted = stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    assert_eq!(stage.census().await?.uids(), machines, "the same template needs no other machines");
    assert_eq!(adopted.cloud.servers_made, 2);
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_pools() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    stage.create(&namespace).await?;
    let pool = with(good("MachineDeployment", "nodes"), "/metadata/namespace", json!("team"));
    stage.create(&pool).await?;
    stage.create(&with(pool, "/metadata/name", json!("none"))).await?;
    let deadline = tokio::time::Instant::now() + CHAPTER;
    while stage.census().await?.nodes.len() < 4 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(stage.census().await?.nodes.len(), 4);
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    namespaces.delete("team", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(namespaces.get_opt("team").await?.is_none(), "the namespace is gone");
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_none_waits_for_its_first_machine() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(0).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    stage.restart().await?;
    stage.scale(1).await?;
    let whole = stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    assert_eq!(whole.cloud.servers_made, 1);
    unharmed(&manager);
    manager.end().await
}
