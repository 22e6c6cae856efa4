//! The books: what is there, what ever was, and what was asked.

use super::http::Service;
use super::network::Kind;
use super::state::State;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Counts that outlive what they count.
#[derive(Default)]
pub(super) struct Counters {
    calls: BTreeMap<String, u64>,
    made_by_tag: BTreeMap<String, u64>,
    made: BTreeMap<&'static str, u64>,
    deleted: BTreeMap<&'static str, u64>,
}

impl Counters {
    pub(super) fn count(&mut self, call: &str) {
        match self.calls.get_mut(call) {
            Some(count) => *count += 1,
            None => {
                self.calls.insert(call.to_owned(), 1);
            }
        }
    }

    /// One of these was made: `server`, `port`, `volume`, `floatingip`, ...
    pub(super) fn made_one(&mut self, what: &'static str) {
        *self.made.entry(what).or_default() += 1;
    }

    /// One of these is no more.
    pub(super) fn deleted_one(&mut self, what: &'static str) {
        *self.deleted.entry(what).or_default() += 1;
    }

    /// A server with these tags was accepted.
    pub(super) fn made(&mut self, tags: &BTreeSet<String>) {
        self.made_one("server");
        for tag in tags {
            *self.made_by_tag.entry(tag.clone()).or_default() += 1;
        }
    }
}

/// One thing that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its name; a floating IP's is its address.
    pub name: String,
    /// Its status as clients see it.
    pub status: String,
    /// The server it belongs to: `device_id` of a port, the attachment of a volume, the port of a floating IP.
    pub owner: Option<String>,
    /// Its description.
    pub description: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

/// The books at one moment. What the cloud itself keeps on its networks (ports of routers) is left out.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Servers that a client can see.
    pub servers: Vec<Entry>,
    /// Ports.
    pub ports: Vec<Entry>,
    /// Volumes.
    pub volumes: Vec<Entry>,
    /// Floating IPs.
    pub floating_ips: Vec<Entry>,
    /// Server groups; their status is the policy.
    pub server_groups: Vec<Entry>,
    /// How many servers were ever accepted.
    pub servers_made: u64,
    /// How many servers were ever accepted with each tag.
    pub made: BTreeMap<String, u64>,
    /// How often each call came in, by names as `compute POST /servers`.
    pub calls: BTreeMap<String, u64>,
}

impl Ledger {
    /// Nothing is left that somebody made; server groups do not count, for the demo begins with one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
            && self.ports.is_empty()
            && self.volumes.is_empty()
            && self.floating_ips.is_empty()
    }

    /// How many calls begin with these words: `compute`, `compute POST`, `network DELETE /ports/{id}`.
    #[must_use]
    pub fn count(&self, call: &str) -> u64 {
        let begins = |name: &str| {
            name.strip_prefix(call).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.calls.iter().filter(|(name, _)| begins(name)).map(|(_, count)| count).sum()
    }
}

pub(super) fn take(state: &State) -> Ledger {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let network = |kind: Kind, name: &str, owner: &str| -> Vec<Entry> {
        let all = state.network.table(kind).values();
        all.filter(|one| !text(&one["device_owner"]).starts_with("network:"))
            .map(|one| Entry {
                id: text(&one["id"]),
                name: text(&one[name]),
                status: text(&one["status"]),
                owner: one[owner].as_str().filter(|owner| !owner.is_empty()).map(str::to_owned),
                description: text(&one["description"]),
                tags: serde_json::from_value(one["tags"].clone()).unwrap_or_default(),
                metadata: BTreeMap::new(),
            })
            .collect()
    };
    let servers = state.compute.servers.values();
    let volumes = state.volumes.all.values();
    let groups = state.compute.groups.values();
    Ledger {
        servers: servers
            .map(|server| Entry {
                id: server.id.clone(),
                name: server.name.clone(),
                status: server.status().to_owned(),
                owner: None,
                description: server.description.clone().unwrap_or_default(),
                tags: server.tags.iter().cloned().collect(),
                metadata: server.metadata.clone(),
            })
            .collect(),
        ports: network(Kind::Port, "name", "device_id"),
        volumes: volumes
            .map(|volume| Entry {
                id: volume.id.clone(),
                name: volume.name.clone().unwrap_or_default(),
                status: volume.status.to_owned(),
                owner: volume.server().map(str::to_owned),
                description: String::new(),
                tags: Vec::new(),
                metadata: volume.metadata.clone(),
            })
            .collect(),
        floating_ips: network(Kind::FloatingIp, "floating_ip_address", "port_id"),
        server_groups: groups
            .map(|group| Entry {
                id: group.id.clone(),
                name: group.name.clone(),
                status: group.policy.clone(),
                owner: None,
                description: String::new(),
                tags: Vec::new(),
                metadata: BTreeMap::new(),
            })
            .collect(),
        servers_made: state.counters.made.get("server").copied().unwrap_or(0),
        made: state.counters.made_by_tag.clone(),
        calls: state.counters.calls.clone(),
    }
}

/// `GET /lab/state`.
pub(super) fn page(state: &State) -> Value {
    let books = take(state);
    let entries = |entries: &[Entry]| -> Vec<Value> {
        let shown = entries.iter().map(|one| {
            json!({
                "id": one.id, "name": one.name, "status": one.status, "owner": one.owner,
                "description": one.description, "tags": one.tags, "metadata": one.metadata,
            })
        });
        shown.collect()
    };
    let mut network = json!({});
    for kind in [Kind::Network, Kind::Subnet, Kind::Router, Kind::SecurityGroup] {
        let all: Vec<&Value> = state.network.table(kind).values().collect();
        network[format!("{}s", kind.singular())] = json!(all);
    }
    let mut by_service = BTreeMap::new();
    for service in
        [Service::Identity, Service::Compute, Service::Network, Service::Image, Service::Volume]
    {
        by_service.insert(service.name(), books.count(service.name()));
    }
    json!({
        "now": state.now().to_string(),
        "servers": entries(&books.servers),
        "ports": entries(&books.ports),
        "volumes": entries(&books.volumes),
        "floating_ips": entries(&books.floating_ips),
        "server_groups": entries(&books.server_groups),
        "network": network,
        "made": state.counters.made,
        "made_by_tag": books.made,
        "deleted": state.counters.deleted,
        "calls": books.calls,
        "faults": state.faults.score(),
        "calls_by_service": by_service,
    })
}
