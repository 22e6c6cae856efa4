//! A server as Nova shows it, turned into the provider's words.

use crate::{
    fault,
    parameters::Parameters,
    wire::{self, Server},
};
use drover_provider::{Address, Error, Instance, State};
use jiff::Timestamp;
use std::net::IpAddr;

/// The server's addresses come in the order of the wanted networks, as far as those are given by name.
#[must_use]
pub fn of(server: &Server, parameters: Option<&Parameters>) -> Instance {
    let wanted: Vec<&str> =
        parameters.into_iter().flat_map(|it| &it.networks).map(|it| it.network.as_str()).collect();
    let place = |network: &str| wanted.iter().position(|it| *it == network).unwrap_or(usize::MAX);
    let mut networks: Vec<_> = server.addresses.iter().collect();
    networks.sort_by_key(|(name, _)| place(name));
    let all: Vec<Address> = networks
        .into_iter()
        .flat_map(|(_, addresses)| addresses)
        .filter_map(|it| {
            Some(Address { address: it.addr.parse().ok()?, external: it.kind == "floating" })
        })
        .collect();
    let (external, fixed): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.external);
    Instance {
        // cloud-provider-openstack may put the region before the id; both forms end in the id.
        provider_id: format!("openstack:///{}", server.id),
        name: server.name.clone(),
        state: state(server),
        addresses: fixed.into_iter().chain(external).collect(),
        zone: Some(server.zone.clone()).filter(|zone| !zone.is_empty()),
        created: wire::time(&server.created).unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

/// Adds a floating address that Nova's cache does not show yet.
pub fn add_external(instance: &mut Instance, address: Option<IpAddr>) {
    let Some(address) = address else { return };
    if !instance.addresses.iter().any(|it| it.address == address) {
        instance.addresses.push(Address { address, external: true });
    }
}

fn state(server: &Server) -> State {
    match server.status.as_str() {
        _ if server.is_deleting() => State::Deleting,
        "BUILD" | "REBUILD" => State::Building,
        "SHUTOFF" | "STOPPED" | "PAUSED" | "SUSPENDED" | "SHELVED" | "SHELVED_OFFLOADED" => {
            State::Stopped
        }
        "DELETED" | "SOFT_DELETED" => State::Deleting,
        "ERROR" => State::Failed {
            message: fault::of_server(&server.id, Some(&server.fault.message)).to_string(),
        },
        _ => State::Running,
    }
}

/// A server whose tags say that it is ours and whose metadata says otherwise.
#[must_use]
pub fn unclear(server: &Server) -> Error {
    Error::Conflict(format!(
        "server {} carries this machine's tags but not its metadata; restore drover-cluster and \
         drover-machine, or delete the server by hand",
        server.id
    ))
}
