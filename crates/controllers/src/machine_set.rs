//! Keeps the number of machines of a set.

use crate::cache::Key;
use crate::context::Context;
use crate::events::Tone;
use crate::queue::Outcome;
use crate::write::{Error, Writer};
use drover_api::{Machine, MachineSet, MachineSetStatus};
use drover_plan::machine_set::{Observed, Plan, Step, plan};
use drover_plan::reason::Reason;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Writes of one set that are under way at once.
const WRITES_AT_ONCE: usize = 16;

/// Looks at one set.
///
/// # Errors
/// When the API server refuses a write; the next look plans anew.
pub async fn reconcile(key: Key, ctx: Arc<Context>) -> Result<Outcome, Error> {
    let Some(set) = ctx.caches.sets.get(&key) else {
        ctx.troubles.sets.settle(&key);
        return Ok(Outcome::Settled);
    };
    let machines = ctx.caches.machines_of(&set);
    let plan = plan(&Observed {
        set: &set,
        machines: &machines,
        deleted: &BTreeSet::new(),
        trouble: ctx.troubles.sets.of(&key).as_deref(),
        settings: &ctx.settings.set,
        now: ctx.clock.now(),
    });
    let acted = act(&set, plan, &ctx).await;
    ctx.troubles.sets.note(&key, &acted);
    acted
}

/// The status goes first and carries the version the plan was drawn from, so a plan drawn from a
/// stale page is refused before anything is made.
async fn act(set: &MachineSet, plan: Plan, ctx: &Context) -> Result<Outcome, Error> {
    let Plan { status, steps, wake } = plan;
    record(set, status, ctx).await?;
    let mut failed = None;
    let mut answers =
        stream::iter(steps).map(|step| take(set, step, ctx)).buffer_unordered(WRITES_AT_ONCE);
    while let Some(answer) = answers.next().await {
        if let Err(error) = answer {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(wake.into()), Err)
}

async fn record(set: &MachineSet, status: MachineSetStatus, ctx: &Context) -> Result<(), Error> {
    if set.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let next = MachineSet { status: Some(status), ..set.clone() };
    Writer::new(&ctx.client, &ctx.caches.sets).status(&next).await.map(drop)
}

async fn take(set: &MachineSet, step: Step, ctx: &Context) -> Result<(), Error> {
    let machines = Writer::new(&ctx.client, &ctx.caches.machines);
    match step {
        Step::Create { machine, why } => {
            if machines.create(&machine).await?.is_some() {
                tell(set, why, "created", &machine.name_any(), ctx);
            }
        }
        Step::Delete { name, uid, why } => {
            machines.delete(&key_in(set, &name), &uid).await?;
            tell(set, why, "deleted", &name, ctx);
        }
        Step::Patch { name, patch, why } => {
            let patched: Result<Machine, Error> = machines.patch(&key_in(set, &name), &patch).await;
            patched?;
            tell(set, why, "patched", &name, ctx);
        }
        Step::Follow { name, patch } => {
            ctx.metrics.step(Reason::MachineFollows.as_str());
            machines.patch_if_there(&key_in(set, &name), &patch).await?;
        }
    }
    Ok(())
}

fn key_in(set: &MachineSet, name: &str) -> Key {
    Key::new(set.namespace().unwrap_or_default(), name)
}

fn tell(set: &MachineSet, why: Reason, did: &str, machine: &str, ctx: &Context) {
    ctx.metrics.step(why.as_str());
    let note = format!("{did} machine {machine}: {}", why.sentence());
    ctx.tell(set, Tone::Normal, why.as_str(), "Scale", &note);
}
