//! Pieces of OpenAPI schemas that a Rust type cannot say.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The most labels or annotations of one object that a rule may walk over.
const MAP_MAX: u32 = 128;
/// Kubernetes: a label key is a prefix of up to 253 characters, a slash and a name of up to 63.
const LABEL_VALUE_MAX: u32 = 63;

/// A text of a form and a greatest length.
pub fn pattern(pattern: &str, max_length: u32) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern, "maxLength": max_length })
}

/// Any object, kept as it was written.
pub fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Labels: bounded, so that a rule over them has a bounded cost.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MAP_MAX,
        "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_MAX },
    })
}

/// Lets an optional field keep its own description, with its default, where the type has one, too.
pub fn own_words(schema: &mut Schema) {
    let Some(words) = schema.get("description").cloned() else { return };
    for choice in schema.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(choice) = choice.as_object_mut().filter(|it| it.contains_key("description")) {
            choice.insert("description".to_owned(), words.clone());
        }
    }
}

/// A point in time.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A version such as 1.30.3 or v1.31.0-rc.1.
pub fn version(_: &mut SchemaGenerator) -> Schema {
    pattern(r"^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$", 64)
}

/// A count, or a share of at most all.
pub fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^(100|[1-9]?[0-9])%$",
        "minimum": 0,
        "maxLength": 4,
    })
}

/// The description of a server, open because each dialect has its own fields. Declared are those whose
/// change a Machine must refuse or allow, for a rule sees no others; the rest of the judgement is the
/// strict reader's.
pub fn provider_spec_value(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let texts = |description: &str| {
        json!({
            "type": "array", "description": description, "maxItems": 256,
            "items": { "type": "string", "maxLength": 16384 },
        })
    };
    let open = |description: &str| {
        json!({
            "type": "object", "description": description,
            "x-kubernetes-preserve-unknown-fields": true,
        })
    };
    let opens = |description: &str| {
        json!({
            "type": "array", "description": description, "maxItems": 64,
            "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        })
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "cloudProvider": text("The cloud: openstack."),
            "cloudProviderSpec": open("The server: image, flavor, network, subnet, availabilityZone, region, securityGroups, floatingIpPool, serverGroupID, rootDiskSizeGB, tags and so on, and the credentials. Each text may be a reference: {secretKeyRef: {namespace, name, key}}."),
            "operatingSystem": text("The operating system: ubuntu or flatcar."),
            "operatingSystemSpec": open("How the operating system is set up. Ubuntu: distUpgradeOnBoot. Flatcar: disableAutoUpdate, disableLocksmithD, disableUpdateEngine, provisioningUtility."),
            "sshPublicKeys": texts("Keys that may log in, as lines of authorized_keys."),
            "network": open("The addresses' family; static addresses are not supported."),
            "apiVersion": text("Mirantis: openstackproviderconfig.k8s.io/v1alpha1."),
            "kind": text("Mirantis: OpenstackMachineProviderSpec."),
            "availabilityZone": text("Mirantis: the availability zone."),
            "flavor": text("Mirantis: the flavor."),
            "image": text("Mirantis: the image."),
            "securityGroups": texts("Mirantis: the security groups."),
            "networks": opens("Mirantis: the networks, each {uuid, fixed_ip}."),
            "bootFromVolume": open("Mirantis: {enabled, volumeSize in GiB}: boot from a new volume."),
            "additionalVolumes": opens("Mirantis: more volumes, each {name, size in GiB}."),
            "serverMetadata": open("Mirantis: metadata of the server."),
            "nodeLabels": opens("Mirantis: labels of the Node, each {key, value}. May change."),
            "maintenance": {
                "type": "boolean", "description": "Mirantis: cordon and drain the node. May change.",
            },
            "upgradeIndex": {
                "type": "integer", "format": "int32", "minimum": 1,
                "description": "Mirantis: the turn in an upgrade, lower first. May change.",
            },
            "deletionPolicy": {
                "type": "string", "enum": ["graceful", "unsafe", "forced"],
                "description": "Mirantis: with how much care the machine is deleted. May change. Default: the manager's, graceful.",
            },
            "delete": {
                "type": "boolean",
                "description": "Mirantis: delete the machine. May change; false withdraws it while the node is drained.",
            },
        },
    })
}
