//! Networks, subnets and routers: what ports stand on.

use super::address::{Block, Pool};
use super::{
    Kind, Table, change, drop_object, keep, neutron_error, only, owner, required, text,
    within_quota,
};
use crate::cloud::http::{Answer, Call, Reply};
use crate::cloud::state::State;
use serde_json::{Map, Value, json};

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
    let external = wanted.get("router:external") == Some(&json!(true));
    Ok(plant_network(state, &project, &text(wanted, "name")?, external))
}

/// Makes a network without a request, as the cloud's operator did.
pub(in crate::cloud) fn plant_network(
    state: &mut State,
    project: &str,
    name: &str,
    external: bool,
) -> Value {
    let network = json!({
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
        "is_default": false,
    });
    keep(state, Kind::Network, project, 1, network)
}

pub(super) fn create_subnet(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(
        wanted,
        &["network_id", "cidr", "ip_version", "enable_dhcp", "dns_nameservers", "gateway_ip"],
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
    let name = text(wanted, "name")?;
    let network = network.to_owned();
    let resolvers = wanted.get("dns_nameservers").cloned().unwrap_or_else(|| json!([]));
    Ok(plant_subnet(
        state,
        &project,
        &Subnet { id: None, name: &name, network: &network, cidr, block, resolvers },
    ))
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
    let id = wanted.id.map_or_else(|| state.uuid(), str::to_owned);
    let block = wanted.block;
    let external = state
        .network
        .get(Kind::Network, wanted.network)
        .is_some_and(|network| network["router:external"] == true);
    let pool = Pool::new(wanted.network, block);
    let subnet = json!({
        "id": id,
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
    state.network.pools.insert(id.clone(), pool);
    change(state, Kind::Network, wanted.network, |network| {
        if let Some(subnets) = network["subnets"].as_array_mut() {
            subnets.push(json!(id));
        }
    });
    keep(state, Kind::Subnet, project, 0, subnet)
}

pub(super) fn create_router(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(wanted, &["external_gateway_info"])?;
    let project = owner(call, Kind::Router, wanted)?;
    within_quota(state, Kind::Router, state.config.quotas.router, &project)?;
    let gateway = wanted.get("external_gateway_info").map(|info| &info["network_id"]);
    let gateway = gateway.and_then(Value::as_str).map(str::to_owned);
    let name = text(wanted, "name")?;
    Ok(plant_router(state, &project, &name, gateway.as_deref()))
}

/// Makes a router, with an address of this external network.
pub(in crate::cloud) fn plant_router(
    state: &mut State,
    project: &str,
    name: &str,
    gateway: Option<&str>,
) -> Value {
    let info = gateway.map(|network| {
        let address = super::port::draw(state, network);
        let addresses: Vec<Value> = address.into_iter().collect();
        json!({"network_id": network, "external_fixed_ips": addresses, "enable_snat": true})
    });
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
    only(wanted, &["mtu", "port_security_enabled", "dns_nameservers", "enable_dhcp", "stateful"])?;
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
