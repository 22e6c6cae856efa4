//! The manager dies after a certain call, and another takes its place.

use crate::faults::{Call, Life};
use crate::stage::Stage;
use kube::api::DeleteParams;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The pool of these scenarios.
pub const REPLICAS: u32 = 2;

/// Writes to Kubernetes but for Events, and every call to the cloud.
#[must_use]
pub fn counts(call: &Call) -> bool {
    if call.path.starts_with("/apis/events.k8s.io/") {
        return false;
    }
    let to_kubernetes = call.path.starts_with("/api/") || call.path.starts_with("/apis/");
    !to_kubernetes || call.is_write()
}

/// A manager that dies with call number `at` while it creates makes no server twice and loses nothing.
///
/// # Errors
/// When the pool is not whole under the next manager.
pub async fn while_creating(stage: &Stage, at: u64) -> anyhow::Result<Arc<Life>> {
    let apply = async |stage: &Stage| stage.apply_example(REPLICAS).await;
    let life = die_and_go_on(stage, at, REPLICAS as usize, apply).await?;
    let made = stage.census().await?.cloud.servers_made;
    assert_eq!(made, u64::from(REPLICAS), "killed after call {at}, {:?}", life.log().last());
    Ok(life)
}

/// How many servers were asked for in this life.
fn asked(life: &Life) -> usize {
    let log = life.log();
    log.iter().filter(|call| call.starts_with("POST ") && call.ends_with("/servers")).count()
}

/// A manager that dies with call number `at` while it deletes leaves nothing behind.
///
/// # Errors
/// When something is left under the next manager.
pub async fn while_deleting(stage: &Stage, at: u64) -> anyhow::Result<Arc<Life>> {
    let builder = super::at_work(stage)?;
    stage.apply_example(REPLICAS).await?;
    stage.whole(REPLICAS as usize, &BTreeSet::new(), stage.chapter).await?;
    builder.end().await?;
    let delete = async |stage: &Stage| {
        stage.pools().delete("nodes", &DeleteParams::default()).await?;
        Ok(())
    };
    die_and_go_on(stage, at, 0, delete).await
}

/// Runs a manager that dies with call number `at`, then one that lives; `act` is what a user does
/// while the first is at work.
///
/// # Errors
/// When the pool is not whole under the next manager.
pub async fn die_and_go_on<F>(
    stage: &Stage,
    at: u64,
    replicas: usize,
    act: F,
) -> anyhow::Result<Arc<Life>>
where
    F: AsyncFnOnce(&Stage) -> anyhow::Result<()>,
{
    let life = Life::until(at, counts);
    let first = stage.work(stage.wires(&life))?;
    act(stage).await?;
    let none = BTreeSet::new();
    tokio::select! {
        biased;
        () = life.over() => {}
        whole = stage.whole(replicas, &none, stage.chapter) => { whole?; }
    }
    life.end();
    let rest = Life::long();
    let second = stage.work(stage.wires(&rest))?;
    let whole = stage.whole(replicas, &none, stage.chapter).await;
    let last = life.log().last().cloned().unwrap_or_default();
    let whole = whole.map_err(|error| error.context(format!("killed after call {at}, {last}")))?;
    assert_eq!(whole.made_twice(), None, "killed after call {at}, {last}");
    // Nova forgets a server that goes before it has a host: what was asked for is counted too.
    assert_eq!(asked(&life) + asked(&rest), replicas, "killed after call {at}, {last}");
    second.end().await?;
    first.stop.cancel();
    Ok(life)
}
