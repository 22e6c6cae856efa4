//! Mirantis' dialect: `kind: OpenstackMachineProviderSpec`.

use super::fields::{Fields, Resolved, invalid};
use super::{
    AdditionalVolume, DescriptionError, NetworkParameters, OperatingSystem, RootVolume,
    ServerDescription, ServerParameters, described,
};
use serde_json::Value;
use std::collections::BTreeMap;

const KIND: &str = "OpenstackMachineProviderSpec";
const GROUP: &str = "openstackproviderconfig.k8s.io/";
const GIB: &str = "give a size in GiB from 1 up";

/// Whether a description says it is of this dialect.
pub fn is_meant(value: &Value) -> bool {
    let text = |name| value.get(name).and_then(Value::as_str);
    text("kind").is_some() || text("apiVersion").is_some()
}

pub fn read(
    path: &str,
    value: &Value,
    resolved: &Resolved,
) -> Result<ServerDescription, DescriptionError> {
    let mut fields = Fields::open(path, value, resolved)?;
    let kind = fields.required("kind", "give OpenstackMachineProviderSpec")?;
    if kind != KIND {
        let way_out = "give OpenstackMachineProviderSpec";
        return Err(invalid(&fields.path("kind"), &kind.into(), way_out));
    }
    let way_out = "give openstackproviderconfig.k8s.io/v1alpha1";
    let version = fields.required("apiVersion", way_out)?;
    if !matches!(version.strip_prefix(GROUP), Some("v1alpha" | "v1alpha1")) {
        return Err(invalid(&fields.path("apiVersion"), &version.into(), way_out));
    }
    fields.raw("metadata");
    refused(&mut fields)?;
    deletion_policy(&mut fields)?;
    let server = ServerParameters {
        image: fields.required("image", "give the name or ID of an image")?,
        flavor: fields.required("flavor", "give the name or ID of a flavor")?,
        availability_zone: fields.text("availabilityZone")?,
        networks: networks(&mut fields)?,
        security_groups: fields.texts("securityGroups")?,
        root_volume: root_volume(&mut fields)?,
        additional_volumes: additional_volumes(&mut fields)?,
        metadata: fields.map("serverMetadata")?,
        ..ServerParameters::default()
    };
    let description = ServerDescription {
        node_labels: node_labels(&mut fields)?,
        delete: fields.flag("delete")?.unwrap_or(false),
        maintenance: fields.flag("maintenance")?.unwrap_or(false),
        upgrade_index: fields.count("upgradeIndex", "give a whole number from 1 up")?,
        ..described(server, OperatingSystem::Ubuntu { dist_upgrade_on_boot: false })
    };
    fields.close()?;
    Ok(description)
}

/// Refuses by name what exists in Mirantis' types and cannot be had here.
fn refused(fields: &mut Fields) -> Result<(), DescriptionError> {
    if let Some(distribution) = fields.text("distribution")?
        && !distribution.starts_with("ubuntu")
    {
        let way_out = "only ubuntu is known in this dialect";
        return Err(invalid(&fields.path("distribution"), &distribution.into(), way_out));
    }
    for (name, way_out) in [
        ("floatingIP", "a given floating IP cannot be asked for; leave it out"),
        ("rhelLicense", "RHEL is not supported; leave it out"),
    ] {
        if let Some(value) = fields.raw(name).filter(|value| **value != Value::String("".into())) {
            return Err(invalid(&fields.path(name), value, way_out));
        }
    }
    Ok(())
}

fn networks(fields: &mut Fields) -> Result<Vec<NetworkParameters>, DescriptionError> {
    fields
        .objects("networks")?
        .into_iter()
        .map(|mut item| {
            let network = item.required("uuid", "give the ID of a network")?;
            let fixed_ip = match item.text("fixed_ip")? {
                None => None,
                Some(text) => Some(text.parse().map_err(|_| {
                    invalid(&item.path("fixed_ip"), &text.into(), "give an IP address")
                })?),
            };
            if let Some(filter) = item.raw("filter").filter(|it| **it != serde_json::json!({})) {
                let way_out = "networks are chosen by uuid; leave it out";
                return Err(invalid(&item.path("filter"), filter, way_out));
            }
            item.close()?;
            Ok(NetworkParameters { network, fixed_ip, ..NetworkParameters::default() })
        })
        .collect()
}

fn root_volume(fields: &mut Fields) -> Result<Option<RootVolume>, DescriptionError> {
    let Some(mut boot) = fields.object("bootFromVolume")? else { return Ok(None) };
    let enabled = boot.flag("enabled")?.unwrap_or(false);
    let size = boot.count("volumeSize", GIB)?;
    let field = boot.path("volumeSize");
    boot.close()?;
    match (enabled, size) {
        (false, _) => Ok(None),
        (true, Some(size_gib)) => Ok(Some(RootVolume { size_gib, volume_type: None })),
        (true, None) => Err(DescriptionError::Missing { field, way_out: GIB }),
    }
}

fn additional_volumes(fields: &mut Fields) -> Result<Vec<AdditionalVolume>, DescriptionError> {
    fields
        .objects("additionalVolumes")?
        .into_iter()
        .map(|mut item| {
            let name = item.required("name", "give each volume a name")?;
            let size_gib = item.count("size", GIB)?.ok_or_else(|| DescriptionError::Missing {
                field: item.path("size"),
                way_out: GIB,
            })?;
            item.close()?;
            Ok(AdditionalVolume { name, size_gib, volume_type: None })
        })
        .collect()
}

fn node_labels(fields: &mut Fields) -> Result<BTreeMap<String, String>, DescriptionError> {
    fields
        .objects("nodeLabels")?
        .into_iter()
        .map(|mut item| {
            let key = item.required("key", "give the label's key")?;
            let value = item.text("value")?.unwrap_or_default();
            item.close()?;
            Ok((key, value))
        })
        .collect()
}

/// It is read where machines are deleted, for it counts also when the rest cannot be read.
fn deletion_policy(fields: &mut Fields) -> Result<(), DescriptionError> {
    match fields.text("deletionPolicy")?.as_deref() {
        None | Some("graceful" | "unsafe" | "forced") => Ok(()),
        Some(other) => Err(invalid(
            &fields.path("deletionPolicy"),
            &other.into(),
            "give graceful, unsafe or forced",
        )),
    }
}
