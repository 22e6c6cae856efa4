//! MachineSet: so many machines of one template.

use crate::{
    CircuitStatus, ClassReference, Condition, FailedMachine, LastOperation, MachineTemplate,
    Selector, rules,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of Machines of one template. Usually made by a MachineDeployment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.k8s.io", version = "v1alpha1", kind = "MachineSet", namespaced,
    status = "MachineSetStatus", derive = "PartialEq", derive = "Default",
    shortname = "ms", category = "drover",
    annotation("api-approved.kubernetes.io", "unapproved, legacy API"),
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas", label_selector_path = ".status.selector"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available-Replicas", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.template.spec.providerSpec.value.cloudProvider"),
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.template.spec.providerSpec.value.operatingSystem"),
    printcolumn(name = "MachineDeployment", type_ = "string", json_path = ".metadata.ownerReferences[0].name"),
    printcolumn(name = "Kubelet", type_ = "string", json_path = ".spec.template.spec.versions.kubelet"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Deleted", type_ = "date", json_path = ".metadata.deletionTimestamp", priority = 1),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas", priority = 1),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].message", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 57")
        .message("the name of a MachineSet and a serial become a host name: at most 57 characters"),
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::SELECTION))]
pub struct MachineSetSpec {
    /// How many machines there are to be.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: u32,
    /// How long, in seconds, a machine must be Ready to count as available.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_ready_seconds: u32,
    /// Which machine goes first when the set shrinks, among those that are equally well. Default:
    /// Random, which Drover decides by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub delete_policy: Option<DeletePolicy>,
    /// Which Machines belong to the set; must match the template's labels.
    pub selector: Selector,
    /// What Machines are made from.
    pub template: MachineTemplate,
    /// Accepted for Gardener's manifests; the template's class counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub machine_class: Option<ClassReference>,
    /// How many Failed machines are kept for inspection. Accepted for Gardener's manifests; Drover
    /// preserves none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub auto_preserve_failed_machine_max: Option<u32>,
}

fn one() -> u32 {
    1
}

/// Which machine goes first when a set shrinks. MetaKube; machines that are marked, or failed, go
/// before all others under each policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletePolicy {
    /// Any.
    #[default]
    Random,
    /// The youngest.
    Newest,
    /// The oldest.
    Oldest,
}

/// What was seen of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// How many Machines the set has.
    pub replicas: u32,
    /// How many of them carry all labels of the template.
    pub fully_labeled_replicas: u32,
    /// How many of them are Ready.
    pub ready_replicas: u32,
    /// How many of them are Ready for `minReadySeconds`.
    pub available_replicas: u32,
    /// The `metadata.generation` that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The selector as a text; autoscalers read it through the scale subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// How many names were ever given to Machines of this set; the next one gets this serial.
    #[serde(skip_serializing_if = "is_zero")]
    pub minted: u64,
    /// Names of Machines that are about to be created and were not seen yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<String>,
    /// What was seen, each with a reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Why the set cannot go on, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<String>,
    /// Why the set cannot go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What was last done for the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub last_operation: Option<LastOperation>,
    /// The machines that failed, the first few by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<FailedMachine>,
    /// How attempts to get new machines fail, while they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub circuit: Option<CircuitStatus>,
    /// How many Failed machines are preserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserved_failed_replicas: Option<u32>,
    /// How many Failed machines were preserved by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_count: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
