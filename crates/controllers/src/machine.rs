//! Leads one machine through its life.

mod cloud;
mod description;
mod eviction;
mod minds;

pub use minds::{Known, Minds};

use crate::cache::Key;
use crate::context::Context;
use crate::events::Tone;
use crate::queue::Outcome;
use crate::token;
use crate::troubles::chain;
use crate::write::{Error as WriteError, Writer, delete_exactly};
use description::Described;
use drover_api::{Machine, MachineStatus};
use drover_plan::machine::{self as plan, Answer, Event, Observed, Plan, Question, Report, Step};
use drover_plan::{Wake, node, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often one look may plan again because the cloud answered: enough for a promise and its act.
const ROUNDS_MAX: usize = 4;
/// Who owns what Drover applied to a Node.
const FIELD_MANAGER: &str = "drover";
/// When a look used up its rounds; it goes on right away, after the others had their turn.
const NEXT_ROUNDS: Duration = Duration::ZERO;

/// Why a look at a machine failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("machine {machine:?}")]
    Describe { machine: String, source: description::Error },
    #[error("machine {machine:?}")]
    Token { machine: String, source: token::Error },
}

/// Looks at one machine, and again for each answer of the cloud.
///
/// # Errors
/// When the API server refuses a read or a write; the next look plans anew.
pub async fn reconcile(key: Key, ctx: Arc<Context>) -> Result<Outcome, Error> {
    for _ in 0..ROUNDS_MAX {
        let Some(machine) = ctx.caches.machines.get(&key) else {
            return Ok(Outcome::Settled);
        };
        let looked = look(&machine, &ctx).await;
        ctx.troubles.machines.note(&key, &looked);
        if let Looked::Done(outcome) = looked? {
            return Ok(outcome);
        }
    }
    Ok(Outcome::WakeAfter(NEXT_ROUNDS))
}

enum Looked {
    Done(Outcome),
    /// The cloud said something: plan with it.
    Answered,
}

async fn look(written: &Arc<Machine>, ctx: &Context) -> Result<Looked, Error> {
    let mind = ctx.minds.of(written);
    let machine = mind.complete(written);
    let machine = machine.as_ref();
    let described = match description::read(machine, ctx).await {
        Ok(described) => described,
        // A machine that goes needs no description, and is never held by one that cannot be read.
        Err(error) if machine.metadata.deletion_timestamp.is_some() => Err(chain(&error)),
        Err(source) => return Err(Error::Describe { machine: machine.name_any(), source }),
    };
    let set = ctx.caches.set_of(machine);
    let plan = {
        let seen = Seen::gather(machine, &described, ctx);
        let (cluster, api_server) = (ctx.caches.cluster_of(machine), ctx.version().clone());
        plan::plan(&Observed {
            machine,
            description: described.as_ref().map_err(String::as_str),
            cluster: cluster.as_deref(),
            api_server: api_server.as_ref(),
            nodes: &seen.nodes,
            pods: &seen.pods,
            budgets: &seen.budgets,
            claims: &seen.claims,
            attachments: &seen.attachments,
            has_target: seen.has_target,
            heard: mind.heard.as_ref(),
            certificate: mind.certificate.as_ref(),
            refused: &mind.refused,
            circuit: set.as_ref().and_then(|set| set.status.as_ref()?.circuit.as_ref()),
            trouble: ctx.troubles.machines.of(&Key::of(machine)).as_deref(),
            settings: &ctx.settings.machine,
            now: ctx.clock.now(),
        })
    };
    let report = plan::report(written, &plan, mind.told(), ctx.clock.now());
    act(written, &described, plan, report, ctx).await
}

/// What the caches show around a machine.
#[derive(Default)]
struct Seen {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    budgets: Vec<Arc<PodDisruptionBudget>>,
    claims: Vec<Arc<PersistentVolumeClaim>>,
    attachments: Vec<Arc<VolumeAttachment>>,
    has_target: bool,
}

impl Seen {
    fn gather(machine: &Machine, described: &Described, ctx: &Context) -> Self {
        let caches = &ctx.caches;
        let mut seen = Self { nodes: caches.nodes_of(machine), ..Self::default() };
        let status = machine.status.as_ref();
        // A Node that is gone may have left pods and volumes behind.
        let last = status.and_then(|it| it.node_ref.as_ref()).and_then(|node| node.name.clone());
        let names = seen.nodes.iter().map(|node| node.name_any());
        let names: BTreeSet<String> = names.chain(last).collect();
        seen.pods = names.iter().flat_map(|name| caches.pods_on(name)).collect();
        // Mirantis: both flags drain a node that is not being deleted.
        let asked = described.as_ref().is_ok_and(|it| it.maintenance || it.delete);
        let drain = status.and_then(|status| status.drain.as_ref());
        if asked || drain.is_some() || machine.metadata.deletion_timestamp.is_some() {
            let namespaces: BTreeSet<String> =
                seen.pods.iter().filter_map(|pod| pod.namespace()).collect();
            seen.budgets = namespaces.iter().flat_map(|ns| caches.budgets_in(ns)).collect();
            seen.claims = namespaces.iter().flat_map(|ns| caches.claims_in(ns)).collect();
            seen.attachments = names.iter().flat_map(|name| caches.attachments_to(name)).collect();
            let moving = drain.and_then(|drain| drain.moving.as_ref());
            let moving = moving.iter().flat_map(|moving| &moving.volumes);
            let elsewhere = moving.flat_map(|volume| caches.attachments_of(volume));
            seen.attachments.extend(elsewhere.filter(|it| !names.contains(&it.spec.node_name)));
            seen.has_target = caches.takes_pods_besides(machine, &names);
        }
        seen
    }
}

/// First the patch, then the status, then the steps, each only when those before it succeeded.
async fn act(
    machine: &Machine,
    described: &Described,
    plan: Plan,
    report: Report,
    ctx: &Context,
) -> Result<Looked, Error> {
    let Plan { patch, status, promises: _, steps, events, wake } = plan;
    let machines = Writer::new(&ctx.client, &ctx.caches.machines);
    let key = Key::of(machine);
    let patched = match patch {
        Some(patch) => Some(machines.patch(&key, &patch).await?),
        None => None,
    };
    let current = patched.as_ref().unwrap_or(machine);
    let now = ctx.clock.now();
    let (written, again) = match report {
        Report::Never => {
            ctx.minds.wrote(machine, None);
            (None, Wake::OnChange)
        }
        Report::Now => {
            let written = record(current, status, &machines).await?;
            ctx.minds.wrote(machine, Some(now));
            (Some(written), Wake::OnChange)
        }
        Report::At(time) => {
            ctx.minds.withhold(machine, status, now);
            (None, Wake::at(Some(time), now))
        }
    };
    let current = written.as_ref().unwrap_or(current);
    for event in events {
        tell(machine, event, ctx);
    }
    let mut answered = false;
    for step in steps {
        if let Some((question, answer)) = take(current, described, step, ctx).await? {
            ctx.minds.hear(current, question, answer, ctx.clock.now());
            answered = true;
        }
    }
    Ok(if answered { Looked::Answered } else { Looked::Done(wake.or(again).into()) })
}

async fn record(
    machine: &Machine,
    status: MachineStatus,
    machines: &Writer<'_, Machine>,
) -> Result<Machine, Error> {
    let next = Machine { status: Some(status), ..machine.clone() };
    Ok(machines.status(&next).await?)
}

async fn take(
    machine: &Machine,
    described: &Described,
    step: Step,
    ctx: &Context,
) -> Result<Option<(Question, Answer)>, Error> {
    let machines = Writer::new(&ctx.client, &ctx.caches.machines);
    let key = Key::of(machine);
    match step {
        Step::CreateServer { memory } => {
            let answer = cloud::create(machine, described, memory, ctx).await?;
            return Ok(Some((Question::Create, answer)));
        }
        Step::LookAtServer => {
            let answer = cloud::look(machine, described, ctx).await?;
            return Ok(Some((Question::Look, answer)));
        }
        Step::DeleteServer { memory } => {
            let answer = cloud::delete(machine, described, memory, ctx).await?;
            return Ok(Some((Question::Delete, answer)));
        }
        Step::PatchNode { name, patch, why } => patch_node(&name, &patch, why, ctx).await?,
        Step::PatchNodeStatus { name, patch, why } => {
            let nodes = node_api(why, ctx);
            let merge = PatchParams::default();
            let patched = nodes.patch_status(&name, &merge, &Patch::Merge(patch)).await;
            saw_node(patched, &name, ctx)?;
        }
        Step::ApplyNode { name, object, why } => {
            let nodes = node_api(why, ctx);
            let ours = PatchParams::apply(FIELD_MANAGER).force();
            let applied = nodes.patch(&name, &ours, &Patch::Apply(object)).await;
            saw_node(applied, &name, ctx)?;
        }
        Step::DeleteNode { name, uid, why } => {
            ctx.metrics.step(why.as_str());
            let nodes = Api::<Node>::all(ctx.client.clone());
            delete_exactly(&nodes, &Key::new("", name), &uid).await?;
        }
        Step::Leave { departures } => eviction::send_off(machine, departures, ctx).await?,
        Step::Detach { attachments } => {
            let api = Api::<VolumeAttachment>::all(ctx.client.clone());
            for (name, uid) in attachments {
                ctx.metrics.step(Reason::VolumeOrphaned.as_str());
                delete_exactly(&api, &Key::new("", name), &uid).await?;
            }
        }
        Step::KeepToken { until } => keep_token(machine, until, ctx).await?,
        Step::DeleteToken => delete_token(machine, ctx).await?,
        Step::DeleteMachine { why } => delete(machine, why, ctx).await?,
        Step::Release { patch } => {
            machines.patch_if_there(&key, &patch).await?;
            ctx.minds.forget(machine);
        }
    }
    Ok(None)
}

/// Deletes the Machine, each time by what was seen last: a request can be withdrawn until now, and a Node
/// that only the cache lost is no reason.
async fn delete(machine: &Machine, why: Reason, ctx: &Context) -> Result<(), Error> {
    let machines = Writer::new(&ctx.client, &ctx.caches.machines);
    let key = Key::of(machine);
    if why == Reason::NodeGone {
        let name = node::name_of(machine);
        let nodes = Api::<Node>::all(ctx.client.clone());
        let found = nodes.get_opt(&name).await;
        let found = found.map_err(|source| WriteError::new("read", "Node", name, source))?;
        if found.is_some_and(|node| node.metadata.deletion_timestamp.is_none()) {
            return Ok(());
        }
    }
    ctx.metrics.step(why.as_str());
    if why == Reason::DeletionRequested {
        machines.delete_unchanged(&key, machine).await?;
    } else {
        machines.delete(&key, &machine.uid().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Once for each token: a plan that sees no token cannot know that it is gone.
async fn delete_token(machine: &Machine, ctx: &Context) -> Result<(), Error> {
    let uid = machine.uid().unwrap_or_default();
    let deleted = match ctx.minds.of(machine).token {
        Known::Gone => return Ok(()),
        Known::There(token) => token::delete_this(&ctx.client, &token).await,
        Known::Nothing => token::delete(&ctx.client, &uid).await,
    };
    deleted.map_err(|source| Error::Token { machine: machine.name_any(), source })?;
    ctx.minds.knows_token(machine, Known::Gone);
    Ok(())
}

/// Gives a token more time when its machine got more; one call for each machine after a restart, and else
/// none.
async fn keep_token(machine: &Machine, until: Timestamp, ctx: &Context) -> Result<(), Error> {
    let known = match ctx.minds.of(machine).token {
        Known::Gone => return Ok(()),
        Known::There(token) if token.expires >= until => return Ok(()),
        Known::There(_) | Known::Nothing => {
            let uid = machine.uid().unwrap_or_default();
            token::keep(&ctx.client, &uid, until).await
        }
    };
    let known = known.map_err(|source| Error::Token { machine: machine.name_any(), source })?;
    ctx.minds.knows_token(machine, known.map_or(Known::Gone, Known::There));
    Ok(())
}

async fn patch_node(name: &str, patch: &Value, why: Reason, ctx: &Context) -> Result<(), Error> {
    let nodes = node_api(why, ctx);
    let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    saw_node(patched, name, ctx)
}

fn node_api(why: Reason, ctx: &Context) -> Api<Node> {
    ctx.metrics.step(why.as_str());
    Api::all(ctx.client.clone())
}

/// A Node that is gone needs no patch.
fn saw_node(answer: Result<Node, kube::Error>, name: &str, ctx: &Context) -> Result<(), Error> {
    match answer {
        Ok(written) => ctx.caches.nodes.saw(written),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(source) => return Err(WriteError::new("patch", "Node", name, source).into()),
    }
    Ok(())
}

fn tell(machine: &Machine, event: Event, ctx: &Context) {
    let Event { why, note, is_warning } = event;
    ctx.metrics.step(why.as_str());
    let tone = if is_warning { Tone::Warning } else { Tone::Normal };
    ctx.tell(machine, tone, why.as_str(), "Reconcile", &note);
    if why == Reason::LeftBehind {
        // The machine goes, and whoever looks for its remains looks elsewhere.
        let machine_name = Key::of(machine);
        tracing::warn!(machine = %machine_name, "{note}");
        ctx.tell_owner(machine, tone, why.as_str(), &format!("machine {machine_name}: {note}"));
    }
}

impl crate::caches::Caches {
    /// The Nodes that may be this machine's.
    fn nodes_of(&self, machine: &Machine) -> Vec<Arc<Node>> {
        let seen = machine.status.as_ref().and_then(|status| status.provider_id.as_deref());
        let id = machine.spec.provider_id.as_deref().or(seen);
        let mut nodes: Vec<Arc<Node>> =
            id.map(|id| self.node_by_provider_id(id)).unwrap_or_default();
        nodes.extend(self.nodes.get(&Key::new("", node::name_of(machine))));
        nodes.sort_by_key(|node| node.name_any());
        nodes.dedup_by(|a, b| a.metadata.uid == b.metadata.uid);
        nodes
    }

    /// Whether pods evicted from these nodes could go anywhere: another node takes pods, or another
    /// machine is to become one.
    fn takes_pods_besides(&self, machine: &Machine, nodes: &BTreeSet<String>) -> bool {
        let open = |node: &Node| {
            node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true))
                && node::is_ready(node)
        };
        self.nodes.all().iter().any(|node| open(node) && !nodes.contains(&node.name_any()))
            || self.machines.all().iter().any(|other| {
                other.metadata.uid != machine.metadata.uid
                    && other.metadata.deletion_timestamp.is_none()
                    && other.status.as_ref().is_none_or(|status| status.node_ref.is_none())
            })
    }
}
