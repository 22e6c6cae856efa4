//! The scale subresource: replicas of anything, in one shape.

use crate::apiserver::access::User;
use crate::apiserver::create::{Origin, metadata};
use crate::apiserver::request::Verb;
use crate::apiserver::{Answer, ApiServer, Kind, Request, Status, body, patch, prepare, update};
use crate::schema::{FieldError, Schema, jsonpath};
use serde_json::{Map, Value, json};

/// Answers GET of a scale.
pub(super) fn get(server: &ApiServer, request: &Request) -> Result<Answer, Status> {
    let object = server.store().get(&request.key()).ok_or_else(|| request.not_found())?;
    Ok(Answer::ok(scale_of(&request.kind, &object)))
}

/// Answers PUT and PATCH of a scale: replicas of its object.
pub(super) fn write(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    let old = server.store().entry(&request.key()).ok_or_else(|| request.not_found())?;
    let shown = prepare::from_storage(&request.kind, &old.object);
    let before = scale_of(&request.kind, &shown);
    let (after, warnings) = if request.verb == Verb::Patch {
        let form = patch::form(request)?;
        // No schema says what a Scale is; it has no lists that could merge.
        patch::patched(request, form, &Schema::builtin(&Value::Null, ""), &before)?
    } else {
        (body::decode(request)?.object, Vec::new())
    };
    let mut named = after.clone();
    if named["metadata"]["name"].is_null() {
        named["metadata"]["name"] = request.name.clone().into();
    }
    update::same_name(request, &named)?;
    let replicas = after["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        return Err(negative(&request.kind, &request.name, replicas));
    }
    let mut new = shown;
    if let Some(scale) = &request.kind.scale {
        set(&mut new, &scale.spec, replicas.into());
    }
    new["metadata"]["resourceVersion"] = metadata(&after, "resourceVersion").into();
    let saved = update::save(server, user, request, &old, new, Origin::Update)?;
    Ok(Answer { warnings, ..Answer::ok(scale_of(&request.kind, &saved)) })
}

fn negative(kind: &Kind, name: &str, replicas: i64) -> Status {
    let (field, why) = if kind.custom {
        (".spec.replicas", "should be a non-negative integer")
    } else {
        ("spec.replicas", "must be greater than or equal to 0")
    };
    let error = FieldError::invalid(field, &json!(replicas), why);
    let (group, name_of) = if kind.custom {
        (kind.group.as_str(), kind.kind.as_str())
    } else {
        ("autoscaling", "Scale")
    };
    Status::invalid(group, name_of, name, &[error])
}

/// Sets the value at a path of plain fields.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for field in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[field];
    }
    *at = value;
}

fn number(path: &str, object: &Value) -> i64 {
    jsonpath::find(path, object).first().and_then(|value| value.as_i64()).unwrap_or(0)
}

/// The Scale of an object.
fn scale_of(kind: &Kind, object: &Value) -> Value {
    let mut meta = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta.insert(field.to_owned(), value.clone());
        }
    }
    let Some(paths) = &kind.scale else { return Value::Null };
    let mut spec = Map::new();
    let replicas = number(&paths.spec, object);
    if replicas != 0 {
        spec.insert("replicas".to_owned(), replicas.into());
    }
    let mut status = json!({"replicas": number(&paths.status, object)});
    let selector = match &paths.selector {
        Some(path) => jsonpath::find(path, object)
            .first()
            .and_then(|value| value.as_str())
            .unwrap_or_default()
            .to_owned(),
        None => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
        "spec": spec, "status": status,
    })
}

/// A LabelSelector in kubectl's syntax.
fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for term in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = term["key"].as_str().unwrap_or_default();
        let values = term["values"].as_array().into_iter().flatten();
        let list = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        terms.push(match term["operator"].as_str() {
            Some("In") => format!("{key} in ({list})"),
            Some("NotIn") => format!("{key} notin ({list})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}
