//! Neutron's quotas and the extensions it says it has.

use super::{Kind, unknown_path, used};
use crate::cloud::config::Quotas;
use crate::cloud::http::{Answer, Call, Reply, neutron_error};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// What of Neutron's extensions is simulated.
const EXTENSIONS: [&str; 29] = [
    "allowed-address-pairs",
    "binding",
    "default-subnetpools",
    "ext-gw-mode",
    "external-net",
    "filter-validation",
    "fip-port-details",
    "ip-substring-filtering",
    "net-mtu",
    "net-mtu-writable",
    "pagination",
    "port-security",
    "port-security-groups-filtering",
    "project-id",
    "quota_details",
    "quotas",
    "revision-if-match",
    "router",
    "security-group",
    "security-groups-normalized-cidr",
    "sorting",
    "standard-attr-description",
    "standard-attr-revisions",
    "standard-attr-tag",
    "standard-attr-timestamp",
    "stateful-security-group",
    "subnet-external-network",
    "subnet_allocation",
    "tag-creation",
];

fn aliases(state: &State) -> Vec<&'static str> {
    let mut aliases = EXTENSIONS.to_vec();
    if state.config.tags_at_port_create {
        aliases.push("tag-ports-during-bulk-creation");
    }
    aliases
}

fn described(alias: &str) -> Value {
    json!({
        "name": alias.replace('-', " "),
        "alias": alias,
        "description": alias.replace('-', " "),
        "updated": "2020-01-01T10:00:00-00:00",
        "links": [],
    })
}

pub(super) fn extensions(state: &State) -> Reply {
    let all: Vec<Value> = aliases(state).into_iter().map(described).collect();
    Reply::json(200, json!({"extensions": all}))
}

pub(super) fn extension(state: &State, alias: &str) -> Answer {
    if aliases(state).contains(&alias) {
        return Ok(Reply::json(200, json!({"extension": described(alias)})));
    }
    let message = format!("Extension with alias {alias} does not exist");
    Err(neutron_error(404, "HTTPNotFound", message))
}

/// Every quota with the kind it counts.
fn limits(quotas: &Quotas) -> [(&'static str, Option<Kind>, i64); 9] {
    [
        ("network", Some(Kind::Network), quotas.network),
        ("subnet", Some(Kind::Subnet), quotas.subnet),
        ("subnetpool", None, -1),
        ("port", Some(Kind::Port), quotas.port),
        ("router", Some(Kind::Router), quotas.router),
        ("floatingip", Some(Kind::FloatingIp), quotas.floatingip),
        ("rbac_policy", None, 10),
        ("security_group", Some(Kind::SecurityGroup), quotas.security_group),
        ("security_group_rule", Some(Kind::SecurityGroupRule), quotas.security_group_rule),
    ]
}

pub(super) fn answer(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    match (&call.method, rest) {
        (&Method::GET, [_project]) => Ok(plain(state)),
        (&Method::GET, [project, "details"]) => {
            let quota: Value = limits(&state.config.quotas)
                .into_iter()
                .map(|(name, kind, limit)| {
                    let used = kind.map_or(0, |kind| used(state, kind, project));
                    (name.to_owned(), json!({"limit": limit, "used": used, "reserved": 0}))
                })
                .collect();
            Ok(Reply::json(200, json!({"quota": quota})))
        }
        (&Method::PUT, [project]) => {
            if !call.session.is_admin() {
                let message = "rule:update_quota is disallowed by policy";
                return Err(neutron_error(403, "PolicyNotAuthorized", message));
            }
            let bad = || neutron_error(400, "HTTPBadRequest", "Body contains invalid data");
            let body = call.json().map_err(|_| bad())?;
            let wanted = merged(&state.config.quotas, &body["quota"]).ok_or_else(bad)?;
            for (name, kind, limit) in limits(&wanted) {
                let used = kind.map_or(0, |kind| used(state, kind, project));
                let asked = body["quota"].get(name).is_some() && limit >= 0;
                if asked && limit.unsigned_abs() < used {
                    let message = format!(
                        "Quota limit {limit} for {name} must be greater than or equal to already used {used}"
                    );
                    return Err(neutron_error(400, "HTTPBadRequest", message));
                }
            }
            state.config.quotas = wanted;
            Ok(plain(state))
        }
        _ => Err(unknown_path()),
    }
}

fn plain(state: &State) -> Reply {
    let quota: Value = limits(&state.config.quotas)
        .into_iter()
        .map(|(name, _, limit)| (name.to_owned(), json!(limit)))
        .collect();
    Reply::json(200, json!({"quota": quota}))
}

/// The quotas with those of a body in their place; `None` when one is no number.
pub(in crate::cloud) fn merged(quotas: &Quotas, changes: &Value) -> Option<Quotas> {
    let mut all = serde_json::to_value(quotas).ok()?;
    for (name, limit) in changes.as_object()? {
        if all.get(name).is_some() {
            all[name] = limit.clone();
        }
    }
    serde_json::from_value(all).ok()
}
