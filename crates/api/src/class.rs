//! MachineClass: a server described once for many machines. Its fields are at the top, as Gardener's.

use crate::{GROUP, VERSION, labels, schema};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::core::schema::StructuralSchemaRewriter;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{borrow::Cow, collections::BTreeMap};

/// A server described once for many machines, in the words of Gardener's machine-controller-manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineClass {
    /// Always cluster.k8s.io/v1alpha1.
    #[serde(default = "api_version")]
    #[schemars(skip)]
    pub api_version: String,
    /// Always MachineClass.
    #[serde(default = "kind")]
    #[schemars(skip)]
    pub kind: String,
    /// The object's metadata.
    #[serde(default)]
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// The server. For OpenStack: imageID or imageName, flavorName, region, availabilityZone, keyName,
    /// securityGroups, networkID or networks, subnetIDs, rootDiskSize, rootDiskType, serverGroupID,
    /// tags, useConfigDrive. Read strictly.
    #[schemars(schema_with = "schema::open_object")]
    pub provider_spec: Value,
    /// The cloud. Only OpenStack is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
    /// The Secret with `userData` and, unless `credentialsSecretRef` is given, the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub secret_ref: Option<SecretReference>,
    /// The Secret with the credentials; its keys win over those of `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub credentials_secret_ref: Option<SecretReference>,
    /// What a Node of this class has; the autoscaler reads it when there is no Node to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::own_words)]
    pub node_template: Option<ClassNodeTemplate>,
}

fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

fn kind() -> String {
    "MachineClass".into()
}

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The Secret's namespace. Default: the class' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// What a Node of a class has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassNodeTemplate {
    /// Resources such as cpu, memory and gpu.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources that no kubelet reports and that Drover writes to the Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// The flavor.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    /// The region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The availability zone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The processor architecture, such as amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

impl MachineClass {
    /// A class with this description.
    #[must_use]
    pub fn new(name: &str, provider_spec: Value) -> Self {
        Self {
            api_version: api_version(),
            kind: kind(),
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            provider_spec,
            provider: None,
            secret_ref: None,
            credentials_secret_ref: None,
            node_template: None,
        }
    }

    /// The CustomResourceDefinition, written by hand: the derive knows only kinds with a spec.
    pub(crate) fn crd() -> CustomResourceDefinition {
        let generator = SchemaSettings::openapi3()
            .with(|settings| settings.inline_subschemas = true)
            .with_transform(StructuralSchemaRewriter)
            .into_generator();
        let mut schema = generator.into_root_schema_for::<Self>().to_value();
        if let Some(root) = schema.as_object_mut() {
            root.retain(|key, _| key != "$schema" && key != "title");
        }
        let crd = json!({
            "metadata": {
                "name": format!("machineclasses.{GROUP}"),
                "annotations": { labels::API_APPROVED: "unapproved, legacy API" },
            },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": "MachineClass", "plural": "machineclasses", "singular": "machineclass",
                    "shortNames": ["mclass"], "categories": ["drover"],
                },
                "versions": [{
                    "name": VERSION, "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                    "additionalPrinterColumns": [
                        { "name": "Provider", "type": "string", "jsonPath": ".provider" },
                        { "name": "Flavor", "type": "string", "jsonPath": ".providerSpec.flavorName" },
                        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                    ],
                }],
            },
        });
        serde_json::from_value(crd).expect("the literal above is a CustomResourceDefinition")
    }
}

impl kube::Resource for MachineClass {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(&(): &()) -> Cow<'_, str> {
        "MachineClass".into()
    }

    fn group(&(): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version(&(): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural(&(): &()) -> Cow<'_, str> {
        "machineclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
