//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use super::access::User;
use super::create::{self, Origin, metadata, writer};
use super::request::Request;
use super::status::{Status, details};
use super::store::Entry;
use super::update::{fresh, same_name, save};
use super::{Answer, ApiServer, body, prepare};
use crate::schema::apply::{self, ApplyError};
use crate::schema::patch::{self, PatchError};
use crate::schema::{FieldError, Schema};
use serde_json::{Value, json};

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The form a Content-Type names; 415 with the forms there are.
pub(super) fn form(request: &Request) -> Result<Form, Status> {
    let media = request.content_type.split(';').next().unwrap_or_default().trim();
    let custom = request.kind.custom;
    match media {
        "application/json-patch+json" => Ok(Form::Json),
        "application/merge-patch+json" => Ok(Form::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(Form::Strategic),
        "application/apply-patch+yaml" => Ok(Form::Apply),
        "application/strategic-merge-patch+json" => Err(Status::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => {
            Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with(json!({})))
        }
    }
}

/// Answers PATCH of an object or of its status.
pub(super) fn patch(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    let form = form(request)?;
    create::check_options(request, "PatchOptions")?;
    let old = server.store().entry(&request.key());
    if form == Form::Apply {
        return server_side_apply(server, user, request, old.as_deref());
    }
    let old = old.ok_or_else(|| request.not_found())?;
    let shown = prepare::from_storage(&request.kind, &old.object);
    let (new, warnings) = patched(request, form, &request.kind.schema, &shown)?;
    let given = metadata(&new, "name");
    if given != request.name {
        same_name(request, &new)?;
    }
    let mut new = new;
    create::same_namespace(request, &mut new)?;
    let saved = save(server, user, request, &old, new, Origin::Update)?;
    Ok(Answer { warnings, ..Answer::ok(saved) })
}

/// The object (or Scale) with the patch of the request applied, and warnings about it.
pub(super) fn patched(
    request: &Request,
    form: Form,
    schema: &Schema,
    shown: &Value,
) -> Result<(Value, Vec<String>), Status> {
    let (change, mut complaints) = read(&request.body, form)?;
    let new = match form {
        Form::Json => patch::json(shown, &change),
        Form::Merge => patch::merge(shown, &change),
        Form::Strategic | Form::Apply => patch::strategic(schema, shown, &change),
    }
    .map_err(refused)?;
    let whole = || Value::String(new.to_string());
    if new["kind"] != shown["kind"] || new["apiVersion"] != shown["apiVersion"] {
        let why = format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            new["kind"], new["apiVersion"]
        );
        return Err(unusable(&whole(), &why));
    }
    if let Some(why) = schema.decode_errors(&new) {
        return Err(unusable(&whole(), &why));
    }
    let strictness = request.query.text("fieldValidation");
    if strictness == "Ignore" {
        return Ok((new, Vec::new()));
    }
    let mut new = new;
    let unknown = create::without_managers(&mut new, |object| schema.unknown_fields(object));
    complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    if strictness == "Strict" && !complaints.is_empty() {
        let why = format!("strict decoding error: {}", complaints.join(", "));
        let shown = if form == Form::Strategic { go_map(&change) } else { new.to_string() };
        let shown = Value::String(shown);
        return Err(unusable(&shown, &why));
    }
    Ok((new, complaints))
}

fn read(bytes: &[u8], form: Form) -> Result<(Value, Vec<String>), Status> {
    if form == Form::Json {
        let change: Value = serde_json::from_slice(bytes).map_err(|error| {
            let why = body::syntax(bytes, &error);
            Status::bad_request(format!("error decoding patch: {why}"))
        })?;
        return Ok((change, Vec::new()));
    }
    let prefix = if form == Form::Merge { "error decoding patch: " } else { "" };
    let decoded = body::json(bytes).map_err(|why| {
        let why = match why.split_once(" into Go value of type ") {
            Some((start, _)) => format!("{start} into Go value of type map[string]interface {{}}"),
            None => why,
        };
        Status::bad_request(format!("{prefix}{why}"))
    })?;
    Ok((decoded.object, decoded.complaints))
}

/// 422 of a patch whose result is not an object of the kind.
fn unusable(shown: &Value, why: &str) -> Status {
    Status::invalid("", "", "", &[FieldError::invalid("patch", shown, why)])
}

/// A value as Go prints a map.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let inner: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_map(value))).collect();
            format!("map[{}]", inner.join(" "))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(go_map).collect::<Vec<_>>().join(" "))
        }
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

fn refused(error: PatchError) -> Status {
    let PatchError { code, reason, message } = error;
    let status = Status::new(code, reason, message);
    if code == 422 { status.with(json!({})) } else { status }
}

fn server_side_apply(
    server: &ApiServer,
    user: &User,
    request: &Request,
    old: Option<&Entry>,
) -> Result<Answer, Status> {
    let kind = &*request.kind;
    let (mut config, repeated) = configuration(request)?;
    let Some(old) = old else {
        if !request.subresource.is_empty() {
            return Err(request.not_found());
        }
        if !metadata(&config, "uid").is_empty() {
            let why = "uid mismatch: the provided object specified uid %s, and no existing object was found"
                .replace("%s", metadata(&config, "uid"));
            return Err(Status::conflict(&kind.group, &kind.plural, &request.name, &why));
        }
        config["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
        let mut merged = merge(server, request, None, &config)?;
        let warnings = tolerated(request, repeated)?;
        create::same_namespace(request, &mut merged)?;
        let object = create::insert(server, user, request, merged, Origin::Apply)?;
        return Ok(Answer { warnings, ..Answer::created(object) });
    };
    fresh(request, &config, old)?;
    let shown = prepare::from_storage(kind, &old.object);
    let mut merged = merge(server, request, Some(&shown), &config)?;
    let warnings = tolerated(request, repeated)?;
    for field in ["resourceVersion", "uid"] {
        if !metadata(&config, field).is_empty() {
            merged["metadata"][field] = config["metadata"][field].clone();
        }
    }
    if metadata(&config, "resourceVersion").is_empty() {
        merged["metadata"]["resourceVersion"] = old.revision.to_string().into();
    }
    let saved = save(server, user, request, old, merged, Origin::Apply)?;
    Ok(Answer { warnings, ..Answer::ok(saved) })
}

/// Keys that come twice in what is applied, as warnings.
fn tolerated(request: &Request, repeated: Vec<String>) -> Result<Vec<String>, Status> {
    match (request.query.text("fieldValidation"), repeated.first()) {
        ("Strict", Some(why)) => {
            Err(Status::bad_request(format!("error strict decoding YAML: {why}")))
        }
        ("Ignore", _) => Ok(Vec::new()),
        _ => Ok(body::warnings(repeated)),
    }
}

/// Reads what an apply sends and checks that it names itself; also which keys come twice in it.
fn configuration(request: &Request) -> Result<(Value, Vec<String>), Status> {
    let kind = &request.kind;
    let refused = |why: &str| Status::bad_request(format!("error decoding YAML: {why}"));
    let decoded = body::yaml(&request.body)
        .map_err(|why| refused(&format!("error converting YAML to JSON: {why}")))?;
    let mut config = decoded.object;
    if !config.is_object() && !config.is_null() {
        let what = body::go_type(&config);
        return Err(refused(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )));
    }
    let given = |field: &str| config[field].as_str().unwrap_or_default().to_owned();
    let (version, name) = (given("apiVersion"), given("kind"));
    if version != kind.api_version() || name != kind.kind {
        let version = if version.contains('/') { version } else { format!("/{version}") };
        return Err(Status::bad_request(format!("invalid object type: {version}, Kind={name}")));
    }
    let managed = &config["metadata"]["managedFields"];
    if managed.as_array().is_some_and(|list| !list.is_empty()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    // A name of another type is for the schema to refuse.
    let name = &config["metadata"]["name"];
    if name.is_string() || name.is_null() {
        same_name(request, &config)?;
    }
    let given = config["metadata"].get("namespace").cloned();
    create::same_namespace(request, &mut config)?;
    if given.is_none() {
        config["metadata"].as_object_mut().map(|metadata| metadata.remove("namespace"));
    }
    keep_own_part(request, &mut config);
    Ok((config, decoded.complaints))
}

/// Takes out what this path does not write, so that it is not owned either.
fn keep_own_part(request: &Request, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    match request.subresource.as_str() {
        "" if request.kind.behaviour.status_apart => {
            map.remove("status");
        }
        "status" => {
            map.retain(|field, _| {
                matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status")
            });
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                let identity = ["name", "namespace", "uid", "resourceVersion"];
                metadata.retain(|field, _| identity.contains(&field.as_str()));
            }
        }
        _ => {}
    }
}

fn merge(
    server: &ApiServer,
    request: &Request,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value, Status> {
    let kind = &*request.kind;
    let version = kind.api_version();
    let force = request.query.flag("force");
    let ctx = writer(server, request, &version);
    apply::apply(&kind.schema, live, config, &ctx, force).map_err(|error| {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts { causes, .. } => Status::new(409, "Conflict", message).with({
                let mut details = details("", "", "");
                details["causes"] = Value::Array(causes);
                details
            }),
            ApplyError::ManagedFields => Status::bad_request(message),
            ApplyError::Typed(_) => Status::new(500, "", message),
        }
    })
}
