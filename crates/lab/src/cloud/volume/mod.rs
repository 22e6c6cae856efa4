//! Cinder v3: volumes.

mod action;
mod life;
mod list;

pub(super) use life::{
    attach, attach_later, check_attachable, detach, drop_now, has_type, make_for, release, reserve,
};

use super::gate::admit;
use super::http::{Answer, Call, Content, Reply, fault, webob};
use super::image::Image;
use super::network::merged_quotas;
use super::state::{State, micros};
use http::Method;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cinder: the highest microversion, `3.71`.
const MINOR_MAX: u16 = 71;

/// Where a volume is attached.
#[derive(Clone, Debug)]
pub(super) struct Attachment {
    server: String,
    device: String,
    id: String,
    at: Timestamp,
}

/// One volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub id: String,
    pub name: Option<String>,
    description: Option<String>,
    pub project: String,
    user: String,
    /// GiB.
    pub size: u64,
    kind: String,
    zone: String,
    /// As clients see it: `creating`, `available`, `reserved`, `attaching`, `in-use`, ...
    pub status: &'static str,
    created: Timestamp,
    updated: Option<Timestamp>,
    pub metadata: BTreeMap<String, String>,
    /// The image it was made of: its id and what was known of it then.
    image: Option<(String, Value)>,
    /// Set by hand; without, it boots when it was made of an image.
    bootable: Option<bool>,
    attachment: Option<Attachment>,
    /// A back end has taken it up.
    scheduled: bool,
    /// Ends in `error` when it is made.
    fails: bool,
    /// Ends in `error_deleting` when it is deleted.
    clings: bool,
}

/// All volumes, oldest first, and their types.
#[derive(Default)]
pub(super) struct Volumes {
    pub all: IndexMap<String, Volume>,
    /// Ids by name.
    pub types: Vec<(String, String)>,
}

pub(super) fn answer(state: &mut State, call: &mut Call) -> Answer {
    let base = state.config.base_url.clone();
    call.minor = 0;
    let versions = |status| Ok(Reply::json(status, json!({"versions": [version(&base)]})));
    match (&call.method, call.version.as_str(), call.path.as_slice()) {
        (&Method::GET, "", []) => return versions(300).map(|reply| dressed(reply, call)),
        (&Method::GET, "v3", []) => return versions(200).map(|reply| dressed(reply, call)),
        _ => {}
    }
    if let Err(reply) = microversion(call) {
        // Cinder: names the version that it was asked for and does not have.
        let asked = call.header("openstack-api-version").filter(|_| reply.status == 406);
        let asked = asked.map(str::to_owned);
        let reply = dressed(reply, call);
        return Err(match asked {
            Some(asked) => reply.with("openstack-api-version", asked),
            None => reply,
        });
    }
    admit(state, call)?;
    // The older endpoints carry the project in the path.
    let project = call.session.project.clone();
    if call.path.len() > 1 && call.path.first() == project.as_ref() {
        call.path.remove(0);
    }
    route(state, call).map(|reply| dressed(reply, call)).map_err(|reply| dressed(reply, call))
}

fn dressed(reply: Reply, call: &Call) -> Reply {
    let reply = reply.with("x-openstack-request-id", call.request_id.clone());
    // What is in front of Cinder knows neither versions nor the older header.
    if matches!(reply.content, Content::WebOb(_)) {
        return reply;
    }
    let reply = reply
        .with("openstack-api-version", format!("volume 3.{}", call.minor))
        .with("vary", "OpenStack-API-Version");
    match reply.content {
        Content::Empty => reply.with("content-type", "text/html; charset=UTF-8"),
        _ => reply.with("x-compute-request-id", call.request_id.clone()),
    }
}

fn microversion(call: &mut Call) -> Result<(), Reply> {
    let asked = call
        .header("openstack-api-version")
        .and_then(|header| header.split(',').find_map(|part| part.trim().strip_prefix("volume ")));
    let Some(asked) = asked.map(|asked| asked.trim().to_owned()) else {
        return Ok(());
    };
    let minor = match asked.as_str() {
        "latest" => Some(MINOR_MAX),
        asked => match asked.split_once('.') {
            Some(("3", minor)) => minor.parse::<u16>().ok(),
            // Well formed, and never served.
            Some((major, minor)) => {
                let number = |text: &str| text.parse::<u16>().ok();
                number(major).and(number(minor)).map(|_| u16::MAX)
            }
            None => None,
        },
    };
    match minor {
        Some(minor @ 0..=MINOR_MAX) => {
            call.minor = minor;
            Ok(())
        }
        Some(_) => {
            let message = format!(
                "Version {asked} is not supported by the API. Minimum is 3.0 and maximum is 3.{MINOR_MAX}."
            );
            Err(fault(406, message))
        }
        None => {
            let message = format!(
                "API Version String {asked} is of invalid format. Must be of format MajorNum.MinorNum."
            );
            Err(fault(400, message))
        }
    }
}

fn version(base: &str) -> Value {
    json!({
        "id": "v3.0",
        "status": "CURRENT",
        "version": format!("3.{MINOR_MAX}"),
        "min_version": "3.0",
        "updated": "2023-08-31T00:00:00Z",
        "links": [
            {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
            {"rel": "self", "href": format!("{base}/volume/v3/")},
        ],
        "media-types": [{
            "base": "application/json",
            "type": "application/vnd.openstack.volume+json;version=3",
        }],
    })
}

fn missing(id: &str) -> Reply {
    fault(404, format!("Volume {id} could not be found."))
}

fn unknown_path() -> Reply {
    webob(404, "The resource could not be found.")
}

fn route(state: &mut State, call: &Call) -> Answer {
    let path = call.segments();
    if let ["volumes", id, ..] = path.as_slice()
        && *id != "detail"
    {
        let volume = state.volumes.all.get(*id).filter(|volume| call.session.sees(&volume.project));
        volume.ok_or_else(|| missing(id))?;
    }
    match (&call.method, path.as_slice()) {
        (&Method::GET, ["volumes"]) => list::list(state, call, false),
        (&Method::GET, ["volumes", "detail"]) => list::list(state, call, true),
        (&Method::POST, ["volumes"]) => life::create(state, call),
        (&Method::GET, ["volumes", id]) => one(state, call, id),
        (&Method::PUT, ["volumes", id]) => life::change(state, call, id),
        (&Method::DELETE, ["volumes", id]) => life::delete(state, id),
        (_, ["volumes", id, "metadata", rest @ ..]) => life::metadata(state, call, id, rest),
        (&Method::POST, ["volumes", id, "action"]) => action::act(state, call, id),
        (&Method::GET, ["types"]) => Ok(Reply::json(200, json!({"volume_types": types(state)}))),
        (&Method::GET, ["types", id]) => {
            let found = types(state).into_iter().find(|kind| kind["id"] == *id);
            let found =
                found.ok_or_else(|| fault(404, format!("Volume type {id} could not be found.")))?;
            Ok(Reply::json(200, json!({"volume_type": found})))
        }
        (&Method::GET, ["limits"]) => Ok(list::limits(state, call)),
        (&Method::GET, ["os-quota-sets", project]) => Ok(list::quota_set(state, call, project)),
        (&Method::PUT, ["os-quota-sets", project]) => {
            if !call.session.is_admin() {
                let message =
                    "Policy doesn't allow volume_extension:quotas:update to be performed.";
                return Err(fault(403, message));
            }
            let bad = || fault(400, "Malformed request body");
            let body = call.json().map_err(|_| bad())?;
            let merged = merged_quotas(&state.config.quotas, &body["quota_set"]);
            state.config.quotas = merged.ok_or_else(bad)?;
            let mut reply = list::quota_set(state, call, project);
            if let Content::Json(body) = &mut reply.content
                && let Some(shown) = body["quota_set"].as_object_mut()
            {
                shown.remove("id");
            }
            Ok(reply)
        }
        (&Method::GET, ["os-availability-zone"]) => {
            let zones = state.config.zones.iter();
            let zones =
                zones.map(|zone| json!({"zoneName": zone, "zoneState": {"available": true}}));
            let zones: Vec<Value> = zones.collect();
            Ok(Reply::json(200, json!({"availabilityZoneInfo": zones})))
        }
        (&Method::GET, ["messages"]) => Ok(list::messages(state, call)),
        _ => Err(unknown_path()),
    }
}

fn one(state: &State, call: &Call, id: &str) -> Answer {
    let volume = state.volumes.all.get(id).ok_or_else(|| missing(id))?;
    Ok(Reply::json(200, json!({"volume": shown(state, call.minor, volume)})))
}

fn types(state: &State) -> Vec<Value> {
    let types = state.volumes.types.iter();
    types
        .map(|(name, id)| {
            json!({
                "id": id, "name": name, "is_public": true, "extra_specs": {},
                "description": (name == "__DEFAULT__").then_some("Default Volume Type"),
                "os-volume-type-access:is_public": true,
            })
        })
        .collect()
}

/// The volume as a call of this microversion sees it.
fn shown(state: &State, minor: u16, volume: &Volume) -> Value {
    let base = &state.config.base_url;
    let id = &volume.id;
    let attachments: Vec<Value> = volume
        .attachment
        .iter()
        .map(|attachment| {
            json!({
                "id": id,
                "attachment_id": attachment.id,
                "volume_id": id,
                "server_id": attachment.server,
                "host_name": null,
                "device": attachment.device,
                "attached_at": micros(attachment.at),
            })
        })
        .collect();
    let mut shown = json!({
        "id": id,
        "status": volume.status,
        "size": volume.size,
        "availability_zone": volume.zone,
        "created_at": micros(volume.created),
        "updated_at": volume.updated.map(micros),
        "name": volume.name,
        "description": volume.description,
        "volume_type": volume.kind,
        "snapshot_id": null,
        "source_volid": null,
        "metadata": volume.metadata,
        "links": [
            {"rel": "self", "href": format!("{base}/volume/v3/volumes/{id}")},
            {"rel": "bookmark", "href": format!("{base}/volume/volumes/{id}")},
        ],
        "user_id": volume.user,
        "bootable": bootable(volume).to_string(),
        "encrypted": false,
        "replication_status": null,
        "consistencygroup_id": null,
        "multiattach": false,
        "attachments": attachments,
        "os-vol-tenant-attr:tenant_id": volume.project,
    });
    by_microversion(state, minor, volume, &mut shown);
    if let Some((_, metadata)) = volume.image.as_ref().filter(|_| volume.ready()) {
        shown["volume_image_metadata"] = metadata.clone();
    }
    shown
}

/// Cinder: what each microversion brought.
fn by_microversion(state: &State, minor: u16, volume: &Volume, shown: &mut Value) {
    if minor >= 13 {
        shown["group_id"] = Value::Null;
    }
    if minor >= 48 {
        shown["shared_targets"] = json!(!volume.scheduled);
        let service = volume.scheduled.then(|| state.identity.ids.get("block-storage")).flatten();
        let service =
            service.map(|id| [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-"));
        shown["service_uuid"] = json!(service);
    }
    if minor >= 63 {
        let types = &state.volumes.types;
        let kind = types.iter().find(|(name, _)| *name == volume.kind);
        shown["volume_type_id"] = json!(kind.map(|(_, id)| id));
    }
    if minor >= 65 {
        shown["consumes_quota"] = json!(true);
    }
}

/// What a volume keeps of the image it is made of.
fn image_metadata(image: &Image) -> Value {
    let mut metadata = json!({
        "image_id": image.id,
        "image_name": image.name,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "min_disk": image.min_disk.to_string(),
        "min_ram": image.min_ram.to_string(),
        "size": "65536",
        "checksum": image.checksum(),
    });
    for (name, value) in &image.properties {
        metadata[name] = json!(value);
    }
    metadata
}

/// Whether a server can boot from it.
fn bootable(volume: &Volume) -> bool {
    volume.bootable.unwrap_or(volume.image.is_some()) && volume.ready()
}

impl Volume {
    /// Made to the end.
    fn ready(&self) -> bool {
        self.scheduled && !matches!(self.status, "creating" | "downloading")
    }

    /// The server it is attached to.
    pub(super) fn server(&self) -> Option<&str> {
        self.attachment.as_ref().map(|attachment| attachment.server.as_str())
    }
}
