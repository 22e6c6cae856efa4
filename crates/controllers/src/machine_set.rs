//! Keeps the number of machines of a set.

use crate::cache::Key;
use crate::context::Context;
use crate::events::Tone;
use crate::queue::Outcome;
use crate::write::{Error, Writer};
use drover_api::{Machine, MachineSet, MachineSetStatus};
use drover_plan::machine::Event;
use drover_plan::machine_set::{Observed, Plan, Step, plan};
use drover_plan::reason::Reason;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Writes of one set that are under way at once.
const WRITES_AT_ONCE: usize = 16;
/// Machines that an Event names.
const NAMED_MAX: usize = 3;

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
    let Plan { status, steps, events, wake } = plan;
    record(set, status, ctx).await?;
    for Event { why, note, is_warning } in events {
        ctx.metrics.step(why.as_str());
        let tone = if is_warning { Tone::Warning } else { Tone::Normal };
        ctx.tell(set, tone, why.as_str(), "Scale", &note);
        ctx.tell_owner(set, tone, why.as_str(), &format!("set {}: {note}", set.name_any()));
    }
    let mut failed = None;
    let mut done = BTreeMap::<(&str, Reason), Vec<String>>::new();
    let mut answers =
        stream::iter(steps).map(|step| take(set, step, ctx)).buffer_unordered(WRITES_AT_ONCE);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Some(Done { did, why, machine })) => {
                done.entry((did, why)).or_default().push(machine);
            }
            Ok(None) => {}
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    for ((did, why), machines) in done {
        tell(set, why, did, machines, ctx);
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

/// A step that changed something, to be told of.
struct Done {
    did: &'static str,
    why: Reason,
    machine: String,
}

async fn take(set: &MachineSet, step: Step, ctx: &Context) -> Result<Option<Done>, Error> {
    let machines = Writer::new(&ctx.client, &ctx.caches.machines);
    let (did, why, machine) = match step {
        Step::Create { machine, why } => {
            if machines.create(&machine).await?.is_none() {
                return Ok(None);
            }
            ("created", why, machine.name_any())
        }
        Step::Delete { name, uid, why } => {
            machines.delete(&key_in(set, &name), &uid).await?;
            ("deleted", why, name)
        }
        Step::Patch { name, patch, why } => {
            let _: Machine = machines.patch(&key_in(set, &name), &patch).await?;
            ("patched", why, name)
        }
        Step::Follow { name, patch } => {
            ctx.metrics.step(Reason::MachineFollows.as_str());
            machines.patch_if_there(&key_in(set, &name), &patch).await?;
            return Ok(None);
        }
    };
    ctx.metrics.step(why.as_str());
    Ok(Some(Done { did, why, machine }))
}

fn key_in(set: &MachineSet, name: &str) -> Key {
    Key::new(set.namespace().unwrap_or_default(), name)
}

/// One Event for all that a look did for one reason: a thousand machines are no thousand news.
fn tell(set: &MachineSet, why: Reason, did: &str, mut machines: Vec<String>, ctx: &Context) {
    machines.sort();
    let (count, more) = (machines.len(), machines.len().saturating_sub(NAMED_MAX));
    machines.truncate(NAMED_MAX);
    let names = machines.join(", ");
    let whom = match (count, more) {
        (1, _) => format!("machine {names}"),
        (_, 0) => format!("machines {names}"),
        _ => format!("{count} machines, {names} and {more} more"),
    };
    let note = format!("{did} {whom}: {}", why.sentence());
    ctx.tell(set, Tone::Normal, why.as_str(), "Scale", &note);
}
