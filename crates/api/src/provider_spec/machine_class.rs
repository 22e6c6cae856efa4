//! Gardener's dialect: the OpenStack description in a MachineClass.

use super::fields::{Fields, Resolved, invalid};
use super::{
    CredentialsSource, DescriptionError, NetworkParameters, OperatingSystem, RootVolume,
    ServerDescription, ServerParameters, UserDataSource, described,
};
use crate::{MachineClass, SecretReference};
use serde_json::Value;

pub fn read(
    class: &MachineClass,
    resolved: &Resolved,
) -> Result<ServerDescription, DescriptionError> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let class_path = format!("MachineClass {name}");
    if let Some(provider) = &class.provider
        && !provider.eq_ignore_ascii_case("openstack")
    {
        let field = format!("{class_path}: provider");
        return Err(invalid(&field, &provider.as_str().into(), "Drover drives OpenStack"));
    }
    let path = format!("{class_path}: providerSpec");
    let mut fields = Fields::open(&path, &class.provider_spec, resolved)?;
    fields.raw("apiVersion");
    fields.raw("kind");
    let (server, without_effect) = match fields.object("spec")? {
        // Gardener's own manifests wrap the fields as an object of their API.
        Some(inner) => {
            fields.close()?;
            server(inner)?
        }
        None => server(fields)?,
    };
    let user_data = match &class.secret_ref {
        Some(secret) => UserDataSource::Secret(of_class(class, secret)),
        None => UserDataSource::Rendered,
    };
    Ok(ServerDescription {
        credentials: credentials(class),
        without_effect,
        user_data,
        virtual_capacity: class
            .node_template
            .as_ref()
            .map(|template| template.virtual_capacity.clone())
            .unwrap_or_default(),
        ..described(server, OperatingSystem::Ubuntu { dist_upgrade_on_boot: false })
    })
}

/// The credentials and the region, whatever the rest looks like.
pub fn credentials_of(class: &MachineClass) -> (CredentialsSource, Option<String>) {
    let spec = class.provider_spec.get("spec").unwrap_or(&class.provider_spec);
    let region = spec.get("region").and_then(Value::as_str).map(str::to_owned);
    (credentials(class), region)
}

fn credentials(class: &MachineClass) -> CredentialsSource {
    let secrets = [&class.secret_ref, &class.credentials_secret_ref].into_iter().flatten();
    CredentialsSource {
        secrets: secrets.map(|secret| of_class(class, secret)).collect(),
        ..CredentialsSource::default()
    }
}

fn of_class(class: &MachineClass, secret: &SecretReference) -> SecretReference {
    SecretReference {
        name: secret.name.clone(),
        namespace: secret.namespace.clone().or_else(|| class.metadata.namespace.clone()),
    }
}

/// The server, and the fields without effect.
fn server(mut fields: Fields) -> Result<(ServerParameters, Vec<String>), DescriptionError> {
    fields.raw("apiVersion");
    fields.raw("kind");
    fields.raw("spec");
    let image = match fields.text("imageID")? {
        Some(id) => {
            fields.text("imageName")?;
            id
        }
        None => fields.required("imageName", "give imageID or imageName")?,
    };
    let pods = fields.texts("podNetworkCIDRs")?;
    let pod = fields.text("podNetworkCidr")?;
    let volume_type = fields.text("rootDiskType")?;
    let root_size = match fields.raw("rootDiskSize") {
        Some(Value::Number(zero)) if zero.as_u64() == Some(0) => None,
        _ => fields.count("rootDiskSize", "give a size in GiB, or 0 for the flavor's disk")?,
    };
    // Gardener: without a size the server boots from the flavor's disk.
    let idle = volume_type.as_ref().filter(|_| root_size.is_none());
    let without_effect = idle.map(|_| fields.path("rootDiskType")).into_iter().collect();
    let server = ServerParameters {
        image,
        flavor: fields.required("flavorName", "give the name of a flavor")?,
        availability_zone: fields.text("availabilityZone")?,
        region: fields.text("region")?,
        networks: networks(&mut fields)?,
        security_groups: fields.texts("securityGroups")?,
        server_group: fields.text("serverGroupID")?,
        root_volume: root_size.map(|size_gib| RootVolume { size_gib, volume_type }),
        key_name: fields.text("keyName")?,
        config_drive: fields.flag("useConfigDrive")?,
        allowed_address_pairs: if pods.is_empty() { pod.into_iter().collect() } else { pods },
        metadata: fields.map("tags")?,
        ..ServerParameters::default()
    };
    fields.close()?;
    Ok((server, without_effect))
}

fn networks(fields: &mut Fields) -> Result<Vec<NetworkParameters>, DescriptionError> {
    let single = fields.text("networkID")?;
    let several = fields.objects("networks")?;
    let mut networks = vec![];
    match (single, several.is_empty()) {
        (Some(network), true) => {
            networks.push(NetworkParameters { network, ..NetworkParameters::default() });
        }
        (Some(network), false) => {
            let way_out = "give networkID or networks, not both";
            return Err(invalid(&fields.path("networkID"), &network.into(), way_out));
        }
        (None, true) => {
            let way_out = "give the ID of a network";
            return Err(DescriptionError::Missing { field: fields.path("networkID"), way_out });
        }
        (None, false) => {}
    }
    for mut item in several {
        let id = item.text("id")?;
        let name = item.text("name")?;
        // Gardener: the pods' ranges go onto the ports of these networks alone.
        let pods = item.flag("podNetwork")?;
        let way_out = "give the network's id or name";
        let missing = || DescriptionError::Missing { field: item.path("id"), way_out };
        let network = id.or(name).ok_or_else(missing)?;
        item.close()?;
        networks.push(NetworkParameters { network, pods, ..NetworkParameters::default() });
    }
    if networks.iter().any(|it| it.pods == Some(true)) {
        networks.iter_mut().for_each(|it| it.pods = Some(it.pods == Some(true)));
    }
    let mut subnets = fields.texts("subnetIDs")?;
    subnets.extend(fields.text("subnetID")?.filter(|it| !subnets.contains(it)));
    // Gardener: the port on the first network has an address in each.
    let mut subnets = subnets.into_iter();
    networks[0].subnet = subnets.next();
    networks[0].more_subnets = subnets.collect();
    Ok(networks)
}
