//! Nova: servers on simulated hosts, and what describes them.

mod action;
mod attach;
mod build;
mod create;
mod flavor;
mod group;
mod host;
mod keypair;
mod label;
mod list;
mod quota;
mod remove;
mod schema;
mod server;
mod shelve;
mod wish;

pub(super) use build::{addresses_changed, guest};
pub(super) use flavor::Flavor;
pub(super) use group::Group;
pub(super) use remove::{crash, vanish};
pub(super) use server::{Server, VmState};
pub(super) use wish::Disk;

use super::config::Config;
use super::gate::admit;
use super::http::{Answer, Call, Content, Reply, fault, webob};
use super::state::State;
use http::Method;
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Nova: the highest microversion, `2.103`.
const MINOR_MAX: u16 = 103;
/// Deleted servers that `changes-since` still shows.
const DELETED_KEPT: usize = 2_000;
/// Lines that a console keeps.
const CONSOLE_KEPT: usize = 500;

/// All that Nova knows.
pub(super) struct Compute {
    pub flavors: Vec<Flavor>,
    pub groups: IndexMap<String, Group>,
    pub keypairs: Vec<keypair::KeyPair>,
    hosts: Vec<host::Host>,
    /// Oldest first.
    pub servers: IndexMap<String, Box<Server>>,
    /// The last deleted ones.
    deleted: VecDeque<Box<Server>>,
}

impl Compute {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            flavors: Vec::new(),
            groups: IndexMap::new(),
            keypairs: Vec::new(),
            hosts: host::build(config),
            servers: IndexMap::new(),
            deleted: VecDeque::new(),
        }
    }

    fn server(&self, id: &str) -> Result<&Server, Reply> {
        self.servers.get(id).map(AsRef::as_ref).ok_or_else(|| gone(id))
    }

    fn server_mut(&mut self, id: &str) -> Option<&mut Server> {
        self.servers.get_mut(id).map(AsMut::as_mut)
    }
}

fn gone(id: &str) -> Reply {
    fault(404, format!("Instance {id} could not be found."))
}

fn unknown_path() -> Reply {
    webob(404, "The resource could not be found.")
}

/// Appends to a server's console.
pub(super) fn console(state: &mut State, server: &str, line: &str) {
    if let Some(server) = state.compute.server_mut(server) {
        if server.console.len() == CONSOLE_KEPT {
            server.console.pop_front();
        }
        server.console.push_back(line.to_owned());
    }
}

pub(super) fn answer(state: &mut State, call: &mut Call) -> Answer {
    let base = state.config.base_url.clone();
    match (&call.method, call.version.as_str(), call.path.as_slice()) {
        (&Method::GET, "", []) => return Ok(Reply::json(200, versions(&base))),
        (&Method::GET, "v2.1", []) => return Ok(dressed(Reply::json(200, version(&base)), call)),
        _ => {}
    }
    microversion(call).map_err(refused)?;
    admit(state, call)
        .map_err(|refusal| refusal.with("x-compute-request-id", call.request_id.clone()))?;
    route(state, call)
        .map(|reply| dressed(reply, call))
        .map_err(|reply| refused(dressed(reply, call)))
}

/// Nova: its errors name their character set, its other answers do not.
fn refused(reply: Reply) -> Reply {
    if matches!(reply.content, Content::WebOb(_)) {
        return reply;
    }
    reply.with("content-type", "application/json; charset=UTF-8")
}

/// With the headers that every answer of Nova has.
fn dressed(reply: Reply, call: &Call) -> Reply {
    let reply = reply
        .with("x-openstack-request-id", call.request_id.clone())
        .with("x-compute-request-id", call.request_id.clone());
    // What is in front of Nova knows no versions.
    if matches!(reply.content, Content::WebOb(_)) {
        return reply;
    }
    reply
        .with("openstack-api-version", format!("compute 2.{}", call.minor))
        .with("x-openstack-nova-api-version", format!("2.{}", call.minor))
        .with("vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version")
}

/// Reads the microversion that is asked for, 2.1 without one.
fn microversion(call: &mut Call) -> Result<(), Reply> {
    let asked = call
        .header("openstack-api-version")
        .and_then(|header| header.split(',').find_map(|part| part.trim().strip_prefix("compute ")));
    let Some(asked) = asked.or_else(|| call.header("x-openstack-nova-api-version")) else {
        return Ok(());
    };
    let asked = asked.trim().to_owned();
    let minor = match asked.split_once('.') {
        _ if asked == "latest" => Some(MINOR_MAX),
        Some(("2", minor)) => minor.parse::<u16>().ok(),
        // Well formed, and never served.
        Some((major, minor)) if is_number(major) && is_number(minor) => Some(0),
        _ => None,
    };
    let told = |reply: Reply| {
        reply
            .with("x-openstack-request-id", call.request_id.clone())
            .with("x-compute-request-id", call.request_id.clone())
    };
    match minor {
        Some(minor @ 1..=MINOR_MAX) => call.minor = minor,
        Some(_) => {
            let message = format!(
                "Version {asked} is not supported by the API. Minimum is 2.1 and maximum is 2.{MINOR_MAX}."
            );
            return Err(told(fault(406, message))
                .with("openstack-api-version", format!("compute {asked}"))
                .with("x-openstack-nova-api-version", asked)
                .with("vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version"));
        }
        None => {
            let message = format!(
                "API Version String {asked} is of invalid format. Must be of format MajorNum.MinorNum."
            );
            return Err(told(fault(400, message)));
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

fn versions(base: &str) -> Value {
    let entry = |id: &str, status: &str, version: &str, min: &str, updated: &str, path: &str| {
        json!({
            "id": id, "status": status, "version": version, "min_version": min, "updated": updated,
            "links": [{"rel": "self", "href": format!("{base}/compute/{path}/")}],
        })
    };
    let newest = format!("2.{MINOR_MAX}");
    json!({"versions": [
        entry("v2.0", "DEPRECATED", "", "", "2025-07-04T12:00:00Z", "v2"),
        entry("v2.1", "CURRENT", &newest, "2.1", "2013-07-23T11:33:21Z", "v2.1"),
    ]})
}

fn version(base: &str) -> Value {
    json!({"version": {
        "id": "v2.1",
        "status": "CURRENT",
        "version": format!("2.{MINOR_MAX}"),
        "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z",
        "links": [
            {"rel": "self", "href": format!("{base}/compute/v2.1/")},
            {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"},
        ],
        "media-types": [{
            "base": "application/json",
            "type": "application/vnd.openstack.compute+json;version=2.1",
        }],
    }})
}

/// Refuses who has no project, or may only read and wants to write.
fn policy(call: &Call, rule: &str) -> Result<(), Reply> {
    let reads = call.method == Method::GET;
    if call.session.project.is_some() && (reads || call.session.is_member()) {
        return Ok(());
    }
    Err(disallowed(rule))
}

fn disallowed(rule: &str) -> Reply {
    fault(403, format!("Policy doesn't allow os_compute_api:{rule} to be performed."))
}

fn route(state: &mut State, call: &Call) -> Answer {
    if call.version != "v2.1" {
        return Err(unknown_path());
    }
    let path = call.segments();
    match path.as_slice() {
        ["servers", rest @ ..] => servers(state, call, rest),
        ["flavors", rest @ ..] => flavor::answer(state, call, rest),
        ["os-server-groups", rest @ ..] => group::answer(state, call, rest),
        ["os-keypairs", rest @ ..] => keypair::answer(state, call, rest),
        ["os-availability-zone"] if call.method == Method::GET => Ok(zones(state)),
        ["os-availability-zone", "detail"] => Err(disallowed("os-availability-zone:detail")),
        ["limits"] if call.method == Method::GET => Ok(quota::limits(state, call)),
        ["os-quota-sets", rest @ ..] => quota::answer(state, call, rest),
        ["os-hypervisors", ..] => Err(disallowed("os-hypervisors:list")),
        ["os-services", ..] => Err(disallowed("os-services:list")),
        ["os-aggregates"] => Err(disallowed("os-aggregates:index")),
        _ => Err(unknown_path()),
    }
}

fn zones(state: &State) -> Reply {
    let zones = state.config.zones.iter();
    let zones: Vec<Value> = zones
        .map(|zone| json!({"zoneName": zone, "zoneState": {"available": true}, "hosts": null}))
        .collect();
    Reply::json(200, json!({"availabilityZoneInfo": zones}))
}

fn servers(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    if let [id, ..] = rest
        && *id != "detail"
    {
        policy(call, "servers:show")?;
        let known = state.compute.servers.contains_key(*id)
            || state.compute.deleted.iter().any(|server| server.id == *id);
        if !known && rest.get(1) == Some(&"action") {
            return Err(fault(404, format!("Instance {id} has no mapping to a cell.")));
        }
        let seen = state.compute.server(id)?;
        if !call.session.sees(&seen.project) {
            return Err(gone(id));
        }
    }
    match (&call.method, rest) {
        (&Method::GET, []) => {
            policy(call, "servers:index").and_then(|()| list::list(state, call, false))
        }
        (&Method::GET, ["detail"]) => {
            policy(call, "servers:detail").and_then(|()| list::list(state, call, true))
        }
        (&Method::POST, []) => {
            policy(call, "servers:create").and_then(|()| create::create(state, call))
        }
        (&Method::GET, [id]) => {
            let shown = server::show(state, call, state.compute.server(id)?, server::View::Whole);
            Ok(Reply::json(200, json!({"server": shown})))
        }
        (&Method::PUT, [id]) => action::rename(state, call, id),
        (&Method::DELETE, [id]) => remove::delete(state, call, id),
        (&Method::POST, [id, "action"]) => action::act(state, call, id),
        (_, [id, "metadata", rest @ ..]) => label::metadata(state, call, id, rest),
        (_, [id, "tags", rest @ ..]) if call.minor >= 26 => label::tags(state, call, id, rest),
        (&Method::GET, [id, "ips", rest @ ..]) => {
            server::addresses(state.compute.server(id)?, rest)
        }
        (_, [id, "os-interface", rest @ ..]) => attach::interfaces(state, call, id, rest),
        (_, [id, "os-volume_attachments", rest @ ..]) => attach::volumes(state, call, id, rest),
        (&Method::GET, [id, "os-instance-actions", rest @ ..]) => {
            action::history(state, call, id, rest)
        }
        (&Method::GET, [id, "os-security-groups"]) => Ok(attach::security_groups(state, id)),
        (&Method::GET, [_, "diagnostics"]) => Err(disallowed("os-server-diagnostics")),
        _ => Err(unknown_path()),
    }
}
