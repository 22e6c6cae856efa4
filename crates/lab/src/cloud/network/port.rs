//! Ports: made by clients or by Nova, bound to servers, deleted even while a server uses them.

use super::floating;
use super::{
    Kind, change, drop_object, keep, neutron_error, only, owner, required, seen, text, within_quota,
};
use crate::cloud::compute;
use crate::cloud::fault::Effect;
use crate::cloud::http::{Call, Reply};
use crate::cloud::state::State;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// Neutron: `max_allowed_address_pair`.
const PAIRS_MAX: usize = 10;

const FIELDS: [&str; 13] = [
    "network_id",
    "fixed_ips",
    "security_groups",
    "allowed_address_pairs",
    "port_security_enabled",
    "mac_address",
    "device_id",
    "device_owner",
    "tags",
    "extra_dhcp_opts",
    "binding:vnic_type",
    "binding:profile",
    "binding:host_id",
];

/// A port as every port begins.
pub(super) fn blank(state: &mut State, network: &str) -> Value {
    json!({
        "name": "",
        "network_id": network,
        "mac_address": mac(state),
        "admin_state_up": true,
        "status": "DOWN",
        "device_id": "",
        "device_owner": "",
        "fixed_ips": [],
        "allowed_address_pairs": [],
        "extra_dhcp_opts": [],
        "security_groups": [],
        "description": "",
        "binding:vnic_type": "normal",
        "port_security_enabled": true,
    })
}

fn mac(state: &mut State) -> String {
    loop {
        let [a, b, c, _] = state.rng().u32(..).to_be_bytes();
        let mac = format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}");
        if state.network.macs.insert(mac.clone()) {
            return mac;
        }
    }
}

pub(super) fn create(
    state: &mut State,
    call: &Call,
    wanted: Map<String, Value>,
) -> Result<Value, Reply> {
    only(&wanted, &FIELDS)?;
    let network = required(&wanted, "network_id")?.to_owned();
    seen(state, call, Kind::Network, &network)?;
    deny_binding(call, "create_port", &wanted)?;
    let project = owner(call, Kind::Port, &wanted)?;
    within_quota(state, Kind::Port, state.config.quotas.port, &project)?;
    let mac_wanted = wanted.get("mac_address").and_then(Value::as_str).map(str::to_owned);
    if let Some(mac) = &mac_wanted
        && state.network.macs.contains(mac)
    {
        let message = format!(
            "Unable to complete operation for network {network}. The mac address {mac} is in use."
        );
        return Err(neutron_error(409, "MacAddressInUse", message));
    }
    let mut fields = checked(state, call, &wanted, &json!({"port_security_enabled": true}))?;
    if !fields.contains_key("security_groups")
        && fields.get("port_security_enabled") != Some(&json!(false))
    {
        fields.insert("security_groups".to_owned(), json!(default_group(state, &project)));
    }
    let addresses = take_addresses(state, &network, wanted.get("fixed_ips"))?;
    let mut port = blank(state, &network);
    if let Some(mac) = mac_wanted {
        port["mac_address"] = json!(mac);
        state.network.macs.insert(mac);
    }
    for (field, value) in fields {
        port[field] = value;
    }
    port["fixed_ips"] = json!(addresses);
    fill_pairs(&mut port);
    if state.config.tags_at_port_create
        && let Some(tags) = wanted.get("tags")
    {
        port["tags"] = tags.clone();
    }
    let made = keep(state, Kind::Port, &project, 1, port);
    if matches!(call.effect, Some(Effect::PortDown)) {
        state.network.stuck_ports.insert(id_of(&made));
    }
    Ok(made)
}

fn id_of(port: &Value) -> String {
    port["id"].as_str().unwrap_or_default().to_owned()
}

fn deny_binding(call: &Call, rule: &str, wanted: &Map<String, Value>) -> Result<(), Reply> {
    let reserved = ["binding:host_id", "binding:profile"]
        .into_iter()
        .find(|field| wanted.contains_key(*field));
    match reserved {
        Some(field) if !call.session.is_admin() => {
            let message = format!("(rule:{rule} and rule:{rule}:{field}) is disallowed by policy");
            Err(neutron_error(403, "PolicyNotAuthorized", message))
        }
        _ => Ok(()),
    }
}

fn default_group(state: &State, project: &str) -> Vec<String> {
    let groups = state.network.table(Kind::SecurityGroup).values();
    groups
        .filter(|group| group["name"] == "default" && group["project_id"] == project)
        .map(id_of)
        .collect()
}

/// The plain fields of a write, checked against each other and against what the port had.
fn checked(
    state: &State,
    call: &Call,
    wanted: &Map<String, Value>,
    before: &Value,
) -> Result<Map<String, Value>, Reply> {
    let mut fields = Map::new();
    for (field, value) in wanted {
        let value = match field.as_str() {
            "name" | "description" | "device_id" | "device_owner" => json!(text(wanted, field)?),
            "security_groups" => groups(state, call, value)?,
            "allowed_address_pairs" => pairs(value)?,
            "admin_state_up"
            | "port_security_enabled"
            | "extra_dhcp_opts"
            | "binding:vnic_type" => value.clone(),
            _ => continue,
        };
        fields.insert(field.clone(), value);
    }
    let after = |field: &str| fields.get(field).unwrap_or(&before[field]);
    let filled = |field: &str| after(field).as_array().is_some_and(|items| !items.is_empty());
    if after("port_security_enabled") == &json!(false) {
        if filled("allowed_address_pairs") {
            let message =
                "Port Security must be enabled in order to have allowed address pairs on a port.";
            return Err(neutron_error(409, "AddressPairAndPortSecurityRequired", message));
        }
        if filled("security_groups") {
            let message = "Port has security group associated. Cannot disable port security or IP address until \
                           security group is removed.";
            return Err(neutron_error(409, "PortSecurityPortHasSecurityGroup", message));
        }
    }
    Ok(fields)
}

fn groups(state: &State, call: &Call, wanted: &Value) -> Result<Value, Reply> {
    let wanted: Vec<String> = serde_json::from_value(wanted.clone()).unwrap_or_default();
    for group in &wanted {
        seen(state, call, Kind::SecurityGroup, group)?;
    }
    Ok(json!(wanted))
}

fn pairs(wanted: &Value) -> Result<Value, Reply> {
    let pairs = wanted.as_array().cloned().unwrap_or_default();
    if pairs.len() > PAIRS_MAX {
        let message =
            format!("The number of allowed address pair exceeds the maximum {PAIRS_MAX}.");
        return Err(neutron_error(400, "AllowedAddressPairExhausted", message));
    }
    for pair in &pairs {
        let address = pair["ip_address"].as_str().unwrap_or_default();
        let plain = address.split('/').next().unwrap_or_default();
        if plain.parse::<IpAddr>().is_err() {
            let message = format!("'{address}' is not a valid IP address");
            return Err(neutron_error(400, "HTTPBadRequest", message));
        }
    }
    Ok(Value::Array(pairs))
}

/// An address pair without a MAC address has the port's.
fn fill_pairs(port: &mut Value) {
    let mac = port["mac_address"].clone();
    for pair in port["allowed_address_pairs"].as_array_mut().into_iter().flatten() {
        if pair["mac_address"].is_null() {
            pair["mac_address"] = mac.clone();
        }
    }
}

fn exhausted(network: &str) -> Reply {
    let message = format!("No more IP addresses available on network {network}.");
    neutron_error(409, "IpAddressGenerationFailure", message)
}

/// A free address of the network, as an entry of `fixed_ips`.
pub(super) fn draw(state: &mut State, network: &str) -> Option<Value> {
    let mut rng = state.rng().fork();
    let mut pools = state.network.pools.iter_mut().filter(|(_, pool)| pool.network == network);
    pools.find_map(|(subnet, pool)| {
        let address = pool.draw(&mut rng)?;
        Some(json!({"subnet_id": subnet, "ip_address": address}))
    })
}

/// Gives an address back.
pub(super) fn free(state: &mut State, entry: &Value) {
    let address = entry["ip_address"].as_str().and_then(|address| address.parse().ok());
    let pool = entry["subnet_id"].as_str().and_then(|subnet| state.network.pools.get_mut(subnet));
    if let (Some(address), Some(pool)) = (address, pool) {
        pool.free(address);
    }
}

/// Takes the addresses that a port asks for, all or none; without a wish one of any subnet.
fn take_addresses(
    state: &mut State,
    network: &str,
    wanted: Option<&Value>,
) -> Result<Vec<Value>, Reply> {
    let Some(wanted) = wanted.and_then(Value::as_array) else {
        if !state.network.pools.values().any(|pool| pool.network == network) {
            return Ok(Vec::new());
        }
        return draw(state, network).map(|one| vec![one]).ok_or_else(|| exhausted(network));
    };
    let mut taken: Vec<Value> = Vec::new();
    for entry in wanted {
        match take_address(state, network, entry) {
            Ok(one) => taken.push(one),
            Err(refusal) => {
                taken.iter().for_each(|one| free(state, one));
                return Err(refusal);
            }
        }
    }
    Ok(taken)
}

fn take_address(state: &mut State, network: &str, entry: &Value) -> Result<Value, Reply> {
    let mut rng = state.rng().fork();
    let subnet = match (entry["subnet_id"].as_str(), entry["ip_address"].as_str()) {
        (Some(subnet), _) => {
            let pool =
                state.network.pools.get(subnet).ok_or_else(|| Kind::Subnet.not_found(subnet))?;
            if pool.network != network {
                let message = format!(
                    "Invalid input for operation: Failed to create port on network {network}, because fixed_ips \
                     included invalid subnet {subnet}."
                );
                return Err(neutron_error(400, "InvalidInput", message));
            }
            subnet.to_owned()
        }
        (None, Some(address)) => subnet_of(state, network, address)?,
        (None, None) => {
            let message =
                "Invalid input for operation: IP allocation requires subnet_id or ip_address.";
            return Err(neutron_error(400, "InvalidInput", message));
        }
    };
    let Some(pool) = state.network.pools.get_mut(&subnet) else {
        return Err(Kind::Subnet.not_found(&subnet));
    };
    let Some(address) = entry["ip_address"].as_str() else {
        let address = pool.draw(&mut rng).ok_or_else(|| exhausted(network))?;
        return Ok(json!({"subnet_id": subnet, "ip_address": address}));
    };
    let parsed: Option<IpAddr> =
        address.parse().ok().filter(|address| pool.block.contains(*address));
    let Some(parsed) = parsed else {
        let message = format!("IP address {address} is not a valid IP for the specified subnet.");
        return Err(neutron_error(400, "InvalidIpForSubnet", message));
    };
    if !pool.take(parsed) {
        let message = format!("IP address {address} already allocated in subnet {subnet}");
        return Err(neutron_error(409, "IpAddressAlreadyAllocated", message));
    }
    Ok(json!({"subnet_id": subnet, "ip_address": address}))
}

/// The subnet that an address of this network belongs to.
pub(super) fn subnet_of(state: &State, network: &str, address: &str) -> Result<String, Reply> {
    let parsed: Option<IpAddr> = address.parse().ok();
    let mut pools = state.network.pools.iter().filter(|(_, pool)| pool.network == network);
    let found = parsed.and_then(|parsed| pools.find(|(_, pool)| pool.block.contains(parsed)));
    found.map(|(subnet, _)| subnet.clone()).ok_or_else(|| {
        let message = format!(
            "IP address {address} is not a valid IP for any of the subnets on the specified network."
        );
        neutron_error(400, "InvalidIpForNetwork", message)
    })
}

pub(super) fn update(
    state: &mut State,
    call: &Call,
    id: &str,
    wanted: Map<String, Value>,
) -> Result<(), Reply> {
    only(&wanted, &FIELDS)?;
    deny_binding(call, "update_port", &wanted)?;
    let before = seen(state, call, Kind::Port, id)?.clone();
    let fields = checked(state, call, &wanted, &before)?;
    let network = before["network_id"].as_str().unwrap_or_default().to_owned();
    let mut addresses = None;
    if wanted.get("fixed_ips").is_some_and(|wanted| *wanted != before["fixed_ips"]) {
        let old = before["fixed_ips"].as_array().cloned().unwrap_or_default();
        old.iter().for_each(|one| free(state, one));
        match take_addresses(state, &network, wanted.get("fixed_ips")) {
            Ok(taken) => addresses = Some(taken),
            Err(refusal) => {
                take_addresses(state, &network, Some(&json!(old)))?;
                return Err(refusal);
            }
        }
    }
    change(state, Kind::Port, id, |port| {
        for (field, value) in fields {
            port[field] = value;
        }
        if let Some(addresses) = addresses {
            port["fixed_ips"] = json!(addresses);
        }
        fill_pairs(port);
    });
    Ok(())
}

pub(super) fn delete(state: &mut State, id: &str) -> Result<(), Reply> {
    let owner = state.network.get(Kind::Port, id).map(|port| port["device_owner"].clone());
    let owner = owner.as_ref().and_then(Value::as_str).unwrap_or_default();
    if owner.starts_with("network:") {
        let message = format!(
            "Port {id} cannot be deleted directly via the port API: has device owner {owner}."
        );
        return Err(neutron_error(409, "ServicePortInUse", message));
    }
    remove(state, id);
    Ok(())
}

/// Takes a port away, used or not; what leads to it loses it.
pub(in crate::cloud) fn remove(state: &mut State, id: &str) {
    let Some(port) = drop_object(state, Kind::Port, id) else {
        return;
    };
    for entry in port["fixed_ips"].as_array().into_iter().flatten() {
        free(state, entry);
    }
    if let Some(mac) = port["mac_address"].as_str() {
        state.network.macs.remove(mac);
    }
    state.network.stuck_ports.remove(id);
    floating::leave(state, id);
    compute::addresses_changed(state, port["device_id"].as_str().unwrap_or_default());
}

/// Makes a port for a server that brought none, as Nova does for a network.
pub(in crate::cloud) fn make(
    state: &mut State,
    project: &str,
    network: &str,
    address: Option<&str>,
    groups: &[String],
) -> Result<String, Reply> {
    let wish = address.map(|address| json!([{"ip_address": address}]));
    let addresses = take_addresses(state, network, wish.as_ref())?;
    let mut port = blank(state, network);
    port["fixed_ips"] = json!(addresses);
    port["security_groups"] =
        if groups.is_empty() { json!(default_group(state, project)) } else { json!(groups) };
    Ok(id_of(&keep(state, Kind::Port, project, 1, port)))
}

/// Gives a port to a server; it becomes ACTIVE a little later.
pub(in crate::cloud) fn bind(state: &mut State, id: &str, server: &str, zone: &str, host: &str) {
    change(state, Kind::Port, id, |port| {
        port["device_id"] = json!(server);
        port["device_owner"] = json!(format!("compute:{zone}"));
        port["binding:host_id"] = json!(host);
        port["binding:vif_type"] = json!("ovs");
    });
    let delay = state.config.delays.plug;
    state.after(delay, plugged, id);
}

pub(in crate::cloud) fn plugged(state: &mut State, id: &str) {
    let stuck = state.network.stuck_ports.contains(id);
    change(state, Kind::Port, id, |port| {
        if port["device_id"] != "" && !stuck {
            port["status"] = json!("ACTIVE");
        }
    });
    floating::renew(state, id);
}

/// Takes a port from its server; it stays, and so does its address.
pub(in crate::cloud) fn unbind(state: &mut State, id: &str) {
    change(state, Kind::Port, id, |port| {
        port["device_id"] = json!("");
        port["device_owner"] = json!("");
        port["status"] = json!("DOWN");
        if let Some(fields) = port.as_object_mut() {
            fields.remove("binding:host_id");
            fields.remove("binding:vif_type");
        }
    });
    floating::renew(state, id);
}
