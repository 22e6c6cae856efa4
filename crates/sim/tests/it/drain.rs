//! Pods behind a budget are not hurried, and who waits says for what.

use crate::workload::{
    CHAPTER, budget, change, condition, node_of, pods, reason, running, workload,
};
use drover_lab::clock::Pace;
use drover_lab::cloud::Delays;
use drover_lab::world::Config;
use drover_sim::faults::Life;
use drover_sim::scenario::drain;
use drover_sim::stage::{NAMESPACE, Stage};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_pod_behind_a_budget_is_never_deleted_early() -> anyhow::Result<()> {
    drain::a_pod_behind_a_budget_is_never_deleted_early(&Stage::start().await?).await
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_the_workload_within_its_budget() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let fewest = drain::a_roll_keeps_the_workload_within_its_budget(&stage).await?;
    assert_eq!(fewest, 5, "the roll used the budget and did not go beyond it");
    Ok(())
}

/// Gardener's scenarios 23 and 28, MetaKube's 22: a restart in the middle of a drain keeps its deadline. What
/// differs from Gardener: overdue pods get up to 30 s to end, and the server follows a minute later.
#[tokio::test(start_paused = true)]
async fn gardener_28_a_restart_in_the_middle_keeps_the_deadline() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let life = Life::long();
    let first = stage.work(stage.wires(&life))?;
    stage.apply_example(2).await?;
    stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    stage.create(&workload("web", 1)).await?;
    stage.create(&budget("web", 1)).await?;
    let pod = running(&stage, "web", 1).await?.remove(0);
    let node = node_of(&pod);
    change(&stage, &node, json!({ "spec": { "drainTimeout": "30m" } })).await?;
    stage.machines().delete(&node, &DeleteParams::default()).await?;
    let begun = Instant::now();
    reason(&stage, &node, "Drained", "BudgetUnsatisfiable").await?;
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    life.end();
    first.stop.cancel();
    let second = stage.work(stage.wires(&Life::long()))?;
    tokio::time::sleep_until(begun + Duration::from_secs(29 * 60)).await;
    let now = pods(&stage, "web").await?;
    assert_eq!(now[0].uid(), pod.uid(), "a minute before the deadline it is still there");
    assert!(now[0].metadata.deletion_timestamp.is_none());
    let gone = stage.machines().get(&node).await?.uid().into_iter().collect();
    stage.whole(2, &gone, Duration::from_secs(5 * 60)).await?;
    second.end().await
}

/// How long it takes until a second pool of one has ten machines more, in the time of the world.
async fn ten_more(stage: &Stage) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let scale = Patch::Merge(json!({ "spec": { "replicas": 11 } }));
    stage.pools().patch_scale("others", &PatchParams::default(), &scale).await?;
    crate::workload::until("ten more machines", async || {
        let pool = stage.pools().get("others").await?;
        let available = pool.status.map_or(0, |status| status.available_replicas);
        Ok((available == 11).then_some(()))
    })
    .await?;
    Ok(begun.elapsed())
}

async fn wide_stage() -> anyhow::Result<Stage> {
    let stage = Stage::of(Config {
        pace: Pace(10.0),
        cloud: Box::new(|cloud| {
            cloud.delays = Delays::instant();
            let quotas = &mut cloud.quotas;
            for quota in [&mut quotas.instances, &mut quotas.cores, &mut quotas.ram] {
                *quota = -1;
            }
        }),
        ..Config::in_process()
    })
    .await?;
    Ok(stage)
}

/// Gardener's scenario 26 (#943): no drain holds a worker.
#[tokio::test(start_paused = true)]
async fn gardener_26_two_hundred_stuck_drains_do_not_delay_ten_new_machines() -> anyhow::Result<()>
{
    const STUCK: u32 = 200;
    let other = crate::manifests::with(
        crate::manifests::good("MachineDeployment", "others"),
        "/spec/replicas",
        json!(1),
    );
    let other = crate::manifests::with(other, "/spec/selector/matchLabels/group", json!("others"));
    let other =
        crate::manifests::with(other, "/spec/template/metadata/labels/group", json!("others"));
    let one = |status: Option<drover_api::MachineDeploymentStatus>| {
        status.is_some_and(|status| status.available_replicas == 1)
    };
    let mut took = vec![];
    for stuck in [0, STUCK] {
        let stage = wide_stage().await?;
        let manager = stage.work(stage.wires(&Life::long()))?;
        stage.create(&other).await?;
        crate::workload::until("the other pool", async || {
            Ok(one(stage.pools().get("others").await?.status).then_some(()))
        })
        .await?;
        if stuck > 0 {
            stage.apply_example(stuck).await?;
            let all = crate::workload::until("the pool to be drained", async || {
                let census = stage.census().await?;
                let many = census.available == stuck;
                Ok(many.then_some(census.machines))
            })
            .await?;
            stage.create(&budget("stuck", stuck)).await?;
            let stuck_ones = all.iter().filter(|it| it.labels()["group"] == "nodes");
            for machine in stuck_ones.map(ResourceExt::name_any) {
                let mut pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": machine, "namespace": NAMESPACE, "labels": { "app": "stuck" },
                    },
                });
                pod["spec"] = workload("stuck", 1)["spec"]["template"]["spec"].clone();
                pod["spec"]["nodeName"] = json!(machine);
                stage.create(&pod).await?;
            }
            running(&stage, "stuck", stuck as usize).await?;
            stage.pools().delete("nodes", &DeleteParams::default()).await?;
            crate::workload::until("all drains are stuck", async || {
                let census = stage.census().await?;
                let waits = |it: &&drover_api::Machine| {
                    condition(it, "Drained").reason == "BudgetUnsatisfiable"
                };
                Ok((census.machines.iter().filter(waits).count() == stuck as usize).then_some(()))
            })
            .await?;
        }
        took.push(ten_more(&stage).await?);
        let machines = stage.census().await?.machines.len();
        assert_eq!(machines, 11 + stuck as usize, "the drains are stuck still");
        manager.end().await?;
    }
    let slack = Duration::from_secs(2);
    assert!(took[1] <= took[0] + slack, "{:?} alone, {:?} beside the drains", took[0], took[1]);
    Ok(())
}
