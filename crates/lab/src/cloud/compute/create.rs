//! `POST /servers`: what is refused at once, and the server that all else begins with.

use super::server::{Destiny, links};
use super::wish::{self, Nic};
use super::{Flavor, Server, VmState, build, quota, schema};
use crate::cloud::fault::Effect;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::network::{Kind, used};
use crate::cloud::state::State;
use crate::cloud::volume;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

pub(super) fn create(state: &mut State, call: &Call) -> Answer {
    let body = schema::body(call)?;
    schema::server(call, &body)?;
    let none = Map::new();
    let asked = body["server"].as_object().unwrap_or(&none);
    let number = |field: &str| {
        asked.get(field).and_then(|value| {
            value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
        })
    };
    let least = number("min_count").unwrap_or(1);
    let count = number("max_count").unwrap_or(least);
    if least > count {
        return Err(fault(400, "min_count must be <= max_count"));
    }
    let template = template(state, call, asked, &body)?;
    let (vcpus, ram) = (template.flavor.vcpus, template.flavor.ram);
    quota::check(state, &template.project, count, vcpus, ram)?;
    reserve(state, call, &template)?;
    let reservation = format!("r-{}", &state.hex()[..8]);
    let mut first = None;
    for at in 1..=count {
        let id = state.uuid();
        let mut server = template.clone();
        if count > 1 {
            server.name = format!("{}-{at}", template.name);
            server.host_name = host_name(&server.name);
        }
        server.id.clone_from(&id);
        server.note("create", call, state.now());
        state.counters.made(&server.tags);
        state.compute.servers.insert(id.clone(), Box::new(server));
        build::begin(state, &id);
        first.get_or_insert(id);
    }
    if asked.get("return_reservation_id") == Some(&json!(true)) {
        return Ok(Reply::json(202, json!({"reservation_id": reservation})));
    }
    let id = first.unwrap_or_default();
    let base = &state.config.base_url;
    let location = format!("{base}/compute/v2.1/servers/{id}");
    let password = asked.get("adminPass").and_then(Value::as_str).unwrap_or(&id[24..]);
    let shown = json!({
        "id": id,
        "links": links(base, &id),
        "OS-DCF:diskConfig": "MANUAL",
        // Nova: here the request is repeated, whatever the port has.
        "security_groups": asked.get("security_groups").unwrap_or(&json!([{"name": "default"}])),
        "adminPass": password,
    });
    Ok(Reply::json(202, json!({"server": shown})).with("location", location))
}

/// Reserves the own volumes of a server, all or none.
fn reserve(state: &mut State, call: &Call, server: &Server) -> Result<(), Reply> {
    let own: Vec<&String> = server.disks.iter().filter_map(|disk| disk.volume.as_ref()).collect();
    for (at, id) in own.iter().enumerate() {
        if let Err(refusal) = volume::reserve(state, id, &call.request_id) {
            own[..at].iter().for_each(|reserved| volume::release(state, reserved));
            return Err(refusal);
        }
    }
    Ok(())
}

/// The server that the request describes, without an id. Every other refusal is here.
fn template(
    state: &mut State,
    call: &Call,
    asked: &Map<String, Value>,
    body: &Value,
) -> Result<Server, Reply> {
    let text = |field: &str| asked.get(field).and_then(Value::as_str).map(str::to_owned);
    let zone_asked = text("availability_zone");
    if zone_asked.as_ref().is_some_and(|zone| !state.config.zones.contains(zone)) {
        return Err(fault(400, "The requested availability zone is not available"));
    }
    let flavor = flavor(state, asked)?;
    let image = wish::image(state, call, asked, &flavor)?;
    let disks = wish::disks(state, call, asked)?;
    if flavor.disk == 0 && disks.is_empty() {
        let message = "Only volume-backed servers are allowed for flavors with zero disk.";
        return Err(fault(403, message));
    }
    let nics = wish::nics(state, call, asked)?;
    let project = call.session.project();
    port_quota(state, &project, &nics)?;
    let groups = wish::groups(state, call, asked)?;
    let key_name = text("key_name");
    check_key(state, call, key_name.as_deref())?;
    let metadata: BTreeMap<String, String> = field(asked, "metadata");
    metadata_quota(state, metadata.len())?;
    let group = schema::hinted_group(body).as_str().map(str::to_owned);
    check_group(state, group.as_deref())?;
    let tags: BTreeSet<String> = field(asked, "tags");
    let name = text("name").unwrap_or_default();
    let now = state.now();
    Ok(Server {
        id: String::new(),
        host_name: text("hostname").unwrap_or_else(|| host_name(&name)),
        name,
        project,
        user: call.session.user.clone(),
        created: now,
        updated: now,
        launched: None,
        terminated: None,
        flavor,
        image: image.filter(|_| disks.is_empty()),
        destiny: destiny(call, &metadata, &tags),
        metadata,
        tags,
        description: text("description"),
        access: [access(asked, "accessIPv4"), access(asked, "accessIPv6")],
        key_name,
        config_drive: asked.get("config_drive").is_some_and(|on| *on == true || *on == "true"),
        user_data: text("user_data"),
        zone: zone_asked.clone().unwrap_or_default(),
        zone_asked,
        host: None,
        tried: Vec::new(),
        group,
        locked: false,
        vm: VmState::Building,
        task: Some("scheduling"),
        power: 0,
        powered: false,
        failure: None,
        groups_shown: groups_shown(state, &nics, &groups),
        nics,
        disks,
        addresses: json!({}),
        deeds: Vec::new(),
        console: VecDeque::new(),
    })
}

/// A field whose form is checked already; absent is empty.
fn field<T: Default + DeserializeOwned>(asked: &Map<String, Value>, name: &str) -> T {
    let value = asked.get(name).cloned().and_then(|value| serde_json::from_value(value).ok());
    value.unwrap_or_default()
}

/// An address as Nova writes it: in its shortest form.
pub(super) fn access(asked: &Map<String, Value>, field: &str) -> String {
    let address = asked.get(field).and_then(Value::as_str).unwrap_or_default();
    address.parse::<IpAddr>().map_or_else(|_| String::new(), |address| address.to_string())
}

fn flavor(state: &State, asked: &Map<String, Value>) -> Result<Flavor, Reply> {
    let wanted = asked.get("flavorRef").and_then(Value::as_str).unwrap_or_default();
    // A link to a flavor is as good as its id.
    let wanted = wanted.rsplit('/').next().unwrap_or_default();
    let found = state.compute.flavors.iter().find(|flavor| flavor.id == wanted).cloned();
    found.ok_or_else(|| fault(400, format!("Flavor {wanted} could not be found.")))
}

fn check_key(state: &State, call: &Call, name: Option<&str>) -> Result<(), Reply> {
    let mut own = state.compute.keypairs.iter().filter(|key| key.user == call.session.user);
    if name.is_none_or(|name| own.any(|key| key.name == name)) {
        return Ok(());
    }
    Err(fault(400, "Invalid key_name provided."))
}

fn check_group(state: &State, group: Option<&str>) -> Result<(), Reply> {
    let Some(group) = group else { return Ok(()) };
    if !state.compute.groups.contains_key(group) {
        return Err(fault(400, format!("Instance group {group} could not be found.")));
    }
    let servers = state.compute.servers.values();
    let members = servers.filter(|server| server.group.as_deref() == Some(group)).count();
    let limit = state.config.quotas.server_group_members;
    if limit >= 0 && i64::try_from(members).is_ok_and(|members| members >= limit) {
        return Err(fault(403, "Quota exceeded, too many servers in group"));
    }
    Ok(())
}

/// Nova: lower case, `_`, `.` and blanks become `-`; 63 characters.
fn host_name(name: &str) -> String {
    let name: String = name
        .chars()
        .filter_map(|one| match one {
            ' ' | '_' | '.' => Some('-'),
            one if one.is_ascii_alphanumeric() || one == '-' => Some(one.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    name.trim_matches('-').chars().take(63).collect()
}

/// An own port decides its security groups itself, whatever the server asks for.
fn groups_shown(state: &State, nics: &[Nic], asked: &[String]) -> Vec<String> {
    let own = nics.iter().filter_map(|nic| nic.port.as_ref());
    let of_ports: Vec<String> = own
        .filter_map(|port| state.network.get(Kind::Port, port))
        .flat_map(|port| port["security_groups"].as_array().into_iter().flatten())
        .filter_map(|group| group.as_str().map(str::to_owned))
        .collect();
    let ids = if of_ports.is_empty() { asked } else { &of_ports };
    let names: Vec<String> = ids
        .iter()
        .filter_map(|id| state.network.get(Kind::SecurityGroup, id))
        .filter_map(|group| group["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() { vec!["default".to_owned()] } else { names }
}

fn port_quota(state: &State, project: &str, nics: &[Nic]) -> Result<(), Reply> {
    let made = nics.iter().filter(|nic| nic.made_here).count();
    let made = u64::try_from(made).unwrap_or(u64::MAX);
    let (used, limit) = (used(state, Kind::Port, project), state.config.quotas.port);
    if made == 0 || limit < 0 || used + made <= limit.unsigned_abs() {
        return Ok(());
    }
    let limit = limit.unsigned_abs();
    Err(fault(
        403,
        if used > limit {
            format!("The number of defined ports: {used} is over the limit: {limit}")
        } else {
            "Maximum number of ports exceeded".to_owned()
        },
    ))
}

/// Refuses more metadata than one server may have.
pub(super) fn metadata_quota(state: &State, items: usize) -> Result<(), Reply> {
    let limit = state.config.quotas.metadata_items;
    if limit < 0 || i64::try_from(items).is_ok_and(|items| items <= limit) {
        return Ok(());
    }
    Err(fault(403, format!("Maximum number of metadata items exceeds {limit}")))
}

/// What faults, and the knobs that tests put into metadata, make of the server.
fn destiny(call: &Call, metadata: &BTreeMap<String, String>, tags: &BTreeSet<String>) -> Destiny {
    let mut destiny = Destiny {
        boot_error: metadata.get("oslab_boot_error").cloned(),
        boot_seconds: metadata.get("oslab_boot_seconds").and_then(|value| value.parse().ok()),
        ..Destiny::default()
    };
    // Nova's database compares tags without case and gives up on two that differ in it alone.
    let folded: BTreeSet<String> = tags.iter().map(|tag| tag.to_lowercase()).collect();
    destiny.stuck_build = folded.len() < tags.len();
    match &call.effect {
        Some(Effect::StuckBuild) => destiny.stuck_build = true,
        Some(Effect::StuckDeleting) => destiny.stuck_deleting = true,
        Some(Effect::BootFailure { message }) => destiny.boot_error = Some(message.clone()),
        Some(Effect::Vanish { millis }) => destiny.vanish_millis = Some(*millis),
        Some(Effect::NoAddresses) => destiny.no_addresses = true,
        Some(Effect::PortDown) => destiny.ports_down = true,
        _ => {}
    }
    destiny
}
