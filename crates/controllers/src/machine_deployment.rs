//! Rolls a deployment from one template to the next.

use crate::cache::Key;
use crate::context::Context;
use crate::events::Tone;
use crate::queue::Outcome;
use crate::write::{Error, Writer};
use drover_api::{MachineDeployment, MachineDeploymentStatus, MachineSet};
use drover_plan::machine_deployment::{Herd, Observed, Plan, Resize, Step, plan};
use drover_plan::reason::Reason;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Looks at one deployment.
///
/// # Errors
/// When the API server refuses a write; the next look plans anew.
pub async fn reconcile(key: Key, ctx: Arc<Context>) -> Result<Outcome, Error> {
    let Some(deployment) = ctx.caches.deployments.get(&key) else {
        ctx.troubles.deployments.settle(&key);
        return Ok(Outcome::Settled);
    };
    let sets = ctx.caches.sets_of(&deployment);
    let machines = herds(&sets, &ctx);
    let plan = plan(&Observed {
        deployment: &deployment,
        sets: &sets,
        machines: &machines,
        trouble: ctx.troubles.deployments.of(&key).as_deref(),
        settings: &ctx.settings.deployment,
        now: ctx.clock.now(),
    });
    let acted = act(&deployment, plan, &ctx).await;
    ctx.troubles.deployments.note(&key, &acted);
    acted
}

/// How many machines each set has.
fn herds(sets: &[Arc<MachineSet>], ctx: &Context) -> BTreeMap<String, Herd> {
    let herd = |set: &MachineSet| {
        let mut herd = Herd::default();
        for machine in ctx.caches.machines_controlled_by(set) {
            let leaves = machine.metadata.deletion_timestamp.is_some();
            *if leaves { &mut herd.leaving } else { &mut herd.staying } += 1;
        }
        herd
    };
    sets.iter().map(|set| (set.name_any(), herd(set))).collect()
}

/// The status goes first and carries the version the plan was drawn from, so a plan drawn from a
/// stale page is refused before anything is made.
async fn act(deployment: &MachineDeployment, plan: Plan, ctx: &Context) -> Result<Outcome, Error> {
    let Plan { status, steps, wake } = plan;
    let key = Key::of(deployment);
    let mut current = record(deployment, status, ctx).await?;
    for step in steps {
        match step {
            Step::CreateSet { set, why } => create(deployment, &set, why, ctx).await?,
            Step::PatchSet { name, patch, resize, why } => {
                let sets = Writer::new(&ctx.client, &ctx.caches.sets);
                sets.patch(&Key::new(&key.namespace, &name), &patch).await?;
                tell_patch(deployment, &name, resize, why, ctx);
            }
            Step::DeleteSet { name, uid, why } => {
                let sets = Writer::new(&ctx.client, &ctx.caches.sets);
                sets.delete(&Key::new(&key.namespace, &name), &uid).await?;
                tell(deployment, why, &format!("deleted set {name}"), ctx);
            }
            Step::PatchDeployment { mut patch } => {
                let version = &current.metadata.resource_version;
                patch["metadata"]["resourceVersion"] = serde_json::json!(version);
                let deployments = Writer::new(&ctx.client, &ctx.caches.deployments);
                current = deployments.patch(&key, &patch).await?;
            }
            Step::ReplaceDeployment { deployment: mut next, why } => {
                next.metadata.resource_version.clone_from(&current.metadata.resource_version);
                let deployments = Writer::new(&ctx.client, &ctx.caches.deployments);
                current = deployments.replace(&next).await?;
                tell(deployment, why, "set the template back", ctx);
            }
        }
    }
    Ok(wake.into())
}

async fn record(
    deployment: &MachineDeployment,
    status: MachineDeploymentStatus,
    ctx: &Context,
) -> Result<MachineDeployment, Error> {
    if deployment.status.as_ref() == Some(&status) {
        return Ok(deployment.clone());
    }
    let next = MachineDeployment { status: Some(status), ..deployment.clone() };
    Writer::new(&ctx.client, &ctx.caches.deployments).status(&next).await
}

async fn create(
    deployment: &MachineDeployment,
    set: &MachineSet,
    why: Reason,
    ctx: &Context,
) -> Result<(), Error> {
    let sets = Writer::new(&ctx.client, &ctx.caches.sets);
    if sets.create(set).await?.is_some() {
        let name = set.name_any();
        tell(
            deployment,
            why,
            &format!("created set {name} with {} machines", set.spec.replicas),
            ctx,
        );
    }
    Ok(())
}

fn tell_patch(
    deployment: &MachineDeployment,
    set: &str,
    resize: Option<Resize>,
    why: Reason,
    ctx: &Context,
) {
    match resize {
        Some(Resize { from, to }) => {
            tell(deployment, why, &format!("scaled set {set} from {from} to {to}"), ctx);
        }
        None => ctx.metrics.step(why.as_str()),
    }
}

fn tell(deployment: &MachineDeployment, why: Reason, did: &str, ctx: &Context) {
    ctx.metrics.step(why.as_str());
    let note = format!("{did}: {}", why.sentence());
    ctx.tell(deployment, Tone::Normal, why.as_str(), "Roll", &note);
}
