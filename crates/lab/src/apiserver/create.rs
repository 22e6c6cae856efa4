//! POST: a new object is named, completed, checked and kept.

use super::access::{self, Attributes, User};
use super::prepare;
use super::registry::{Generation, Kind};
use super::request::Request;
use super::status::{Status, details};
use super::store::{Key, StoreError};
use super::{Answer, ApiServer, body, crds};
use crate::schema::apply::{self, Writer};
use crate::schema::{FieldError, builtin};
use serde_json::{Map, Value, json};

/// Longest name before the suffix of `generateName` (Kubernetes: 63 less five).
const GENERATED_STEM: usize = 58;

/// Longest name of a field manager, in bytes (Kubernetes).
const MANAGER_SIZE: usize = 128;

/// Largest object kept, in bytes (etcd: a request of 1.5 MiB).
const OBJECT_SIZE: usize = 1_572_864;

/// Answers POST of an object.
pub(super) fn create(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    check_options(request, "CreateOptions")?;
    let (mut object, warnings) = body::object(request)?;
    if !metadata(&object, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(500, "", why));
    }
    same_namespace(request, &mut object)?;
    let mut warnings = warnings;
    warnings.extend(prepare::warnings::of(&request.kind.kind, &object));
    let object = insert(server, user, request, object, Origin::Update)?;
    Ok(Answer { warnings, ..Answer::created(object) })
}

/// How the fields of a new object came to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// POST, or PUT of something missing: its manager is noted here.
    Update,
    /// Server-side apply: managers are noted already.
    Apply,
}

/// A text of `metadata`; the empty one where there is none.
pub(super) fn metadata<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Completes, checks and keeps a new object.
pub(super) fn insert(
    server: &ApiServer,
    user: &User,
    request: &Request,
    mut object: Value,
    origin: Origin,
) -> Result<Value, Status> {
    let kind = &*request.kind;
    name(server, kind, &mut object)?;
    let key = request.key_of(metadata(&object, "name"));
    tidy(kind, &mut object);
    without_managers(&mut object, |object| {
        prune(kind, object);
        kind.schema.default(object);
    });
    stamp(server, kind, &mut object);
    prepare::convert(kind, &mut object);
    builtin::default(&kind.group, &kind.kind, &mut object);
    if origin == Origin::Update {
        track(server, request, &mut object);
    }
    let known = server.store().get(&key);
    live_namespace(server, request, &key)?;
    // What admission and the kind's own strategy add from here on belongs to nobody.
    prepare::before_create(server, user, request, &mut object)?;
    if kind.behaviour.generation != Generation::None {
        object["metadata"]["generation"] = 1.into();
    }
    allow(server, user, request, &key, Some(&object), None)?;
    let mut errors = kind.schema.validate(&object, None);
    errors.extend(builtin::validate(&kind.group, &kind.kind, &object, None));
    errors.extend(crds::mistakes(kind, &object, None));
    if !errors.is_empty() {
        return Err(Status::invalid(&kind.storage.group, &kind.kind, &key.name, &errors));
    }
    if let Some(known) = known {
        return Err(taken(kind, &key.name, &known));
    }
    fits(&object)?;
    if kind.closing {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(&kind.group, &kind.plural, &key.name, why));
    }
    if request.dry_run() {
        return Ok(object);
    }
    let stored = prepare::to_storage(kind, object);
    match server.store().create(&key, stored) {
        Ok(entry) => Ok(prepare::from_storage(kind, &entry.object)),
        Err(_) => Err(Status::already_exists(&kind.group, &kind.plural, &key.name)),
    }
}

/// Notes the writer of a new object. Kubernetes: a status that is kept although it is apart belongs to nobody.
fn track(server: &ApiServer, request: &Request, object: &mut Value) {
    let kind = &*request.kind;
    // Kubernetes: nothing in a request for a certificate is owned.
    if kind.kind == "CertificateSigningRequest" {
        return;
    }
    let map = object.as_object_mut().filter(|_| kind.behaviour.status_apart);
    let status = map.and_then(|map| map.remove("status"));
    let version = kind.api_version();
    apply::track(&kind.schema, None, object, &writer(server, request, &version));
    if let Some(status) = status {
        object["status"] = status;
    }
}

fn taken(kind: &Kind, name: &str, known: &Value) -> Status {
    let mut status = Status::already_exists(&kind.group, &kind.plural, name);
    if known["metadata"]["deletionTimestamp"].is_string() {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

/// Who writes, for managedFields.
pub(super) fn writer<'a>(server: &ApiServer, request: &'a Request, version: &'a str) -> Writer<'a> {
    // A scale subresource changes the object it belongs to, not the Scale.
    let subresource = Some(request.subresource.as_str()).filter(|part| !part.is_empty());
    let now = server.clock().now();
    Writer { manager: &request.manager, api_version: version, subresource, now }
}

/// Refuses an object over the limit of a real store.
pub(super) fn fits(object: &Value) -> Result<(), Status> {
    // Text inside a value is the only way to be that large; counting it avoids writing it out.
    fn size(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len() + 2,
            Value::Array(list) => list.iter().map(size).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
            _ => 8,
        }
    }
    if size(object) <= OBJECT_SIZE {
        return Ok(());
    }
    Err(Status::new(500, "", "etcdserver: request is too large"))
}

/// Works on an object whose managedFields are out of the way: they have no schema but their own.
pub(super) fn without_managers<T>(object: &mut Value, work: impl FnOnce(&mut Value) -> T) -> T {
    let managers = object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .and_then(|m| m.remove("managedFields"));
    let done = work(object);
    if let (Some(managers), Some(metadata)) =
        (managers, object.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("managedFields".to_owned(), managers);
    }
    done
}

/// Drops what the schema does not know, and of built-in kinds what Go would not write.
pub(super) fn prune(kind: &Kind, object: &mut Value) {
    kind.schema.prune(object);
}

/// Removes what Go's decoder would not keep: nulls of built-in kinds, and metadata only servers set.
pub(super) fn tidy(kind: &Kind, object: &mut Value) {
    if !kind.custom {
        drop_nulls(object);
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    metadata.retain(|_, value| !value.is_null());
    metadata.remove("selfLink");
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = |value: &Value| {
            value.as_object().is_some_and(Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
        };
        // An empty managedFields asks for a reset, so it is kept.
        if field != "managedFields" && metadata.get(field).is_some_and(empty) {
            metadata.remove(field);
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn stamp(server: &ApiServer, kind: &Kind, object: &mut Value) {
    if kind.behaviour.status_apart
        && !kind.behaviour.status_on_create
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    let metadata = &mut object["metadata"];
    metadata["uid"] = server.uid().into();
    metadata["creationTimestamp"] = server.stamp().into();
    if let Some(metadata) = metadata.as_object_mut() {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
            metadata.remove(field);
        }
    }
}

/// Gives an object its name from `generateName` if it has none.
fn name(server: &ApiServer, kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if !metadata(object, "name").is_empty() {
        return Ok(());
    }
    let stem = metadata(object, "generateName");
    if stem.is_empty() {
        let why = "name or generateName is required";
        let mut errors = if kind.custom { kind.schema.validate(object, None) } else { Vec::new() };
        if !errors.iter().any(|error| error.field == "metadata.name") {
            errors.insert(0, FieldError::required("metadata.name", why));
        }
        return Err(Status::invalid(&kind.group, &kind.kind, "", &errors));
    }
    let cut: String = stem.chars().take(GENERATED_STEM).collect();
    let tail = server.suffix();
    object["metadata"]["name"] = format!("{cut}{tail}").into();
    Ok(())
}

/// Puts the object into the namespace of the URL; 400 when it names another.
pub(super) fn same_namespace(request: &Request, object: &mut Value) -> Result<(), Status> {
    if !request.kind.namespaced {
        object.get_mut("metadata").and_then(Value::as_object_mut).map(|m| m.remove("namespace"));
        return Ok(());
    }
    let given = metadata(object, "namespace");
    if !given.is_empty() && given != request.namespace {
        return Err(other_namespace());
    }
    if object["metadata"].is_object() || object["metadata"].is_null() {
        object["metadata"]["namespace"] = request.namespace.clone().into();
    }
    Ok(())
}

fn other_namespace() -> Status {
    Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// Kubernetes' NamespaceLifecycle: the namespace must exist and not be on its way out.
fn live_namespace(server: &ApiServer, request: &Request, key: &Key) -> Result<(), Status> {
    if key.namespace.is_empty() {
        return Ok(());
    }
    let home = Key::new("", "namespaces", "", &key.namespace);
    let Some(namespace) = server.store().get(&home) else {
        return Err(Status::not_found("", "namespaces", &key.namespace));
    };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        key.namespace
    );
    let kind = &request.kind;
    let mut details = details(&kind.group, &kind.plural, &key.name);
    details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {} is being terminated", key.namespace),
        "field": "metadata.namespace",
    }]);
    Err(Status::forbidden(&kind.group, &kind.plural, &key.name, &why).with(details))
}

/// Asks admission.
pub(super) fn allow(
    server: &ApiServer,
    user: &User,
    request: &Request,
    key: &Key,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let ask = Attributes {
        verb: request.verb.word(),
        api_group: &request.kind.group,
        resource: &request.kind.plural,
        subresource: &request.subresource,
        namespace: &key.namespace,
        name: &key.name,
        ..Attributes::default()
    };
    access::admit(server, user, &ask, new, old)
}

/// Checks `dryRun`, `fieldValidation`, `fieldManager` and `force` of a write.
pub(super) fn check_options(request: &Request, options: &str) -> Result<(), Status> {
    let query = &request.query;
    let mut errors = Vec::new();
    let apply = request.content_type.starts_with("application/apply-patch");
    if options == "PatchOptions" {
        if !apply && query.get("force").is_some() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", why));
        }
        if apply && query.text("fieldManager").is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
    }
    if query.text("fieldManager").len() > MANAGER_SIZE {
        errors.push(FieldError::too_long("fieldManager", MANAGER_SIZE as u64));
    }
    let dry: Vec<&str> = query.all("dryRun").into_iter().filter(|one| !one.is_empty()).collect();
    if dry.iter().any(|&value| value != "All") {
        errors.push(FieldError::unsupported("dryRun", &json!(dry), &["All"]));
    }
    let strictness = query.text("fieldValidation");
    if !matches!(strictness, "" | "Ignore" | "Warn" | "Strict") {
        let known = ["", "Ignore", "Strict", "Warn"];
        errors.push(FieldError::unsupported("fieldValidation", &json!(strictness), &known));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", options, "", &errors))
}

/// 409 or 404 of a store that said no to a change.
pub(super) fn refused(kind: &Kind, name: &str, error: StoreError) -> Status {
    match error {
        StoreError::Exists => Status::already_exists(&kind.group, &kind.plural, name),
        StoreError::Missing => Status::not_found(&kind.group, &kind.plural, name),
        StoreError::Conflict(_) => Status::outdated(&kind.group, &kind.plural, name),
    }
}
