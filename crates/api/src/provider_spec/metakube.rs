//! MetaKube's dialect: `cloudProvider`, `cloudProviderSpec`, `operatingSystem` and so on.

use super::fields::{Fields, Resolved, invalid};
use super::{
    CredentialValue, CredentialsSource, DescriptionError, IpFamily, NetworkParameters,
    OperatingSystem, Provisioning, RootVolume, SecretText, ServerDescription, ServerParameters,
    described,
};
use crate::GoDuration;
use serde_json::Value;
use std::collections::BTreeMap;

/// What the credentials are called, as in MetaKube.
const CREDENTIALS: [&str; 11] = [
    "identityEndpoint",
    "applicationCredentialID",
    "applicationCredentialSecret",
    "username",
    "password",
    "domainName",
    "projectName",
    "tenantName",
    "projectID",
    "tenantID",
    "tokenId",
];

/// What Drover has no use for.
const IDLE: [&str; 5] = [
    "instanceReadyCheckPeriod",
    "instanceReadyCheckTimeout",
    "computeAPIVersion",
    "trustDevicePath",
    "nodeVolumeAttachLimit",
];

pub fn read(
    path: &str,
    value: &Value,
    resolved: &Resolved,
) -> Result<ServerDescription, DescriptionError> {
    let mut fields = Fields::open(path, value, resolved)?;
    let way_out = "Drover drives openstack";
    let provider = fields.required("cloudProvider", way_out)?;
    if provider != "openstack" {
        return Err(invalid(&fields.path("cloudProvider"), &Value::String(provider), way_out));
    }
    let os = operating_system(&mut fields)?;
    let ssh_keys = ssh_keys(&mut fields)?;
    let ip_family = ip_family(&mut fields)?;
    let cloud_config = cloud_config(&mut fields)?;
    let mut without_effect: Vec<String> =
        fields.text("caPublicKey")?.map(|_| fields.path("caPublicKey")).into_iter().collect();
    let Some(mut cloud) = fields.object("cloudProviderSpec")? else {
        let field = fields.path("cloudProviderSpec");
        return Err(DescriptionError::Missing { field, way_out: "describe the server there" });
    };
    without_effect.extend(idle(&mut cloud)?);
    let (server, credentials) = openstack(cloud)?;
    fields.close()?;
    let common = described(server, os);
    Ok(ServerDescription {
        ssh_keys,
        ip_family,
        cloud_config,
        without_effect,
        credentials,
        ..common
    })
}

/// The credentials and the region, whatever the rest looks like.
pub fn credentials_of(
    path: &str,
    value: &Value,
) -> Result<(CredentialsSource, Option<String>), DescriptionError> {
    let none = BTreeMap::new();
    let mut fields = Fields::open(path, value, &none)?;
    let Some(mut cloud) = fields.object("cloudProviderSpec")? else {
        return Ok((CredentialsSource::default(), None));
    };
    let credentials = credentials(&mut cloud)?;
    Ok((credentials, cloud.text("region")?))
}

fn credentials(cloud: &mut Fields) -> Result<CredentialsSource, DescriptionError> {
    let mut credentials = CredentialsSource { are_completed: true, ..CredentialsSource::default() };
    for name in CREDENTIALS {
        if let Some(value) = cloud.secret(name)? {
            credentials.values.insert(name.to_owned(), value);
        }
    }
    Ok(credentials)
}

fn operating_system(fields: &mut Fields) -> Result<OperatingSystem, DescriptionError> {
    let way_out = "give ubuntu or flatcar";
    let name = fields.required("operatingSystem", way_out)?;
    // Upstream keeps unknown fields of this one; only those that mean something are looked at.
    let empty = Value::Object(serde_json::Map::new());
    let value = fields.raw("operatingSystemSpec").unwrap_or(&empty);
    let none = BTreeMap::new();
    let mut spec = Fields::open(&fields.path("operatingSystemSpec"), value, &none)?;
    match name.as_str() {
        "ubuntu" => Ok(OperatingSystem::Ubuntu {
            dist_upgrade_on_boot: spec.flag("distUpgradeOnBoot")?.unwrap_or(false),
        }),
        "flatcar" => Ok(OperatingSystem::Flatcar {
            disable_auto_update: spec.flag("disableAutoUpdate")?.unwrap_or(false),
            disable_locksmith_d: spec.flag("disableLocksmithD")?.unwrap_or(false),
            disable_update_engine: spec.flag("disableUpdateEngine")?.unwrap_or(false),
            provisioning: match spec.text("provisioningUtility")?.as_deref() {
                None | Some("ignition") => Provisioning::Ignition,
                Some("cloud-init") => Provisioning::CloudInit,
                Some(other) => {
                    let field = spec.path("provisioningUtility");
                    return Err(invalid(&field, &other.into(), "give ignition or cloud-init"));
                }
            },
        }),
        _ => Err(invalid(&fields.path("operatingSystem"), &Value::String(name), way_out)),
    }
}

fn ssh_keys(fields: &mut Fields) -> Result<Vec<String>, DescriptionError> {
    let path = fields.path("sshPublicKeys");
    let keys = fields.texts("sshPublicKeys")?;
    match keys.iter().find(|key| !is_public_key(key)) {
        Some(key) => Err(invalid(
            &path,
            &Value::String(key.clone()),
            "give lines as in authorized_keys, such as ssh-ed25519 AAAA..",
        )),
        None => Ok(keys),
    }
}

/// `[options] type base64 [comment]` on one line, as sshd(8) describes it.
fn is_public_key(line: &str) -> bool {
    let types = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"];
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let is_blob = |word: &str| {
        let text = word.trim_end_matches('=');
        text.len() >= 40
            && text.starts_with("AAAA")
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    let is_type = |word: &str| types.iter().any(|it| word.starts_with(it));
    !line.contains(['\n', '\r']) && words.windows(2).any(|two| is_type(two[0]) && is_blob(two[1]))
}

/// The text of a file, as it was written. It may hold a password, so that no error shows it.
fn cloud_config(fields: &mut Fields) -> Result<Option<SecretText>, DescriptionError> {
    match fields.secret("overwriteCloudConfig")? {
        None => Ok(None),
        Some(CredentialValue::Inline(text)) => Ok(Some(SecretText(text))),
        Some(CredentialValue::Reference(_)) => {
            let field = fields.path("overwriteCloudConfig");
            Err(DescriptionError::Unusable { field, way_out: "give the text of the file" })
        }
    }
}

/// Static addresses are refused.
fn ip_family(fields: &mut Fields) -> Result<Option<IpFamily>, DescriptionError> {
    let Some(mut network) = fields.object("network")? else { return Ok(None) };
    let family = match network.text("ipFamily")?.as_deref() {
        None => None,
        Some("IPv4") => Some(IpFamily::V4),
        Some("IPv6") => Some(IpFamily::V6),
        Some("IPv4+IPv6") => Some(IpFamily::V4V6),
        Some("IPv6+IPv4") => Some(IpFamily::V6V4),
        Some(other) => {
            let way_out = "give IPv4, IPv6, IPv4+IPv6 or IPv6+IPv4";
            return Err(invalid(&network.path("ipFamily"), &other.into(), way_out));
        }
    };
    for name in ["cidr", "gateway", "dns"] {
        if let Some(value) = network.raw(name).filter(|value| **value != Value::String("".into())) {
            let way_out =
                "static addresses are not supported; leave it out, the cloud gives addresses";
            return Err(invalid(&network.path(name), value, way_out));
        }
    }
    network.close()?;
    Ok(family)
}

fn openstack(
    mut fields: Fields,
) -> Result<(ServerParameters, CredentialsSource), DescriptionError> {
    let credentials = credentials(&mut fields)?;
    let (tags, metadata) = tags(&mut fields)?;
    let server = ServerParameters {
        image: fields.required("image", "give the name or ID of an image")?,
        flavor: fields.required("flavor", "give the name or ID of a flavor")?,
        availability_zone: fields.text("availabilityZone")?,
        region: fields.text("region")?,
        networks: networks(&mut fields)?,
        security_groups: fields.texts("securityGroups")?,
        floating_ip_pool: fields.text("floatingIpPool")?,
        server_group: server_group(&mut fields)?,
        root_volume: root_volume(&mut fields)?,
        config_drive: fields.flag("configDrive")?,
        port_security: fields.flag("disablePortSecurity")?.filter(|off| *off).map(|_| false),
        tags,
        metadata,
        ..ServerParameters::default()
    };
    fields.close()?;
    Ok((server, credentials))
}

/// Checks what has a meaning elsewhere and none here, and answers with what was given of it: how often to poll is
/// Drover's affair, and the in-tree cloud provider is gone.
fn idle(fields: &mut Fields) -> Result<Vec<String>, DescriptionError> {
    for name in ["instanceReadyCheckPeriod", "instanceReadyCheckTimeout"] {
        if let Some(text) = fields.text(name)?
            && text.parse::<GoDuration>().is_err()
        {
            return Err(invalid(&fields.path(name), &text.into(), "give a duration such as 10s"));
        }
    }
    if let Some(version) = fields.text("computeAPIVersion")?
        && !version.parse::<f32>().is_ok_and(|number| number >= 2.0)
    {
        let way_out = "give a microversion from 2.0 up, or leave it out";
        return Err(invalid(&fields.path("computeAPIVersion"), &version.into(), way_out));
    }
    fields.flag("trustDevicePath")?;
    let given: Vec<&str> = IDLE.into_iter().filter(|name| fields.raw(name).is_some()).collect();
    Ok(given.into_iter().map(|name| fields.path(name)).collect())
}

/// `network` comes first, then `networks`, each once; `subnet` is of the first.
fn networks(fields: &mut Fields) -> Result<Vec<NetworkParameters>, DescriptionError> {
    let mut names: Vec<String> = fields.text("network")?.into_iter().collect();
    for name in fields.texts("networks")? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut networks: Vec<NetworkParameters> = names
        .into_iter()
        .map(|network| NetworkParameters { network, ..NetworkParameters::default() })
        .collect();
    if let Some(subnet) = fields.text("subnet")? {
        if networks.is_empty() {
            networks.push(NetworkParameters::default());
        }
        networks[0].subnet = Some(subnet);
    }
    Ok(networks)
}

/// Upstream says `serverGroup`, MetaKube `serverGroupID`.
fn server_group(fields: &mut Fields) -> Result<Option<String>, DescriptionError> {
    let (name, id) = (fields.text("serverGroup")?, fields.text("serverGroupID")?);
    match (&name, &id) {
        (Some(name), Some(other)) if name != other => Err(invalid(
            &fields.path("serverGroupID"),
            &other.as_str().into(),
            "serverGroup names another one; give one of the two",
        )),
        _ => Ok(id.or(name)),
    }
}

fn root_volume(fields: &mut Fields) -> Result<Option<RootVolume>, DescriptionError> {
    let volume_type = fields.text("rootDiskVolumeType")?;
    match fields.count("rootDiskSizeGB", "give a size in GiB from 1 up")? {
        Some(size_gib) => Ok(Some(RootVolume { size_gib, volume_type })),
        None if volume_type.is_none() => Ok(None),
        None => Err(DescriptionError::Missing {
            field: fields.path("rootDiskSizeGB"),
            way_out: "rootDiskVolumeType needs it: only a server that boots from a volume has one",
        }),
    }
}

type Tags = (Vec<String>, BTreeMap<String, String>);

/// MetaKube documents a list of server tags, upstream a map that becomes server metadata.
fn tags(fields: &mut Fields) -> Result<Tags, DescriptionError> {
    match fields.raw("tags") {
        Some(Value::Array(_)) => {
            let tags = fields.texts("tags")?;
            let unfit = |tag: &&String| tag.chars().count() > 60 || tag.contains([',', '/']);
            match tags.iter().find(unfit) {
                Some(tag) => Err(invalid(
                    &fields.path("tags"),
                    &tag.as_str().into(),
                    "Nova takes tags of at most 60 characters without comma and slash",
                )),
                None => Ok((tags, BTreeMap::new())),
            }
        }
        Some(Value::Object(_)) => {
            let metadata = fields.map("tags")?;
            match metadata.get("machine-uid") {
                Some(value) => Err(invalid(
                    &format!("{}.machine-uid", fields.path("tags")),
                    &value.as_str().into(),
                    "the key is reserved; choose another",
                )),
                None => Ok((vec![], metadata)),
            }
        }
        Some(other) => Err(invalid(
            &fields.path("tags"),
            other,
            "give a list of tags, or a map that becomes metadata",
        )),
        None => Ok(Tags::default()),
    }
}
