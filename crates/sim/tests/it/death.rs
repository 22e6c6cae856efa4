//! The manager is killed after every single call that changes anything, and another takes its place.

use crate::deletion::{mirantis, withdrawn};
use crate::manifests::{good, with};
use crate::workload::{
    CHAPTER, attached, budget, change, cordon, gone, node_of, reason, running, until, with_volume,
    workload,
};
use drover_api::Phase;
use drover_lab::cloud::{Effect, Fault, Quotas};
use drover_sim::faults::{Call, Life};
use drover_sim::scenario::restart;
use drover_sim::stage::{NAMESPACE, Stage};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The pool of these tests.
const REPLICAS: u32 = 2;

/// Gardener's scenario 2 and MetaKube's 13.
#[tokio::test(start_paused = true)]
async fn gardener_2_metakube_13_no_death_while_creating_makes_two_servers_or_loses_anything()
-> anyhow::Result<()> {
    // Without one of its own, so that the shared server group is made, too.
    let group = "/spec/template/spec/providerSpec/value/cloudProviderSpec/serverGroupID";
    let pool = with(good("MachineDeployment", "nodes"), group, Value::Null);
    for at in 1.. {
        let stage = Stage::start().await?;
        let create = async |stage: &Stage| stage.create(&pool).await.map(drop).map_err(Into::into);
        let life = restart::die_and_go_on(&stage, at, REPLICAS as usize, create).await?;
        let made = stage.census().await?.cloud.servers_made;
        assert_eq!(made, u64::from(REPLICAS), "after call {at}, {:?}", life.log().last());
        if life.calls() < at {
            assert!(at > 20, "a creation is more than {at} calls");
            break;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_death_while_deleting_leaves_anything_behind() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let life = restart::while_deleting(&stage, at).await?;
        if life.calls() < at {
            assert!(at > 10, "a deletion is more than {at} calls");
            break;
        }
    }
    Ok(())
}

/// A node with two volumes to move and pods without any is deleted. Gardener's scenario 28.
#[tokio::test(start_paused = true)]
async fn no_death_while_draining_loses_a_volume_or_a_machine() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let builder = stage.work(stage.wires(&Life::long()))?;
        stage.apply_example(REPLICAS).await?;
        let whole = stage.whole(REPLICAS as usize, &BTreeSet::new(), CHAPTER).await?;
        let machine = &whole.machines[0];
        let (here, there) = (machine.name_any(), whole.machines[1].name_any());
        cordon(&stage, &there, true).await?;
        for object in with_volume("db-a").iter().chain(&with_volume("db-b")) {
            stage.create(object).await?;
        }
        stage.create(&workload("web", 2)).await?;
        for (name, count) in [("db-a", 1), ("db-b", 1), ("web", 2)] {
            running(&stage, name, count).await?;
        }
        attached(&stage, "pv-db-a", &here).await?;
        attached(&stage, "pv-db-b", &here).await?;
        cordon(&stage, &there, false).await?;
        builder.end().await?;
        let old: BTreeSet<String> = machine.uid().into_iter().collect();
        let life = Life::until(at, restart::counts);
        let first = stage.work(stage.wires(&life))?;
        stage.machines().delete(&here, &DeleteParams::default()).await?;
        tokio::select! {
            biased;
            () = life.over() => {}
            whole = stage.whole(REPLICAS as usize, &old, CHAPTER) => { whole?; }
        }
        life.end();
        let second = stage.work(stage.wires(&Life::long()))?;
        let last = life.log().last().cloned().unwrap_or_default();
        let whole = stage.whole(REPLICAS as usize, &old, CHAPTER).await;
        let whole = whole.map_err(|error| error.context(format!("killed after {at}, {last}")))?;
        assert_eq!(whole.made_twice(), None, "killed after call {at}, {last}");
        assert_eq!(whole.cloud.servers_made, u64::from(REPLICAS) + 1, "after {at}, {last}");
        running(&stage, "web", 2).await?;
        for name in ["db-a", "db-b"] {
            let pod = running(&stage, name, 1).await?.remove(0);
            attached(&stage, &format!("pv-{name}"), &node_of(&pod)).await?;
        }
        second.end().await?;
        first.stop.cancel();
        // What comes after the machine's end, its replacement, has its own tests.
        let ends = |call: &String| {
            call.starts_with("PATCH ") && call.ends_with(&format!("/machines/{here}"))
        };
        if life.log().iter().any(ends) {
            assert!(at > 15, "a drain and a deletion are more than {at} calls");
            break;
        }
    }
    Ok(())
}

/// Mirantis: a deletion is asked for, withdrawn, asked for again, held by a hook, and forced at last because
/// the cloud is stuck. All deaths happen in one world, each in the life of a machine of its own.
#[tokio::test(start_paused = true)]
async fn no_death_while_an_end_is_withdrawn_held_or_forced_confuses_it() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let builder = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(1).await?;
    stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    builder.end().await?;
    for at in 1.. {
        let name = format!("lone-{at}");
        let told = long_end(&stage, &name, at).await;
        let life = told.map_err(|error| error.context(format!("killed after call {at}")))?;
        if life.calls() < at {
            assert!(at > 12, "such an end is more than {at} calls");
            break;
        }
    }
    Ok(())
}

/// One such end, under a manager that dies with call number `at` and its successor.
async fn long_end(stage: &Stage, name: &str, at: u64) -> anyhow::Result<Arc<Life>> {
    let builder = stage.work(stage.wires(&Life::long()))?;
    stage.create(&mirantis(name)).await?;
    until("the machine is Running", async || {
        let phase = stage.machines().get(name).await?.status.and_then(|it| it.phase);
        Ok((phase == Some(Phase::Running)).then_some(()))
    })
    .await?;
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": name } },
        "spec": workload(name, 1)["spec"]["template"]["spec"],
    });
    pod["spec"]["nodeName"] = json!(name);
    stage.create(&pod).await?;
    stage.create(&budget(name, 1)).await?;
    running(stage, name, 1).await?;
    builder.end().await?;

    let life = Life::until(at, restart::counts);
    under_two(stage, &life, asked_withdrawn_held_and_forced(stage, name)).await?;
    Ok(life)
}

/// Tells a story under a manager of this life, and when that is over under its successor.
async fn under_two(
    stage: &Stage,
    life: &Arc<Life>,
    story: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let first = stage.work(stage.wires(life))?;
    let is_told = CancellationToken::new();
    let heir = async {
        tokio::select! {
            biased;
            () = life.over() => Some(stage.work(stage.wires(&Life::long()))),
            () = is_told.cancelled() => None,
        }
    };
    let story = async {
        let _end = is_told.clone().drop_guard();
        story.await
    };
    let (told, second) = tokio::join!(story, heir);
    first.stop.cancel();
    let last = life.log().last().cloned().unwrap_or_default();
    told.map_err(|error| error.context(format!("its last call was {last}")))?;
    match second {
        Some(second) => second?.end().await,
        None => first.end().await,
    }
}

/// A set writes down that its circuit is open, until when and who tries: it dies after each of these writes.
#[tokio::test(start_paused = true)]
async fn no_death_amid_an_open_circuit_loses_a_machine_or_asks_more_often() -> anyhow::Result<()> {
    const SHORT: u32 = 4;
    let writes = |call: &Call| call.is_write() && call.path.contains("/machinesets/");
    for at in 1.. {
        let stage = Stage::start().await?;
        let cloud = stage.cloud()?;
        cloud.set_quotas(Quotas { instances: 0, ..Quotas::default() });
        let story = async {
            stage.apply_example(SHORT).await?;
            tokio::time::sleep(Duration::from_secs(1800)).await;
            let tried = cloud.ledger().count("compute POST /servers");
            assert!(tried <= 2 * u64::from(SHORT) + 8, "{tried} tries in half an hour");
            cloud.set_quotas(Quotas::default());
            let whole = stage.whole(SHORT as usize, &BTreeSet::new(), CHAPTER).await?;
            assert_eq!(whole.made_twice(), None);
            assert_eq!(whole.cloud.servers_made, u64::from(SHORT), "{whole}");
            Ok(())
        };
        let life = Life::until(at, writes);
        under_two(&stage, &life, story).await?;
        if life.calls() < at {
            assert!(at > 6, "such a story is more than {at} writes");
            break;
        }
    }
    Ok(())
}

async fn asked_withdrawn_held_and_forced(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let ask =
        |delete: bool| json!({ "spec": { "providerSpec": { "value": { "delete": delete } } } });
    change(stage, name, ask(true)).await?;
    reason(stage, name, "Drained", "BudgetUnsatisfiable").await?;
    change(stage, name, ask(false)).await?;
    withdrawn(stage, name).await?;
    let node = stage.nodes().get(name).await?;
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None, "it is uncordoned");

    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd";
    change(stage, name, json!({ "metadata": { "annotations": { hook: "" } } })).await?;
    change(stage, name, ask(true)).await?;
    reason(stage, name, "Drained", "BudgetUnsatisfiable").await?;
    let relaxed = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    stage.api(&budget(name, 0)).patch(name, &PatchParams::default(), &relaxed).await?;
    reason(stage, name, "ServerDeleted", "HookAwaited").await?;
    running(stage, name, 0).await?;

    let cloud = stage.cloud()?;
    cloud.add_fault(Fault::on("compute DELETE /servers/{id}", Effect::status(503)));
    let machine = stage.machines().get(name).await?;
    change(stage, name, json!({ "spec": { "deletionPolicy": "forced" } })).await?;
    gone(stage, &machine).await?;
    cloud.set_faults(vec![]);
    let census = stage.census().await?;
    let left: Vec<_> = census.cloud.servers.iter().filter(|it| it.name == name).collect();
    assert_eq!(left.len(), 1, "forced lets go of what the cloud keeps: {census}");
    assert_eq!((census.tokens, census.made_twice()), (0, None));
    assert!(cloud.vanish(&left[0].id));
    Ok(())
}
