//! PUT, and what every change of an object goes through.

use super::access::User;
use super::create::{self, Origin, allow, metadata, refused, tidy, without_managers, writer};
use super::registry::{Generation, Kind};
use super::request::Request;
use super::status::Status;
use super::store::Entry;
use super::{Answer, ApiServer, body, crds, prepare, subresource};
use crate::schema::{FieldError, apply, builtin};
use serde_json::{Map, Value, json};

/// Answers PUT of an object, its status or another part with a life of its own.
pub(super) fn update(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    create::check_options(request, "UpdateOptions")?;
    let (mut object, warnings) = body::object(request)?;
    same_name(request, &object)?;
    create::same_namespace(request, &mut object)?;
    let Some(old) = server.store().entry(&request.key()) else {
        return missing(server, user, request, object, warnings);
    };
    let uid = metadata(&object, "uid");
    if !uid.is_empty() && uid != metadata(&old.object, "uid") {
        return Err(other_uid(request, uid, metadata(&old.object, "uid")));
    }
    if metadata(&object, "resourceVersion").is_empty() && request.kind.behaviour.version_required {
        return Err(version_required(&request.kind, &request.name));
    }
    let saved = save(server, user, request, &old, object, Origin::Update)?;
    Ok(Answer { warnings, ..Answer::ok(saved) })
}

fn missing(
    server: &ApiServer,
    user: &User,
    request: &Request,
    mut object: Value,
    warnings: Vec<String>,
) -> Result<Answer, Status> {
    if !request.kind.behaviour.create_on_update || !request.subresource.is_empty() {
        return Err(request.not_found());
    }
    let uid = metadata(&object, "uid");
    if !uid.is_empty() {
        return Err(other_uid(request, uid, ""));
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let object = create::insert(server, user, request, object, Origin::Update)?;
    Ok(Answer { warnings, ..Answer::created(object) })
}

/// 400 unless the object has the name of the URL.
pub(super) fn same_name(request: &Request, object: &Value) -> Result<(), Status> {
    let (given, wanted) = (metadata(object, "name"), &request.name);
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

fn other_uid(request: &Request, given: &str, found: &str) -> Status {
    let kind = &request.kind;
    let scope = if kind.namespaced { format!("{}/", request.namespace) } else { String::new() };
    let home = if kind.custom { format!("{}/", kind.group) } else { String::new() };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{home}{}/{scope}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {found}",
        kind.plural, request.name
    );
    Status::conflict(&kind.group, &kind.plural, &request.name, &why)
}

fn version_required(kind: &Kind, name: &str) -> Status {
    let zero = json!(0);
    let field = "metadata.resourceVersion";
    let error = FieldError::invalid(field, &zero, "must be specified for an update");
    Status::invalid(&kind.group, &kind.plural, name, &[error])
}

/// Refuses a write that was made from an older state.
pub(super) fn fresh(request: &Request, new: &Value, old: &Entry) -> Result<(), Status> {
    let given = metadata(new, "resourceVersion");
    if given.is_empty() || given == "0" {
        return Ok(());
    }
    match given.parse::<u64>() {
        Ok(revision) if revision == old.revision => Ok(()),
        Ok(_) => {
            let kind = &request.kind;
            Err(Status::outdated(&kind.group, &kind.plural, &request.name))
        }
        Err(_) => {
            let why = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
            Err(Status::new(500, "", why))
        }
    }
}

/// Completes, checks and keeps a changed object (in the version of the request). What did not change is not
/// written; what was waiting for its last finalizer goes.
pub(super) fn save(
    server: &ApiServer,
    user: &User,
    request: &Request,
    old: &Entry,
    mut new: Value,
    origin: Origin,
) -> Result<Value, Status> {
    let kind = &*request.kind;
    fresh(request, &new, old)?;
    let stored = &old.object;
    let shown = prepare::from_storage(kind, stored);
    tidy(kind, &mut new);
    without_managers(&mut new, |new| create::prune(kind, new));
    separate(request, &shown, &mut new);
    prepare::before_update(request, &shown, &mut new);
    without_managers(&mut new, |new| kind.schema.default(new));
    builtin::default(&kind.group, &kind.kind, &mut new);
    subresource::before_update(server, request, &shown, &mut new)?;
    let mut errors = settle_metadata(request, &shown, &mut new);
    // Kubernetes: whatever a status carries along, as a Deployment's revision, makes no generation.
    if request.subresource != "status" {
        advance_generation(kind, &shown, &mut new);
    }
    if origin == Origin::Update {
        let version = kind.api_version();
        apply::track(&kind.schema, Some(&shown), &mut new, &writer(server, request, &version));
    }
    allow(server, user, request, &request.key(), Some(&new), Some(&shown))?;
    errors.extend(kind.schema.validate(&new, Some(&shown)));
    errors.extend(builtin::validate(&kind.group, &kind.kind, &new, Some(&shown)));
    errors.extend(crds::mistakes(kind, &new, Some(&shown)));
    if !errors.is_empty() {
        return Err(Status::invalid(&kind.storage.group, &kind.kind, &request.name, &errors));
    }
    new["metadata"]["resourceVersion"] = old.revision.to_string().into();
    if released(&new) {
        return release(server, request, old, new);
    }
    if unchanged(&shown, &new) {
        return Ok(shown);
    }
    create::fits(&new)?;
    if request.dry_run() {
        return Ok(new);
    }
    let kept = server
        .store()
        .replace(&request.key(), prepare::to_storage(kind, new), Some(old.revision))
        .map_err(|error| refused(kind, &request.name, error))?;
    Ok(prepare::from_storage(kind, &kept.object))
}

/// Whether a deleted object has nothing left to wait for.
fn released(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && object["spec"]["finalizers"]
            .as_array()
            .is_none_or(|list| list.is_empty() || object["kind"] != "Namespace")
}

fn release(
    server: &ApiServer,
    request: &Request,
    old: &Entry,
    new: Value,
) -> Result<Value, Status> {
    if !request.dry_run() {
        server
            .store()
            .remove(&request.key(), Some(old.revision))
            .map_err(|error| refused(&request.kind, &request.name, error))?;
    }
    Ok(new)
}

/// Keeps what this request may not write: the status, or all but the status.
fn separate(request: &Request, old: &Value, new: &mut Value) {
    let kind = &request.kind;
    match request.subresource.as_str() {
        "" | "finalize" if kind.behaviour.status_apart => carry(old, new, "status"),
        "" => {}
        "status" if kind.custom => {
            let managed = new["metadata"]["managedFields"].take();
            let version = new["metadata"]["resourceVersion"].take();
            let status = new["status"].take();
            *new = old.clone();
            new["metadata"]["managedFields"] = managed;
            new["metadata"]["resourceVersion"] = version;
            new["status"] = status;
            drop_null(new, "status");
            ["managedFields", "resourceVersion"]
                .iter()
                .for_each(|field| drop_null(&mut new["metadata"], field));
        }
        "status" => {
            carry(old, new, "spec");
            if kind.group == "apps" {
                let labels = old["metadata"].get("labels").cloned().unwrap_or(Value::Null);
                new["metadata"]["labels"] = labels;
                drop_null(&mut new["metadata"], "labels");
            }
        }
        _ => {}
    }
}

fn drop_null(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut()
        && map.get(field).is_some_and(Value::is_null)
    {
        map.remove(field);
    }
}

/// Takes a field as it was.
pub(super) fn carry(old: &Value, new: &mut Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// What of `metadata` cannot change is put back, or refused.
fn settle_metadata(request: &Request, old: &Value, new: &mut Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let was = old["metadata"].as_object().cloned().unwrap_or_default();
    let Some(now) = new["metadata"].as_object_mut() else { return errors };
    let restore = |field: &str, now: &mut Map<String, Value>| match was.get(field) {
        Some(value) => now.insert(field.to_owned(), value.clone()),
        None => now.remove(field),
    };
    restore("creationTimestamp", now);
    restore("generation", now);
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = now.get(field).cloned().unwrap_or(Value::Null);
        restore(field, now);
        if !given.is_null() && Some(&given) != was.get(field) {
            let error =
                FieldError::invalid(format!("metadata.{field}"), &given, "field is immutable");
            errors.push(error);
        }
    }
    if was.contains_key("deletionTimestamp") {
        errors.extend(new_finalizers(&was, now));
    }
    if !request.kind.custom {
        // Kubernetes: the generic and the kind's own validation both say so.
        errors = errors.into_iter().flat_map(|error| [error.clone(), error]).collect();
    }
    errors
}

fn new_finalizers(was: &Map<String, Value>, now: &Map<String, Value>) -> Option<FieldError> {
    let list = |map: &Map<String, Value>| {
        map.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let old = list(was);
    let added: Vec<String> = list(now)
        .iter()
        .filter(|name| !old.contains(name))
        .map(|name| format!("{:?}", name.as_str().unwrap_or_default()))
        .collect();
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    (!added.is_empty()).then(|| FieldError::forbidden("metadata.finalizers", &why))
}

fn advance_generation(kind: &Kind, old: &Value, new: &mut Value) {
    let annotations = |object: &Value| object["metadata"]["annotations"].clone();
    let changed = match kind.behaviour.generation {
        Generation::None => false,
        Generation::Spec => old["spec"] != new["spec"],
        Generation::SpecAndAnnotations => {
            old["spec"] != new["spec"] || annotations(old) != annotations(new)
        }
        Generation::Content => content_differs(kind, old, new),
    };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = generation.into();
    }
}

fn content_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return true };
    let counts =
        |key: &String| key != "metadata" && !(kind.behaviour.status_apart && key == "status");
    let gone = old.keys().filter(|key| counts(key)).any(|key| !new.contains_key(key));
    gone || new
        .iter()
        .filter(|(key, _)| counts(key))
        .any(|(key, value)| old.get(key) != Some(value))
}

/// Whether a write would change nothing but the times in managedFields.
fn unchanged(old: &Value, new: &Value) -> bool {
    let (Some(a), Some(b)) = (old.as_object(), new.as_object()) else { return false };
    let same_rest = a.len() == b.len()
        && a.iter().all(|(key, value)| key == "metadata" || b.get(key) == Some(value));
    if !same_rest {
        return false;
    }
    let (Some(a), Some(b)) = (old["metadata"].as_object(), new["metadata"].as_object()) else {
        return false;
    };
    let fields =
        |map: &Map<String, Value>| map.keys().filter(|key| *key != "managedFields").count();
    fields(a) == fields(b)
        && a.iter().all(|(key, value)| key == "managedFields" || b.get(key) == Some(value))
        && same_managers(a.get("managedFields"), b.get("managedFields"))
}

fn same_managers(old: Option<&Value>, new: Option<&Value>) -> bool {
    let entries = |list: Option<&Value>| -> Vec<Value> {
        let mut list = list.and_then(Value::as_array).cloned().unwrap_or_default();
        list.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| {
            entry.remove("time");
        });
        list
    };
    entries(old) == entries(new)
}
