//! The ends of a server: deleted, vanished, crashed.

use super::server::Server;
use super::{DELETED_KEPT, VmState, gone, host, shelve};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::network::{Kind, port};
use crate::cloud::state::State;
use crate::cloud::{Power, volume};
use serde_json::json;

/// `DELETE /servers/{id}`.
pub(super) fn delete(state: &mut State, call: &Call, id: &str) -> Answer {
    super::policy(call, "servers:delete")?;
    let now = state.now();
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    if server.locked && !call.session.is_admin() {
        return Err(fault(409, format!("Instance {id} is locked")));
    }
    server.note("delete", call, now);
    start(state, id);
    Ok(Reply::empty(204))
}

/// Begins a deletion; one that is under way goes on.
pub(super) fn start(state: &mut State, id: &str) {
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    if server.doomed() || server.vm == VmState::Deleted {
        return;
    }
    if server.host.is_none() {
        forget(state, id);
        return;
    }
    server.task = Some("deleting");
    server.updated = now;
    // A build goes on to its end first; see there.
    if server.vm != VmState::Building && !server.destiny.stuck_deleting {
        let delay = state.config.delays.delete;
        state.after(delay, destroyed, id);
    }
}

/// The guest is gone; the server is still shown, as DELETED.
pub(super) fn destroyed(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    if server.vm == VmState::Deleted {
        return;
    }
    let now = state.now();
    if let Some(server) = state.compute.server_mut(id) {
        server.vm = VmState::Deleted;
        server.task = None;
        server.power = 0;
        server.updated = now;
        server.terminated = Some(now);
        server.addresses = json!({});
    }
    release(state, &server);
    let delay = state.config.delays.deleted;
    state.after(delay, forget, id);
}

/// The server is no more; only `changes-since` shows it.
pub(super) fn forget(state: &mut State, id: &str) {
    let now = state.now();
    let Some(mut server) = state.compute.servers.shift_remove(id) else {
        return;
    };
    // Nova: until a host is chosen there is only a request, which leaves no trace.
    let requested =
        server.vm == VmState::Building && server.tried.is_empty() && server.host.is_none();
    if server.vm != VmState::Deleted {
        release(state, &server);
        server.updated = now;
        server.terminated = Some(now);
    }
    server.vm = VmState::Deleted;
    server.task = None;
    server.power = 0;
    server.addresses = json!({});
    // What nobody can ask for any more.
    server.user_data = None;
    server.console.clear();
    server.metadata.clear();
    server.tags.clear();
    state.counters.deleted_one("server");
    if requested {
        return;
    }
    if state.compute.deleted.len() == DELETED_KEPT {
        state.compute.deleted.pop_front();
    }
    state.compute.deleted.push_back(server);
}

/// Lets go of all that a server had, and tells the hypervisor side.
fn release(state: &mut State, server: &Server) {
    host::leave(state, server);
    shelve::forget_image(state, &server.id);
    release_ports(state, server);
    release_volumes(state, server, true);
    if let Some(server) = state.compute.server_mut(&server.id) {
        server.powered = false;
    }
    if server.powered {
        state.tell(&Power::Gone { server: server.id.clone() });
    }
}

/// Deletes the ports that Nova made and unbinds the others, if they are still this server's.
pub(super) fn release_ports(state: &mut State, server: &Server) {
    for nic in &server.nics {
        let Some(own) = &nic.port else { continue };
        let found = state.network.get(Kind::Port, own);
        let ours = found
            .is_some_and(|port| port["device_id"] == server.id.as_str() || port["device_id"] == "");
        if !ours {
            continue;
        }
        if nic.made_here {
            port::remove(state, own);
        } else {
            port::unbind(state, own);
        }
    }
    if let Some(server) = state.compute.server_mut(&server.id) {
        for nic in server.nics.iter_mut().filter(|nic| nic.made_here) {
            nic.port = None;
        }
    }
}

/// Detaches volumes; with `end` those are deleted that were to go with the server.
pub(super) fn release_volumes(state: &mut State, server: &Server, end: bool) {
    for disk in &server.disks {
        let Some(own) = &disk.volume else { continue };
        volume::release(state, own);
        if end && disk.delete_on_termination {
            volume::drop_now(state, own);
        }
    }
}

/// Takes a server away without a DELETE.
pub(in crate::cloud) fn vanish(state: &mut State, id: &str) -> bool {
    let there = state.compute.servers.contains_key(id);
    forget(state, id);
    there
}

/// Switches a server off without an order.
pub(in crate::cloud) fn crash(state: &mut State, id: &str, broken: bool) -> bool {
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return false;
    };
    server.vm = if broken { VmState::Error } else { VmState::Stopped };
    server.task = None;
    server.power = 4;
    server.powered = false;
    server.updated = now;
    state.tell(&Power::Off { server: id.to_owned() });
    true
}
