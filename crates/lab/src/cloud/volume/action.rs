//! `POST /volumes/{id}/action`: what is done to a volume that is there.

use super::life::{invalid, over_quota, turn};
use super::{Volume, missing};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::State;
use serde_json::{Value, json};

/// Actions that a real Cinder has and this one does not.
const NOT_SIMULATED: [&str; 9] = [
    "os-attach",
    "os-detach",
    "os-force_detach",
    "os-initialize_connection",
    "os-terminate_connection",
    "os-migrate_volume",
    "os-retype",
    "os-volume_upload_image",
    "revert",
];

pub(super) fn act(state: &mut State, call: &Call, id: &str) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let actions = body.as_object().filter(|actions| actions.len() == 1);
    let Some((action, arguments)) = actions.and_then(|actions| actions.iter().next()) else {
        return Err(fault(400, "There is no such action: None"));
    };
    match action.as_str() {
        "os-set_bootable" => {
            let on = &arguments["bootable"];
            let on = on.as_bool().or_else(|| on.as_str().and_then(|on| on.parse().ok()));
            let Some(on) = on else {
                let why = format!("{} is not one of [True, False]", arguments["bootable"]);
                return Err(invalid("bootable", &arguments["bootable"], &why));
            };
            volume(state, id)?.bootable = Some(on);
            Ok(Reply::empty(200))
        }
        "os-extend" => extend(state, id, &arguments["new_size"]),
        "os-reserve" => {
            move_on(state, id, &["available"], "reserved", "must be available to reserve")
        }
        "os-unreserve" => {
            move_on(state, id, &["reserved", "attaching"], "available", "must be attaching")
        }
        "os-begin_detaching" => {
            move_on(state, id, &["in-use"], "detaching", "must be in-use to detach")
        }
        "os-roll_detaching" => {
            turn(state, id, &["detaching"], |volume| volume.status = "in-use");
            Ok(Reply::empty(202))
        }
        "os-reset_status" | "os-force_delete" if !call.session.is_admin() => {
            let rule = action.trim_start_matches("os-");
            let message = format!(
                "Policy doesn't allow volume_extension:volume_admin_actions:{rule} to be performed."
            );
            Err(fault(403, message))
        }
        "os-reset_status" => reset(state, id, &arguments["status"]),
        "os-force_delete" => {
            super::drop_now(state, id);
            Ok(Reply::empty(202))
        }
        "os-show_image_metadata" => {
            let kept = volume(state, id)?.image.as_ref().map(|(_, metadata)| metadata.clone());
            Ok(Reply::json(200, json!({"metadata": kept.unwrap_or_else(|| json!({}))})))
        }
        "os-update_readonly_flag" => Ok(Reply::empty(202)),
        other if NOT_SIMULATED.contains(&other) => {
            Err(fault(501, format!("The action {other} is not simulated.")))
        }
        other => Err(fault(400, format!("There is no such action: {other}"))),
    }
}

fn volume<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Volume, Reply> {
    state.volumes.all.get_mut(id).ok_or_else(|| missing(id))
}

fn move_on(state: &mut State, id: &str, from: &[&str], to: &'static str, rule: &str) -> Answer {
    let status = volume(state, id)?.status;
    if turn(state, id, from, |volume| volume.status = to) {
        return Ok(Reply::empty(202));
    }
    let message =
        format!("Invalid volume: Volume status {rule}, but the current status is {status}.");
    Err(fault(400, message))
}

fn extend(state: &mut State, id: &str, wanted: &Value) -> Answer {
    let size = wanted.as_u64().or_else(|| wanted.as_str().and_then(|size| size.parse().ok()));
    let Some(size) = size.filter(|size| *size > 0) else {
        let why = format!("{wanted} is not of type 'integer', 'string'");
        return Err(invalid("new_size", wanted, &why));
    };
    let volume = volume(state, id)?;
    let (now, status, project) = (volume.size, volume.status, volume.project.clone());
    if status != "available" {
        let message = format!(
            "Invalid volume: Volume {id} status must be available to extend, but the current status is {status}."
        );
        return Err(fault(400, message));
    }
    if size <= now {
        let message = format!(
            "Invalid input received: New size for extend must be greater than current size. (current: {now}, extended: {size})."
        );
        return Err(fault(400, message));
    }
    if let Some(message) = over_quota(state, &project, 0, size - now) {
        let body = json!({"overLimit": {"code": 413, "message": message, "retryAfter": "0"}});
        return Err(Reply::json(413, body).with("retry-after", "0"));
    }
    turn(state, id, &["available"], |volume| {
        volume.status = "extending";
        volume.size = size;
    });
    let delay = state.config.delays.volume_change;
    state.after(delay, extended, id);
    Ok(Reply::empty(202))
}

fn extended(state: &mut State, id: &str) {
    turn(state, id, &["extending"], |volume| volume.status = "available");
}

/// An operator's word that a volume is in this state, whatever it is in.
fn reset(state: &mut State, id: &str, wanted: &Value) -> Answer {
    const STATES: [&str; 9] = [
        "creating",
        "available",
        "deleting",
        "error",
        "error_deleting",
        "attaching",
        "detaching",
        "in-use",
        "maintenance",
    ];
    let Some(status) = STATES.into_iter().find(|status| wanted == status) else {
        let why = format!("{wanted} is not one of the states");
        return Err(invalid("status", wanted, &why));
    };
    volume(state, id)?.status = status;
    Ok(Reply::empty(202))
}
