//! DELETE of one object and of many: preconditions, graceful deletion of pods, finalizers and who cleans up after.

use super::access::User;
use super::create::{allow, metadata, refused};
use super::read::{self, ListOptions};
use super::registry::Kind;
use super::request::{Query, Request};
use super::status::Status;
use super::store::{Entry, Key};
use super::{Answer, ApiServer, body, crds, prepare, protobuf};
use crate::schema::FieldError;
use serde_json::{Value, json};

/// What becomes of the objects an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Seconds a pod gets to stop; `None` takes the pod's own.
    pub grace: Option<i64>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must be at this revision.
    pub resource_version: Option<String>,
    /// `None` takes the kind's default: background.
    pub propagation: Option<Propagation>,
    /// Nothing is kept.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads the body, or the query where there is none.
    fn of(request: &Request) -> Result<Self, Status> {
        let body = if request.body.is_empty() { json!({}) } else { options_object(request)? };
        Self::read(&body, &request.query)
    }

    /// From a `DeleteOptions` object and what a query adds to it.
    pub(super) fn read(body: &Value, query: &Query) -> Result<Self, Status> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let policy = text(&body["propagationPolicy"])
            .or_else(|| query.get("propagationPolicy").map(str::to_owned));
        let orphan = body["orphanDependents"]
            .as_bool()
            .or_else(|| query.get("orphanDependents").map(|_| query.flag("orphanDependents")));
        let mut errors = Vec::new();
        let propagation = match (policy.as_deref(), orphan) {
            (Some(policy), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &json!(policy), why));
                None
            }
            (Some("Background"), None) => Some(Propagation::Background),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, Some(false)) => Some(Propagation::Background),
            (None, None) => None,
            (Some(other), None) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::unsupported("propagationPolicy", &json!(other), &known));
                None
            }
        };
        let dry = body["dryRun"].as_array().is_some_and(|list| !list.is_empty());
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        Ok(Self {
            grace: body["gracePeriodSeconds"].as_i64().or(query.number("gracePeriodSeconds")?),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            propagation,
            dry_run: dry || query.get("dryRun").is_some_and(|value| !value.is_empty()),
        })
    }
}

fn options_object(request: &Request) -> Result<Value, Status> {
    let media = request.content_type.split(';').next().unwrap_or_default();
    let read = match media {
        protobuf::MEDIA => protobuf::decode(&request.body),
        "application/yaml" => body::yaml(&request.body).map(|decoded| decoded.object),
        _ => body::json(&request.body).map(|decoded| decoded.object),
    };
    let object = read.map_err(|why| {
        Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let kind = object["kind"].as_str().unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            object["apiVersion"]
        )));
    }
    Ok(object)
}

/// What a deletion did.
pub struct Deleted {
    /// The object as it is now, or was last.
    pub object: Value,
    /// It is gone, not only marked.
    pub gone: bool,
}

/// Answers DELETE of one object.
pub(super) fn delete(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    let options = DeleteOptions::of(request)?;
    let kind = &*request.kind;
    let old = server.store().entry(&request.key()).ok_or_else(|| request.not_found())?;
    let shown = prepare::from_storage(kind, &old.object);
    forbidden_namespace(kind, &request.name)?;
    allow(server, user, request, &request.key(), None, Some(&shown))?;
    let deleted = remove(server, kind, &request.key(), &old, &options)?;
    if deleted.gone && !kind.behaviour.delete_answers_object {
        return Ok(Answer::ok(success(kind, &deleted.object)));
    }
    Ok(Answer::ok(deleted.object))
}

fn success(kind: &Kind, object: &Value) -> Value {
    let mut details = super::status::details(&kind.group, &kind.plural, metadata(object, "name"));
    details["uid"] = object["metadata"]["uid"].clone();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "details": details,
    })
}

/// Kubernetes: these namespaces stay.
fn forbidden_namespace(kind: &Kind, name: &str) -> Result<(), Status> {
    let immortal = matches!(name, "default" | "kube-system" | "kube-public");
    if kind.kind == "Namespace" && kind.group.is_empty() && immortal {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Deletes an object or marks it for deletion, as its finalizers and its grace say.
pub(super) fn remove(
    server: &ApiServer,
    kind: &Kind,
    key: &Key,
    old: &Entry,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    preconditions(kind, key, old, options)?;
    let was = &old.object;
    let mut new = prepare::from_storage(kind, was);
    let grace = grace(kind, was, options);
    let marked = was["metadata"]["deletionTimestamp"].is_string();
    finalizers_of(&mut new, options.propagation);
    crds::before_delete(server, kind, &mut new);
    let held = new["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        || namespace_held(kind, &new);
    if grace == 0 && !held {
        if options.dry_run {
            return Ok(Deleted { object: new, gone: true });
        }
        // Kubernetes: a kind with a grace is marked even when it goes at once.
        let pod = kind.kind == "Pod" && kind.group.is_empty();
        let known = was["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let mut revision = old.revision;
        if pod && marked && known.is_some_and(|known| known > 0) {
            // Kubernetes: a grace that is cut short is told as a change first.
            let mut short = new.clone();
            mark(server, kind, &mut short, 0, known);
            let kept =
                server.store().replace(key, prepare::to_storage(kind, short), Some(revision));
            revision = kept.map_err(|error| refused(kind, &key.name, error))?.revision;
        }
        let last = server
            .store()
            .remove_as(key, Some(revision), |last| {
                if pod {
                    mark(server, kind, last, 0, known);
                }
            })
            .map_err(|error| refused(kind, &key.name, error))?;
        return Ok(Deleted { object: prepare::from_storage(kind, &last.object), gone: true });
    }
    let known = was["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if !marked || grace < known {
        mark(server, kind, &mut new, grace, marked.then_some(known));
    }
    if new == prepare::from_storage(kind, was) || options.dry_run {
        return Ok(Deleted { object: new, gone: false });
    }
    let kept = server
        .store()
        .replace(key, prepare::to_storage(kind, new), Some(old.revision))
        .map_err(|error| refused(kind, &key.name, error))?;
    Ok(Deleted { object: prepare::from_storage(kind, &kept.object), gone: false })
}

fn namespace_held(kind: &Kind, object: &Value) -> bool {
    kind.kind == "Namespace"
        && kind.group.is_empty()
        && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

fn preconditions(
    kind: &Kind,
    key: &Key,
    old: &Entry,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let record = metadata(&old.object, "uid");
    let refuse = |why: String| Err(Status::conflict(&kind.group, &kind.kind, &key.name, &why));
    if let Some(uid) = &options.uid
        && uid != record
    {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({record}). The object might have been deleted and then recreated"
        ));
    }
    let record = metadata(&old.object, "resourceVersion");
    if let Some(version) = &options.resource_version
        && version != record
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({record}). The object might have been modified"
        ));
    }
    Ok(())
}

/// Seconds until an object may go. Kubernetes: only pods have a grace, and only those that a kubelet may run.
fn grace(kind: &Kind, object: &Value, options: &DeleteOptions) -> i64 {
    if kind.kind != "Pod" || !kind.group.is_empty() {
        return 0;
    }
    let bound = object["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    let over = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if !bound || over {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    // Kubernetes: a negative grace means one second.
    options.grace.or(object["metadata"]["deletionGracePeriodSeconds"].as_i64()).map_or(
        own,
        |asked| {
            if asked < 0 { 1 } else { asked }
        },
    )
}

fn finalizers_of(object: &mut Value, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        Some(Propagation::Orphan) => Some("orphan"),
    };
    let mut list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    list.retain(|name| name != "foregroundDeletion" && name != "orphan");
    list.extend(wanted.map(Value::from));
    match object["metadata"].as_object_mut() {
        Some(metadata) if list.is_empty() => {
            metadata.remove("finalizers");
        }
        Some(metadata) => {
            metadata.insert("finalizers".to_owned(), Value::Array(list));
        }
        None => {}
    }
}

/// Sets the time of deletion: now and the grace.
fn mark(server: &ApiServer, kind: &Kind, object: &mut Value, grace: i64, known: Option<i64>) {
    let now = server.clock().now();
    let begun = match (known, metadata(object, "deletionTimestamp").parse::<jiff::Timestamp>()) {
        (Some(known), Ok(until)) => until - jiff::SignedDuration::from_secs(known),
        _ => now,
    };
    let until = begun + jiff::SignedDuration::from_secs(grace);
    object["metadata"]["deletionTimestamp"] =
        until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    let definition = kind.storage == crds::storage();
    let generation = object["metadata"]["generation"].as_i64().filter(|&n| n > 0);
    if let Some(generation) = generation.filter(|_| known.is_none() && !definition) {
        object["metadata"]["generation"] = (generation + 1).into();
    }
    if definition {
        object["metadata"].as_object_mut().map(|map| map.remove("deletionGracePeriodSeconds"));
    }
    if kind.kind == "Namespace" && kind.group.is_empty() {
        object["status"]["phase"] = "Terminating".into();
        object["metadata"].as_object_mut().map(|map| map.remove("deletionGracePeriodSeconds"));
    }
}

/// Answers DELETE of many objects: the list of those that matched, as they were.
pub(super) fn delete_collection(
    server: &ApiServer,
    user: &User,
    request: &Request,
) -> Result<Answer, Status> {
    let options = DeleteOptions::of(request)?;
    let list = ListOptions::of(request)?;
    let kind = &*request.kind;
    let namespace = Some(request.namespace.as_str()).filter(|name| !name.is_empty());
    let (revision, entries) = server.store().entries(&kind.storage, namespace);
    let mut items = Vec::new();
    for (_, old) in entries.iter().filter(|(_, entry)| list.matches(&entry.object)) {
        let shown = prepare::from_storage(kind, &old.object);
        let text = |field: &str| metadata(&shown, field).to_owned();
        let key = Key {
            resource: kind.storage.clone(),
            namespace: text("namespace"),
            name: text("name"),
        };
        allow(server, user, request, &key, None, Some(&shown))?;
        remove(server, kind, &key, old, &options)?;
        items.push(shown);
    }
    Ok(Answer::ok(read::list_object(kind, revision, items)))
}
