//! Security groups and their rules. They are kept and shown; no packet is ever filtered.

use super::{Kind, change, drop_object, keep, only, owner, required, rule, text, within_quota};
use crate::cloud::http::{Call, Reply, neutron_error};
use crate::cloud::state::State;
use serde_json::{Map, Value, json};

pub(super) fn create_group(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    only(wanted, &["stateful"])?;
    let project = owner(call, Kind::SecurityGroup, wanted)?;
    within_quota(state, Kind::SecurityGroup, state.config.quotas.security_group, &project)?;
    let (name, description) = (text(wanted, "name")?, text(wanted, "description")?);
    if name == "default" {
        return Err(default_exists());
    }
    let group = plant_group(state, &project, &name, &description);
    Ok(state.network.get(Kind::SecurityGroup, &group).cloned().unwrap_or_default())
}

/// Neutron: there is one group of this name in a project, and Neutron makes it.
pub(super) fn default_exists() -> Reply {
    let message = "Default security group already exists.";
    neutron_error(409, "SecurityGroupDefaultAlreadyExists", message)
}

/// Makes the default group of a project that has none: what is in it may talk to each other.
pub(in crate::cloud) fn ensure_default(state: &mut State, project: &str) {
    let mut groups = state.network.table(Kind::SecurityGroup).values();
    if groups.any(|group| group["name"] == "default" && group["project_id"] == project) {
        return;
    }
    let id = plant_group(state, project, "default", "Default security group");
    for ethertype in ["IPv4", "IPv6"] {
        let rule = json!({
            "security_group_id": id, "direction": "ingress", "ethertype": ethertype,
            "remote_group_id": id, "description": null, "belongs_to_default_sg": true,
        });
        keep_rule(state, project, rule);
    }
}

/// Makes a group with the two rules that every group begins with; returns its id.
pub(in crate::cloud) fn plant_group(
    state: &mut State,
    project: &str,
    name: &str,
    description: &str,
) -> String {
    let group = json!({
        "name": name,
        "description": description,
        "stateful": true,
        "shared": false,
        "security_group_rules": [],
    });
    let group = keep(state, Kind::SecurityGroup, project, 1, group);
    let id = group["id"].as_str().unwrap_or_default().to_owned();
    let default = if name == "default" { json!(true) } else { Value::Null };
    for ethertype in ["IPv4", "IPv6"] {
        let rule = json!({
            "security_group_id": id, "direction": "egress", "ethertype": ethertype, "description": null,
            "belongs_to_default_sg": default,
        });
        keep_rule(state, project, rule);
    }
    id
}

pub(super) fn create_rule(
    state: &mut State,
    call: &Call,
    wanted: &Map<String, Value>,
) -> Result<Value, Reply> {
    const FIELDS: [&str; 8] = [
        "security_group_id",
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "remote_group_id",
    ];
    only(wanted, &FIELDS)?;
    let group = required(wanted, "security_group_id")?;
    super::seen(state, call, Kind::SecurityGroup, group)?;
    rule::check(state, call, wanted)?;
    let project = owner(call, Kind::SecurityGroupRule, wanted)?;
    within_quota(
        state,
        Kind::SecurityGroupRule,
        state.config.quotas.security_group_rule,
        &project,
    )?;
    let rule = Value::Object(wanted.clone());
    let same = |one: &&Value| {
        FIELDS.iter().filter(|field| **field != "ethertype").all(|field| one[field] == rule[field])
            && one["ethertype"] == *rule.get("ethertype").unwrap_or(&json!("IPv4"))
    };
    if let Some(there) = state.network.table(Kind::SecurityGroupRule).values().find(same) {
        let id = there["id"].as_str().unwrap_or_default();
        let message = format!("Security group rule already exists. Rule id is {id}.");
        return Err(neutron_error(409, "SecurityGroupRuleExists", message));
    }
    let mut rule = rule;
    rule["description"] = json!(text(wanted, "description")?);
    Ok(keep_rule(state, &project, rule))
}

/// Fills a rule up, keeps it and shows it in its group.
fn keep_rule(state: &mut State, project: &str, given: Value) -> Value {
    let mut rule = json!({
        "ethertype": "IPv4",
        "protocol": null,
        "port_range_min": null,
        "port_range_max": null,
        "remote_ip_prefix": null,
        "remote_address_group_id": null,
        "normalized_cidr": given["remote_ip_prefix"],
        "remote_group_id": null,
        "belongs_to_default_sg": false,
    });
    if let Value::Object(given) = given {
        for (field, value) in given {
            rule[field] = value;
        }
    }
    let group = rule["security_group_id"].as_str().unwrap_or_default().to_owned();
    let kept = keep(state, Kind::SecurityGroupRule, project, 0, rule);
    change(state, Kind::SecurityGroup, &group, |group| {
        if let Some(rules) = group["security_group_rules"].as_array_mut() {
            let mut shown = kept.clone();
            // Neutron: asked for itself a rule says false, read as part of its group nothing.
            if shown["belongs_to_default_sg"] == false {
                shown["belongs_to_default_sg"] = Value::Null;
            }
            rules.push(shown);
        }
    });
    kept
}

/// Neutron: what was just made is not yet read back, so a group's rules say false where they later say nothing, and a rule
/// shows no tags.
pub(super) fn newborn(kind: Kind, made: &mut Value) {
    let settle = |rule: &mut Value| {
        if rule["belongs_to_default_sg"].is_null() {
            rule["belongs_to_default_sg"] = json!(false);
        }
    };
    match kind {
        Kind::SecurityGroup => {
            made["security_group_rules"].as_array_mut().into_iter().flatten().for_each(settle);
        }
        Kind::SecurityGroupRule => {
            if let Some(fields) = made.as_object_mut() {
                fields.remove("tags");
            }
        }
        Kind::Network if made["is_default"].is_null() => made["is_default"] = json!(false),
        _ => {}
    }
}

pub(super) fn delete_group(state: &mut State, id: &str) -> Result<(), Reply> {
    let uses = |port: &Value| {
        port["security_groups"]
            .as_array()
            .is_some_and(|groups| groups.iter().any(|group| group == id))
    };
    if state.network.ports().any(uses) {
        let message = format!("Security Group {id} in use.");
        return Err(neutron_error(409, "SecurityGroupInUse", message));
    }
    state
        .network
        .table_mut(Kind::SecurityGroupRule)
        .retain(|_, rule| rule["security_group_id"] != id);
    drop_object(state, Kind::SecurityGroup, id);
    Ok(())
}

pub(super) fn delete_rule(state: &mut State, id: &str) {
    let Some(rule) = drop_object(state, Kind::SecurityGroupRule, id) else {
        return;
    };
    let group = rule["security_group_id"].as_str().unwrap_or_default();
    change(state, Kind::SecurityGroup, group, |group| {
        if let Some(rules) = group["security_group_rules"].as_array_mut() {
            rules.retain(|rule| rule["id"] != id);
        }
    });
}
