//! How long drains take: together leaves what can, one after another what must, and nobody is hurried without need.

use crate::volumes::{stage_with, two_nodes};
use crate::workload::{budget, change, condition, cordon, running, until, with_volume, workload};
use drover_sim::faults::Life;
use drover_sim::stage::Stage;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::time::Instant;

/// Deletes the machine of the first node, and tells how long its drain took.
async fn drain_time(stage: &Stage, here: &str, there: &str) -> anyhow::Result<Duration> {
    cordon(stage, there, false).await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.machines().delete(here, &DeleteParams::default()).await?;
    let begun = Instant::now();
    until("it is drained", async || {
        let machine = stage.machines().get(here).await?;
        Ok((condition(&machine, "Drained").status.as_str() == "True").then_some(()))
    })
    .await?;
    let took = begun.elapsed();
    manager.end().await?;
    Ok(took)
}

/// Pods of one workload without volumes, and what may hold them.
struct Case {
    what: &'static str,
    pods: u32,
    /// How long a pod takes to stop, and how long it may.
    stops: u32,
    grace: u32,
    /// Whether a budget never lets one go.
    held: bool,
    drain_timeout: &'static str,
    /// How long the drain takes, in seconds.
    takes: RangeInclusive<u64>,
}

#[rustfmt::skip]
const CASES: [Case; 5] = [
    Case { what: "ten pods leave together",
        pods: 10, stops: 20, grace: 30, held: false, drain_timeout: "2h", takes: 20..=24 },
    Case { what: "a pod that needs long is given the time",
        pods: 1, stops: 240, grace: 600, held: false, drain_timeout: "2h", takes: 240..=244 },
    Case { what: "a pod that needs too long ends at the deadline",
        pods: 1, stops: 3600, grace: 3600, held: false, drain_timeout: "10m", takes: 598..=604 },
    Case { what: "a pod behind a budget is deleted at the deadline, not before",
        pods: 1, stops: 1, grace: 30, held: true, drain_timeout: "10m", takes: 600..=605 },
    Case { what: "a pod that is deleted at the deadline gets half a minute of its hour",
        pods: 1, stops: 3600, grace: 3600, held: true, drain_timeout: "10m", takes: 629..=635 },
];

/// Gardener's scenario 23 with its timings of drains, and MetaKube's 22. What differs: at the deadline a pod gets up to 30 s, and not none.
#[tokio::test(start_paused = true)]
async fn gardener_23_metakube_22_a_drain_takes_as_long_as_its_pods_and_never_longer_than_its_deadline()
-> anyhow::Result<()> {
    for case in CASES {
        let (stage, here, there) = two_nodes().await?;
        change(&stage, &here, json!({ "spec": { "drainTimeout": case.drain_timeout } })).await?;
        let mut web = workload("web", case.pods);
        let template = &mut web["spec"]["template"];
        template["metadata"]["annotations"] =
            json!({ "lab.drover.dev/stop-seconds": case.stops.to_string() });
        template["spec"]["terminationGracePeriodSeconds"] = json!(case.grace);
        stage.create(&web).await?;
        if case.held {
            stage.create(&budget("web", case.pods)).await?;
        }
        running(&stage, "web", case.pods as usize).await?;
        let took = drain_time(&stage, &here, &there).await?;
        assert!(case.takes.contains(&took.as_secs()), "{}: it took {took:?}", case.what);
    }
    Ok(())
}

/// Gardener's scenarios 19 and 20, timed: pods with volumes of their own take their turns, those that share one do not.
#[tokio::test(start_paused = true)]
async fn gardener_20_pods_with_volumes_of_their_own_take_their_turns() -> anyhow::Result<()> {
    let (stage, here, there) = stage_with(&["db-a"]).await?;
    let one = drain_time(&stage, &here, &there).await?;
    assert!(one >= Duration::from_secs(8), "detaching and attaching take their time: {one:?}");
    let (stage, here, there) = stage_with(&["db-a", "db-b", "db-c"]).await?;
    let three = drain_time(&stage, &here, &there).await?;
    assert!(three > one * 2 && three < one * 4, "one took {one:?}, three {three:?}");

    let (stage, here, there) = two_nodes().await?;
    let [mut volume, mut claim, deployment] = with_volume("files");
    for object in [&mut volume, &mut claim] {
        object["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    }
    let deployment = crate::manifests::with(deployment, "/spec/replicas", json!(3));
    for object in [volume, claim, deployment] {
        stage.create(&object).await?;
    }
    running(&stage, "files", 3).await?;
    let shared = drain_time(&stage, &here, &there).await?;
    assert!(shared < one, "three that share one took {shared:?}, one alone {one:?}");
    Ok(())
}

/// The other policy: a budget holds for ever, and the drain goes on when it lets go.
#[tokio::test(start_paused = true)]
async fn a_drain_that_only_evicts_waits_for_ever() -> anyhow::Result<()> {
    let (stage, here, there) = two_nodes().await?;
    let policy = json!({ "spec": { "drainTimeout": "10m", "onDrainTimeout": "KeepEvicting" } });
    change(&stage, &here, policy).await?;
    stage.create(&workload("web", 1)).await?;
    stage.create(&budget("web", 1)).await?;
    let pod = running(&stage, "web", 1).await?.remove(0);
    let relaxed = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let now = running(&stage, "web", 1).await?.remove(0);
        assert_eq!(now.metadata.uid, pod.metadata.uid, "it is there an hour later");
        let patch = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
        stage.api(&budget("web", 0)).patch("web", &PatchParams::default(), &patch).await?;
        anyhow::Ok(())
    };
    let (took, relaxed) = tokio::join!(drain_time(&stage, &here, &there), relaxed);
    relaxed?;
    let seconds = took?.as_secs();
    assert!((3600..3690).contains(&seconds), "it took {seconds} s");
    Ok(())
}
