//! Interfaces and volumes that come and go while a server is there.

use super::build::refresh_addresses;
use super::wish::{Disk, Nic, letter};
use super::{VmState, gone, policy, schema, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::network::{Kind, port};
use crate::cloud::state::State;
use crate::cloud::volume;
use http::Method;
use serde_json::{Value, json};

/// `/servers/{id}/os-interface`.
pub(super) fn interfaces(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    policy(call, "os-attach-interfaces:list")?;
    let server = state.compute.server(id)?;
    let shown = |state: &State, own: &str| -> Option<Value> {
        let port = state.network.get(Kind::Port, own)?;
        let mut shown = json!({
            "net_id": port["network_id"],
            "port_id": port["id"],
            "mac_addr": port["mac_address"],
            "port_state": port["status"],
            "fixed_ips": port["fixed_ips"],
        });
        if call.minor >= 70 {
            shown["tag"] = Value::Null;
        }
        Some(shown)
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let all: Vec<Value> = server.ports().filter_map(|own| shown(state, own)).collect();
            Ok(Reply::json(200, json!({"interfaceAttachments": all})))
        }
        (&Method::GET, [own]) if server.ports().any(|one| one == own) => {
            Ok(Reply::json(200, json!({"interfaceAttachment": shown(state, own)})))
        }
        (&Method::POST, []) => {
            let own = plug(state, call, id)?;
            note(state, call, id, "attach_interface");
            Ok(Reply::json(200, json!({"interfaceAttachment": shown(state, &own)})))
        }
        // Nova: detaching is done later, and is not told when there is nothing to detach.
        (&Method::DELETE, [own]) => {
            let there = server.ports().any(|one| one == own);
            note(state, call, id, "detach_interface");
            if there {
                unplug(state, id, own);
            }
            Ok(Reply::empty(202))
        }
        (&Method::GET, [own]) => Err(fault(404, format!("Port id {own} could not be found."))),
        _ => Err(unknown_path()),
    }
}

fn note(state: &mut State, call: &Call, id: &str, action: &'static str) {
    let now = state.now();
    if let Some(server) = state.compute.server_mut(id) {
        server.note(action, call, now);
    }
}

fn plug(state: &mut State, call: &Call, id: &str) -> Result<String, Reply> {
    let body = schema::body(call)?;
    let asked = &body["interfaceAttachment"];
    let server = state.compute.server(id)?;
    let (zone, project) = (server.zone.clone(), server.project.clone());
    let Some(host) = server.host.clone().filter(|_| server.vm == VmState::Active) else {
        let message = format!(
            "Cannot 'attach_interface' instance {id} while it is in vm_state {}",
            server.vm.name()
        );
        return Err(fault(409, message));
    };
    let (own, network, made_here) = if let Some(own) = asked["port_id"].as_str() {
        let missing = || fault(404, format!("Port id {own} could not be found."));
        let port = state.network.get(Kind::Port, own).ok_or_else(missing)?;
        if port["device_id"] != "" {
            return Err(fault(400, format!("Port {own} is still in use.")));
        }
        let network = port["network_id"].as_str().unwrap_or_default().to_owned();
        (own.to_owned(), network, false)
    } else {
        let network = asked["net_id"].as_str().unwrap_or_default().to_owned();
        if state.network.get(Kind::Network, &network).is_none() {
            return Err(fault(404, format!("Network {network} could not be found.")));
        }
        let made = port::make(state, &project, &network, None, &[]);
        let made = made.map_err(|_| {
            fault(400, format!("No fixed IP addresses available for network: {network}"))
        })?;
        (made, network, true)
    };
    port::bind(state, &own, id, &zone, &host);
    // Nova: waits for the network before it answers.
    port::plugged(state, &own);
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.nics.push(Nic { network, port: Some(own.clone()), made_here, fixed_ip: None });
    refresh_addresses(state, id);
    Ok(own)
}

fn unplug(state: &mut State, id: &str, own: &str) {
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    server.nics.retain(|nic| nic.port.as_deref() != Some(own));
    // Nova deletes a port that it made, and only unbinds another; both show at once.
    if state.network.get(Kind::Port, own).is_some_and(|port| port["name"] == "") {
        port::remove(state, own);
    } else {
        port::unbind(state, own);
    }
    refresh_addresses(state, id);
}

/// `/servers/{id}/os-volume_attachments`.
pub(super) fn volumes(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    policy(call, "os-volumes-attachments:index")?;
    let server = state.compute.server(id)?;
    let missing = |own: &str| fault(404, format!("Instance {id} is not attached to volume {own}"));
    let attached = |own: &str| {
        server.disks.iter().find(|disk| disk.attached && disk.volume.as_deref() == Some(own))
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let all = server.disks.iter().filter(|disk| disk.attached);
            let all: Vec<Value> = all.map(|disk| shown(call, id, disk)).collect();
            Ok(Reply::json(200, json!({"volumeAttachments": all})))
        }
        (&Method::GET, [own]) => {
            let disk = attached(own).ok_or_else(|| missing(own))?;
            Ok(Reply::json(200, json!({"volumeAttachment": shown(call, id, disk)})))
        }
        (&Method::POST, []) => attach(state, call, id),
        (&Method::DELETE, [own]) if state.volumes.all.get(*own).is_none() => {
            Err(fault(404, format!("Volume {own} could not be found.")))
        }
        (&Method::DELETE, [own]) => {
            attached(own).ok_or_else(|| missing(own))?;
            let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
            server.disks.retain(|disk| disk.volume.as_deref() != Some(own));
            volume::detach(state, own);
            note(state, call, id, "detach_volume");
            Ok(Reply::empty(202))
        }
        _ => Err(unknown_path()),
    }
}

fn shown(call: &Call, id: &str, disk: &Disk) -> Value {
    let mut shown = json!({
        "volumeId": disk.volume,
        "serverId": id,
        "device": disk.device,
    });
    if call.minor >= 70 {
        shown["tag"] = json!(disk.tag);
    }
    if call.minor >= 79 {
        shown["delete_on_termination"] = json!(disk.delete_on_termination);
    }
    if call.minor >= 89 {
        shown["attachment_id"] = json!(disk.attachment);
        shown["bdm_uuid"] = json!(disk.attachment);
    } else {
        shown["id"] = json!(disk.volume);
    }
    shown
}

fn attach(state: &mut State, call: &Call, id: &str) -> Answer {
    let body = schema::body(call)?;
    let asked = &body["volumeAttachment"];
    let own = asked["volumeId"].as_str().unwrap_or_default().to_owned();
    if state.volumes.all.get(&own).is_none() {
        return Err(fault(404, format!("Volume {own} could not be found.")));
    }
    let server = state.compute.server(id)?;
    if !matches!(server.vm, VmState::Active | VmState::Stopped) {
        let message = format!(
            "Cannot 'attach_volume' instance {id} while it is in vm_state {}",
            server.vm.name()
        );
        return Err(fault(409, message));
    }
    // The disk of the flavor is the first.
    let before = server.disks.len() + usize::from(server.image.is_some());
    volume::reserve(state, &own, &call.request_id)?;
    let disk = Disk {
        volume: Some(own.clone()),
        image: None,
        size: 0,
        kind: None,
        delete_on_termination: asked["delete_on_termination"].as_bool().unwrap_or(false),
        tag: asked["tag"].as_str().map(str::to_owned),
        device: format!("/dev/sd{}", letter(before)),
        attachment: state.uuid(),
        attached: true,
    };
    let mut reply = json!({"id": own, "serverId": id, "volumeId": own, "device": disk.device});
    if call.minor >= 70 {
        reply["tag"] = json!(disk.tag);
    }
    if call.minor >= 79 {
        reply["delete_on_termination"] = json!(disk.delete_on_termination);
    }
    note(state, call, id, "attach_volume");
    volume::attach_later(state, &own, id, &disk.device, &disk.attachment);
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.disks.push(disk);
    Ok(Reply::json(200, json!({"volumeAttachment": reply})))
}

/// `GET /servers/{id}/os-security-groups`.
pub(super) fn security_groups(state: &State, id: &str) -> Reply {
    let server = state.compute.servers.get(id);
    let (project, names) = server
        .map(|server| (server.project.clone(), server.groups_shown.clone()))
        .unwrap_or_default();
    let groups = state.network.table(Kind::SecurityGroup).values();
    let groups = groups.filter(|group| group["project_id"] == project.as_str());
    let groups = groups.filter(|group| names.iter().any(|name| group["name"] == name.as_str()));
    let groups: Vec<Value> = groups
        .map(|group| {
            json!({
                "id": group["id"],
                "name": group["name"],
                "description": group["description"],
                "tenant_id": group["tenant_id"],
                "rules": [],
            })
        })
        .collect();
    Reply::json(200, json!({"security_groups": groups}))
}
