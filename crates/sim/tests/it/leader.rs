//! Managers that share a Lease: one works, the next takes over, and no two ever make the same thing.

use drover_sim::faults::{Call, Life};
use drover_sim::stage::Stage;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::collections::BTreeSet;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(3600);

fn works(call: &Call) -> bool {
    call.is_write() && !call.path.contains("/leases")
}

async fn holder(stage: &Stage) -> anyhow::Result<Option<String>> {
    let leases = Api::<Lease>::namespaced(stage.admin.clone(), "kube-system");
    let lease = leases.get_opt("drover").await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity))
}

#[tokio::test(start_paused = true)]
async fn the_next_manager_takes_over_when_the_first_dies() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let none = BTreeSet::new();
    let lives = [Life::until(u64::MAX, works), Life::until(u64::MAX, works)];
    let first = stage.work_as(stage.wires(&lives[0]), "first", |it| it.elect_leader = true)?;
    stage.apply_example(2).await?;
    stage.whole(2, &none, CHAPTER).await?;
    assert_eq!(holder(&stage).await?.as_deref(), Some("first"));

    let second = stage.work_as(stage.wires(&lives[1]), "second", |it| it.elect_leader = true)?;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(lives[1].calls(), 0, "the second writes nothing while the first leads");

    stage.scale(6).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    lives[0].end();
    let healed = stage.whole(6, &none, CHAPTER).await?;
    assert_eq!(holder(&stage).await?.as_deref(), Some("second"));
    assert_eq!((healed.made_twice(), healed.cloud.servers_made), (None, 6));
    first.stop.cancel();
    second.end().await
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_ends_in_order_lets_the_next_in_at_once() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let first = stage.work_as(stage.wires(&Life::long()), "first", |it| it.elect_leader = true)?;
    stage.apply_example(1).await?;
    stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    let second =
        stage.work_as(stage.wires(&Life::long()), "second", |it| it.elect_leader = true)?;
    first.end().await?;
    let waited = tokio::time::Instant::now();
    while holder(&stage).await?.as_deref() != Some("second") {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(waited.elapsed() < Duration::from_secs(5), "the Lease was not given up");
    }
    second.end().await
}
