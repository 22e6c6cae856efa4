//! Floating IPs: an external address that leads to a port, for as long as somebody wants it.

use super::{
    Kind, change, drop_object, keep, neutron_error, only, owner, port, required, seen, text,
    topology, within_quota,
};
use crate::cloud::compute;
use crate::cloud::http::{Call, Reply};
use crate::cloud::state::State;
use serde_json::{Map, Value, json};

const FIELDS: [&str; 5] =
    ["floating_network_id", "port_id", "fixed_ip_address", "floating_ip_address", "subnet_id"];

/// Where a floating IP leads.
struct Target {
    port: String,
    fixed: String,
    router: String,
}

pub(super) fn create(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    if wanted.contains_key("tags") {
        let message = "Attribute 'tags' not allowed in POST";
        return Err(neutron_error(400, "HTTPBadRequest", message));
    }
    only(wanted, &FIELDS)?;
    let network = required(wanted, "floating_network_id")?.to_owned();
    if wanted.contains_key("floating_ip_address") && !call.session.is_admin() {
        let message = "(rule:create_floatingip and rule:create_floatingip:floating_ip_address) is disallowed by policy";
        return Err(neutron_error(403, "PolicyNotAuthorized", message));
    }
    let project = owner(call, Kind::FloatingIp, wanted)?;
    within_quota(state, Kind::FloatingIp, state.config.quotas.floatingip, &project)?;
    if seen(state, call, Kind::Network, &network)?["router:external"] != true {
        let message =
            format!("Bad floatingip request: Network {network} is not a valid external network.");
        return Err(neutron_error(400, "BadRequest", message));
    }
    let description = text(wanted, "description")?;
    let Some(entry) = port::draw(state, &network) else {
        let message = format!("No more IP addresses available on network {network}.");
        return Err(neutron_error(409, "IpAddressGenerationFailure", message));
    };
    let id = state.uuid();
    let address = entry["ip_address"].as_str().unwrap_or_default().to_owned();
    let target = match target(state, wanted, &network, &id, &address) {
        Ok(target) => target,
        Err(refusal) => {
            port::free(state, &entry);
            return Err(refusal);
        }
    };
    let mut made = json!({
        "id": id,
        "description": description,
        "floating_ip_address": address,
        "floating_network_id": network,
        "status": "DOWN",
    });
    aim(state, &mut made, target.as_ref());
    let made = keep(state, Kind::FloatingIp, &project, 0, made);
    settle_later(state, &id, target.as_ref());
    Ok(made)
}

/// Where it is to lead, if anywhere; refused when it cannot or something else leads there.
fn target(
    state: &State,
    wanted: &Map<String, Value>,
    network: &str,
    id: &str,
    address: &str,
) -> Result<Option<Target>, Reply> {
    let Some(port_id) = wanted.get("port_id").and_then(Value::as_str) else {
        return Ok(None);
    };
    let port =
        state.network.get(Kind::Port, port_id).ok_or_else(|| Kind::Port.not_found(port_id))?;
    let asked = wanted.get("fixed_ip_address").and_then(Value::as_str);
    let entries = port["fixed_ips"].as_array().into_iter().flatten();
    let mut entries =
        entries.filter(|entry| asked.is_none_or(|asked| entry["ip_address"] == asked));
    let Some(entry) = entries.next() else {
        let message = format!(
            "Bad floatingip request: Cannot add floating IP to port {port_id} that has no fixed IPv4 addresses."
        );
        return Err(neutron_error(400, "BadRequest", message));
    };
    let (subnet, fixed) = (
        entry["subnet_id"].as_str().unwrap_or_default(),
        entry["ip_address"].as_str().unwrap_or_default(),
    );
    let Some(router) = topology::way_out(state, subnet, network) else {
        let message = format!(
            "External network {network} is not reachable from subnet {subnet}.  Therefore, cannot associate Port \
             {port_id} with a Floating IP."
        );
        return Err(neutron_error(404, "ExternalGatewayForFloatingIPNotFound", message));
    };
    let mut others = state.network.table(Kind::FloatingIp).values();
    let taken = others.any(|other| {
        other["port_id"] == port_id && other["fixed_ip_address"] == fixed && other["id"] != id
    });
    if taken {
        let message = format!(
            "Cannot associate floating IP {address} ({id}) with port {port_id} using fixed IP {fixed}, as that fixed IP \
             already has a floating IP on external network {network}."
        );
        return Err(neutron_error(409, "FloatingIPPortAlreadyAssociated", message));
    }
    Ok(Some(Target { port: port_id.to_owned(), fixed: fixed.to_owned(), router }))
}

/// One that somebody keeps for later: it leads nowhere. `None` when the network has no address left.
pub(in crate::cloud) fn plant(
    state: &mut State,
    network: &str,
    project: &str,
    description: &str,
) -> Option<String> {
    let entry = port::draw(state, network)?;
    let id = state.uuid();
    let mut made = json!({
        "id": id,
        "description": description,
        "floating_ip_address": entry["ip_address"],
        "floating_network_id": network,
        "status": "DOWN",
    });
    aim(state, &mut made, None);
    keep(state, Kind::FloatingIp, project, 0, made);
    Some(id)
}

fn aim(state: &State, floating: &mut Value, target: Option<&Target>) {
    let port = target.and_then(|target| state.network.get(Kind::Port, &target.port));
    floating["port_id"] = json!(target.map(|target| &target.port));
    floating["fixed_ip_address"] = json!(target.map(|target| &target.fixed));
    floating["router_id"] = json!(target.map(|target| &target.router));
    floating["port_details"] = port.map_or(Value::Null, |port| {
        json!({
            "name": port["name"],
            "network_id": port["network_id"],
            "mac_address": port["mac_address"],
            "admin_state_up": port["admin_state_up"],
            "status": port["status"],
            "device_id": port["device_id"],
            "device_owner": port["device_owner"],
        })
    });
}

fn settle_later(state: &mut State, id: &str, target: Option<&Target>) {
    let delay = state.config.delays.plug;
    state.after(delay, settled, id);
    if let Some(target) = target {
        refresh_server(state, &target.port.clone());
    }
}

/// It is ACTIVE when it leads somewhere, and DOWN when not.
fn settled(state: &mut State, id: &str) {
    let Some(floating) = state.network.get(Kind::FloatingIp, id) else {
        return;
    };
    let status = if floating["port_id"].is_null() { "DOWN" } else { "ACTIVE" };
    change(state, Kind::FloatingIp, id, |floating| floating["status"] = json!(status));
}

fn refresh_server(state: &mut State, port: &str) {
    let server = state.network.get(Kind::Port, port).map(|port| port["device_id"].clone());
    if let Some(server) = server.as_ref().and_then(Value::as_str) {
        compute::addresses_changed(state, server);
    }
}

pub(super) fn update(
    state: &mut State,
    id: &str,
    wanted: &Map<String, Value>,
) -> Result<(), Reply> {
    only(wanted, &["port_id", "fixed_ip_address"])?;
    let description = text(wanted, "description")?;
    let Some(now) = state.network.get(Kind::FloatingIp, id) else {
        return Err(Kind::FloatingIp.not_found(id));
    };
    let mut next = now.clone();
    let before = now["port_id"].as_str().map(str::to_owned);
    if wanted.contains_key("description") {
        next["description"] = json!(description);
    }
    if wanted.contains_key("port_id") {
        let network = now["floating_network_id"].as_str().unwrap_or_default();
        let address = now["floating_ip_address"].as_str().unwrap_or_default();
        let target = target(state, wanted, network, id, address)?;
        aim(state, &mut next, target.as_ref());
        if target.is_some() {
            next["status"] = json!("DOWN");
        }
        settle_later(state, id, target.as_ref());
    }
    change(state, Kind::FloatingIp, id, |floating| *floating = next);
    if let Some(port) = before {
        refresh_server(state, &port);
    }
    Ok(())
}

pub(super) fn delete(state: &mut State, id: &str) {
    let Some(gone) = drop_object(state, Kind::FloatingIp, id) else {
        return;
    };
    let network = gone["floating_network_id"].as_str().unwrap_or_default();
    let address = gone["floating_ip_address"].as_str().unwrap_or_default();
    if let Ok(subnet) = port::subnet_of(state, network, address) {
        port::free(state, &json!({"subnet_id": subnet, "ip_address": address}));
    }
    if let Some(port) = gone["port_id"].as_str() {
        refresh_server(state, port);
    }
}

/// The floating IPs that lead to a port.
pub(in crate::cloud) fn of_port<'a>(
    state: &'a State,
    port: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let all = state.network.table(Kind::FloatingIp).values();
    all.filter(move |floating| floating["port_id"] == port)
}

fn edit_all(state: &mut State, port: &str, edit: impl Fn(&State, &mut Value)) {
    let ids: Vec<String> =
        of_port(state, port).filter_map(|one| one["id"].as_str()).map(str::to_owned).collect();
    for id in ids {
        let Some(mut next) = state.network.get(Kind::FloatingIp, &id).cloned() else { continue };
        edit(state, &mut next);
        change(state, Kind::FloatingIp, &id, |floating| *floating = next);
    }
}

/// The port is no more: they lead nowhere.
pub(super) fn leave(state: &mut State, port: &str) {
    edit_all(state, port, |state, floating| {
        aim(state, floating, None);
        floating["status"] = json!("DOWN");
    });
}

/// The port has another server, or none: they lead to it all the same, and are ACTIVE all the same.
pub(super) fn renew(state: &mut State, port: &str) {
    edit_all(state, port, |state, floating| {
        let text = |field: &str| floating[field].as_str().unwrap_or_default().to_owned();
        let target = Target {
            port: text("port_id"),
            fixed: text("fixed_ip_address"),
            router: text("router_id"),
        };
        aim(state, floating, Some(&target));
    });
}
