//! TokenRequest: a token for a service account, bound to a pod if wished.

use crate::apiserver::access::token::{self, AUDIENCE, Bound, Claims};
use crate::apiserver::access::{self, Attributes, User};
use crate::apiserver::status::details;
use crate::apiserver::{ApiServer, Key, Request, Status, create};
use crate::schema::{FieldError, Schema, apply};
use serde_json::{Value, json};

/// Seconds a token is good for unless asked otherwise (Kubernetes: 1 h).
const DEFAULT_LENGTH: i64 = 3_600;
/// Shortest wish in seconds (Kubernetes: 10 min).
const SHORTEST: i64 = 600;
/// Longest wish in seconds (Kubernetes: 2^32).
const LONGEST: i64 = 1 << 32;

/// Answers POST of a TokenRequest to a service account.
pub fn post(
    server: &ApiServer,
    user: &User,
    request: &Request,
    body: &Value,
) -> Result<Value, Status> {
    let account = server.store().get(&request.key()).ok_or_else(|| request.not_found())?;
    let ask = Attributes {
        verb: "create",
        resource: "serviceaccounts",
        subresource: "token",
        namespace: &request.namespace,
        name: &request.name,
        ..Attributes::default()
    };
    access::admit(server, user, &ask, Some(body), Some(&account))?;
    let spec = &body["spec"];
    let length = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_LENGTH);
    let why = match length {
        ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
        SHORTEST..=LONGEST => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(why) = why {
        let error = FieldError::invalid("spec.expirationSeconds", &json!(length), why);
        return Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
    }
    let bound = bound(server, request, &spec["boundObjectRef"])?;
    let mut audiences: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(AUDIENCE.to_owned());
    }
    let text = |field: &str| account["metadata"][field].as_str().unwrap_or_default().to_owned();
    let now = server.clock().now();
    let claims = Claims {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        id: server.uid(),
        audiences: audiences.clone(),
        issued: now.as_second(),
        expires: now.as_second() + length,
        bound,
    };
    let expires = jiff::Timestamp::from_second(claims.expires).unwrap_or(jiff::Timestamp::MAX);
    let version = "authentication.k8s.io/v1";
    let writer = create::writer(server, request, version);
    let mut asked = json!({"metadata": {}, "spec": spec});
    asked["spec"]["expirationSeconds"] = length.into();
    // No schema is at hand here: a request has no lists that could be merged.
    apply::track(&Schema::builtin(&Value::Null, ""), None, &mut asked, &writer);
    unmark(&mut asked["metadata"]["managedFields"][0]["fieldsV1"]);
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": claims.name, "namespace": claims.namespace, "uid": claims.uid,
            "creationTimestamp": server.stamp(), "managedFields": asked["metadata"]["managedFields"],
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": length,
            "boundObjectRef": spec["boundObjectRef"],
        },
        "status": {
            "token": token::write(server, &claims),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    }))
}

/// Structs of Go are not owned themselves, as maps would be.
fn unmark(fields: &mut Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    fields.remove(".");
    fields.values_mut().for_each(unmark);
}

/// What the token is to be bound to, which must exist with the uid given.
fn bound(server: &ApiServer, request: &Request, wish: &Value) -> Result<Option<Bound>, Status> {
    if !wish.is_object() {
        return Ok(None);
    }
    let text = |field: &str| wish[field].as_str().unwrap_or_default();
    let (kind, plural, namespace) = match (text("apiVersion"), text("kind")) {
        ("v1" | "", "Pod") => ("pod", "pods", request.namespace.as_str()),
        ("v1" | "", "Secret") => ("secret", "secrets", request.namespace.as_str()),
        ("v1" | "", "Node") => ("node", "nodes", ""),
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let name = text("name");
    let found = server.store().get(&Key::new("", plural, namespace, name));
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?;
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
    let given = text("uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        let status = Status::conflict("", text("kind"), name, &why);
        return Err(status.with(details("", text("kind"), name)));
    }
    Ok(Some(Bound { kind, name: name.to_owned(), uid: uid.to_owned() }))
}
