//! Late watches, conflicts and a cloud that fails: the pool still comes to exactly what was asked.

use drover_sim::faults::{Call, Fate, Life};
use drover_sim::stage::{Stage, Wires};
use http::StatusCode;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(6 * 3600);

/// Every n-th of the calls that count has this fate.
fn every(n: u64, fate: Fate, counts: fn(&Call) -> bool) -> impl Fn(&Call) -> Fate + Send + Sync {
    let seen = AtomicU64::new(0);
    move |call| {
        let hit = counts(call) && seen.fetch_add(1, Ordering::SeqCst) % n == n - 1;
        if hit { fate } else { Fate::Pass }
    }
}

fn is_update(call: &Call) -> bool {
    matches!(call.method.as_str(), "PUT" | "PATCH")
}

async fn weather(stage: &Stage, wires: Wires) -> anyhow::Result<()> {
    let manager = stage.work(wires)?;
    let none = BTreeSet::new();
    stage.apply_example(5).await?;
    let old = stage.whole(5, &none, CHAPTER).await?.uids();
    stage.restart().await?;
    let rolled = stage.whole(5, &old, CHAPTER).await?;
    assert_eq!(rolled.made_twice(), None);
    stage.scale(1).await?;
    stage.whole(1, &none, CHAPTER).await?;
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let mut wires = stage.wires(&Life::long());
    wires.kubernetes = wires.kubernetes.with_lag(Duration::from_secs(3));
    weather(&stage, wires).await?;
    let made = stage.census().await?.cloud.servers_made;
    assert_eq!(made, 10, "a page that is late makes no machine twice");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_every_second_write() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let mut wires = stage.wires(&Life::long());
    let conflict = Fate::Refuse(StatusCode::CONFLICT);
    wires.kubernetes = wires.kubernetes.with_rule(every(2, conflict, is_update));
    weather(&stage, wires).await
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_every_third_time() -> anyhow::Result<()> {
    for fate in [Fate::Refuse, Fate::Garble] {
        let stage = Stage::start().await?;
        let mut wires = stage.wires(&Life::long());
        let fate = fate(StatusCode::INTERNAL_SERVER_ERROR);
        wires.openstack = wires.openstack.with_rule(every(3, fate, |_| true));
        weather(&stage, wires).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn everything_at_once() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let mut wires = stage.wires(&Life::long());
    let conflict = Fate::Refuse(StatusCode::CONFLICT);
    wires.kubernetes =
        wires.kubernetes.with_lag(Duration::from_secs(2)).with_rule(every(3, conflict, is_update));
    let fate = Fate::Garble(StatusCode::SERVICE_UNAVAILABLE);
    wires.openstack = wires.openstack.with_rule(every(5, fate, |_| true));
    weather(&stage, wires).await
}
