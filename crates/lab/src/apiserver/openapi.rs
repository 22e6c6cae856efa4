//! OpenAPI documents of everything that is served: version 3 one a group and version, version 2 one of all, made on demand.

use super::registry::{Groups, Kind, Resources, api_version};
use super::request::Query;
use super::{ApiServer, Body, Status, builtin, discovery, media, render, route};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

mod v2;

const META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1";

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Version 2 in protobuf, with a title and no paths. Helm and kubectl ask for it when version 3 does not know a kind, to
/// learn that version 2 does not know it either.
const V2_EMPTY: &str = "\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.33.0\x42\x00";

/// Answers below `/openapi/`.
pub(super) fn answer(
    server: &ApiServer,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let groups = server.registry().groups();
    let accept = route::header_text(headers, &header::ACCEPT);
    let protobuf = "application/com.github.proto-openapi.spec.v";
    let only_protobuf = accept.split(',').all(|range| range.trim().starts_with(protobuf));
    if path == "/openapi/v2" && !accept.is_empty() && only_protobuf {
        return Ok(render::response(200, V2_PROTOBUF, render::whole(V2_EMPTY)));
    }
    if !accept.is_empty() && only_protobuf {
        let why = "only the following media types are accepted: application/json";
        return Err(Status::new(406, "NotAcceptable", why));
    }
    if path == "/openapi/v2" {
        let mut response = discovery::tagged_bytes(whole(server, &groups), headers);
        plain_json(response.headers_mut());
        return Ok(response);
    }
    if path.trim_end_matches('/') == "/openapi/v3" {
        let mut response = render::json_of(200, &index(server, &groups));
        // As the real server says of it, wrongly.
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        return Ok(response);
    }
    let Some(name) = path.strip_prefix("/openapi/v3/") else {
        return Ok(render::page_not_found());
    };
    let Some(document) = document(&groups, name) else {
        let mut nothing = render::response(404, "", render::whole(""));
        nothing.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(nothing);
    };
    let current = discovery::hash(document.to_string().as_bytes());
    let asked = query.text("hash");
    if !asked.is_empty() && asked != current {
        let mut response = render::response(301, "text/html; charset=utf-8", render::whole(""));
        let location = format!("{path}?hash={current}");
        if let Ok(value) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(header::LOCATION, value);
        }
        return Ok(response);
    }
    let mut response = discovery::tagged(&document, headers);
    let map = response.headers_mut();
    plain_json(map);
    if !asked.is_empty() {
        let forever = HeaderValue::from_static("public, immutable");
        map.insert(header::CACHE_CONTROL, forever);
    }
    Ok(response)
}

/// The type of a document's answer, unless the answer is that the client has it.
fn plain_json(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONTENT_TYPE) {
        let json = media::Accept::PLAIN.content_type();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(json));
    }
}

/// What was worked out before: making and hashing all documents takes a while.
#[derive(Default)]
pub(super) struct Memo {
    /// The index of version 3 at a state of the registry.
    index: (u64, Value),
    /// The document of version 2 at a state of the registry.
    whole: (u64, Bytes),
    /// Hashes of the documents of built-in kinds, which never change.
    hashes: BTreeMap<String, String>,
    /// What they become in version 2.
    parts: BTreeMap<String, v2::Part>,
}

/// The names of all documents, and whether only built-in kinds are in them.
fn names(groups: &Groups) -> impl Iterator<Item = (String, bool)> {
    groups.all.iter().flat_map(|(group, content)| {
        content.versions.iter().map(move |(version, resources)| {
            let fixed = resources.values().all(|kind| !kind.custom);
            (document_name(group, version), fixed)
        })
    })
}

/// The document of version 2.
fn whole(server: &ApiServer, groups: &Groups) -> Bytes {
    let mut memo = server.documents();
    if memo.whole.0 == groups.serial && !memo.whole.1.is_empty() {
        return memo.whole.1.clone();
    }
    let mut all = v2::Part::default();
    for (name, fixed) in names(groups) {
        if let Some(part) = memo.parts.get(&name).filter(|_| fixed) {
            all.extend(part.clone());
            continue;
        }
        let Some(document) = made(groups, &name, Version::Two) else { continue };
        let part = v2::Part::of(document);
        if fixed {
            memo.parts.insert(name, part.clone());
        }
        all.extend(part);
    }
    let text = serde_json::to_vec(&all.document()).unwrap_or_default();
    memo.whole = (groups.serial, text.into());
    memo.whole.1.clone()
}

/// Documents by path with a hash that makes each URL immutable.
fn index(server: &ApiServer, groups: &Groups) -> Value {
    let mut memo = server.documents();
    if memo.index.0 == groups.serial && !memo.index.1.is_null() {
        return memo.index.1.clone();
    }
    let mut paths = Map::new();
    for (name, fixed) in names(groups) {
        let known = memo.hashes.get(&name).filter(|_| fixed).cloned();
        let hash = known.or_else(|| {
            let document = document(groups, &name)?;
            Some(discovery::hash(document.to_string().as_bytes()))
        });
        let Some(hash) = hash else { continue };
        if fixed {
            memo.hashes.insert(name.clone(), hash.clone());
        }
        let url = format!("/openapi/v3/{name}?hash={hash}");
        paths.insert(name, json!({"serverRelativeURL": url}));
    }
    memo.index = (groups.serial, json!({"paths": paths}));
    memo.index.1.clone()
}

fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// What a document is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// To become a part of the one document of version 2.
    Two,
    /// To stand for itself.
    Three,
}

fn document(groups: &Groups, name: &str) -> Option<Value> {
    made(groups, name, Version::Three)
}

fn made(groups: &Groups, name: &str, form: Version) -> Option<Value> {
    let parts: Vec<&str> = name.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let resources = groups.group(group)?.version(version)?;
    let mut schemas = if resources.values().any(|kind| kind.custom) {
        custom_schemas(resources, form)
    } else {
        builtin::components(group)["components"]["schemas"].take()
    };
    let mut paths = Map::new();
    for kind in resources.values() {
        add_paths(kind, &mut paths, &mut schemas);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.33.0"},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// Schemas of custom kinds, and those of the metadata they share with all kinds.
fn custom_schemas(resources: &Resources, form: Version) -> Value {
    let core = builtin::components("");
    let shared = core["components"]["schemas"].as_object().into_iter().flatten();
    let mut schemas: Map<String, Value> = shared
        .filter(|(name, _)| name.starts_with("io.k8s.apimachinery."))
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect();
    for kind in resources.values() {
        let mut schema = match form {
            Version::Two => v2::structural(&kind.published, true),
            Version::Three => kind.published.clone(),
        };
        let open = kind.published["x-kubernetes-preserve-unknown-fields"] == true;
        // Kubernetes: clients of version 2 take a kind with fields for one that has no others.
        if form == Version::Three || !open {
            embed(&mut schema, form);
            schema["properties"]["apiVersion"] = described(API_VERSION);
            schema["properties"]["kind"] = described(KIND);
            schema["properties"]["metadata"] = metadata("ObjectMeta", OBJECT_META);
        }
        schema["x-kubernetes-group-version-kind"] = gvk_list(kind, &kind.kind);
        schemas.insert(kind.definition.clone(), schema);
        let item = format!("#/components/schemas/{}", kind.definition);
        let list = json!({
            "type": "object", "required": ["items"],
            "properties": {
                "apiVersion": described(API_VERSION), "kind": described(KIND),
                "items": {
                    "type": "array", "items": {"$ref": item},
                    "description": format!("List of {}. More info: {CONVENTIONS}", kind.plural),
                },
                "metadata": metadata("ListMeta", LIST_META),
            },
            "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
            "x-kubernetes-group-version-kind": gvk_list(kind, &kind.list_kind),
        });
        schemas.insert(format!("{}List", kind.definition), list);
    }
    Value::Object(schemas)
}

// In Kubernetes' words, which `kubectl explain` shows.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_META: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_META: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const EMBEDDED_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

fn described(text: &str) -> Value {
    json!({"type": "string", "description": text})
}

fn metadata(name: &str, description: &str) -> Value {
    json!({"allOf": [{"$ref": format!("{META}.{name}")}], "description": description})
}

/// Kubernetes: objects inside an object have `apiVersion`, `kind` and `metadata` like any other.
fn embed(schema: &mut Value, form: Version) {
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(word) {
            embed(inner, form);
        }
    }
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.values_mut().for_each(|field| embed(field, form));
    }
    let is = |word: &str| schema.get(word) == Some(&Value::Bool(true));
    let closed = form == Version::Two && is("x-kubernetes-preserve-unknown-fields");
    if !is("x-kubernetes-embedded-resource") || closed {
        return;
    }
    schema["properties"]["apiVersion"] = described(EMBEDDED_VERSION);
    schema["properties"]["kind"] = described(EMBEDDED_KIND);
    schema["properties"]["metadata"] = metadata("ObjectMeta", OBJECT_META);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == field) {
            required.push(field.into());
        }
    }
    schema["required"] = required.into();
}

fn gvk_list(kind: &Kind, name: &str) -> Value {
    json!([{"group": kind.group, "kind": name, "version": kind.version}])
}

/// A query parameter.
fn parameter(name: &str) -> Value {
    let of_type = match name {
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        "watch" | "allowWatchBookmarks" | "sendInitialEvents" | "force" | "orphanDependents" => {
            "boolean"
        }
        _ => "string",
    };
    json!({"name": name, "in": "query", "schema": {"type": of_type, "uniqueItems": true}})
}

fn parameters(names: &[&str]) -> Value {
    names.iter().map(|name| parameter(name)).collect()
}

const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const PATCH: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: [&str; 4] = ["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];

fn add_paths(kind: &Kind, paths: &mut Map<String, Value>, schemas: &mut Value) {
    let root = if kind.group.is_empty() { "/api" } else { "/apis" };
    let home = format!("{root}/{}", api_version(&kind.group, &kind.version));
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{home}{scope}/{}", kind.plural);
    let one = format!("{all}/{{name}}");
    let own = format!("#/components/schemas/{}", kind.definition);
    let of_list = format!("{own}List");
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut collection = Map::new();
    let mut object = Map::new();
    for verb in &kind.verbs {
        match verb.as_str() {
            "list" => {
                collection.insert("get".into(), operation("list", &gvk, &LIST, None, &of_list))
            }
            "create" => {
                collection.insert("post".into(), operation("post", &gvk, &WRITE, Some(&own), &own))
            }
            "deletecollection" => collection
                .insert("delete".into(), operation("deletecollection", &gvk, &DELETE, None, &own)),
            "get" => object
                .insert("get".into(), operation("get", &gvk, &["resourceVersion"], None, &own)),
            "update" => {
                object.insert("put".into(), operation("put", &gvk, &WRITE, Some(&own), &own))
            }
            "patch" => object.insert("patch".into(), patch_operation(kind, &gvk, &own)),
            "delete" => {
                object.insert("delete".into(), operation("delete", &gvk, &DELETE, None, &own))
            }
            _ => None,
        };
    }
    paths.insert(all, Value::Object(collection));
    if !object.is_empty() {
        paths.insert(one.clone(), Value::Object(object));
    }
    for (name, sub) in &kind.subresources {
        let gvk = json!({"group": sub.group, "version": sub.version, "kind": sub.kind});
        let known = definition_of(schemas, &gvk).unwrap_or_else(|| kind.definition.clone());
        let own = format!("#/components/schemas/{known}");
        let mut operations = Map::new();
        for verb in &sub.verbs {
            let (method, action) = match verb.as_str() {
                "get" => ("get", operation("get", &gvk, &[], None, &own)),
                "create" => ("post", operation("post", &gvk, &WRITE, Some(&own), &own)),
                "update" => ("put", operation("put", &gvk, &WRITE, Some(&own), &own)),
                _ => ("patch", patch_operation(kind, &gvk, &own)),
            };
            operations.insert(method.into(), action);
        }
        paths.insert(format!("{one}/{name}"), Value::Object(operations));
    }
}

fn definition_of(schemas: &Value, gvk: &Value) -> Option<String> {
    let all = schemas.as_object()?;
    let says = |schema: &Value| {
        let list = schema["x-kubernetes-group-version-kind"].as_array();
        list.is_some_and(|list| list.iter().any(|one| one == gvk))
    };
    all.iter().find(|(_, schema)| says(schema)).map(|(name, _)| name.clone())
}

fn operation(action: &str, gvk: &Value, query: &[&str], body: Option<&str>, answer: &str) -> Value {
    let content = json!({"application/json": {"schema": {"$ref": answer}}});
    let mut operation = json!({
        "parameters": parameters(query), "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "responses": {"200": {"content": content}, "401": {}},
    });
    if let Some(body) = body {
        operation["requestBody"] =
            json!({"required": true, "content": {"*/*": {"schema": {"$ref": body}}}});
    }
    operation
}

fn patch_operation(kind: &Kind, gvk: &Value, own: &str) -> Value {
    let mut operation = operation("patch", gvk, &PATCH, None, own);
    let mut forms = vec![
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if !kind.custom {
        forms.push("application/strategic-merge-patch+json");
    }
    let patch = json!({"schema": {"$ref": format!("{META}.Patch")}});
    let content: Map<String, Value> =
        forms.into_iter().map(|form| (form.to_owned(), patch.clone())).collect();
    operation["requestBody"] = json!({"required": true, "content": content});
    operation
}
