//! What a server asks of networks and volumes, checked against what there is.

use super::Flavor;
use crate::cloud::http::{Call, Reply, fault, is_uuid};
use crate::cloud::network::Kind;
use crate::cloud::state::State;
use crate::cloud::volume;
use serde_json::{Map, Value};

/// One interface: an own port, or one that is to be made.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct Nic {
    pub network: String,
    /// The port, once there is one.
    pub port: Option<String>,
    /// Nova makes the port and deletes it with the server.
    pub made_here: bool,
    pub fixed_ip: Option<String>,
}

/// One volume: an own one, or one that is to be made of an image.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct Disk {
    /// The volume, once there is one.
    pub volume: Option<String>,
    /// The image of a volume that Nova makes.
    pub image: Option<String>,
    /// GiB of a volume that Nova makes.
    pub size: u64,
    pub kind: Option<String>,
    pub delete_on_termination: bool,
    pub tag: Option<String>,
    pub device: String,
    pub attachment: String,
    pub attached: bool,
}

fn list<'a>(asked: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a Value> {
    asked.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The interfaces that are asked for.
pub(super) fn nics(
    state: &State,
    call: &Call,
    asked: &Map<String, Value>,
) -> Result<Vec<Nic>, Reply> {
    let networks = asked.get("networks");
    if networks.is_some_and(|networks| networks == "none") {
        return Ok(Vec::new());
    }
    let wished: Vec<&Value> = list(asked, "networks").collect();
    if wished.is_empty() {
        return only_network(state, call);
    }
    wished.into_iter().map(|wish| nic(state, call, wish)).collect()
}

/// The network of a project that has just one.
fn only_network(state: &State, call: &Call) -> Result<Vec<Nic>, Reply> {
    let own: Vec<&str> = state
        .network
        .table(Kind::Network)
        .values()
        .filter(|network| network["router:external"] != true)
        .filter(|network| call.session.sees(network["project_id"].as_str().unwrap_or_default()))
        .filter_map(|network| network["id"].as_str())
        .collect();
    match own.as_slice() {
        [] => Ok(Vec::new()),
        [network] => Ok(vec![Nic {
            network: (*network).to_owned(),
            port: None,
            made_here: true,
            fixed_ip: None,
        }]),
        _ => {
            let message = "Multiple possible networks found, use a Network ID to be more specific.";
            Err(fault(409, message))
        }
    }
}

fn nic(state: &State, call: &Call, wish: &Value) -> Result<Nic, Reply> {
    let fixed_ip = wish["fixed_ip"].as_str().map(str::to_owned);
    if let Some(id) = wish["port"].as_str() {
        let port = state.network.get(Kind::Port, id);
        let port =
            port.filter(|port| call.session.sees(port["project_id"].as_str().unwrap_or_default()));
        let Some(port) = port else {
            return Err(fault(400, format!("Port id {id} could not be found.")));
        };
        if port["device_id"].as_str().is_some_and(|device| !device.is_empty()) {
            return Err(fault(409, format!("Port {id} is still in use.")));
        }
        let network = port["network_id"].as_str().unwrap_or_default().to_owned();
        if port["fixed_ips"].as_array().is_none_or(Vec::is_empty) {
            let message = format!("Port {id} requires a FixedIP in order to be used.");
            return Err(fault(400, message));
        }
        return Ok(Nic { network, port: Some(id.to_owned()), made_here: false, fixed_ip: None });
    }
    let id = wish["uuid"].as_str().unwrap_or_default();
    let network = state.network.get(Kind::Network, id).filter(|network| {
        network["router:external"] == true
            || call.session.sees(network["project_id"].as_str().unwrap_or_default())
    });
    let Some(network) = network else {
        return Err(fault(400, format!("Network {id} could not be found.")));
    };
    if network["subnets"].as_array().is_none_or(Vec::is_empty) {
        let message = format!("Network {id} requires a subnet in order to boot instances on.");
        return Err(fault(400, message));
    }
    Ok(Nic { network: id.to_owned(), port: None, made_here: true, fixed_ip })
}

/// The ids of the security groups that are asked for by name or id.
pub(super) fn groups(
    state: &State,
    call: &Call,
    asked: &Map<String, Value>,
) -> Result<Vec<String>, Reply> {
    let find = |wanted: &str| -> Result<String, Reply> {
        let all = state.network.table(Kind::SecurityGroup).values();
        let own =
            all.filter(|group| call.session.sees(group["project_id"].as_str().unwrap_or_default()));
        let found: Vec<&str> = own
            .filter(|group| group["id"] == wanted || group["name"] == wanted)
            .filter_map(|group| group["id"].as_str())
            .collect();
        match found.as_slice() {
            [one] => Ok((*one).to_owned()),
            [] => {
                Err(fault(400, format!("Unable to find security_group with name or id '{wanted}'")))
            }
            _ => {
                let message = format!(
                    "Multiple security_group matches found for name '{wanted}', use an ID to be more specific."
                );
                Err(fault(409, message))
            }
        }
    };
    list(asked, "security_groups").filter_map(|group| group["name"].as_str()).map(find).collect()
}

/// The image to boot from, if not from a volume.
pub(super) fn image(
    state: &State,
    call: &Call,
    asked: &Map<String, Value>,
    flavor: &Flavor,
) -> Result<Option<String>, Reply> {
    let id = asked.get("imageRef").and_then(Value::as_str).unwrap_or_default();
    if id.is_empty() {
        let volumes = list(asked, "block_device_mapping_v2").next().is_some();
        return if volumes { Ok(None) } else { Err(fault(400, "Missing imageRef attribute")) };
    }
    let Some(image) = state.images.seen(call, id) else {
        return Err(fault(400, "Can not find requested image"));
    };
    if image.status != "active" {
        return Err(fault(400, format!("Image {id} is not active.")));
    }
    if flavor.ram < image.min_ram {
        return Err(fault(400, "Flavor's memory is too small for requested image."));
    }
    if flavor.disk > 0 && flavor.disk < image.min_disk {
        let gib = 1_u64 << 30;
        let message = format!(
            "Flavor's disk is too small for requested image. Flavor disk is {} bytes, minimum size is {} bytes.",
            flavor.disk * gib,
            image.min_disk * gib
        );
        return Err(fault(400, message));
    }
    Ok(Some(id.to_owned()))
}

/// The volumes that are asked for. An own volume is found here and reserved later.
pub(super) fn disks(
    state: &mut State,
    call: &Call,
    asked: &Map<String, Value>,
) -> Result<Vec<Disk>, Reply> {
    let mut disks = Vec::new();
    for wish in list(asked, "block_device_mapping_v2") {
        let source = wish["source_type"].as_str().unwrap_or_default();
        let target = wish["destination_type"].as_str().unwrap_or("volume");
        if target == "local" {
            // The image itself, on the host's disk.
            continue;
        }
        let id = wish["uuid"].as_str().filter(|id| is_uuid(id)).unwrap_or_default();
        let size = &wish["volume_size"];
        let size = size.as_u64().or_else(|| size.as_str().and_then(|size| size.parse().ok()));
        let kind = wish["volume_type"].as_str().map(str::to_owned);
        let mut disk = Disk {
            volume: None,
            image: None,
            size: size.unwrap_or(0),
            kind,
            delete_on_termination: wish["delete_on_termination"].as_bool().unwrap_or(false),
            tag: wish["tag"].as_str().map(str::to_owned),
            device: format!("/dev/sd{}", letter(disks.len())),
            attachment: state.uuid(),
            attached: false,
        };
        let bootable = wish["boot_index"] == 0 || wish["boot_index"] == "0";
        match source {
            "volume" => {
                volume::check_attachable(state, id, bootable)?;
                disk.volume = Some(id.to_owned());
            }
            "image" if state.images.seen(call, id).is_none() => {
                let message = format!("Block Device Mapping is Invalid: failed to get image {id}.");
                return Err(fault(400, message));
            }
            "image" if disk.size == 0 => {
                let message =
                    "Images with destination_type 'volume' need to have a non-zero size specified";
                return Err(fault(400, message));
            }
            "image" => disk.image = Some(id.to_owned()),
            // The schema lets nothing else pass.
            _ => {}
        }
        if let Some(kind) = &disk.kind
            && !volume::has_type(state, kind)
        {
            return Err(fault(400, format!("Volume type {kind} could not be found.")));
        }
        disks.push(disk);
    }
    Ok(disks)
}

/// `a` for the first disk.
pub(super) fn letter(at: usize) -> char {
    char::from(b'a' + u8::try_from(at % 26).unwrap_or(0))
}
