//! The manager is killed after every single call that changes anything, and another takes its place.

use drover_sim::faults::{Call, Life};
use drover_sim::stage::Stage;
use kube::api::DeleteParams;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(4 * 3600);
/// The pool of these tests.
const REPLICAS: u32 = 2;

/// Writes to Kubernetes but for Events, and every call to the cloud.
fn counts(call: &Call) -> bool {
    if call.path.starts_with("/apis/events.k8s.io/") {
        return false;
    }
    let to_kubernetes = call.path.starts_with("/api/") || call.path.starts_with("/apis/");
    !to_kubernetes || call.is_write()
}

/// Runs a manager that dies with call number `at`, then one that lives; `act` is what a user does
/// while the first is at work.
async fn die_and_go_on<F>(
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
        whole = stage.whole(replicas, &none, CHAPTER) => { whole?; }
    }
    life.end();
    let second = stage.work(stage.wires(&Life::long()))?;
    let whole = stage.whole(replicas, &none, CHAPTER).await;
    let last = life.log().last().cloned().unwrap_or_default();
    let whole = whole.map_err(|error| error.context(format!("killed after call {at}, {last}")))?;
    assert_eq!(whole.made_twice(), None, "killed after call {at}, {last}");
    second.end().await?;
    first.stop.cancel();
    Ok(life)
}

#[tokio::test(start_paused = true)]
async fn no_death_while_creating_makes_two_servers_or_loses_anything() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let life = die_and_go_on(&stage, at, REPLICAS as usize, async |stage: &Stage| {
            stage.apply_example(REPLICAS).await
        })
        .await?;
        let made = stage.census().await?.cloud.servers_made;
        assert_eq!(made, u64::from(REPLICAS), "killed after call {at}, {:?}", life.log().last());
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
        let builder = stage.work(stage.wires(&Life::long()))?;
        stage.apply_example(REPLICAS).await?;
        stage.whole(REPLICAS as usize, &BTreeSet::new(), CHAPTER).await?;
        builder.end().await?;
        let life = die_and_go_on(&stage, at, 0, async |stage: &Stage| {
            stage.pools().delete("nodes", &DeleteParams::default()).await?;
            Ok(())
        })
        .await?;
        if life.calls() < at {
            assert!(at > 10, "a deletion is more than {at} calls");
            break;
        }
    }
    Ok(())
}
