//! The whole manager on real OpenStack: killed amid creations and deletions, it makes no server twice and leaves none.

use anyhow::Context;
use drover_lab::openstack::project::Project;
use drover_sim::faults::Life;
use drover_sim::scenario::{at_work, restart};
use drover_sim::stage::Stage;
use futures::StreamExt;
use kube::api::DeleteParams;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Deaths tried in each suite; `DROVER_TEST_SEED` takes others.
const SAMPLE: usize = 6;
/// Worlds of a suite at once, each with two servers of ours and one of somebody else's: they mostly wait for what a dead process
/// may have sent.
const AT_ONCE: usize = SAMPLE;

fn seed() -> u64 {
    std::env::var("DROVER_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7)
}

/// Some of so many calls, spread over all of them.
fn sample(calls: u64, salt: u64) -> Vec<u64> {
    let mut dice = fastrand::Rng::with_seed(seed() ^ salt);
    let part = |number: usize| {
        let number = number as u64;
        let (from, to) = (number * calls / SAMPLE as u64, (number + 1) * calls / SAMPLE as u64);
        dice.u64(from + 1..=to.max(from + 1))
    };
    (0..SAMPLE).map(part).collect()
}

async fn creation(stage: &Stage, at: u64) -> anyhow::Result<Arc<Life>> {
    let life = restart::while_creating(stage, at).await?;
    let manager = at_work(stage)?;
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), stage.chapter).await?;
    manager.end().await?;
    Ok(life)
}

async fn deletion(stage: &Stage, at: u64) -> anyhow::Result<Arc<Life>> {
    let life = restart::while_deleting(stage, at).await?;
    let made = stage.census().await?.cloud.servers_made;
    anyhow::ensure!(made == u64::from(restart::REPLICAS), "{made} servers were made");
    Ok(life)
}

/// One death in a project of its own.
async fn one(
    suite: &str,
    at: u64,
    case: impl AsyncFn(&Stage, u64) -> anyhow::Result<Arc<Life>>,
) -> anyhow::Result<Option<u64>> {
    let Some(project) = Project::for_suite(suite, SAMPLE + 1).await? else { return Ok(None) };
    let began = Instant::now();
    let stage = Stage::in_project(project).await?;
    let life = case(&stage, at).await?;
    stage.end().await?;
    let (log, seconds) = (life.log(), began.elapsed().as_secs_f64());
    // A world is not each time as fast: a life may end before its death.
    match log.get(usize::try_from(at)? - 1) {
        Some(last) => println!("{suite}: died with call {at}, {last}: {seconds:.0} s"),
        None => println!("{suite}: lived for {} calls: {seconds:.0} s", log.len()),
    }
    Ok(Some(life.calls()))
}

/// A life to its end tells how many calls there are to die with; then a sample of them.
async fn at_some_calls(
    suite: &str,
    salt: u64,
    case: impl AsyncFn(&Stage, u64) -> anyhow::Result<Arc<Life>>,
) -> anyhow::Result<()> {
    let Some(calls) = one(suite, u64::MAX, &case).await? else { return Ok(()) };
    let deaths = sample(calls, salt).into_iter().map(async |at| {
        one(suite, at, &case).await.with_context(|| format!("{suite}: killed with call {at}"))
    });
    let mut deaths = futures::stream::iter(deaths).buffer_unordered(AT_ONCE);
    while let Some(died) = deaths.next().await {
        died?;
    }
    Ok(())
}

#[tokio::test]
async fn no_death_while_creating_makes_two_servers_or_loses_anything() -> anyhow::Result<()> {
    at_some_calls("death-creating", 1, creation).await
}

#[tokio::test]
async fn no_death_while_deleting_leaves_anything_behind() -> anyhow::Result<()> {
    at_some_calls("death-deleting", 2, deletion).await
}
