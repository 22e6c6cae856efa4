//! A volume's life: made, reserved, attached, detached, deleted.

use super::{
    Attachment, Volume, bootable, image_metadata, list, missing, one, shown, unknown_path,
};
use crate::cloud::compute::Disk;
use crate::cloud::fault::Effect;
use crate::cloud::http::{Answer, Call, Content, Reply, fault};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Cinder: characters of a name, a metadata key or value.
const TEXT_MAX: usize = 255;

/// Whether there is a volume type of this name or id.
pub(in crate::cloud) fn has_type(state: &State, wanted: &str) -> bool {
    state.volumes.types.iter().any(|(name, id)| name == wanted || id == wanted)
}

/// What so many more volumes, of this size together, break of the quota, in Cinder's words.
pub(super) fn over_quota(state: &State, project: &str, more: u64, size: u64) -> Option<String> {
    let quotas = &state.config.quotas;
    let (volumes, gigabytes) = list::used(state, project);
    if quotas.volumes >= 0 && volumes + more > quotas.volumes.unsigned_abs() {
        let limit = quotas.volumes;
        return Some(format!(
            "VolumeLimitExceeded: Maximum number of volumes allowed ({limit}) exceeded for quota 'volumes'."
        ));
    }
    if quotas.gigabytes >= 0 && gigabytes + size > quotas.gigabytes.unsigned_abs() {
        let limit = quotas.gigabytes;
        return Some(format!(
            "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota. Requested \
             {size}G, quota is {limit}G and {gigabytes}G has been consumed."
        ));
    }
    None
}

pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Reply {
    let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fault(400, format!("Invalid input for field/attribute {field}. Value: {plain}. {why}"))
}

fn checked_metadata(given: &Value) -> Result<BTreeMap<String, String>, Reply> {
    for (key, value) in given.as_object().into_iter().flatten() {
        let Some(text) = value.as_str() else {
            return Err(invalid(key, value, &format!("{value} is not of type 'string'")));
        };
        if text.chars().count() > TEXT_MAX || key.chars().count() > TEXT_MAX {
            return Err(invalid(key, value, &format!("'{text}' is too long")));
        }
    }
    Ok(serde_json::from_value(given.clone()).unwrap_or_default())
}

fn checked_name(asked: &Value) -> Result<Option<String>, Reply> {
    let name = asked["name"].as_str();
    let length = name.map_or(0, |name| name.chars().count());
    if length > TEXT_MAX {
        let message =
            format!("Invalid input received: name has {length} characters, more than {TEXT_MAX}.");
        return Err(fault(400, message));
    }
    Ok(name.map(str::to_owned))
}

fn checked_image(
    state: &State,
    call: &Call,
    image: &str,
    size: u64,
) -> Result<(String, Value), Reply> {
    let Some(image) = state.images.seen(call, image) else {
        return Err(fault(400, "Invalid image identifier or unable to access requested image."));
    };
    if image.status != "active" {
        let message = format!("Invalid input received: Image {} is not active.", image.id);
        return Err(fault(400, message));
    }
    if image.min_disk > size {
        let message = format!(
            "Invalid input received: Volume size {size}GB cannot be smaller than the image minDisk size {}GB.",
            image.min_disk
        );
        return Err(fault(400, message));
    }
    Ok((image.id.clone(), image_metadata(image)))
}

/// Refuses what a volume is to be copied from and is not there; snapshots never are.
fn sources(state: &State, call: &Call, asked: &Value) -> Result<(), Reply> {
    if let Some(snapshot) = asked["snapshot_id"].as_str() {
        return Err(fault(404, format!("Snapshot {snapshot} could not be found.")));
    }
    let Some(source) = asked["source_volid"].as_str() else {
        return Ok(());
    };
    match state.volumes.all.get(source) {
        Some(volume) if call.session.sees(&volume.project) => {
            Err(fault(501, "Copies of volumes are not simulated."))
        }
        _ => Err(missing(source)),
    }
}

fn checked_size(asked: &Value) -> Result<u64, Reply> {
    let size = &asked["size"];
    // Cinder: without a size there must be something to take it of.
    let sourced =
        ["snapshot_id", "source_volid", "backup_id"].iter().any(|it| asked[it].is_string());
    if size.is_null() && !sourced {
        return Err(fault(
            400,
            "The server could not comply with the request since it is either malformed or otherwise incorrect.",
        ));
    }
    if let Some(text) = size.as_str().filter(|text| text.parse::<u64>().is_err()) {
        return Err(invalid("size", size, &format!("'{text}' does not match '^[0-9]+$'")));
    }
    let number = size.as_u64().or_else(|| size.as_str().and_then(|size| size.parse().ok()));
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| invalid("size", size, &format!("{size} is less than the minimum of 1")))
}

pub(super) fn create(state: &mut State, call: &Call) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let asked = &body["volume"];
    if !asked.is_object() {
        return Err(fault(400, "'volume' is a required property"));
    }
    let number = checked_size(asked)?;
    let name = checked_name(asked)?;
    let metadata = checked_metadata(&asked["metadata"])?;
    let kind = asked["volume_type"].as_str().unwrap_or("__DEFAULT__").to_owned();
    if !has_type(state, &kind) {
        return Err(fault(404, format!("Volume type with name {kind} could not be found.")));
    }
    sources(state, call, asked)?;
    let image = asked["imageRef"].as_str();
    let image = image.map(|image| checked_image(state, call, image, number)).transpose()?;
    let zone =
        asked["availability_zone"].as_str().or(state.config.zones.first().map(String::as_str));
    let zone = zone.unwrap_or_default().to_owned();
    if !state.config.zones.contains(&zone) {
        let message = format!("Availability zone '{zone}' is invalid.");
        return Err(fault(400, message));
    }
    let project = call.session.project();
    if let Some(message) = over_quota(state, &project, 1, number) {
        let body = json!({"overLimit": {"code": 413, "message": message, "retryAfter": "0"}});
        return Err(Reply::json(413, body).with("retry-after", "0"));
    }
    let fails = metadata.contains_key("oslab_volume_error")
        || matches!(call.effect, Some(Effect::VolumeError));
    let volume = Volume {
        id: state.uuid(),
        name,
        description: asked["description"].as_str().map(str::to_owned),
        project,
        user: call.session.user.clone(),
        size: number,
        kind,
        zone,
        status: "creating",
        created: state.now(),
        updated: None,
        metadata,
        image,
        bootable: None,
        attachment: None,
        scheduled: false,
        fails,
        clings: matches!(call.effect, Some(Effect::VolumeErrorDeleting)),
    };
    let mut reply = shown(state, call.minor, &volume);
    if let Some(fields) = reply.as_object_mut() {
        fields.remove("os-vol-tenant-attr:tenant_id");
    }
    begin(state, volume);
    Ok(Reply::json(202, json!({"volume": reply})))
}

fn begin(state: &mut State, volume: Volume) {
    let id = volume.id.clone();
    let asked =
        volume.metadata.get("oslab_volume_seconds").and_then(|seconds| seconds.parse().ok());
    let whole = asked.map_or(state.config.delays.volume, Duration::from_secs_f64);
    state.counters.made_one("volume");
    state.volumes.all.insert(id.clone(), volume);
    // The first fifth passes before a back end takes it up.
    state.after(whole / 5, scheduled, &id);
    state.after(whole, made, &id);
}

/// Changes a volume that is in this status.
pub(super) fn turn(
    state: &mut State,
    id: &str,
    from: &[&str],
    edit: impl FnOnce(&mut Volume),
) -> bool {
    let now = state.now();
    let Some(volume) = state.volumes.all.get_mut(id).filter(|volume| from.contains(&volume.status))
    else {
        return false;
    };
    volume.updated = Some(now);
    edit(volume);
    true
}

fn scheduled(state: &mut State, id: &str) {
    turn(state, id, &["creating"], |volume| volume.scheduled = true);
}

fn made(state: &mut State, id: &str) {
    turn(state, id, &["creating"], |volume| {
        volume.scheduled = true;
        volume.status = if volume.fails { "error" } else { "available" };
    });
}

/// Makes the volume of a server that boots from an image. `Err` has Cinder's words.
pub(in crate::cloud) fn make_for(
    state: &mut State,
    project: &str,
    user: &str,
    disk: &Disk,
) -> Result<String, String> {
    if let Some(message) = over_quota(state, project, 1, disk.size) {
        return Err(message);
    }
    let id = state.uuid();
    let image = disk.image.as_ref().and_then(|image| state.images.all.get(image));
    let image = image.map(|image| (image.id.clone(), image_metadata(image)));
    let volume = Volume {
        id: id.clone(),
        // Nova gives it no name and no metadata, and so nobody finds it but through the server.
        name: Some(String::new()),
        description: Some(String::new()),
        project: project.to_owned(),
        user: user.to_owned(),
        size: disk.size,
        kind: disk.kind.clone().unwrap_or_else(|| "__DEFAULT__".to_owned()),
        zone: state.config.zones.first().cloned().unwrap_or_default(),
        status: "creating",
        created: state.now(),
        updated: None,
        metadata: BTreeMap::new(),
        image,
        bootable: None,
        attachment: None,
        scheduled: true,
        fails: false,
        clings: false,
    };
    state.counters.made_one("volume");
    state.volumes.all.insert(id.clone(), volume);
    Ok(id)
}

/// Refuses a volume that a server cannot be given, in Nova's words.
pub(in crate::cloud) fn check_attachable(
    state: &State,
    id: &str,
    boots: bool,
) -> Result<(), Reply> {
    let Some(volume) = state.volumes.all.get(id) else {
        let message = format!("Block Device Mapping is Invalid: failed to get volume {id}.");
        return Err(fault(400, message));
    };
    if boots && !bootable(volume) {
        return Err(fault(400, format!("Block Device {id} is not bootable.")));
    }
    Ok(())
}

/// Reserves a volume for a server: of several that want it, one gets it.
pub(in crate::cloud) fn reserve(state: &mut State, id: &str, request: &str) -> Result<(), Reply> {
    if turn(state, id, &["available"], |volume| volume.status = "reserved") {
        return Ok(());
    }
    let status = state.volumes.all.get(id).map_or("deleted", |volume| volume.status);
    let message = format!(
        "Invalid volume: Invalid input received: Invalid volume: Volume {id} status must be available or downloading to \
         reserve, but the current status is {status}. (HTTP 400) (Request-ID: {request})"
    );
    Err(fault(400, message))
}

/// The server has it now.
pub(in crate::cloud) fn attach(
    state: &mut State,
    id: &str,
    server: &str,
    device: &str,
    attachment: &str,
) {
    let at = state.now();
    let attachment = Attachment {
        server: server.to_owned(),
        device: device.to_owned(),
        id: attachment.to_owned(),
        at,
    };
    turn(state, id, &["creating", "available", "reserved", "attaching"], |volume| {
        volume.status = "in-use";
        volume.attachment = Some(attachment);
    });
}

/// The server will have it in a moment.
pub(in crate::cloud) fn attach_later(
    state: &mut State,
    id: &str,
    server: &str,
    device: &str,
    attachment: &str,
) {
    attach(state, id, server, device, attachment);
    turn(state, id, &["in-use"], |volume| volume.status = "attaching");
    let delay = state.config.delays.volume_change;
    state.after(delay, attached, id);
}

fn attached(state: &mut State, id: &str) {
    turn(state, id, &["attaching"], |volume| volume.status = "in-use");
}

/// The server gives it back in a moment.
pub(in crate::cloud) fn detach(state: &mut State, id: &str) {
    turn(state, id, &["in-use", "attaching"], |volume| volume.status = "detaching");
    let delay = state.config.delays.volume_change;
    state.after(delay, detached, id);
}

fn detached(state: &mut State, id: &str) {
    turn(state, id, &["detaching"], |volume| {
        volume.status = "available";
        volume.attachment = None;
    });
}

/// The server is gone or failed.
pub(in crate::cloud) fn release(state: &mut State, id: &str) {
    turn(state, id, &["creating", "reserved", "attaching", "in-use", "detaching"], |volume| {
        volume.status = "available";
        volume.attachment = None;
    });
}

/// Deletes a volume with its server.
pub(in crate::cloud) fn drop_now(state: &mut State, id: &str) {
    if state.volumes.all.shift_remove(id).is_some() {
        state.counters.deleted_one("volume");
    }
}

pub(super) fn delete(state: &mut State, id: &str) -> Answer {
    let volume = state.volumes.all.get(id).ok_or_else(|| missing(id))?;
    if volume.status == "deleting" {
        return Ok(Reply::empty(202));
    }
    if volume.status == "creating" && !volume.scheduled {
        drop_now(state, id);
        return Ok(Reply::empty(202));
    }
    if !turn(state, id, &["available", "error", "error_deleting"], |volume| {
        volume.status = "deleting"
    }) {
        let message = "Invalid volume: Volume status must be available or error or error_restoring or error_extending or \
                       error_managing and must not be migrating, attached, belong to a group, have snapshots, awaiting a \
                       transfer, or be disassociated from snapshots after volume transfer.";
        return Err(fault(400, message));
    }
    let delay = state.config.delays.volume_change;
    state.after(delay, deleted, id);
    Ok(Reply::empty(202))
}

fn deleted(state: &mut State, id: &str) {
    if turn(state, id, &["deleting"], |volume| {
        if volume.clings {
            volume.status = "error_deleting";
        }
    }) && state.volumes.all.get(id).is_some_and(|volume| volume.status == "deleting")
    {
        drop_now(state, id);
    }
}

pub(super) fn change(state: &mut State, call: &Call, id: &str) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let asked = &body["volume"];
    if !asked.is_object() {
        return Err(fault(400, "'volume' is a required property"));
    }
    let name = checked_name(asked)?;
    let metadata = asked.get("metadata").map(checked_metadata).transpose()?;
    let volume = state.volumes.all.get_mut(id).ok_or_else(|| missing(id))?;
    if asked.get("name").is_some() {
        volume.name = name;
    }
    if let Some(description) = asked.get("description") {
        volume.description = description.as_str().map(str::to_owned);
    }
    if let Some(metadata) = metadata {
        volume.metadata = metadata;
    }
    let mut reply = one(state, call, id)?;
    // As the answer to a create, this one does not show whose it is.
    if let Content::Json(body) = &mut reply.content
        && let Some(fields) = body["volume"].as_object_mut()
    {
        fields.retain(|name, _| {
            !name.starts_with("os-vol-") && name.as_str() != "volume_image_metadata"
        });
    }
    Ok(reply)
}

/// `/volumes/{id}/metadata[/{key}]`.
pub(super) fn metadata(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let volume = state.volumes.all.get_mut(id).ok_or_else(|| missing(id))?;
    let unknown = |key: &str| fault(404, format!("Volume {id} has no metadata with key {key}."));
    match (&call.method, rest) {
        (&Method::GET, []) => {}
        (&Method::PUT, []) => volume.metadata = checked_metadata(&body["metadata"])?,
        (&Method::POST, []) => volume.metadata.extend(checked_metadata(&body["metadata"])?),
        (&Method::GET, [key]) => {
            let value = volume.metadata.get(*key).ok_or_else(|| unknown(key))?;
            return Ok(Reply::json(200, json!({"meta": {*key: value}})));
        }
        (&Method::PUT, [key]) => {
            let given = checked_metadata(&body["meta"])?;
            if given.keys().ne([*key]) {
                return Err(fault(400, "Request body and URI mismatch"));
            }
            volume.metadata.extend(given.clone());
            return Ok(Reply::json(200, json!({"meta": given})));
        }
        (&Method::DELETE, [key]) => {
            volume.metadata.remove(*key).ok_or_else(|| unknown(key))?;
            return Ok(Reply::empty(200));
        }
        _ => return Err(unknown_path()),
    }
    Ok(Reply::json(200, json!({"metadata": volume.metadata})))
}
