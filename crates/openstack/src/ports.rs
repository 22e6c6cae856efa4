//! One port for each network, found again or made.

use crate::{
    create::Creation,
    fault::Fault,
    keystone::Service,
    lookup::{Resolved, ResolvedNetwork},
    session::Call,
    wire::Port,
};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What became of the ports.
pub enum Ports {
    /// All there, in the order of the networks.
    There(Vec<String>),
    /// A port is still with another server, one of this machine that failed or was deleted. A second
    /// server on it would take it from the first.
    Held { port: String, by: String },
}

/// Makes the ports that are missing, and repairs the tags of those that are there.
pub async fn ensure(
    creation: &Creation<'_>,
    resolved: &Resolved,
    not_after: Timestamp,
) -> Result<Ports, Fault> {
    let Creation { cloud, deeds, machine, marks, .. } = creation;
    if let Some(known) = deeds.ports(machine) {
        return Ok(Ports::There(known));
    }
    let mut left = Vec::new();
    if deeds.is_touched(machine) {
        left = cloud.ports_of(marks).await?;
    }
    let tags = marks.tags(&creation.parameters.tags);
    let mut ports = Vec::new();
    for (at, network) in resolved.networks.iter().enumerate() {
        let name = name(&creation.order.claim.owner.name, at);
        let fits = |port: &Port| port.network_id == network.id && port.name == name;
        let port = match left.iter().position(fits).map(|found| left.remove(found)) {
            Some(port) if !port.device_id.is_empty() => {
                return Ok(Ports::Held { port: port.id, by: port.device_id });
            }
            Some(port) => port,
            None => {
                deeds.touch(machine);
                let mut body = body(creation, resolved, network, &name);
                if cloud.ports_are_born_tagged().await {
                    body["tags"] = json!(tags);
                }
                let call = Call::new(Service::Network, Method::POST, "/ports")
                    .body(json!({"port": body}))
                    .not_after(not_after);
                cloud.session.create(call, "port").await?
            }
        };
        // Most clouds take no tags at create, so they come after it.
        if !tags.iter().all(|tag| port.tags.contains(tag)) {
            cloud.tag("ports", &port.id, &tags).await?;
        }
        ports.push(port.id);
    }
    // Of a create whose answer was lost and which then came through after all.
    for surplus in left.iter().filter(|port| port.device_id.is_empty()) {
        cloud.delete_port(&surplus.id).await?;
    }
    deeds.set_ports(machine, ports.clone());
    Ok(Ports::There(ports))
}

/// The first port has the machine's name, further ones a number after it.
fn name(machine: &str, at: usize) -> String {
    if at == 0 { machine.to_owned() } else { format!("{machine}-{at}") }
}

fn body(
    creation: &Creation<'_>,
    resolved: &Resolved,
    network: &ResolvedNetwork,
    name: &str,
) -> Value {
    let parameters = &creation.parameters;
    let mut port = json!({
        "network_id": network.id,
        "name": name,
        "description": creation.marks.description,
    });
    let mut fixed: Vec<Value> = network.subnets.iter().map(|it| json!({"subnet_id": it})).collect();
    if let Some(address) = &network.fixed_ip {
        if fixed.is_empty() {
            fixed.push(json!({}));
        }
        fixed[0]["ip_address"] = address.to_string().into();
    }
    if !fixed.is_empty() {
        port["fixed_ips"] = json!(fixed);
    }
    if parameters.port_security == Some(false) {
        port["port_security_enabled"] = false.into();
        port["security_groups"] = json!([]);
    } else if !resolved.security_groups.is_empty() {
        // Without any the port is in the project's default group.
        port["security_groups"] = json!(resolved.security_groups);
    }
    if network.pods && !parameters.allowed_address_pairs.is_empty() {
        let pairs = parameters.allowed_address_pairs.iter();
        port["allowed_address_pairs"] = pairs.map(|it| json!({"ip_address": it})).collect();
    }
    port
}
