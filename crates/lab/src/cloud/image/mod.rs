//! Glance v2: images, and whom they are shared with.

mod list;
mod member;
mod write;

use super::gate::admit;
use super::http::{Answer, Call, Reply, webob};
use super::state::{State, seconds};
use bytes::Bytes;
use http::Method;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Glance: `limit_param_default`.
const PAGE_DEFAULT: usize = 25;
/// Glance: `api_limit_max`.
const PAGE_MAX: usize = 1_000;

/// One image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub id: String,
    pub name: Option<String>,
    /// The project it belongs to.
    pub owner: String,
    /// `queued` until it has data, then `active`; `deactivated` by an administrator.
    pub status: &'static str,
    /// `public`, `community`, `shared`, `private`.
    pub visibility: String,
    pub protected: bool,
    pub hidden: bool,
    pub disk_format: Option<String>,
    pub container_format: Option<String>,
    /// MiB.
    pub min_ram: u64,
    /// GiB.
    pub min_disk: u64,
    pub created: Timestamp,
    pub updated: Timestamp,
    pub tags: BTreeSet<String>,
    pub properties: BTreeMap<String, String>,
    data: Option<Data>,
    members: Vec<member::Member>,
    /// The shelved server whose disk it is.
    shelved: Option<String>,
}

/// What an image is made of. The planted ones have a size and nothing behind it.
#[derive(Clone, Debug)]
struct Data {
    size: u64,
    bytes: Bytes,
    /// SHA-512 in hexadecimal; the checksum, an MD5 in life, is its beginning.
    hash: String,
}

impl Image {
    pub(super) fn checksum(&self) -> Option<&str> {
        self.data.as_ref().map(|data| &data.hash[..32])
    }

    /// An image that has no data yet, and belongs to this project.
    fn queued(id: String, owner: String, at: Timestamp) -> Self {
        Self {
            id,
            name: None,
            owner,
            status: "queued",
            visibility: "shared".to_owned(),
            protected: false,
            hidden: false,
            disk_format: None,
            container_format: None,
            min_ram: 0,
            min_disk: 0,
            created: at,
            updated: at,
            tags: BTreeSet::new(),
            properties: BTreeMap::new(),
            data: None,
            members: Vec::new(),
            shelved: None,
        }
    }

    /// A public image that is ready to boot, as the operator makes them.
    pub(super) fn planted(id: &str, name: &str, owner: &str, at: Timestamp) -> Self {
        Self {
            name: Some(name.to_owned()),
            status: "active",
            visibility: "public".to_owned(),
            disk_format: Some("raw".to_owned()),
            container_format: Some("bare".to_owned()),
            data: Some(Data { size: 65_536, bytes: Bytes::new(), hash: format!("{:0128x}", 1) }),
            ..Self::queued(id.to_owned(), owner.to_owned(), at)
        }
    }

    /// The disk of a server, so many GiB, that was put away.
    pub(super) fn snapshot(
        id: &str,
        name: &str,
        owner: &str,
        disk: u64,
        server: &str,
        at: Timestamp,
    ) -> Self {
        Self {
            visibility: "private".to_owned(),
            min_disk: disk,
            shelved: Some(server.to_owned()),
            ..Self::planted(id, name, owner, at)
        }
    }

    /// Whether it is the disk of this server that was put away.
    pub(super) fn is_snapshot_of(&self, server: &str) -> bool {
        self.shelved.as_deref() == Some(server)
    }

    /// Whether the caller may look at it and boot from it.
    pub(super) fn visible(&self, call: &Call) -> bool {
        let project = call.session.project();
        matches!(self.visibility.as_str(), "public" | "community")
            || call.session.sees(&self.owner)
            || (self.visibility == "shared"
                && self.members.iter().any(|member| member.project == project))
    }
}

/// All images, oldest first.
#[derive(Default)]
pub(super) struct Images {
    pub all: IndexMap<String, Image>,
}

impl Images {
    /// The image, if there is one and the caller may see it.
    pub(super) fn seen(&self, call: &Call, id: &str) -> Option<&Image> {
        self.all.get(id).filter(|image| image.visible(call))
    }
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
        (&Method::GET, ["images"]) => list::list(state, call),
        (&Method::POST, ["images"]) => write::create(state, call),
        (&Method::GET, ["schemas", "image"]) => Ok(Reply::json(200, image_schema())),
        (method, ["images", id, rest @ ..]) => match state.images.seen(call, id) {
            None => Err(webob(404, &format!("No image found with ID {id}"))),
            Some(image) if *method == Method::GET && rest.is_empty() => {
                Ok(Reply::json(200, render(image)))
            }
            Some(_) => match rest {
                ["members", rest @ ..] => member::answer(state, call, id, rest),
                rest => write::answer(state, call, id, rest),
            },
        },
        _ => Err(unknown_path()),
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

fn unknown_path() -> Reply {
    webob(404, "The resource could not be found.")
}

fn render(image: &Image) -> Value {
    let data = image.data.as_ref();
    let mut shown = json!({
        "id": image.id,
        "name": image.name,
        "owner": image.owner,
        "status": image.status,
        "visibility": image.visibility,
        "protected": image.protected,
        "os_hidden": image.hidden,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "size": data.map(|data| data.size),
        "virtual_size": data.map(|data| data.size),
        "checksum": image.checksum(),
        "os_hash_algo": data.map(|_| "sha512"),
        "os_hash_value": data.map(|data| &data.hash),
        "min_ram": image.min_ram,
        "min_disk": image.min_disk,
        "created_at": seconds(image.created),
        "updated_at": seconds(image.updated),
        "tags": image.tags,
        "self": format!("/v2/images/{}", image.id),
        "file": format!("/v2/images/{}/file", image.id),
        "schema": "/v2/schemas/image",
    });
    if data.is_some() {
        shown["stores"] = json!("fs");
    }
    for (name, value) in &image.properties {
        shown[name] = json!(value);
    }
    shown
}
