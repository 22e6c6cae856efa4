//! The next step in the life of one machine.

mod birth;
mod boot;
mod circuit;
mod create;
mod delete;
mod draft;
mod evacuate;
mod join;
mod mirantis;
mod objection;
mod phrase;
pub mod placeholder;
mod report;
mod request;
#[cfg(test)]
mod tests;

pub use boot::{Cluster, user_data};
pub use report::{Report, Told, report};

use crate::Wake;
use crate::drain::{Departure, PodKey, Refusal as EvictionRefusal};
use crate::reason::Reason;
use draft::Draft;
use drover_api::{
    CircuitStatus, Cluster as ApiCluster, DeletionPolicy, GoDuration, Machine, MachineStatus,
    Phase, ServerDescription, labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use semver::Version;
use serde_json::Value;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// What the manager was told about machines.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Only machines whose label `machine.k8s.io/controller` says so are looked at. MetaKube: `-name`.
    pub name: String,
    /// How long a machine may take to become a Node. MetaKube: 2 h.
    pub join_timeout: Duration,
    /// How long a drain may take, from the deletion. MetaKube and Gardener: 2 h.
    pub drain_timeout: Duration,
    /// How long volumes may take to leave a drained node. Gardener: 2 min.
    pub detach_timeout: Duration,
    /// For descriptions that do not say.
    pub deletion_policy: DeletionPolicy,
    /// Taints a Node registers with, all with the effect NoSchedule; they go once, when its critical
    /// pods are Ready.
    pub startup_taints: Vec<String>,
    /// How often the cloud is asked whether a server is still there that has no Ready Node.
    pub look_interval: Duration,
    /// Node conditions that make a machine unhealthy when they are not False, for machines that do not
    /// say. Gardener's defaults.
    pub node_conditions: Vec<String>,
    /// Whether servers become Nodes. Gardener: without a target cluster they do not, and a machine is
    /// Available as soon as its server runs.
    pub joins: bool,
}

/// Gardener: beside Ready, these tell whether a Node is well.
const NODE_CONDITIONS: [&str; 4] =
    ["KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"];

impl Default for Settings {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self {
            name: String::new(),
            join_timeout: hours(2),
            drain_timeout: hours(2),
            detach_timeout: Duration::from_secs(120),
            deletion_policy: DeletionPolicy::Graceful,
            startup_taints: vec![labels::TAINT_STARTUP.to_owned()],
            look_interval: Duration::from_secs(60),
            node_conditions: NODE_CONDITIONS.map(str::to_owned).to_vec(),
            joins: true,
        }
    }
}

/// A machine and the world around it, as the caches show it.
pub struct Observed<'a> {
    /// With the status of the last plan, written or not.
    pub machine: &'a Machine,
    /// What its description says, or why it cannot be read.
    pub description: Result<&'a ServerDescription, &'a str>,
    /// The Cluster that the machine says it belongs to, if there is one.
    pub cluster: Option<&'a ApiCluster>,
    /// The API server's version, as far as it told.
    pub api_server: Option<&'a Version>,
    /// Nodes that may be the machine's: by provider ID, by name, by the label of their owner.
    pub nodes: &'a [Arc<Node>],
    /// The pods on these nodes.
    pub pods: &'a [Arc<Pod>],
    /// The disruption budgets of these pods' namespaces; needed while it is drained.
    pub budgets: &'a [Arc<PodDisruptionBudget>],
    /// The claims of these pods' namespaces; needed while it is drained.
    pub claims: &'a [Arc<PersistentVolumeClaim>],
    /// What is attached to these nodes, and where else the volumes are that are on their way; needed while
    /// it is drained or deleted.
    pub attachments: &'a [Arc<VolumeAttachment>],
    /// Whether pods could go anywhere: another node takes pods, or another machine is to become one.
    /// MetaKube: else nothing is evicted.
    pub has_target: bool,
    /// What the cloud last said of this machine. A cache: after a restart the cloud is asked again.
    pub heard: Option<&'a Heard>,
    /// What became of its kubelet's request for a certificate. A cache, too: after a restart the condition
    /// still says whether it has one.
    pub certificate: Option<&'a Certificate>,
    /// The last refusals to evict one of these pods. A cache, too.
    pub refused: &'a BTreeMap<PodKey, EvictionRefusal>,
    /// Whether the machines of its set may ask for servers.
    pub circuit: Option<&'a CircuitStatus>,
    /// Why the last write for this machine was refused.
    pub trouble: Option<&'a str>,
    pub settings: &'a Settings,
    pub now: Timestamp,
}

/// What became of the request for a client certificate that a machine's kubelet made with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    Approved,
    /// For what.
    Waits(String),
    /// Why.
    Denied(String),
}

/// What the cloud said, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it was asked to do.
    pub to: Question,
    pub answer: Answer,
    pub at: Timestamp,
    /// The generation of the Machine it was asked for.
    pub generation: Option<i64>,
    /// How often in a row it refused this.
    pub refusals: u32,
}

/// What the cloud is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// [`Step::CreateServer`]
    Create,
    /// [`Step::LookAtServer`]
    Look,
    /// [`Step::DeleteServer`]
    Delete,
}

/// What the cloud said, in the words of the provider's contract.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Step::CreateServer`]: write the memory down and ask again at once.
    Record { memory: BTreeMap<String, String> },
    /// To [`Step::CreateServer`]: under way.
    Waiting { memory: BTreeMap<String, String>, waits_for: String, after: Duration },
    /// To [`Step::CreateServer`]: done.
    Created { memory: BTreeMap<String, String>, server: Server },
    /// To [`Step::LookAtServer`].
    Seen(Option<Server>),
    /// To [`Step::DeleteServer`]: under way.
    Deleting { waits_for: String, after: Duration },
    /// To [`Step::DeleteServer`]: nothing is left.
    Gone,
    /// To any of them.
    Refused(Refused),
}

/// A refusal of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// One of the reasons CredentialsRefused to CloudUnavailable, or ServerFailed.
    pub why: Reason,
    /// The cloud's words.
    pub message: String,
    /// Gardener's code.
    pub code: String,
    pub retry: Retry,
}

/// When it makes sense to ask the cloud again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// When the order changes.
    OnChange,
    /// After this time.
    After(Duration),
    /// Soon, then ever later.
    Backoff,
}

/// A server as the cloud showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub provider_id: String,
    pub name: String,
    pub state: ServerState,
    /// Each with whether it is reachable from outside.
    pub addresses: Vec<(IpAddr, bool)>,
}

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    Building,
    Running,
    Stopped,
    Deleting,
    /// The cloud's words.
    Failed(String),
}

/// What becomes of a machine. First the patch, then the status, when [`report`] says so, with the
/// resource version of the machine (or of the patch's answer), then the steps in their order, each only when those before it
/// succeeded. A step to the cloud gives an answer; plan again with it at once.
#[must_use = "a plan does nothing until it is acted on"]
#[derive(Debug)]
pub struct Plan {
    /// A merge patch of the Machine that carries UID and resource version.
    pub patch: Option<Value>,
    pub status: MachineStatus,
    /// Whether the status promises what a step then does, so that it must be written first.
    pub promises: bool,
    pub steps: Vec<Step>,
    pub events: Vec<Event>,
    pub wake: Wake,
}

/// One act. Each may be repeated: what is there already, or gone already, is a success.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Makes sure of the bootstrap token, renders the user-data and goes on with making the server.
    CreateServer {
        memory: BTreeMap<String, String>,
    },
    /// A live look at the server.
    LookAtServer,
    /// Goes on with deleting all that is in the cloud.
    DeleteServer {
        memory: BTreeMap<String, String>,
    },
    /// A merge patch, with UID and, where it must be, resource version.
    PatchNode {
        name: String,
        patch: Value,
        why: Reason,
    },
    /// A merge patch of the status, with UID.
    PatchNodeStatus {
        name: String,
        patch: Value,
        why: Reason,
    },
    /// By server-side apply, taking the fields from whoever has them; with UID.
    ApplyNode {
        name: String,
        object: Value,
        why: Reason,
    },
    DeleteNode {
        name: String,
        uid: String,
        why: Reason,
    },
    /// Evicts or deletes pods; a refusal to evict is remembered for [`Observed::refused`] and is no
    /// failure.
    Leave {
        departures: Vec<Departure>,
    },
    /// Deletes VolumeAttachments, each by name and UID, of a server that is off.
    Detach {
        attachments: Vec<(String, String)>,
    },
    /// The bootstrap token is good until then, if it is still there.
    KeepToken {
        until: Timestamp,
    },
    /// The bootstrap token is of no more use.
    DeleteToken,
    /// Deletes the Machine itself, with its UID as a precondition; its set makes another. With
    /// [`Reason::DeletionRequested`] also its resource version is one: the request may be withdrawn.
    DeleteMachine {
        why: Reason,
    },
    /// A merge patch that removes the finalizers: the end.
    Release {
        patch: Value,
    },
}

/// Something that happened, to be told as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub why: Reason,
    pub note: String,
    pub is_warning: bool,
}

/// What is to be done for a machine now.
pub fn plan(seen: &Observed) -> Plan {
    if !is_ours(seen) {
        let status = seen.machine.status.clone().unwrap_or_default();
        let (steps, events) = Default::default();
        return Plan { patch: None, status, promises: false, steps, events, wake: Wake::OnChange };
    }
    let mut draft = Draft::of(seen);
    if seen.machine.metadata.deletion_timestamp.is_some() {
        delete::go_on(&mut draft);
    } else {
        draft.configured();
        draft.troubled();
        draft.hold();
        match draft.node() {
            Some(node) if !create::is_unfinished(&draft) => join::follow(&mut draft, node),
            _ => create::go_on(&mut draft),
        }
        if draft.status.phase == Some(Phase::Failed) {
            // Its server is not waited for any more: it is not to join either.
            draft.step(Step::DeleteToken);
        }
    }
    birth::note_made(&mut draft);
    phrase::speak(&mut draft);
    mirantis::show(&mut draft);
    draft.done()
}

/// How long making the server and joining may take. Gardener: the annotation counts before the spec.
#[must_use]
pub fn creation_timeout(machine: &Machine, settings: &Settings) -> Duration {
    let said = machine.annotations().get(labels::CREATION_TIMEOUT);
    let said = said.and_then(|text| text.parse::<GoDuration>().ok());
    said.or(machine.spec.creation_timeout).map_or(settings.join_timeout, |timeout| timeout.0)
}

/// MetaKube: a machine of another controller, or one whose initializers are not done, is let alone.
fn is_ours(seen: &Observed) -> bool {
    let machine = seen.machine;
    let name = machine.labels().get(labels::MACHINE_CONTROLLER_NAME).map_or("", String::as_str);
    let initializers = machine.annotations().get(labels::MACHINE_INITIALIZERS);
    name == seen.settings.name && initializers.is_none_or(String::is_empty)
}
