//! What is there: groups, versions and resources, plain and aggregated, and the server's health.

use super::media::{self, Shape};
use super::registry::{Group, Groups, Kind, Resources, api_version};
use super::request::Query;
use super::{ApiServer, Body, Status, render, route};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Answers a path that is no resource's.
pub(super) fn answer(
    server: &ApiServer,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let groups = server.registry().groups();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let accept = || media::negotiate(&route::header_text(headers, &header::ACCEPT), true);
    Ok(match parts.as_slice() {
        [""] => render::json_of(200, &json!({"paths": paths(&groups)})),
        ["version"] => render::json_of(200, &version()),
        ["healthz" | "livez" | "readyz"] => render::plain(200, health(parts[0], query)),
        ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => render::plain(200, "ok"),
        ["api"] if accept()?.shape == Shape::Discovery => aggregated(&groups, true, headers),
        ["apis"] if accept()?.shape == Shape::Discovery => aggregated(&groups, false, headers),
        ["api"] => render::json_of(
            200,
            &json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [],
            }),
        ),
        ["apis"] => {
            let all: Vec<Value> = named(&groups).map(|(name, group)| about(name, group)).collect();
            let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all});
            render::json_of(200, &list)
        }
        ["apis", name] => match groups.group(name) {
            Some(group) => {
                let mut object = about(name, group);
                object["kind"] = "APIGroup".into();
                object["apiVersion"] = "v1".into();
                render::json_of(200, &object)
            }
            None => render::page_not_found(),
        },
        ["api", version] => resources(&groups, "", version)?,
        ["apis", name, version] => resources(&groups, name, version)?,
        _ => render::page_not_found(),
    })
}

fn named(groups: &Groups) -> impl Iterator<Item = (&str, &Group)> {
    groups
        .all
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, group)| (name.as_str(), group))
}

fn about(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": api_version(name, version), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(groups: &Groups, group: &str, version: &str) -> Result<Response<Body>, Status> {
    let Some(found) = groups.group(group) else { return Ok(render::page_not_found()) };
    let Some(resources) = found.version(version) else { return Err(Status::no_such_resource()) };
    let mut all = Vec::new();
    for kind in resources.values() {
        all.push(resource(kind));
        for (name, sub) in &kind.subresources {
            let mut entry = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if (sub.group.as_str(), sub.version.as_str()) != (group, version) {
                entry["group"] = sub.group.clone().into();
                entry["version"] = sub.version.clone().into();
            }
            all.push(entry);
        }
    }
    let group_version = api_version(group, version);
    let mut list =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": all});
    // Kubernetes: the core group's list is the only one without.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Ok(render::json_of(200, &list))
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if kind.offers("list") {
        // Kubernetes: Events of both groups are stored as those of the core group, whose name is empty, and
        // definitions in a version that is not served any more.
        let version = match kind.kind.as_str() {
            "Event" => "v1",
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1beta1",
            _ => &kind.storage_version,
        };
        let core = if version.contains('/') { "" } else { "/" };
        let stored = format!("{core}{version}/{}", kind.kind);
        entry["storageVersionHash"] = short_hash(&stored).into();
    }
    entry
}

fn short_hash(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(&Sha256::digest(text)[..8])
}

fn aggregated(groups: &Groups, core: bool, headers: &HeaderMap) -> Response<Body> {
    let items: Vec<Value> = groups
        .all
        .iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, group)| {
            let metadata = if core { json!({}) } else { json!({"name": name}) };
            let versions: Vec<Value> =
                group.versions.iter().map(|(name, list)| aggregated_version(name, list)).collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    });
    tagged(&list, headers)
}

fn aggregated_version(version: &str, resources: &Resources) -> Value {
    let all: Vec<Value> = resources.values().map(|kind| aggregated_resource(kind)).collect();
    json!({"version": version, "resources": all, "freshness": "Current"})
}

fn aggregated_resource(kind: &Kind) -> Value {
    // Kubernetes tells group and version of a built-in kind only where they are not those around it.
    let response = |group: &str, version: &str, name: &str| {
        let own = group == kind.group && version == kind.version && !kind.custom;
        let (group, version) = if own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": name})
    };
    let mut entry = json!({
        "resource": kind.plural, "responseKind": response(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|(name, sub)| {
            json!({
                "subresource": name, "verbs": sub.verbs,
                "responseKind": response(&sub.group, &sub.version, &sub.kind),
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

/// An answer with an Etag; 304 for a client that has it.
pub(super) fn tagged(value: &Value, headers: &HeaderMap) -> Response<Body> {
    tagged_bytes(serde_json::to_vec(value).unwrap_or_default().into(), headers)
}

/// The same of a document that is written already.
pub(super) fn tagged_bytes(bytes: Bytes, headers: &HeaderMap) -> Response<Body> {
    let tag = format!("\"{}\"", hash(&bytes));
    let known = route::header_text(headers, &header::IF_NONE_MATCH);
    let mut response = if known.split(',').any(|one| one.trim() == tag) {
        // Caches take over the headers of a 304: it must not tell another type than the answer it stands for.
        let mut unchanged = render::response(304, "", render::whole(""));
        unchanged.headers_mut().remove(header::CONTENT_TYPE);
        unchanged
    } else {
        let form = media::Accept::json(Shape::Discovery);
        render::response(200, form.content_type(), render::whole(bytes))
    };
    let map = response.headers_mut();
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    map.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        map.insert(header::ETAG, tag);
    }
    response
}

/// SHA-512 in capitals, as the real server tags documents.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn paths(groups: &Groups) -> Vec<String> {
    let mut all: Vec<String> = ["/api", "/api/v1", "/apis", "/apis/"].map(str::to_owned).into();
    for (name, group) in named(groups) {
        all.push(format!("/apis/{name}"));
        all.extend(group.versions.iter().map(|(version, _)| format!("/apis/{name}/{version}")));
    }
    all.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    all.sort();
    all
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0+drover-lab", "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn health(which: &str, query: &Query) -> String {
    if query.get("verbose").is_none() {
        return "ok".to_owned();
    }
    let excluded = query.all("exclude");
    let mut text = String::new();
    for check in ["ping", "log", "etcd"] {
        let word = if excluded.contains(&check) { "excluded: ok" } else { "ok" };
        text.push_str(&format!("[+]{check} {word}\n"));
    }
    text + which + " check passed\n"
}
