//! Shelving: a server is put away as an image, gives its host back, and may return to any.

use super::{VmState, build, gone, host};
use crate::cloud::Power;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::image::Image;
use crate::cloud::state::State;

/// `shelve`: what runs is stopped, and off its host a moment later. Nova: `shelved_offload_time` is 0.
pub(super) fn shelve(state: &mut State, call: &Call, id: &str) -> Answer {
    let now = state.now();
    ready(state, id, "shelve", &[VmState::Active, VmState::Stopped])?;
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.task = Some("shelving");
    server.updated = now;
    server.note("shelve", call, now);
    let delay = state.config.delays.power;
    state.after(delay, shelved, id);
    Ok(Reply::empty(202))
}

/// `shelveOffload`: a shelved server gives its host back.
pub(super) fn offload(state: &mut State, id: &str) -> Answer {
    ready(state, id, "shelveOffload", &[VmState::Shelved])?;
    shelved(state, id);
    Ok(Reply::empty(202))
}

/// `unshelve`: back on a host, which is chosen anew.
pub(super) fn unshelve(state: &mut State, call: &Call, id: &str) -> Answer {
    let now = state.now();
    ready(state, id, "unshelve", &[VmState::Shelved, VmState::ShelvedOffloaded])?;
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.task = Some("unshelving");
    server.updated = now;
    server.note("unshelve", call, now);
    let delay = state.config.delays.spawn;
    state.after(delay, unshelved, id);
    Ok(Reply::empty(202))
}

fn ready(state: &State, id: &str, verb: &str, from: &[VmState]) -> Result<(), Reply> {
    let server = state.compute.server(id)?;
    let refuse = |what: &str, is: &str| {
        let message = format!("Cannot '{verb}' instance {id} while it is in {what} {is}");
        Err(fault(409, message))
    };
    if server.locked {
        return Err(fault(409, format!("Instance {id} is locked")));
    }
    match server.task {
        _ if !from.contains(&server.vm) => refuse("vm_state", server.vm.name()),
        Some(task) => refuse("task_state", task),
        None => Ok(()),
    }
}

fn shelved(state: &mut State, id: &str) {
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    // A deletion has taken its place.
    if server.doomed() {
        return;
    }
    server.vm = VmState::Shelved;
    server.task = Some("shelving_offloading");
    server.power = 4;
    server.updated = now;
    if std::mem::replace(&mut server.powered, false) {
        state.tell(&Power::Off { server: id.to_owned() });
    }
    put_away(state, id);
    let delay = state.config.delays.power;
    state.after(delay, offloaded, id);
}

/// Keeps the disk of a server that has one of its own as an image.
fn put_away(state: &mut State, id: &str) {
    let Some(server) = state.compute.servers.get(id).filter(|server| server.image.is_some()) else {
        return;
    };
    let (name, owner, disk) =
        (format!("{}-shelved", server.name), server.project.clone(), server.flavor.disk);
    let (image, now) = (state.uuid(), state.now());
    let kept = Image::snapshot(&image, &name, &owner, disk, id, now);
    state.images.all.insert(image, kept);
}

fn offloaded(state: &mut State, id: &str) {
    let there = state.compute.servers.get(id).filter(|one| one.vm == VmState::Shelved);
    let Some(server) = there.filter(|one| !one.doomed()).cloned() else {
        return;
    };
    host::leave(state, &server);
    let now = state.now();
    if let Some(server) = state.compute.server_mut(id) {
        server.vm = VmState::ShelvedOffloaded;
        server.task = None;
        server.host = None;
        server.zone = String::new();
        server.updated = now;
    }
}

fn unshelved(state: &mut State, id: &str) {
    let there = state.compute.servers.get(id).filter(|one| one.task == Some("unshelving"));
    let Some(server) = there.cloned() else {
        return;
    };
    let placed = match server.host.clone() {
        Some(host) => Ok((host, server.zone.clone())),
        None => host::place(state, &server),
    };
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    server.task = None;
    server.updated = now;
    // Without a host it stays where it is.
    let Ok((host, zone)) = placed else {
        return;
    };
    server.host = Some(host);
    server.zone = zone;
    server.vm = VmState::Active;
    server.power = 1;
    forget_image(state, id);
    build::switch_on(state, id);
}

/// The image of a shelved server goes when the server returns or is deleted.
pub(super) fn forget_image(state: &mut State, id: &str) {
    state.images.all.retain(|_, image| !image.is_snapshot_of(id));
}
