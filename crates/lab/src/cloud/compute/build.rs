//! From the 202 to ACTIVE or ERROR, step by step, and what a server shows of its ports.

use super::{VmState, host, remove};
use crate::cloud::network::{Kind, floating, port};
use crate::cloud::state::State;
use crate::cloud::{Guest, Power, volume};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// Nova: `max_attempts` of the scheduler.
const ATTEMPTS_MAX: usize = 3;

/// Begins the build of a server that was just accepted.
pub(super) fn begin(state: &mut State, id: &str) {
    let stuck = state.compute.server_mut(id).is_some_and(|server| server.destiny.stuck_build);
    if !stuck {
        let delay = state.config.delays.schedule;
        state.after(delay, scheduled, id);
    }
}

/// Sets what the server does now; one that is to be deleted goes on showing that.
fn task(state: &mut State, id: &str, task: Option<&'static str>) -> bool {
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return false;
    };
    if server.vm != VmState::Building {
        return false;
    }
    if !server.doomed() {
        server.task = task;
        server.updated = now;
    }
    true
}

fn scheduled(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    match host::place(state, &server) {
        Err(reason) => fail(state, id, reason),
        Ok((host, zone)) => {
            if let Some(server) = state.compute.server_mut(id) {
                server.host = Some(host);
                server.zone = zone;
            }
            task(state, id, None);
            let delay = state.config.delays.network / 2;
            state.after(delay, networking, id);
        }
    }
}

fn networking(state: &mut State, id: &str) {
    if !task(state, id, Some("networking")) {
        return;
    }
    if let Err(why) = plug(state, id) {
        let message = format!("Build of instance {id} aborted: {why}, not rescheduling.");
        fail(state, id, &message);
        return;
    }
    refresh_addresses(state, id);
    let volumes = state.compute.server_mut(id).is_some_and(|server| !server.disks.is_empty());
    let delay = state.config.delays.network / 2;
    state.after(delay, if volumes { block_devices } else { spawning }, id);
}

/// Binds own ports and makes the others.
fn plug(state: &mut State, id: &str) -> Result<(), String> {
    const FAILED: &str = "Failed to allocate the network(s)";
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return Ok(());
    };
    let groups = group_ids(state, &server.project, &server.groups_shown);
    for (at, nic) in server.nics.iter().enumerate() {
        let own = match &nic.port {
            Some(own) => own.clone(),
            None => {
                let network = state.network.get(Kind::Network, &nic.network);
                if network.is_none_or(|network| network["router:external"] == true) {
                    return Err(FAILED.to_owned());
                }
                let made = port::make(
                    state,
                    &server.project,
                    &nic.network,
                    nic.fixed_ip.as_deref(),
                    &groups,
                );
                let made = made.map_err(|_| {
                    let network = &nic.network;
                    format!(
                        "{FAILED} with error No fixed IP addresses available for network: {network}"
                    )
                })?;
                if let Some(nic) =
                    state.compute.server_mut(id).and_then(|server| server.nics.get_mut(at))
                {
                    nic.port = Some(made.clone());
                }
                made
            }
        };
        let device = state.network.get(Kind::Port, &own).map(|port| port["device_id"].clone());
        match device.as_ref().and_then(Value::as_str) {
            // Somebody else has it by now: this build takes it over, fails, and leaves it without a server.
            Some(other) if !other.is_empty() && other != id => {
                let other = other.to_owned();
                port::unbind(state, &own);
                refresh_addresses(state, &other);
                return Err(FAILED.to_owned());
            }
            Some(_) => {}
            None => return Err(FAILED.to_owned()),
        }
        if server.destiny.ports_down {
            state.network.stuck_ports.insert(own.clone());
        }
        let host = server.host.clone().unwrap_or_default();
        port::bind(state, &own, id, &server.zone, &host);
    }
    Ok(())
}

/// Names are a project's own: every project has a group named `default`.
fn group_ids(state: &State, project: &str, names: &[String]) -> Vec<String> {
    let all = state.network.table(Kind::SecurityGroup).values();
    all.filter(|group| group["project_id"] == project)
        .filter(|group| names.iter().any(|name| group["name"] == name.as_str()))
        .filter_map(|group| group["id"].as_str().map(str::to_owned))
        .collect()
}

fn block_devices(state: &mut State, id: &str) {
    if !task(state, id, Some("block_device_mapping")) {
        return;
    }
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    for (at, disk) in server.disks.iter().enumerate() {
        if disk.volume.is_some() {
            continue;
        }
        match volume::make_for(state, &server.project, &server.user, disk) {
            Ok(made) => {
                if let Some(disk) =
                    state.compute.server_mut(id).and_then(|server| server.disks.get_mut(at))
                {
                    disk.volume = Some(made);
                }
            }
            Err(why) => {
                fail(state, id, &format!("Build of instance {id} aborted: {why}"));
                return;
            }
        }
    }
    let delay = state.config.delays.block_device;
    state.after(delay, attached, id);
}

fn attached(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    for (at, disk) in server.disks.iter().enumerate() {
        if let Some(own) = &disk.volume {
            volume::attach(state, own, id, &disk.device, &disk.attachment);
            if let Some(disk) =
                state.compute.server_mut(id).and_then(|server| server.disks.get_mut(at))
            {
                disk.attached = true;
            }
        }
    }
    spawning(state, id);
}

fn spawning(state: &mut State, id: &str) {
    if !task(state, id, Some("spawning")) {
        return;
    }
    let asked = state.compute.server_mut(id).and_then(|server| server.destiny.boot_seconds);
    let delay = asked
        .map_or(state.config.delays.spawn, |seconds| Duration::from_secs_f64(seconds.max(0.0)));
    state.after(delay, spawned, id);
}

fn spawned(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id).filter(|server| server.vm == VmState::Building)
    else {
        return;
    };
    if server.destiny.boot_error.is_some() {
        failed_host(state, id);
        return;
    }
    let now = state.now();
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    let doomed = server.doomed();
    server.vm = VmState::Active;
    server.task = None;
    server.power = 1;
    server.launched = Some(now);
    server.updated = now;
    if doomed {
        // It is ACTIVE for a moment, the DELETE notwithstanding.
        let delay = state.config.delays.deleted;
        state.after(delay, remove::destroyed, id);
        return;
    }
    let vanish = server.destiny.vanish_millis;
    switch_on(state, id);
    if let Some(millis) = vanish {
        state.at(Duration::from_millis(millis), vanished, id);
    }
}

fn vanished(state: &mut State, id: &str) {
    remove::vanish(state, id);
}

/// Tells the hypervisor side that a server runs now.
pub(super) fn switch_on(state: &mut State, id: &str) {
    if let Some(server) = state.compute.server_mut(id) {
        server.powered = true;
    }
    if let Some(guest) = guest(state, id) {
        state.tell(&Power::On(Box::new(guest)));
    }
}

/// The boot failed on this host: another one, or ERROR after three.
fn failed_host(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    host::leave(state, &server);
    let Some(now) = state.compute.server_mut(id) else {
        return;
    };
    now.tried.extend(now.host.take());
    if now.tried.len() < ATTEMPTS_MAX && !now.doomed() {
        for own in server.ports() {
            port::unbind(state, own);
        }
        task(state, id, Some("scheduling"));
        let delay = state.config.delays.schedule;
        state.after(delay, scheduled, id);
        return;
    }
    // Nova: the scheduler is asked again, and it is the one that gives up.
    task(state, id, Some("scheduling"));
    let delay = state.config.delays.schedule / 10;
    state.after(delay, given_up, id);
}

fn given_up(state: &mut State, id: &str) {
    let error = state.compute.server_mut(id).and_then(|server| server.destiny.boot_error.clone());
    let told = format!(
        "Exceeded maximum number of retries. Exceeded max scheduling attempts {ATTEMPTS_MAX} for instance {id}. Last \
         exception: Failed to deploy instance: {}",
        error.unwrap_or_default()
    );
    fail(state, id, &told);
}

/// Ends a build in ERROR: own ports are let go, made ones deleted, volumes kept until the server is deleted.
fn fail(state: &mut State, id: &str, message: &str) {
    let now = state.now();
    let Some(server) = state.compute.server_mut(id).map(|server| server.clone()) else {
        return;
    };
    host::leave(state, &server);
    remove::release_ports(state, &server);
    remove::release_volumes(state, &server, false);
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    let doomed = server.doomed();
    server.vm = VmState::Error;
    server.task = None;
    server.power = 0;
    server.host = None;
    server.zone = String::new();
    server.addresses = json!({});
    server.updated = now;
    server.failure = Some(super::server::Failure { message: message.to_owned(), at: now });
    for disk in &mut server.disks {
        disk.attached = false;
    }
    if doomed {
        remove::forget(state, id);
    }
}

/// A server's ports changed: it shows so a little later.
pub(in crate::cloud) fn addresses_changed(state: &mut State, server: &str) {
    if !server.is_empty() {
        let delay = state.config.delays.address_cache;
        state.after(delay, refresh_addresses, server);
    }
}

/// Looks at the ports again.
pub(super) fn refresh_addresses(state: &mut State, id: &str) {
    let Some(server) = state.compute.servers.get(id) else {
        return;
    };
    let mut networks = Map::new();
    if server.vm != VmState::Deleted && !server.destiny.no_addresses {
        for port in server.ports() {
            let Some(port) =
                state.network.get(Kind::Port, port).filter(|port| port["device_id"] == id)
            else {
                continue;
            };
            let network = port["network_id"].as_str().unwrap_or_default();
            let network = state.network.get(Kind::Network, network);
            let name = network.and_then(|network| network["name"].as_str()).unwrap_or_default();
            let entries = networks.entry(name).or_insert_with(|| json!([]));
            if let Some(entries) = entries.as_array_mut() {
                entries.extend(entries_of(state, port));
            }
        }
    }
    if let Some(server) = state.compute.server_mut(id) {
        server.addresses = Value::Object(networks);
    }
}

/// The addresses of one port: the fixed ones, each with the floating one that leads to it.
fn entries_of(state: &State, port: &Value) -> Vec<Value> {
    let entry = |address: &Value, kind: &str| {
        let v6 = address.as_str().is_some_and(|address| address.contains(':'));
        json!({
            "version": if v6 { 6 } else { 4 },
            "addr": address,
            "OS-EXT-IPS:type": kind,
            "OS-EXT-IPS-MAC:mac_addr": port["mac_address"],
        })
    };
    let fixed = port["fixed_ips"].as_array().into_iter().flatten();
    let mut entries: Vec<Value> = fixed.map(|fixed| entry(&fixed["ip_address"], "fixed")).collect();
    let floating = floating::of_port(state, port["id"].as_str().unwrap_or_default());
    entries.extend(floating.map(|floating| entry(&floating["floating_ip_address"], "floating")));
    entries
}

/// The machine as its hypervisor sees it.
pub(in crate::cloud) fn guest(state: &State, id: &str) -> Option<Guest> {
    let server = state.compute.servers.get(id)?;
    let user_data = server.user_data.as_deref().unwrap_or_default();
    let (mut fixed, mut floating) = (Vec::new(), Vec::new());
    let address = |value: &Value| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    for id in server.ports() {
        let Some(port) = state.network.get(Kind::Port, id) else { continue };
        let entries = port["fixed_ips"].as_array().into_iter().flatten();
        fixed.extend(entries.filter_map(|entry| address(&entry["ip_address"])));
        let outer = floating::of_port(state, id);
        floating.extend(outer.filter_map(|outer| address(&outer["floating_ip_address"])));
    }
    Some(Guest {
        server: server.id.clone(),
        name: server.name.clone(),
        host_name: server.host_name.clone(),
        user_data: base64::engine::general_purpose::STANDARD.decode(user_data).unwrap_or_default(),
        fixed,
        floating,
        zone: server.zone.clone(),
        flavor: server.flavor.name.clone(),
        vcpus: server.flavor.vcpus,
        ram: server.flavor.ram,
        metadata: server.metadata.clone(),
    })
}
