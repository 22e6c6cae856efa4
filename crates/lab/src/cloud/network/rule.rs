//! What a security group's rule may say, in Neutron's words when it may not.

use super::address::Block;
use super::{Kind, neutron_error, required, seen};
use crate::cloud::http::{Call, Reply};
use crate::cloud::state::State;
use serde_json::{Map, Value};

/// Names of protocols; numbers from 0 to 255 go too.
const PROTOCOLS: [&str; 24] = [
    "ah",
    "any",
    "dccp",
    "egp",
    "esp",
    "gre",
    "hopopt",
    "icmp",
    "icmpv6",
    "igmp",
    "ip",
    "ipip",
    "ipv6-encap",
    "ipv6-frag",
    "ipv6-icmp",
    "ipv6-nonxt",
    "ipv6-opts",
    "ipv6-route",
    "ospf",
    "pgm",
    "rsvp",
    "sctp",
    "tcp",
    "udp",
];

/// Checks a rule's fields, each alone and then together.
pub(super) fn check(state: &State, call: &Call, wanted: &Map<String, Value>) -> Result<(), Reply> {
    let text = |field: &str| wanted.get(field).and_then(Value::as_str);
    let direction = required(wanted, "direction")?;
    if !["ingress", "egress"].contains(&direction.to_lowercase().as_str()) {
        let message = format!(
            "Invalid input for direction. Reason: '{direction}' is not in ['ingress', 'egress']."
        );
        return Err(neutron_error(400, "HTTPBadRequest", message));
    }
    let ethertype = text("ethertype").unwrap_or("IPv4");
    if !["ipv4", "ipv6"].contains(&ethertype.to_lowercase().as_str()) {
        let message = format!(
            "Security group rule for ethertype '{ethertype}' not supported. Allowed values are ['IPv4', 'IPv6']."
        );
        return Err(neutron_error(400, "SecurityGroupRuleInvalidEtherType", message));
    }
    if let Some(group) = text("remote_group_id") {
        if text("remote_ip_prefix").is_some() {
            let message = "Only remote_ip_prefix or remote_group_id may be provided.";
            return Err(neutron_error(400, "SecurityGroupMultipleRemoteEntites", message));
        }
        seen(state, call, Kind::SecurityGroup, group)?;
    }
    if let Some(prefix) = text("remote_ip_prefix") {
        check_prefix(prefix, ethertype)?;
    }
    check_ports(wanted)
}

fn check_prefix(prefix: &str, ethertype: &str) -> Result<(), Reply> {
    let whole = if prefix.contains('/') {
        prefix.to_owned()
    } else {
        format!("{prefix}/{}", if prefix.contains(':') { 128 } else { 32 })
    };
    match Block::parse(&whole) {
        None => {
            let message = format!(
                "Invalid input for remote_ip_prefix. Reason: '{prefix}' is not a valid IP subnet."
            );
            Err(neutron_error(400, "HTTPBadRequest", message))
        }
        Some(block) if block.is_v6() != ethertype.eq_ignore_ascii_case("IPv6") => {
            let message = format!("Conflicting value ethertype {ethertype} for CIDR {prefix}");
            Err(neutron_error(400, "SecurityGroupRuleParameterConflict", message))
        }
        Some(_) => Ok(()),
    }
}

/// Checks protocol and ports, which mean type and code where the protocol is ICMP.
fn check_ports(wanted: &Map<String, Value>) -> Result<(), Reply> {
    let number = |field: &str| {
        let value = wanted.get(field)?;
        value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
    };
    let protocol = match wanted.get("protocol") {
        Some(Value::String(protocol)) => Some(protocol.to_lowercase()),
        Some(Value::Number(protocol)) => Some(protocol.to_string()),
        _ => None,
    };
    let known = |name: &&String| PROTOCOLS.contains(&name.as_str()) || name.parse::<u8>().is_ok();
    if let Some(unknown) = protocol.as_ref().filter(|protocol| !known(protocol)) {
        let message = format!(
            "Security group rule protocol {unknown} not supported. Only protocol values [None, {}] and integer \
             representations [0 to 255] are supported.",
            PROTOCOLS.map(|name| format!("'{name}'")).join(", ")
        );
        return Err(neutron_error(400, "SecurityGroupRuleInvalidProtocol", message));
    }
    let (low, high) = (number("port_range_min"), number("port_range_max"));
    if low.is_none() && high.is_none() {
        return Ok(());
    }
    match protocol.as_deref() {
        Some("icmp" | "icmpv6" | "ipv6-icmp" | "1" | "58") => check_icmp(low, high),
        Some("tcp" | "udp" | "sctp" | "dccp" | "6" | "17" | "132" | "33") => check_range(low, high),
        Some(_) => Ok(()),
        None => {
            let message = "Must also specify protocol if port range is given.";
            Err(neutron_error(400, "SecurityGroupProtocolRequiredWithPorts", message))
        }
    }
}

fn check_icmp(kind: Option<i64>, code: Option<i64>) -> Result<(), Reply> {
    for (field, name, value) in [("type", "port-range-min", kind), ("code", "port-range-max", code)]
    {
        if let Some(value) = value.filter(|value| !(0..=255).contains(value)) {
            let message =
                format!("Invalid value for ICMP {field} ({name}) {value}. It must be 0 to 255.");
            return Err(neutron_error(400, "SecurityGroupInvalidIcmpValue", message));
        }
    }
    match (kind, code) {
        (None, Some(code)) => {
            let message = format!(
                "ICMP code (port-range-max) {code} is provided but ICMP type (port-range-min) is missing."
            );
            Err(neutron_error(400, "SecurityGroupMissingIcmpType", message))
        }
        _ => Ok(()),
    }
}

fn check_range(low: Option<i64>, high: Option<i64>) -> Result<(), Reply> {
    for value in [low, high].into_iter().flatten() {
        if !(1..=65_535).contains(&value) {
            let message = format!("Invalid value for port {value}");
            return Err(neutron_error(400, "SecurityGroupInvalidPortValue", message));
        }
    }
    match (low, high) {
        (Some(low), Some(high)) if low <= high => Ok(()),
        _ => {
            let message = "For TCP/UDP protocols, port_range_min must be <= port_range_max";
            Err(neutron_error(400, "SecurityGroupInvalidPortRange", message))
        }
    }
}
