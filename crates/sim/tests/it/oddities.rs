//! Strange objects that are valid all the same, and sudden changes of mind.

use crate::manifests::{good, unharmed, with};
use crate::secrets::own_credentials;
use crate::workload::{gone, reason};
use drover_api::Machine;
use drover_sim::faults::Life;
use drover_sim::scenario::{end, story};
use drover_sim::stage::{Stage, Working};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
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

#[tokio::test(start_paused = true)]
async fn a_status_that_a_user_wrote_is_put_right() -> anyhow::Result<()> {
    story::a_status_of_a_users_is_put_right(&Stage::start().await?).await
}

#[tokio::test(start_paused = true)]
async fn a_pool_deleted_while_it_is_made_leaves_nothing() -> anyhow::Result<()> {
    for seconds in [0, 1, 5, 30, 60, 90] {
        let stage = Stage::start().await?;
        end::deleted_while_it_is_made(&stage, Duration::from_secs(seconds)).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn orphans_live_on_and_are_adopted_again() -> anyhow::Result<()> {
    end::orphans_are_adopted_again(&Stage::start().await?).await
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_pools() -> anyhow::Result<()> {
    end::a_namespace_goes_with_its_pools(&Stage::start().await?).await
}

/// What the manager may not read is named with the way out, for credentials and for other fields; such a machine is
/// also deleted.
#[tokio::test(start_paused = true)]
async fn a_secret_that_may_not_be_read_is_named_with_the_way_out() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let elsewhere = json!({"secretKeyRef": {"namespace": "default", "name": "cloud", "key": "k"}});
    let user = json!({"username": "drover", "domainName": "Default", "projectName": "drover"});
    let keyed = own_credentials(good("Machine", "keyed"), "/spec", &stage, &user);
    let place = "/spec/providerSpec/value/cloudProviderSpec";
    stage.create(&with(keyed, &format!("{place}/password"), elsewhere.clone())).await?;
    let imaged = good("Machine", "imaged");
    stage.create(&with(imaged, &format!("{place}/image"), elsewhere)).await?;
    for (name, why) in [("keyed", "CredentialsMissing"), ("imaged", "DescriptionInvalid")] {
        let message = reason(&stage, name, "Ready", why).await?;
        let way_out = "no right to read Secret default/cloud; \
                       `drover manifests rbac --credentials-namespace default`";
        assert!(message.contains(way_out), "{message}");
        let machine = stage.machines().get(name).await?;
        stage.machines().delete(name, &DeleteParams::default()).await?;
        gone(&stage, &machine).await?;
    }
    manager.end().await
}

/// Its server is known by its marks alone.
#[tokio::test(start_paused = true)]
async fn a_status_wiped_while_its_server_is_made_costs_no_second_server() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.create(&good("Machine", "wiped")).await?;
    reason(&stage, "wiped", "ServerCreated", "ServerMade").await?;
    manager.end().await?;
    let machine = Machine { status: None, ..stage.machines().get("wiped").await? };
    let empty = stage.machines().replace_status("wiped", &PostParams::default(), &machine).await?;
    assert_eq!(empty.status, None);
    let manager = stage.work(stage.wires(&Life::long()))?;
    reason(&stage, "wiped", "Ready", "NodeReady").await?;
    assert_eq!(stage.census().await?.cloud.servers_made, 1);
    delete(&stage, &good("Machine", "wiped")).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    manager.end().await
}
