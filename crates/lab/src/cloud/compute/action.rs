//! What is done to a server that is there: power, rebuild, lock, name; and the record of it.

use super::server::{View, show};
use super::{
    VmState, build, create, disallowed, gone, policy, remove, schema, shelve, unknown_path,
};
use crate::cloud::Power;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::{State, micros};
use serde_json::{Map, Value, json};

/// Actions that a real Nova has and this one does not.
const NOT_SIMULATED: [&str; 6] =
    ["resize", "confirmResize", "revertResize", "rescue", "unrescue", "createImage"];

/// What `PUT /servers/{id}` takes.
const CHANGEABLE: [&str; 6] =
    ["name", "accessIPv4", "accessIPv6", "OS-DCF:diskConfig", "description", "hostname"];

/// `PUT /servers/{id}`.
pub(super) fn rename(state: &mut State, call: &Call, id: &str) -> Answer {
    policy(call, "servers:update")?;
    let body = schema::body(call)?;
    let now = state.now();
    let asked = &body["server"];
    if asked["name"] == "" {
        let message = "Invalid input for field/attribute name. Value: . '' should be non-empty";
        return Err(fault(400, message));
    }
    if let Some(name) = asked["name"].as_str() {
        schema::check_name(name)?;
    }
    let none = Map::new();
    let fields = asked.as_object().unwrap_or(&none);
    if let Some((odd, value)) =
        fields.iter().find(|(field, _)| !CHANGEABLE.contains(&field.as_str()))
    {
        let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
        let message = format!(
            "Invalid input for field/attribute server. Value: {{'{odd}': {value}}}. Additional properties are not \
             allowed ('{odd}' was unexpected)"
        );
        return Err(fault(400, message));
    }
    schema::access(fields)?;
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    for (at, field) in ["accessIPv4", "accessIPv6"].into_iter().enumerate() {
        if fields.contains_key(field) {
            server.access[at] = create::access(fields, field);
        }
    }
    if let Some(name) = asked["name"].as_str() {
        name.clone_into(&mut server.name);
    }
    if let Some(description) = asked.get("description") {
        server.description = description.as_str().map(str::to_owned);
    }
    if let Some(host_name) = asked["hostname"].as_str() {
        host_name.clone_into(&mut server.host_name);
    }
    server.updated = now;
    let shown = show(state, call, state.compute.server(id)?, View::Changed);
    Ok(Reply::json(200, json!({"server": shown})))
}

/// `POST /servers/{id}/action`.
pub(super) fn act(state: &mut State, call: &Call, id: &str) -> Answer {
    let body = schema::body(call)?;
    let actions = body.as_object().filter(|actions| actions.len() == 1);
    let Some((action, arguments)) = actions.and_then(|actions| actions.iter().next()) else {
        return Err(fault(400, "Malformed request body"));
    };
    let action = action.as_str();
    match action {
        "os-getConsoleOutput" => console(state, id, arguments),
        "os-stop" => {
            change(state, call, id, &Change::of("stop", &[VmState::Active], "powering-off"))
        }
        "os-start" => {
            change(state, call, id, &Change::of("start", &[VmState::Stopped], "powering-on"))
        }
        "pause" => change(state, call, id, &Change::of("pause", &[VmState::Active], "pausing")),
        "unpause" => {
            change(state, call, id, &Change::of("unpause", &[VmState::Paused], "unpausing"))
        }
        "suspend" => {
            change(state, call, id, &Change::of("suspend", &[VmState::Active], "suspending"))
        }
        "resume" => {
            change(state, call, id, &Change::of("resume", &[VmState::Suspended], "resuming"))
        }
        "reboot" => {
            let soft = Change::of("reboot", &[VmState::Active], "rebooting");
            let from = [VmState::Active, VmState::Stopped, VmState::Paused, VmState::Suspended];
            let hard = Change::of("reboot", &from, "rebooting_hard");
            let kind = reboot_kind(arguments)?;
            change(state, call, id, if kind.eq_ignore_ascii_case("hard") { &hard } else { &soft })
        }
        "rebuild" => rebuild(state, call, id, arguments),
        "shelve" => shelve::shelve(state, call, id),
        "shelveOffload" => shelve::offload(state, id),
        "unshelve" => shelve::unshelve(state, call, id),
        "lock" | "unlock" => {
            let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
            server.locked = action == "lock";
            Ok(Reply::empty(202))
        }
        "forceDelete" => {
            remove::start(state, id);
            Ok(Reply::empty(202))
        }
        "os-resetState" => reset(state, call, id, &arguments["state"]),
        // Nova: the guest's agent is told later; there is none here.
        "changePassword" if arguments["adminPass"].is_string() => Ok(Reply::empty(202)),
        other if NOT_SIMULATED.contains(&other) => {
            Err(fault(501, format!("The action {other} is not simulated.")))
        }
        other => Err(fault(400, format!("There is no such action: {other}"))),
    }
}

/// What follows a task of its own accord.
const ONWARD: [(&str, &str); 6] = [
    ("rebooting", "reboot_pending"),
    ("reboot_pending", "reboot_started"),
    ("rebooting_hard", "reboot_pending_hard"),
    ("reboot_pending_hard", "reboot_started_hard"),
    ("rebuilding", "rebuild_block_device_mapping"),
    ("rebuild_block_device_mapping", "rebuild_spawning"),
];

/// What a server is after the last task, and its power.
const ENDS: [(&str, VmState, u8); 9] = [
    ("powering-off", VmState::Stopped, 4),
    ("powering-on", VmState::Active, 1),
    ("pausing", VmState::Paused, 3),
    ("unpausing", VmState::Active, 1),
    ("suspending", VmState::Suspended, 4),
    ("resuming", VmState::Active, 1),
    ("reboot_started", VmState::Active, 1),
    ("reboot_started_hard", VmState::Active, 1),
    ("rebuild_spawning", VmState::Active, 1),
];

/// A change of power that takes a while.
struct Change<'a> {
    verb: &'static str,
    from: &'a [VmState],
    task: &'static str,
}

impl<'a> Change<'a> {
    fn of(verb: &'static str, from: &'a [VmState], task: &'static str) -> Self {
        Self { verb, from, task }
    }
}

fn change(state: &mut State, call: &Call, id: &str, change: &Change<'_>) -> Answer {
    policy(call, &format!("servers:{}", change.verb))?;
    let now = state.now();
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    let refuse = |what: &str, is: &str| {
        let message = format!("Cannot '{}' instance {id} while it is in {what} {is}", change.verb);
        Err(fault(409, message))
    };
    if server.locked {
        return Err(fault(409, format!("Instance {id} is locked")));
    }
    if !change.from.contains(&server.vm) {
        if server.host.is_none() && server.vm != VmState::Building {
            return Err(fault(409, format!("Instance {id} is not ready")));
        }
        return refuse("vm_state", server.vm.name());
    }
    if let Some(task) = server.task {
        return refuse("task_state", task);
    }
    server.task = Some(change.task);
    server.updated = now;
    server.note(change.verb, call, now);
    let delay = state.config.delays.power;
    state.after(delay, onward, id);
    Ok(Reply::empty(202))
}

/// The next task, or the end of the last one. A deletion that has taken its place is neither.
fn onward(state: &mut State, id: &str) {
    let (now, delay) = (state.now(), state.config.delays.power);
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    let Some(task) = server.task else {
        return;
    };
    if let Some((_, next)) = ONWARD.iter().find(|(before, _)| *before == task) {
        server.task = Some(next);
        switch_off(state, id);
        state.after(delay, onward, id);
    } else if task == "rebuild_spawning" && server.vm == VmState::Stopped {
        // Nova: it is started for the rebuild, and stopped again.
        (server.vm, server.task) = (VmState::Active, Some("powering-off"));
        state.after(delay, onward, id);
    } else if let Some((_, vm, power)) = ENDS.into_iter().find(|(last, ..)| *last == task) {
        server.task = None;
        server.vm = vm;
        server.power = power;
        server.updated = now;
        if vm == VmState::Active {
            build::switch_on(state, id);
        } else {
            // A guest that is frozen answers nobody, like one that is off.
            switch_off(state, id);
        }
    }
}

fn switch_off(state: &mut State, id: &str) {
    let Some(server) = state.compute.server_mut(id) else {
        return;
    };
    let ran = std::mem::replace(&mut server.powered, false);
    if ran {
        state.tell(&Power::Off { server: id.to_owned() });
    }
}

fn reboot_kind(arguments: &Value) -> Result<&str, Reply> {
    const KINDS: [&str; 6] = ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"];
    let kind = arguments["type"].as_str().unwrap_or_default();
    if KINDS.contains(&kind) {
        return Ok(kind);
    }
    let kinds = KINDS.join("', '");
    let message = format!(
        "Invalid input for field/attribute type. Value: {kind}. '{kind}' is not one of ['{kinds}']"
    );
    Err(fault(400, message))
}

fn rebuild(state: &mut State, call: &Call, id: &str, arguments: &Value) -> Answer {
    let image = arguments["imageRef"].as_str().unwrap_or_default().to_owned();
    if state.images.seen(call, &image).is_none() {
        return Err(fault(400, "Cannot find image for rebuild"));
    }
    let from = [VmState::Active, VmState::Stopped, VmState::Error];
    change(state, call, id, &Change::of("rebuild", &from, "rebuilding"))?;
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.failure = None;
    if server.image.is_some() {
        server.image = Some(image);
    }
    if let Some(user_data) = arguments.get("user_data").filter(|_| call.minor >= 57) {
        server.user_data = user_data.as_str().map(str::to_owned);
    }
    let server = state.compute.server(id)?;
    let mut shown = show(state, call, server, View::Changed);
    shown["adminPass"] = arguments.get("adminPass").cloned().unwrap_or_else(|| json!(&id[24..]));
    if call.minor >= 57 {
        shown["user_data"] = json!(server.user_data);
    }
    let base = &state.config.base_url;
    let location = format!("{base}/compute/v2.1/servers/{id}");
    Ok(Reply::json(202, json!({"server": shown})).with("location", location))
}

/// An operator's word that a server is in this state, whatever it is in.
fn reset(state: &mut State, call: &Call, id: &str, wanted: &Value) -> Answer {
    if !call.session.is_admin() {
        return Err(disallowed("os-admin-actions:reset_state"));
    }
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.vm = if wanted == "active" { VmState::Active } else { VmState::Error };
    server.task = None;
    Ok(Reply::empty(202))
}

fn console(state: &State, id: &str, arguments: &Value) -> Answer {
    let server = state.compute.server(id)?;
    if server.host.is_none() {
        return Err(fault(409, format!("Instance {id} is not ready")));
    }
    let length = &arguments["length"];
    if let Some(text) = length.as_str().filter(|text| text.parse::<i64>().is_err()) {
        let message = format!(
            "Invalid input for field/attribute length. Value: {text}. '{text}' does not match '^-?[0-9]+$'"
        );
        return Err(fault(400, message));
    }
    let length = length.as_i64().or_else(|| length.as_str().and_then(|length| length.parse().ok()));
    let keep = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    let skip = server.console.len().saturating_sub(keep);
    let lines: Vec<&str> = server.console.iter().skip(skip).map(String::as_str).collect();
    Ok(Reply::json(200, json!({"output": lines.join("\n")})))
}

/// `GET /servers/{id}/os-instance-actions`, and one of them by its request.
pub(super) fn history(state: &State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    let server = state.compute.server(id)?;
    let shown = |deed: &super::server::Deed| {
        let mut shown = json!({
            "action": deed.action,
            "instance_uuid": id,
            "request_id": deed.request,
            "user_id": deed.user,
            "project_id": server.project,
            "start_time": micros(deed.at),
            "message": null,
        });
        if call.minor >= 58 {
            shown["updated_at"] = json!(micros(deed.at));
        }
        shown
    };
    match rest {
        [] => {
            let deeds: Vec<Value> = server.deeds.iter().rev().map(shown).collect();
            Ok(Reply::json(200, json!({"instanceActions": deeds})))
        }
        [request] => {
            let deed = server.deeds.iter().find(|deed| deed.request == *request);
            let deed = deed.ok_or_else(|| fault(404, format!("Action {request} not found")))?;
            let mut shown = shown(deed);
            // Nova: the events were the administrator's alone before.
            if call.minor >= 51 || call.session.is_admin() {
                shown["events"] = json!([]);
            }
            Ok(Reply::json(200, json!({"instanceAction": shown})))
        }
        _ => Err(unknown_path()),
    }
}
