//! What a template says of its machines.

use crate::{machine::MachineSpec, schema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The metadata that a template or a Machine's spec may give. Everything else of an object's metadata
/// is the API server's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = accept_creation_timestamp)]
pub struct TemplateMetadata {
    /// The name: in a Machine's spec the name of the server and the host, by default the Machine's own.
    /// Ignored in a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Accepted and ignored; names come from the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub generate_name: Option<String>,
    /// Accepted and ignored; machines live in the namespace of their set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Labels. In a template's own metadata they go to the Machines, in a Machine's spec to the Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations. In a template's own metadata they go to the Machines, in a Machine's spec to the
    /// Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Manifests that Go wrote carry `creationTimestamp: null` in every template; strict validation would
/// refuse them.
fn accept_creation_timestamp(schema: &mut Schema) {
    if let Some(properties) = schema.get_mut("properties").and_then(|it| it.as_object_mut()) {
        let accepted = serde_json::json!({
            "description": "Accepted and ignored; Go writes it as null.",
            "type": "string", "format": "date-time", "nullable": true,
        });
        properties.insert("creationTimestamp".into(), accepted);
    }
}

/// What a set makes its Machines from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTemplate {
    /// The metadata of the Machines: labels that the selector matches, and annotations.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// The spec of the Machines.
    pub spec: MachineSpec,
}
