//! Images: Glance v2, read only.

use super::gate::admit;
use super::http::{Answer, Call, Reply, webob};
use super::state::{State, seconds};
use http::Method;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Glance: `limit_param_default`.
const PAGE_DEFAULT: usize = 25;
/// Glance: `api_limit_max`.
const PAGE_MAX: usize = 1_000;

/// One image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub id: String,
    pub name: String,
    pub owner: String,
    /// MiB.
    pub min_ram: u64,
    /// GiB.
    pub min_disk: u64,
    pub created: Timestamp,
    pub properties: BTreeMap<String, String>,
}

/// All images, oldest first.
#[derive(Default)]
pub(super) struct Images {
    pub all: IndexMap<String, Image>,
}

pub(super) fn answer(state: &mut State, call: &mut Call) -> Answer {
    let base = state.config.base_url.clone();
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match (call.version.as_str(), path.as_slice()) {
        ("", []) => return Ok(versions(300, &base)),
        ("", ["versions"]) => return Ok(versions(200, &base)),
        ("v2", []) => {
            return Ok(Reply::empty(302).with("location", format!("{base}/image/v2/")));
        }
        _ => {}
    }
    admit(state, call)?;
    let path = call.segments();
    let reply = match (&call.method, path.as_slice()) {
        (&Method::GET, ["images"]) => list(state, call),
        (&Method::GET, ["images", id]) => match state.images.all.get(*id) {
            Some(image) => Ok(Reply::json(200, render(image))),
            None => Err(webob(404, &format!("No image found with ID {id}"))),
        },
        (&Method::DELETE, ["images", _]) => {
            Err(webob(403, "You are not authorized to complete delete_image action."))
        }
        (&Method::GET, ["schemas", "image"]) => Ok(Reply::json(200, image_schema())),
        _ => Err(webob(404, "The resource could not be found.")),
    };
    let identified = |reply: Reply| reply.with("x-openstack-request-id", call.request_id.clone());
    reply.map(identified).map_err(identified)
}

fn versions(status: u16, base: &str) -> Reply {
    // Glance lists them in this order.
    let minors = [15, 13, 12, 11, 10, 9, 8, 17, 7, 6, 5, 4, 3, 2, 1, 0];
    let versions: Vec<Value> = minors
        .into_iter()
        .map(|minor| {
            json!({
                "id": format!("v2.{minor}"),
                "status": if minor == 17 { "CURRENT" } else { "SUPPORTED" },
                "links": [{"rel": "self", "href": format!("{base}/image/v2/")}],
            })
        })
        .collect();
    Reply::json(status, json!({"versions": versions}))
}

fn image_schema() -> Value {
    json!({"name": "image", "properties": {}, "additionalProperties": {"type": "string"}})
}

fn render(image: &Image) -> Value {
    let mut shown = json!({
        "id": image.id,
        "name": image.name,
        "owner": image.owner,
        "status": "active",
        "visibility": "public",
        "protected": false,
        "os_hidden": false,
        "disk_format": "raw",
        "container_format": "bare",
        "size": 65_536,
        "virtual_size": 65_536,
        "checksum": "fcd6bcb56c1689fcef28b57c22475bad",
        "os_hash_algo": "sha512",
        "os_hash_value": format!("{:0128x}", 1),
        "min_ram": image.min_ram,
        "min_disk": image.min_disk,
        "created_at": seconds(image.created),
        "updated_at": seconds(image.created),
        "tags": [],
        "self": format!("/v2/images/{}", image.id),
        "file": format!("/v2/images/{}/file", image.id),
        "schema": "/v2/schemas/image",
        "stores": "fs",
    });
    for (name, value) in &image.properties {
        shown[name] = json!(value);
    }
    shown
}

fn list(state: &State, call: &Call) -> Answer {
    let limit = match call.query("limit").map(str::parse::<usize>) {
        None => PAGE_DEFAULT,
        Some(Ok(limit)) => limit.min(PAGE_MAX),
        Some(Err(_)) => return Err(webob(400, "limit param must be an integer")),
    };
    let mut found: Vec<Value> =
        state.images.all.values().rev().map(render).filter(|image| wanted(image, call)).collect();
    sort(&mut found, call);
    if let Some(marker) = call.query("marker") {
        let Some(at) = found.iter().position(|image| image["id"] == marker) else {
            let said = format!("No image found with ID {marker}");
            return Err(webob(404, &said));
        };
        found.drain(..=at);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let path = |marker: Option<&Value>| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(call.query.iter().filter(|(name, _)| name != "marker"));
        if let Some(Value::String(marker)) = marker {
            query.append_pair("marker", marker);
        }
        match query.finish() {
            empty if empty.is_empty() => "/v2/images".to_owned(),
            query => format!("/v2/images?{query}"),
        }
    };
    let mut page = json!({"first": path(None), "schema": "/v2/schemas/images"});
    if more {
        page["next"] = json!(path(found.last().map(|image| &image["id"])));
    }
    page["images"] = Value::Array(found);
    Ok(Reply::json(200, page))
}

/// `sort=name:asc,created_at:desc`, or `sort_key` and `sort_dir`; newest first without.
fn sort(images: &mut [Value], call: &Call) {
    let (key, direction) = match call.query("sort") {
        Some(sort) => {
            let first = sort.split(',').next().unwrap_or_default();
            first.split_once(':').unwrap_or((first, "desc"))
        }
        None => (
            call.query("sort_key").unwrap_or("created_at"),
            call.query("sort_dir").unwrap_or("desc"),
        ),
    };
    // Stable: images of one second stay newest first.
    images.sort_by(|one, other| {
        let order = one[key].to_string().cmp(&other[key].to_string());
        if direction == "asc" { order } else { order.reverse() }
    });
}

fn wanted(image: &Value, call: &Call) -> bool {
    const OTHER: [&str; 6] = ["limit", "marker", "sort", "sort_key", "sort_dir", "member_status"];
    call.query.iter().filter(|(name, _)| !OTHER.contains(&name.as_str())).all(|(name, wanted)| {
        match &image[name.as_str()] {
            Value::String(value) => match wanted.strip_prefix("in:") {
                Some(list) => list.split(',').any(|one| one.trim_matches('"') == value),
                None => value == wanted,
            },
            Value::Bool(value) => wanted.eq_ignore_ascii_case(&value.to_string()),
            Value::Number(value) => *wanted == value.to_string(),
            Value::Array(tags) => tags.iter().any(|tag| tag == wanted),
            _ => false,
        }
    })
}
