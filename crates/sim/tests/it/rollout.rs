//! How many machines there are while a pool rolls.

use anyhow::bail;
use drover_api::Machine;
use drover_sim::faults::Life;
use drover_sim::stage::{Stage, Working};
use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const REPLICAS: u32 = 4;
/// Less than a resync: what a rollout waits for wakes it.
const SOON: Duration = Duration::from_secs(540);

/// What was seen of the machines of a rollout.
#[derive(Default)]
struct Seen {
    /// Those that are there, and whether they are being deleted.
    there: BTreeMap<String, bool>,
    most_staying: usize,
    most: usize,
    /// Whether an old and a new machine were there together.
    mixed: bool,
}

/// A pool of four by this strategy, rolled once.
async fn roll(strategy: Value, strict_surge: bool) -> anyhow::Result<Seen> {
    let stage = Stage::start().await?;
    let strict = |settings: &mut drover_controllers::manager::Settings| {
        settings.deployment.strict_surge = strict_surge;
    };
    let manager: Working = stage.work_as(stage.wires(&Life::long()), "sim", strict)?;
    stage.apply_example(REPLICAS).await?;
    let old = stage.whole(REPLICAS as usize, &BTreeSet::new(), SOON).await?.uids();
    let patch = Patch::Merge(json!({ "spec": { "strategy": strategy } }));
    stage.pools().patch("nodes", &PatchParams::default(), &patch).await?;
    stage.restart().await?;
    let mut seen = Seen::default();
    let machines = watcher(stage.machines(), watcher::Config::default());
    let looking = machines.try_for_each(|event| {
        seen.take(event, &old);
        std::future::ready(Ok(()))
    });
    tokio::select! {
        whole = stage.whole(REPLICAS as usize, &old, SOON) => drop(whole?),
        ended = looking => bail!("nobody ends the watch: {ended:?}"),
    }
    manager.end().await?;
    Ok(seen)
}

impl Seen {
    fn take(&mut self, event: Event<Machine>, old: &BTreeSet<String>) {
        match event {
            Event::Apply(machine) | Event::InitApply(machine) => {
                let leaves = machine.metadata.deletion_timestamp.is_some();
                self.there.insert(machine.uid().unwrap_or_default(), leaves);
            }
            Event::Delete(machine) => {
                self.there.remove(&machine.uid().unwrap_or_default());
            }
            Event::Init | Event::InitDone => {}
        }
        let staying = self.there.values().filter(|leaves| !**leaves).count();
        let kept = self.there.keys().filter(|uid| old.contains(*uid)).count();
        self.most_staying = self.most_staying.max(staying);
        self.most = self.most.max(self.there.len());
        self.mixed |= kept > 0 && kept < self.there.len();
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_machines_stay_than_the_surge_allows() -> anyhow::Result<()> {
    let seen =
        roll(json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 0 } }), false).await?;
    assert_eq!(seen.most_staying, 6);
    Ok(())
}

/// With little quota, a machine that is being deleted still has its server.
#[tokio::test(start_paused = true)]
async fn a_strict_surge_counts_what_is_being_deleted() -> anyhow::Result<()> {
    let seen =
        roll(json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 0 } }), true).await?;
    assert_eq!(seen.most, 6);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_recreation_begins_when_the_last_old_machine_is_gone() -> anyhow::Result<()> {
    let seen = roll(json!({ "type": "Recreate", "rollingUpdate": null }), false).await?;
    assert_eq!((seen.most, seen.mixed), (4, false));
    Ok(())
}
