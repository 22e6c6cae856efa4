//! Cluster: what the machines of a cluster share.

use crate::{Condition, ProviderSpecSource, schema};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the machines of a cluster share: its networks, its release, maintenance.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.k8s.io", version = "v1alpha1", kind = "Cluster", namespaced,
    status = "ClusterStatus", derive = "PartialEq", derive = "Default",
    shortname = "cl", category = "drover",
    annotation("api-approved.kubernetes.io", "unapproved, legacy API"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.apiEndpoints[0].host"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Deleted", type_ = "date", json_path = ".metadata.deletionTimestamp", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 63")
        .message("the name of a Cluster becomes a label value: at most 63 characters"),
)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// The addresses of pods and services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub cluster_network: Option<ClusterNetwork>,
    /// What the cloud is told of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub provider_spec: Option<ClusterProviderSpec>,
}

/// The addresses of pods and services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNetwork {
    /// The addresses of services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub services: Option<CidrBlocks>,
    /// The addresses of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub pods: Option<CidrBlocks>,
    /// The domain of services, such as `cluster.local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_domain: Option<String>,
}

/// Ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CidrBlocks {
    /// Ranges such as `10.96.0.0/16`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub cidr_blocks: Vec<String>,
}

/// What the cloud is told of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProviderSpec {
    /// The provider's own fields (Mirantis: release, credentials, maintenance, publicKeys and so on).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::open_object")]
    pub value: Option<Value>,
    /// Where they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub value_from: Option<ProviderSpecSource>,
}

/// What was seen of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Where the cluster's API server answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_endpoints: Vec<ApiEndpoint>,
    /// What was seen, each with a reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Why the Cluster cannot go on, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<String>,
    /// Why the Cluster cannot go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What the provider shows (Mirantis: releaseRefs, nodes, maintenance and so on).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::open_object")]
    pub provider_status: Option<Value>,
    /// The `metadata.generation` that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Where an API server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiEndpoint {
    /// A host name or an address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Cluster {
    /// The labels that machines may ask for their Nodes, with the value that each must have, if it must
    /// (Mirantis: `allowedNodeLabels` of the release). None where no list is kept.
    #[must_use]
    pub fn allowed_node_labels(&self) -> Option<BTreeMap<String, Option<String>>> {
        let status = self.status.as_ref()?.provider_status.as_ref()?;
        // Mirantis spells it either way.
        let list = ["releaseRefs", "releaseRef"].into_iter().find_map(|name| {
            status.get(name)?.get("current")?.get("allowedNodeLabels")?.as_array()
        })?;
        let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(str::to_owned);
        let given = |value: &String| !value.is_empty();
        let entries = list.iter();
        Some(
            entries
                .filter_map(|it| Some((text(it, "key")?, text(it, "value").filter(given))))
                .collect(),
        )
    }
}
