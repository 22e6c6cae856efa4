//! Machine: one server that is to be one node.

use crate::{DeletionPolicy, GoDuration, MachineStatus, TemplateMetadata, rules, schema};
use k8s_openapi::api::core::v1::Taint;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One server in a cloud that is to be one Node. Usually made by a MachineSet. Deleting it drains and
/// deletes the Node and everything of it in the cloud.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.k8s.io", version = "v1alpha1", kind = "Machine", namespaced,
    status = "MachineStatus", derive = "PartialEq", derive = "Default",
    shortname = "ma", category = "drover",
    annotation("api-approved.kubernetes.io", "unapproved, legacy API"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.providerSpec.value.cloudProvider"),
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.providerSpec.value.operatingSystem"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(name = "Kubelet", type_ = "string", json_path = ".spec.versions.kubelet"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addresses[0].address"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Deleted", type_ = "date", json_path = ".metadata.deletionTimestamp", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 63")
        .message("the name of a Machine becomes a host name: at most 63 characters"),
    validation = Rule::new(
        "(has(self.spec.metadata) && has(self.spec.metadata.name) ? self.spec.metadata.name : '') \
         == (has(oldSelf.spec.metadata) && has(oldSelf.spec.metadata.name) ? oldSelf.spec.metadata.name : '') \
         || (has(self.spec.metadata) && has(self.spec.metadata.name) && self.spec.metadata.name == self.metadata.name)",
    ).message("spec.metadata.name is the name of the server and cannot change, except to metadata.name"),
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::MACHINE))]
pub struct MachineSpec {
    /// The name, labels and annotations of the Node. They may change at any time; the name may not.
    #[serde(skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// Taints of the Node. The kubelet registers with them; later changes follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub taints: Vec<Taint>,
    /// The cloud, the server and its operating system. Required unless `class` is given.
    #[serde(skip_serializing_if = "is_default")]
    pub provider_spec: ProviderSpec,
    /// The versions of what runs on the node.
    #[serde(skip_serializing_if = "is_default")]
    pub versions: Versions,
    /// The MachineClass that describes the server. Gardener's way to say
    /// `providerSpec.valueFrom.machineClass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub class: Option<ClassReference>,
    /// The server's identity in the cloud, as the Node carries it, such as `openstack:///3f1c..`.
    /// Set once, by Drover.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub provider_id: Option<String>,
    /// The Node's labels, annotations and taints in Gardener's form; `metadata` and `taints` win.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub node_template: Option<NodeTemplate>,
    /// How long making the server and joining may take, from the Machine's creation; then it is
    /// replaced. Default: the manager's join timeout, 2h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<GoDuration>,
    /// How long the Node may be not Ready before the Machine is Failed and replaced. Default: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<GoDuration>,
    /// How long draining may take, from the deletion; then pods are deleted without regard for
    /// disruption budgets. Default: the manager's, 2h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<GoDuration>,
    /// What becomes of the pods that are left when `drainTimeout` is over. Default: DeletePods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub on_drain_timeout: Option<OnDrainTimeout>,
    /// With how much care the Machine is deleted. Once its deletion began it can only become less
    /// careful. Default: what its description says (Mirantis), or the manager's, graceful.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How long an update in place may take. Accepted for Gardener's manifests; Drover updates no node in
    /// place yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_update_timeout: Option<GoDuration>,
    /// Never call the Machine Failed for its health, whatever `healthTimeout` says. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_health_timeout: Option<bool>,
    /// How often the eviction of one pod is tried. Accepted for Gardener's manifests; only
    /// `drainTimeout` ends the tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<u32>,
    /// Node conditions, separated by commas, that make the Machine unhealthy when they are not False, beside
    /// Ready. Default: KernelDeadlock, ReadonlyFilesystem, DiskPressure, NetworkUnavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_conditions: Option<String>,
    /// How long a Failed machine that is preserved stays. Accepted for Gardener's manifests; Drover
    /// preserves none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_preserve_timeout: Option<GoDuration>,
    /// Dynamic kubelet configuration, gone from Kubernetes since 1.24; refused when given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub config_source: Option<ConfigSource>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What becomes of the pods that are left when a drain took too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDrainTimeout {
    /// They are deleted without regard for disruption budgets, and the server goes a minute later.
    #[default]
    DeletePods,
    /// They are evicted on and on: the server never goes before its pods.
    KeepEvicting,
}

/// The source of a dynamic kubelet configuration. Exists to be refused by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigSource(Value);

impl schemars::JsonSchema for ConfigSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigSource".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schema::open_object(generator)
    }
}

/// The cloud, the server and its operating system, in one of three dialects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::PROVIDER_SPEC))]
pub struct ProviderSpec {
    /// The description itself: MetaKube's (`cloudProvider`, `cloudProviderSpec`, `operatingSystem`,
    /// `operatingSystemSpec`, `sshPublicKeys`) or Mirantis' (`kind: OpenstackMachineProviderSpec`).
    /// Read strictly: an unknown field is an error that the status names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::provider_spec_value")]
    pub value: Option<Value>,
    /// Where the description is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub value_from: Option<ProviderSpecSource>,
}

/// Where a description is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpecSource {
    /// A MachineClass of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub machine_class: Option<MachineClassRef>,
}

/// A reference to a MachineClass in the words of the early Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineClassRef {
    /// The class' name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepted when it is the Machine's own namespace; classes are looked up there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// MachineClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// cluster.k8s.io/v1alpha1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_version: Option<String>,
    /// The provider the class is for, such as `openstack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
}

/// A reference to a MachineClass in Gardener's words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassReference {
    /// The group of the class; not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// MachineClass.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The class' name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The versions of what runs on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Versions {
    /// The kubelet's, such as `1.30.3`; a leading `v` is fine.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::version")]
    pub kubelet: String,
    /// The control plane's, on a machine that runs one. Not used by Drover.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub control_plane: Option<String>,
}

/// The Node's labels, annotations and taints in Gardener's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTemplate {
    /// Labels and annotations of the Node.
    #[serde(skip_serializing_if = "is_default")]
    pub metadata: TemplateMetadata,
    /// What else of the Node is wanted.
    #[serde(skip_serializing_if = "is_default")]
    pub spec: NodeTemplateSpec,
}

/// What of a Node's spec a template may give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTemplateSpec {
    /// Taints of the Node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub taints: Vec<Taint>,
}
