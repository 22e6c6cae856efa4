//! The hosts, and which of them a server goes to.

use super::server::Server;
use crate::cloud::config::{Config, HostSize};
use crate::cloud::state::State;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// One hypervisor.
#[derive(Debug)]
pub(super) struct Host {
    pub name: String,
    pub zone: String,
    free: HostSize,
    guests: u64,
}

pub(super) fn build(config: &Config) -> Vec<Host> {
    let hosts = config.zones.iter().flat_map(|zone| {
        (1..=config.hosts_per_zone).map(move |at| Host {
            name: format!("{zone}-host-{at:03}"),
            zone: zone.clone(),
            free: config.host,
            guests: 0,
        })
    });
    hosts.collect()
}

/// Chooses a host and takes room on it. `Err` has the scheduler's reason.
pub(super) fn place(state: &mut State, server: &Server) -> Result<(String, String), &'static str> {
    let flavor = &server.flavor;
    // A server with a volume takes no disk of the host.
    let disk = if server.disks.is_empty() { flavor.disk } else { 0 };
    let fits = |host: &Host| {
        server.zone_asked.as_ref().is_none_or(|zone| *zone == host.zone)
            && host.free.vcpus >= flavor.vcpus
            && host.free.ram >= flavor.ram
            && host.free.disk >= disk
            && !server.tried.contains(&host.name)
    };
    let hosts = &state.compute.hosts;
    let room: Vec<usize> = (0..hosts.len()).filter(|at| fits(&hosts[*at])).collect();
    if room.is_empty() {
        return Err("No valid host was found. ");
    }
    let group = server.group.as_ref().and_then(|id| state.compute.groups.get(id));
    let mut members: BTreeMap<&str, u64> = BTreeMap::new();
    if let Some(group) = group {
        let all =
            state.compute.servers.values().filter(|one| one.group.as_ref() == Some(&group.id));
        for host in all.filter_map(|one| one.host.as_deref()) {
            *members.entry(host).or_default() += 1;
        }
    }
    let count = |at: usize| members.get(hosts[at].name.as_str()).copied().unwrap_or(0);
    let rule = group.map_or("", |group| group.policy.as_str());
    let most = group.and_then(|group| group.max_per_host).unwrap_or(1);
    let allowed = |at: &usize| match rule {
        "anti-affinity" => count(*at) < most,
        "affinity" => members.is_empty() || count(*at) > 0,
        _ => true,
    };
    // What the group wishes first, then the emptiest host, then the first.
    let rank = |at: &usize| {
        let wish = match rule {
            "soft-anti-affinity" => count(*at),
            "soft-affinity" => u64::MAX - count(*at),
            _ => 0,
        };
        (wish, hosts[*at].guests, *at)
    };
    let Some(best) = room.into_iter().filter(allowed).min_by_key(rank) else {
        return Err("No valid host was found. There are not enough hosts available.");
    };
    let host = &mut state.compute.hosts[best];
    host.free.vcpus -= flavor.vcpus;
    host.free.ram -= flavor.ram;
    host.free.disk -= disk;
    host.guests += 1;
    Ok((host.name.clone(), host.zone.clone()))
}

/// Gives a server's room back.
pub(super) fn leave(state: &mut State, server: &Server) {
    let disk = if server.disks.is_empty() { server.flavor.disk } else { 0 };
    let name = server.host.as_ref();
    if let Some(host) = state.compute.hosts.iter_mut().find(|host| Some(&host.name) == name) {
        host.free.vcpus += server.flavor.vcpus;
        host.free.ram += server.flavor.ram;
        host.free.disk += disk;
        host.guests = host.guests.saturating_sub(1);
    }
}

/// What clients see of a host's name.
pub(super) fn opaque(project: &str, host: &str) -> String {
    let digest = Sha256::digest(format!("{project}{host}"));
    digest[..28].iter().map(|byte| format!("{byte:02x}")).collect()
}
