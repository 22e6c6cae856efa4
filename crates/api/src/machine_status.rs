//! What was seen of a Machine.

use crate::{Condition, Versions, schema};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was seen of a Machine, its server and its Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The Node that registered for this Machine; absent until it did, and when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub node_ref: Option<ObjectReference>,
    /// Where the Machine is in its life. The autoscaler reads Failed together with `failureMessage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub phase: Option<Phase>,
    /// What was seen, each with a reason, in the order of a life: Configured, PortsReady, ServerCreated,
    /// FloatingIPReady, ServerReady, Booted, CertificateIssued, NodeJoined, AddressesKnown,
    /// CriticalPodsReady, Ready, and while the Machine is deleted Drained, VolumesDetached,
    /// ServerDeleted. A step that was not reached has none. The message of Ready says in one phrase what
    /// the Machine waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The addresses of the server, the internal ones first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// The versions the Node reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub versions: Option<Versions>,
    /// The identity of the server in the cloud (Mirantis shows it here, too).
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The name of the server in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// Why the Machine cannot go on, in one word. MetaKube's name of `failureReason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<String>,
    /// Why the Machine cannot go on. MetaKube's name of `failureMessage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Why the Machine failed for good, in one word; only while the phase is Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the Machine failed for good; only while the phase is Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// What was last done for the Machine, and how it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub last_operation: Option<LastOperation>,
    /// The phase in Gardener's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub current_status: Option<CurrentStatus>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// How the Machine will be deleted: what its description says, or the manager's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How far the drain came; only while the node is drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub drain: Option<DrainStatus>,
    /// What the provider keeps and shows of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub provider_status: Option<ProviderStatus>,
    /// The `metadata.generation` that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Where a Machine is in its life. Gardener's words.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// The server is being made, or is to become a Node.
    Pending,
    /// The server runs; nobody waits for a Node.
    Available,
    /// The Node is Ready.
    Running,
    /// The Node was Ready once and is not now.
    Unknown,
    /// It will not become a Node by itself any more; its set replaces it.
    Failed,
    /// It is being deleted.
    Terminating,
    /// The last attempt to make the server failed; the next comes.
    CrashLoopBackOff,
    /// The node is updated in place.
    InPlaceUpdating,
    /// The node was updated in place.
    InPlaceUpdateSuccessful,
    /// The update in place failed.
    InPlaceUpdateFailed,
}

impl Phase {
    /// As it is written in `status.phase`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::InPlaceUpdating => "InPlaceUpdating",
            Self::InPlaceUpdateSuccessful => "InPlaceUpdateSuccessful",
            Self::InPlaceUpdateFailed => "InPlaceUpdateFailed",
        }
    }
}

/// An address of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineAddress {
    /// InternalIP, ExternalIP or Hostname, as in a Node's status.
    #[serde(rename = "type")]
    pub type_: String,
    /// The address.
    pub address: String,
}

/// What was last done for an object, and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// What was done.
    #[serde(rename = "type")]
    pub type_: OperationType,
    /// How it went.
    pub state: OperationState,
    /// In a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Why it failed, in Gardener's codes such as ResourceExhausted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When this changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_update_time: Option<Time>,
}

/// What can be done for a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationType {
    /// Making the server and waiting for its Node.
    Create,
    /// Changing what may change.
    Update,
    /// Watching the Node.
    HealthCheck,
    /// Taking the pods off the node.
    DrainNode,
    /// Deleting server and Node.
    Delete,
    /// Updating the node in place.
    InPlaceUpdate,
}

/// How an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationState {
    /// It is under way.
    Processing,
    /// It failed and is tried again, unless the phase is Failed.
    Failed,
    /// It is done.
    Successful,
}

/// A Machine's phase in Gardener's form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CurrentStatus {
    /// As `status.phase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub phase: Option<Phase>,
    /// Whether a timeout runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_active: Option<bool>,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_update_time: Option<Time>,
    /// Until when a Failed machine is preserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub preserve_expiry_time: Option<Time>,
}

/// With how much care a Machine is deleted (Mirantis). Once a deletion began it can only become less
/// careful.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DeletionPolicy {
    /// The node is cordoned and drained first.
    #[default]
    Graceful,
    /// Nothing is drained.
    Unsafe,
    /// Nothing is drained, and the Machine goes even when the cloud does not let go of everything.
    Forced,
}

impl DeletionPolicy {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Unsafe => "unsafe",
            Self::Forced => "forced",
        }
    }
}

/// How far a drain came: what a manager that takes over must know to go on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainStatus {
    /// When it began; its deadline is counted from here. Absent: with the deletion of the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,
    /// The pod whose volumes are on their way to another node; the next such pod waits for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub moving: Option<MovingVolumes>,
}

/// Volumes on their way from the drained node to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MovingVolumes {
    /// Namespace and name of the pod that had them.
    pub pod: String,
    /// The PersistentVolumes.
    pub volumes: Vec<String>,
    /// Whether somebody makes the pod anew, so that they are to be attached elsewhere.
    pub returns: bool,
    /// Until when they must have left the node; then they are waited for no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub detach_by: Option<Time>,
    /// They left the node. Until when they must be attached to another one; then they are waited for no
    /// longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub attach_by: Option<Time>,
}

/// What the provider keeps and shows of a server. Other fields are kept as they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ProviderStatus {
    /// What the provider asked to be told again: its own notes, no secrets. Some tell what the cloud has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, String>,
    /// The server as the cloud last showed it (Mirantis).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub provider_instance_state: Option<ProviderState>,
    /// Mirantis: how far the machine came: Provision, Uninitialized, Pending, Prepare, Deploy, Ready,
    /// Maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Mirantis: what was seen, in Mirantis' own form; the machine is ready when all of them are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ProviderCondition>,
    /// Mirantis: what the Node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub hardware: Option<Hardware>,
    /// Mirantis: how far a graceful deletion that the description asks for came: started, completed,
    /// aborting, failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_deletion_phase: Option<String>,
    /// Mirantis: whether the deletion that the description asks for was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete: Option<bool>,
    /// Mirantis: whether the machine is in maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<bool>,
    /// Mirantis: where the machine comes in an upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_index: Option<u32>,
    /// Mirantis: the first internal address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_ip: Option<String>,
    /// Mirantis: the floating IP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_ip: Option<String>,
}

impl ProviderStatus {
    /// Key of the notes: the ID of the first port.
    pub const PORT: &str = "port";
    /// Key of the notes: the ID of the server.
    pub const SERVER: &str = "server";
    /// Key of the notes: the address that came of the floating IP pool.
    pub const FLOATING_ADDRESS: &str = "floatingAddress";
}

/// A condition in Mirantis' form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderCondition {
    /// What it is about: ProviderInstance, LCM, Kubelet, Maintenance or PrepareDeletion.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether all is well.
    pub ready: bool,
    /// In a sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a Node has, in Mirantis' form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hardware {
    /// Processors.
    pub cpu: u32,
    /// Memory in GB.
    pub ram: u32,
}

/// A server as the cloud last showed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderState {
    /// The server's ID in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Whether it runs and has all that was ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}
