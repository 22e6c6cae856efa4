//! MachineDeployment: a pool of machines that rolls from one template to the next.

use crate::{Condition, IntOrPercent, LastOperation, MachineTemplate, Selector, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool of machines. A change of its template replaces the machines, a few at a time.
///
/// The autoscaler's bounds are the annotations
/// `cluster.k8s.io/cluster-api-autoscaler-node-group-min-size` and `-max-size`. A schema cannot see
/// annotations; bounds that cannot be used are reported by the condition AutoscalerBounds.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.k8s.io", version = "v1alpha1", kind = "MachineDeployment", namespaced,
    status = "MachineDeploymentStatus", derive = "PartialEq", derive = "Default",
    shortname = "md", category = "drover",
    annotation("api-approved.kubernetes.io", "unapproved, legacy API"),
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas", label_selector_path = ".status.selector"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available-Replicas", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.template.spec.providerSpec.value.cloudProvider"),
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.template.spec.providerSpec.value.operatingSystem"),
    printcolumn(name = "Kubelet", type_ = "string", json_path = ".spec.template.spec.versions.kubelet"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Deleted", type_ = "date", json_path = ".metadata.deletionTimestamp", priority = 1),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas", priority = 1),
    printcolumn(name = "Up-To-Date", type_ = "integer", json_path = ".status.updatedReplicas", priority = 1),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas", priority = 1),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused", priority = 1),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.conditions[?(@.type==\"Progressing\")].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Progressing\")].message", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 46")
        .message("the name of a MachineDeployment, a hash and a serial become a host name: at most 46 characters"),
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::SELECTION))]
pub struct MachineDeploymentSpec {
    /// How many machines there are to be.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: u32,
    /// Which Machines belong to the pool; must match the template's labels.
    pub selector: Selector,
    /// What Machines are made from. Any change of it replaces the machines.
    pub template: MachineTemplate,
    /// How a new template takes the place of the old one.
    #[serde(default)]
    pub strategy: Strategy,
    /// How long, in seconds, a machine must be Ready to count as available.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_ready_seconds: u32,
    /// How many MachineSets without replicas are kept to go back to.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub revision_history_limit: u32,
    /// Whether rollouts wait. A paused pool still scales.
    #[serde(default)]
    pub paused: bool,
    /// How long, in seconds, a rollout may make no progress before the condition Progressing is False.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub progress_deadline_seconds: u32,
    /// Go back to the template of a revision; Drover empties this when it did. Gardener's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub rollback_to: Option<RollbackTo>,
    /// How many Failed machines are kept for inspection. Accepted for Gardener's manifests; Drover
    /// preserves none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub auto_preserve_failed_machine_max: Option<u32>,
}

fn one() -> u32 {
    1
}

fn ten_minutes() -> u32 {
    600
}

/// How a new template takes the place of the old one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::STRATEGY))]
pub struct Strategy {
    /// Whether machines are replaced a few at a time, all at once, or updated where they are.
    #[serde(rename = "type", default)]
    pub type_: StrategyType,
    /// The bounds of RollingUpdate. Default: maxSurge 1, maxUnavailable 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub rolling_update: Option<RollingUpdate>,
    /// The bounds of InPlaceUpdate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub in_place_update: Option<InPlaceUpdate>,
    /// Whether the Node's labels, annotations and taints, timeouts, the deletion policy and hooks change on
    /// running machines instead of replacing them. Default: WhenPossible for machines of a MachineClass,
    /// else Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub in_place: Option<InPlace>,
}

impl Default for Strategy {
    fn default() -> Self {
        Self {
            type_: StrategyType::RollingUpdate,
            rolling_update: Some(RollingUpdate::default()),
            in_place_update: None,
            in_place: None,
        }
    }
}

impl Strategy {
    /// The bounds of a rolling update, given or by default.
    #[must_use]
    pub fn rolling(&self) -> RollingUpdate {
        self.rolling_update.unwrap_or_default()
    }
}

/// How machines are brought to a new template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// New machines come and old ones go, a few at a time.
    #[default]
    RollingUpdate,
    /// All old machines go before the first new one comes.
    Recreate,
    /// Machines stay and are updated; accepted, and done as RollingUpdate with the same bounds.
    InPlaceUpdate,
}

/// Whether running machines are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InPlace {
    /// Any change of the template replaces machines.
    Never,
    /// What a running machine can take over does not replace it.
    WhenPossible,
}

/// How far a rolling update may leave the wanted number of machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::BOUNDS))]
pub struct RollingUpdate {
    /// How many machines, or what share of `replicas` rounded up, may exist above it.
    pub max_surge: IntOrPercent,
    /// How many machines, or what share of `replicas` rounded down, may be missing.
    #[schemars(schema_with = "crate::schema::max_unavailable")]
    pub max_unavailable: IntOrPercent,
}

impl Default for RollingUpdate {
    fn default() -> Self {
        Self { max_surge: IntOrPercent::Count(1), max_unavailable: IntOrPercent::Count(0) }
    }
}

/// How far an update in place may leave the wanted number of machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::BOUNDS))]
pub struct InPlaceUpdate {
    /// How many machines, or what share of `replicas` rounded up, may exist above it.
    pub max_surge: IntOrPercent,
    /// How many machines, or what share of `replicas` rounded down, may be missing.
    #[schemars(schema_with = "crate::schema::max_unavailable")]
    pub max_unavailable: IntOrPercent,
    /// Who chooses the machines.
    pub orchestration_type: Orchestration,
}

impl Default for InPlaceUpdate {
    fn default() -> Self {
        Self {
            max_surge: IntOrPercent::Count(0),
            max_unavailable: IntOrPercent::Count(1),
            orchestration_type: Orchestration::Auto,
        }
    }
}

/// Who chooses the machines that are updated in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Orchestration {
    /// Drover.
    #[default]
    Auto,
    /// A person, by a label of the Node.
    Manual,
}

/// Which revision to go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackTo {
    /// The revision; 0 is the one before the present.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub revision: i64,
}

/// What was seen of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// The `metadata.generation` that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many Machines the pool has.
    pub replicas: u32,
    /// How many of them are of the present template.
    pub updated_replicas: u32,
    /// How many of them are Ready.
    pub ready_replicas: u32,
    /// How many of them are Ready for `minReadySeconds`.
    pub available_replicas: u32,
    /// How many more must be available.
    pub unavailable_replicas: u32,
    /// The selector as a text; autoscalers read it through the scale subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// How often the hash of a template met a set of another template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<u32>,
    /// What was seen, each with a reason: Available, Progressing, ReplicaFailure, Paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The machines that failed, the first few by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<FailedMachine>,
    /// How many Failed machines are preserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserved_failed_replicas: Option<u32>,
}

/// A machine that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedMachine {
    /// The Machine's name.
    pub name: String,
    /// The server's identity in the cloud.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// What failed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub last_operation: Option<LastOperation>,
    /// The object that owns the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub owner_ref: Option<OwnerReference>,
}
