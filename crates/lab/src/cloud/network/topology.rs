//! Networks, subnets and routers: what ports stand on.

use super::address::{Block, Pool};
use super::{
    Kind, Table, change, drop_object, keep, neutron_error, only, owner, required, text,
    within_quota,
};
use crate::cloud::http::{Answer, Call, Reply};
use crate::cloud::state::State;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

pub(super) fn create_network(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(
        wanted,
        &["mtu", "port_security_enabled", "shared", "router:external", "availability_zone_hints"],
    )?;
    if !call.session.is_admin()
        && let Some(field) = ["shared", "router:external"]
            .into_iter()
            .find(|field| wanted.get(*field) == Some(&json!(true)))
    {
        let message = format!(
            "(rule:create_network and rule:create_network:{field}) is disallowed by policy"
        );
        return Err(neutron_error(403, "PolicyNotAuthorized", message));
    }
    let project = owner(call, Kind::Network, wanted)?;
    within_quota(state, Kind::Network, state.config.quotas.network, &project)?;
    let (name, description) = (text(wanted, "name")?, text(wanted, "description")?);
    let flag = |field: &str| wanted.get(field).and_then(Value::as_bool);
    let mut network = network(&name, flag("router:external").unwrap_or(false));
    network["description"] = json!(description);
    for field in ["admin_state_up", "shared", "port_security_enabled"] {
        if let Some(on) = flag(field) {
            network[field] = json!(on);
        }
    }
    if let Some(mtu) = wanted.get("mtu").and_then(Value::as_u64).filter(|mtu| *mtu > 0) {
        network["mtu"] = json!(mtu);
    }
    Ok(keep(state, Kind::Network, &project, 1, network))
}

/// Makes a network without a request, as the cloud's operator did.
pub(in crate::cloud) fn plant_network(
    state: &mut State,
    project: &str,
    name: &str,
    external: bool,
) -> Value {
    keep(state, Kind::Network, project, 1, network(name, external))
}

fn network(name: &str, external: bool) -> Value {
    let mut network = json!({
        "name": name,
        "description": "",
        "admin_state_up": true,
        "mtu": if external { 1500 } else { 1450 },
        "status": "ACTIVE",
        "subnets": [],
        "shared": false,
        "availability_zone_hints": [],
        "availability_zones": [],
        "ipv4_address_scope": null,
        "ipv6_address_scope": null,
        "router:external": external,
        "qinq": false,
        "vlan_transparent": false,
        "port_security_enabled": true,
    });
    if external {
        network["is_default"] = json!(false);
    }
    network
}

pub(super) fn create_subnet(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(
        wanted,
        &[
            "network_id",
            "cidr",
            "ip_version",
            "enable_dhcp",
            "dns_nameservers",
            "gateway_ip",
            "allocation_pools",
            "host_routes",
            "ipv6_ra_mode",
            "ipv6_address_mode",
            "service_types",
        ],
    )?;
    let network = required(wanted, "network_id")?;
    super::seen(state, call, Kind::Network, network)?;
    let cidr = required(wanted, "cidr")?;
    let Some(block) = Block::parse(cidr) else {
        let message = format!("Invalid input for cidr. Reason: '{cidr}' is not a valid IP subnet.");
        return Err(neutron_error(400, "HTTPBadRequest", message));
    };
    let project = owner(call, Kind::Subnet, wanted)?;
    within_quota(state, Kind::Subnet, state.config.quotas.subnet, &project)?;
    let family = wanted.get("ip_version").and_then(Value::as_u64);
    if family.is_some_and(|family| (family == 6) != block.is_v6()) {
        let message = format!(
            "Invalid input for operation: cidr '{cidr}' does not match the ip_version '{}'.",
            if block.is_v6() { 4 } else { 6 }
        );
        return Err(neutron_error(400, "InvalidInput", message));
    }
    let others = state.network.pools.values().filter(|pool| pool.network == network);
    if others.into_iter().any(|pool| pool.block.overlaps(block)) {
        let message = format!(
            "Invalid input for operation: Requested subnet with cidr: {cidr} for network: {network} overlaps with another subnet."
        );
        return Err(neutron_error(400, "InvalidInput", message));
    }
    let name = text(wanted, "name")?;
    let network = network.to_owned();
    let resolvers = wanted.get("dns_nameservers").cloned().unwrap_or_else(|| json!([]));
    let pool = pool(&network, block, wanted)?;
    let subnet = Subnet { id: None, name: &name, network: &network, cidr, block, resolvers };
    let mut subnet = drawn(&subnet, &pool, false);
    for field in [
        "description",
        "enable_dhcp",
        "host_routes",
        "ipv6_ra_mode",
        "ipv6_address_mode",
        "service_types",
    ] {
        if let Some(value) = wanted.get(field) {
            subnet[field] = value.clone();
        }
    }
    if let Some(gateway) = wanted.get("gateway_ip") {
        subnet["gateway_ip"] = gateway.clone();
    }
    Ok(keep_subnet(state, &project, subnet, pool))
}

/// The addresses that a subnet gives out: the ranges asked for, or all but the gateway.
fn pool(network: &str, block: Block, wanted: &Map<String, Value>) -> Result<Pool, Reply> {
    let gateway = match wanted.get("gateway_ip") {
        Some(Value::Null) => None,
        Some(Value::String(gateway)) => {
            let message = format!(
                "Invalid input for gateway_ip. Reason: '{gateway}' is not a valid IP address."
            );
            let parsed = gateway.parse::<IpAddr>();
            Some(parsed.map_err(|_| neutron_error(400, "HTTPBadRequest", message))?)
        }
        _ => Some(block.at(1)),
    };
    let ranges = wanted.get("allocation_pools").and_then(Value::as_array);
    let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
        return Ok(Pool::new(network, block, gateway));
    };
    let ends = ranges.iter().map(|range| {
        let end = |field: &str| {
            let address = range[field].as_str().and_then(|text| text.parse::<IpAddr>().ok());
            address.filter(|address| block.contains(*address))
        };
        end("start").zip(end("end")).ok_or_else(|| {
            let message = format!("The allocation pool {range} spans beyond the subnet cidr.");
            neutron_error(400, "OutOfBoundsAllocationPool", message)
        })
    });
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let inside =
        |gateway: &IpAddr| ends.iter().any(|(start, end)| (start..=end).contains(&gateway));
    if let Some(gateway) = gateway.filter(inside) {
        let message = format!("Gateway ip {gateway} conflicts with allocation pool.");
        return Err(neutron_error(409, "GatewayConflictWithAllocationPools", message));
    }
    Ok(Pool::of(network, block, &ends))
}

/// What a subnet is made of.
pub(in crate::cloud) struct Subnet<'a> {
    id: Option<&'a str>,
    name: &'a str,
    network: &'a str,
    cidr: &'a str,
    block: Block,
    resolvers: Value,
}

impl<'a> Subnet<'a> {
    /// A subnet of this id, or of a random one, with the demo's resolver; `None` when the block is none.
    pub(in crate::cloud) fn new(
        id: Option<&'a str>,
        name: &'a str,
        network: &'a str,
        cidr: &'a str,
    ) -> Option<Self> {
        Some(Self {
            id,
            name,
            network,
            cidr,
            block: Block::parse(cidr)?,
            resolvers: json!(["192.0.2.53"]),
        })
    }
}

/// Makes a subnet, its first address being the gateway.
pub(in crate::cloud) fn plant_subnet(
    state: &mut State,
    project: &str,
    wanted: &Subnet<'_>,
) -> Value {
    let external = state
        .network
        .get(Kind::Network, wanted.network)
        .is_some_and(|network| network["router:external"] == true);
    let pool = Pool::new(wanted.network, wanted.block, Some(wanted.block.at(1)));
    let subnet = drawn(wanted, &pool, external);
    keep_subnet(state, project, subnet, pool)
}

/// A subnet as clients see it, its gateway being the first address.
fn drawn(wanted: &Subnet<'_>, pool: &Pool, external: bool) -> Value {
    let block = wanted.block;
    let mut subnet = json!({
        "name": wanted.name,
        "description": "",
        "network_id": wanted.network,
        "ip_version": if block.is_v6() { 6 } else { 4 },
        "subnetpool_id": null,
        "enable_dhcp": true,
        "ipv6_ra_mode": null,
        "ipv6_address_mode": null,
        "gateway_ip": block.at(1),
        "cidr": wanted.cidr,
        "allocation_pools": pool.ranges(),
        "host_routes": [],
        "dns_nameservers": wanted.resolvers,
        "router:external": external,
        "service_types": [],
    });
    if let Some(id) = wanted.id {
        subnet["id"] = json!(id);
    }
    subnet
}

fn keep_subnet(state: &mut State, project: &str, mut subnet: Value, pool: Pool) -> Value {
    let network = pool.network.clone();
    let parent = state.network.get(Kind::Network, &network);
    if parent.is_some_and(|parent| parent["router:external"] == true) {
        subnet["router:external"] = json!(true);
    }
    let kept = keep(state, Kind::Subnet, project, 0, subnet);
    let id = kept["id"].as_str().unwrap_or_default().to_owned();
    state.network.pools.insert(id.clone(), pool);
    change(state, Kind::Network, &network, |network| {
        if let Some(subnets) = network["subnets"].as_array_mut() {
            subnets.push(json!(id));
        }
    });
    kept
}

/// Changes a subnet: new ranges are checked, and give out nothing that is in use.
pub(super) fn update_subnet(
    state: &mut State,
    id: &str,
    wanted: &Map<String, Value>,
) -> Result<(), Reply> {
    let Some(block) = state.network.pools.get(id).map(|pool| pool.block) else {
        return Err(Kind::Subnet.not_found(id));
    };
    if wanted.contains_key("allocation_pools") || wanted.contains_key("gateway_ip") {
        let now = state.network.get(Kind::Subnet, id).cloned().unwrap_or_default();
        let mut asked = wanted.clone();
        for field in ["gateway_ip", "allocation_pools"] {
            asked.entry(field).or_insert_with(|| now[field].clone());
        }
        let network = now["network_id"].as_str().unwrap_or_default();
        let mut pool = pool(network, block, &asked)?;
        if let Some(before) = state.network.pools.get_mut(id) {
            pool.inherit(before);
            *before = pool;
        }
    }
    update(state, Kind::Subnet, id, wanted)
}

/// A pool that subnets may be cut from. It is kept and shown; none is ever cut here.
pub(super) fn create_pool(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    const FIELDS: [&str; 7] = [
        "prefixes",
        "default_quota",
        "min_prefixlen",
        "max_prefixlen",
        "default_prefixlen",
        "shared",
        "is_default",
    ];
    only(wanted, &FIELDS)?;
    let project = owner(call, Kind::SubnetPool, wanted)?;
    let prefixes = wanted.get("prefixes").and_then(Value::as_array).cloned().unwrap_or_default();
    let blocks = prefixes.iter().map(|one| one.as_str().and_then(Block::parse));
    let Some(Some(first)) = blocks.collect::<Option<Vec<Block>>>().map(|all| all.first().copied())
    else {
        let message = "Invalid input for prefixes. Reason: not a list of valid IP subnets.";
        return Err(neutron_error(400, "HTTPBadRequest", message));
    };
    let (smallest, largest) = if first.is_v6() { (64, 128) } else { (8, 32) };
    let mut pool = json!({
        "name": text(wanted, "name")?,
        "description": text(wanted, "description")?,
        "prefixes": prefixes,
        "ip_version": if first.is_v6() { 6 } else { 4 },
        "default_quota": null,
        "min_prefixlen": smallest.to_string(),
        "max_prefixlen": largest.to_string(),
        "default_prefixlen": smallest.to_string(),
        "shared": false,
        "is_default": false,
        "address_scope_id": null,
    });
    for field in FIELDS.iter().skip(1) {
        match wanted.get(*field) {
            Some(Value::Number(length)) if field.ends_with("prefixlen") => {
                pool[*field] = json!(length.to_string());
            }
            Some(value) => pool[*field] = value.clone(),
            None => {}
        }
    }
    Ok(keep(state, Kind::SubnetPool, &project, 0, pool))
}

pub(super) fn create_router(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(wanted, &["external_gateway_info", "availability_zone_hints", "routes", "flavor_id"])?;
    let project = owner(call, Kind::Router, wanted)?;
    within_quota(state, Kind::Router, state.config.quotas.router, &project)?;
    let gateway = wanted.get("external_gateway_info").map(|info| &info["network_id"]);
    let gateway = gateway.and_then(Value::as_str).map(str::to_owned);
    let name = text(wanted, "name")?;
    let id = plant_router(state, &project, &name, gateway.as_deref())["id"].clone();
    let id = id.as_str().unwrap_or_default();
    let description = text(wanted, "description")?;
    // As it was made, not as it was changed: its revision is that of a new one.
    if let Some(router) = state.network.get_mut(Kind::Router, id) {
        router["description"] = json!(description);
        if let Some(up) = wanted.get("admin_state_up") {
            router["admin_state_up"] = up.clone();
        }
    }
    Ok(state.network.get(Kind::Router, id).cloned().unwrap_or_default())
}

/// Changes a router; a gateway that is not told how keeps its addresses.
pub(super) fn update_router(
    state: &mut State,
    call: &Call,
    id: &str,
    wanted: &Map<String, Value>,
) -> Result<(), Reply> {
    only(wanted, &["external_gateway_info", "routes"])?;
    let mut rest = wanted.clone();
    if let Some(info) = rest.remove("external_gateway_info") {
        let network = info["network_id"].as_str().map(str::to_owned);
        if let Some(network) = &network {
            super::seen(state, call, Kind::Network, network)?;
        }
        let before = state.network.get(Kind::Router, id).cloned().unwrap_or_default();
        let before = &before["external_gateway_info"];
        let stays = network.is_some() && before["network_id"].as_str() == network.as_deref();
        if !stays {
            for entry in before["external_fixed_ips"].as_array().into_iter().flatten() {
                super::port::free(state, entry);
            }
            let gateway = network.map(|network| gateway(state, &network));
            change(state, Kind::Router, id, |router| {
                router["external_gateway_info"] = json!(gateway);
            });
        }
    }
    let routes = rest.remove("routes");
    update(state, Kind::Router, id, &rest)?;
    if let Some(routes) = routes {
        change(state, Kind::Router, id, |router| router["routes"] = routes);
    }
    Ok(())
}

/// A way out to an external network, with an address of it.
fn gateway(state: &mut State, network: &str) -> Value {
    let address = super::port::draw(state, network);
    let addresses: Vec<Value> = address.into_iter().collect();
    json!({"network_id": network, "external_fixed_ips": addresses, "enable_snat": true})
}

/// Makes a router, with an address of this external network.
pub(in crate::cloud) fn plant_router(
    state: &mut State,
    project: &str,
    name: &str,
    gateway: Option<&str>,
) -> Value {
    let info = gateway.map(|network| self::gateway(state, network));
    let router = json!({
        "name": name,
        "description": "",
        "admin_state_up": true,
        "status": "ACTIVE",
        "external_gateway_info": info,
        "availability_zones": [],
        "availability_zone_hints": [],
        "routes": [],
        "flavor_id": null,
    });
    keep(state, Kind::Router, project, 1, router)
}

/// Puts a router onto a subnet, as its gateway.
pub(in crate::cloud) fn plant_interface(
    state: &mut State,
    router: &str,
    subnet: &str,
) -> Option<String> {
    let pool = state.network.pools.get_mut(subnet)?;
    let address = pool.block.at(1);
    pool.take(address);
    let network = pool.network.clone();
    let project = state.network.get(Kind::Router, router)?["project_id"].as_str()?.to_owned();
    let mut port = super::port::blank(state, &network);
    port["device_id"] = json!(router);
    port["device_owner"] = json!("network:router_interface");
    port["fixed_ips"] = json!([{"subnet_id": subnet, "ip_address": address}]);
    port["port_security_enabled"] = json!(false);
    let kept = keep(state, Kind::Port, &project, 1, port);
    kept["id"].as_str().map(str::to_owned)
}

/// `PUT /routers/{id}/add_router_interface` and `remove_router_interface`.
pub(super) fn router_interface(state: &mut State, call: &Call, id: &str, verb: &str) -> Answer {
    let router = super::seen(state, call, Kind::Router, id)?;
    let (name, project) = (router["id"].clone(), router["project_id"].clone());
    let body = call.json().unwrap_or_default();
    let Some(subnet) = body["subnet_id"].as_str() else {
        let message = "Either subnet_id or port_id must be specified";
        return Err(neutron_error(400, "BadRequest", format!("Bad router request: {message}.")));
    };
    let network = super::seen(state, call, Kind::Subnet, subnet)?["network_id"].clone();
    let port = match verb {
        "add_router_interface" => plant_interface(state, id, subnet),
        "remove_router_interface" => {
            let found = interface(state, id, subnet);
            if let Some(port) = &found {
                super::port::remove(state, port);
            }
            found
        }
        _ => return Err(super::unknown_path()),
    };
    let Some(port) = port else {
        let message = format!("Router {id} has no interface on subnet {subnet}");
        return Err(neutron_error(404, "RouterInterfaceNotFoundForSubnet", message));
    };
    let shown = json!({
        "id": name, "network_id": network, "tenant_id": project, "project_id": project,
        "port_id": port, "subnet_id": subnet, "subnet_ids": [subnet], "tags": [],
    });
    Ok(Reply::json(200, shown))
}

fn interface(state: &State, router: &str, subnet: &str) -> Option<String> {
    let port = state
        .network
        .ports()
        .find(|port| port["device_id"] == router && port["fixed_ips"][0]["subnet_id"] == subnet)?;
    port["id"].as_str().map(str::to_owned)
}

/// The router that leads from this subnet to this external network.
pub(super) fn way_out(state: &State, subnet: &str, external: &str) -> Option<String> {
    let routers: &Table = state.network.table(Kind::Router);
    let router = routers.values().find(|router| {
        router["external_gateway_info"]["network_id"] == external
            && router["id"].as_str().is_some_and(|id| interface(state, id, subnet).is_some())
    })?;
    router["id"].as_str().map(str::to_owned)
}

/// Changes name, description and the few switches of networks, subnets, routers and security groups.
pub(super) fn update(
    state: &mut State,
    kind: Kind,
    id: &str,
    wanted: &Map<String, Value>,
) -> Result<(), Reply> {
    const FIELDS: [&str; 10] = [
        "mtu",
        "port_security_enabled",
        "shared",
        "router:external",
        "dns_nameservers",
        "enable_dhcp",
        "gateway_ip",
        "allocation_pools",
        "host_routes",
        "stateful",
    ];
    only(wanted, &FIELDS)?;
    let (name, description) = (text(wanted, "name")?, text(wanted, "description")?);
    change(state, kind, id, |object| {
        for (field, value) in wanted {
            object[field] = match field.as_str() {
                "name" => json!(name),
                "description" => json!(description),
                _ => value.clone(),
            };
        }
    });
    Ok(())
}

pub(super) fn delete(state: &mut State, kind: Kind, id: &str) -> Result<(), Reply> {
    let on_it = |port: &&Value| match kind {
        Kind::Network => port["network_id"] == id,
        Kind::Subnet => port["fixed_ips"]
            .as_array()
            .is_some_and(|ips| ips.iter().any(|ip| ip["subnet_id"] == id)),
        _ => port["device_id"] == id,
    };
    let ports: Vec<&str> =
        state.network.ports().filter(on_it).filter_map(|port| port["id"].as_str()).collect();
    if !ports.is_empty() {
        let ports = ports.join(",");
        let (kind, message) = match kind {
            Kind::Network => (
                "NetworkInUse",
                format!(
                    "Unable to complete operation on network {id}. There are one or more ports still in use on the network, id for these ports is: {ports}."
                ),
            ),
            Kind::Subnet => (
                "SubnetInUse",
                format!(
                    "Unable to complete operation on subnet {id}: One or more ports have an IP allocation from this subnet."
                ),
            ),
            _ => ("RouterInUse", format!("Router {id} still has ports")),
        };
        return Err(neutron_error(409, kind, message));
    }
    if kind == Kind::Network {
        let gone: Vec<String> = state
            .network
            .pools
            .iter()
            .filter(|(_, pool)| pool.network == id)
            .map(|(subnet, _)| subnet.clone())
            .collect();
        for subnet in gone {
            drop_subnet(state, &subnet);
        }
    }
    if kind == Kind::Subnet {
        drop_subnet(state, id);
    }
    drop_object(state, kind, id);
    Ok(())
}

fn drop_subnet(state: &mut State, id: &str) {
    let Some(pool) = state.network.pools.remove(id) else {
        return;
    };
    drop_object(state, Kind::Subnet, id);
    change(state, Kind::Network, &pool.network, |network| {
        if let Some(subnets) = network["subnets"].as_array_mut() {
            subnets.retain(|subnet| subnet != id);
        }
    });
}
