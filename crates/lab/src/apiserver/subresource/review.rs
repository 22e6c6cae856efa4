//! Reviews: questions about who somebody is and what he may do. They are answered, never kept.

use crate::apiserver::access::{self, Attributes, User, token};
use crate::apiserver::status::{Status, details};
use crate::apiserver::{ApiServer, Request, create};
use crate::schema::{FieldError, apply};
use serde_json::{Map, Value, json};

/// Answers POST of a review of any kind.
pub fn post(
    server: &ApiServer,
    user: &User,
    request: &Request,
    mut body: Value,
) -> Result<Value, Status> {
    let status = match request.kind.kind.as_str() {
        "SelfSubjectReview" => {
            body["metadata"]["creationTimestamp"] = server.stamp().into();
            json!({"userInfo": access::user_info(user)})
        }
        "TokenReview" => of_token(server, &body["spec"])?,
        "SelfSubjectAccessReview" => {
            check(&body["spec"], Asker::Self_)?;
            access(server, user, &body["spec"])
        }
        "SubjectAccessReview" => {
            check(&body["spec"], Asker::Named)?;
            access(server, &subject(&body["spec"]), &body["spec"])
        }
        "LocalSubjectAccessReview" => {
            check(&body["spec"], Asker::Named)?;
            within(&request.namespace, &body["spec"])?;
            access(server, &subject(&body["spec"]), &body["spec"])
        }
        "SelfSubjectRulesReview" => {
            let namespace = text(&body["spec"]["namespace"]).to_owned();
            if namespace.is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            body["spec"] = json!({});
            access::rules(server, user, &namespace)
        }
        _ => return Err(Status::method_not_allowed()),
    };
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    let asked = body.pointer_mut("/spec/resourceAttributes");
    if let Some(asked) = asked.and_then(Value::as_object_mut) {
        asked.retain(|_, value| *value != "");
    }
    let version = request.kind.api_version();
    let writer = create::writer(server, request, &version);
    apply::track(&request.kind.schema, None, &mut body, &writer);
    body["status"] = status;
    Ok(body)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn of_token(server: &ApiServer, spec: &Value) -> Result<Value, Status> {
    let shown = text(&spec["token"]);
    if shown.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted: Vec<&str> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Ok(claims) = token::read(server, shown) else {
        return Ok(match access::user_of(server, shown) {
            Some(user) if wanted.is_empty() => {
                json!({"authenticated": true, "user": access::user_info(&user)})
            }
            _ => json!({"user": {}, "error": "invalid bearer token"}),
        });
    };
    let wanted = if wanted.is_empty() { vec![token::AUDIENCE] } else { wanted };
    let met: Vec<&str> = wanted.iter().copied().filter(|one| claims.is_for(one)).collect();
    if met.is_empty() {
        let error = format!(
            "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
            go_list(&claims.audiences),
            go_list(&wanted),
        );
        return Ok(json!({"user": {}, "error": error}));
    }
    let user = access::user_info(&access::service_account(&claims));
    Ok(json!({"authenticated": true, "user": user, "audiences": met}))
}

/// `["a" "b"]`, as Go prints a list.
fn go_list(words: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{:?}", word.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Whose rights are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Self_,
    Named,
}

/// Exactly one thing is asked for, and somebody it is asked for.
fn check(spec: &Value, asker: Asker) -> Result<(), Status> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    if resource.is_object() && path.is_object() {
        let shown = json!({"Path": text(&path["path"]), "Verb": text(&path["verb"])});
        let why = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &shown, why));
    }
    if !resource.is_object() && !path.is_object() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, why));
    }
    let nobody =
        text(&spec["user"]).is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if asker == Asker::Named && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), why));
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid(&errors)) }
}

fn within(namespace: &str, spec: &Value) -> Result<(), Status> {
    let asked = text(&spec["resourceAttributes"]["namespace"]);
    if asked == namespace {
        return Ok(());
    }
    let why = "must match metadata.namespace";
    let field = "spec.resourceAttributes.namespace";
    Err(invalid(&[FieldError::invalid(field, &json!(asked), why)]))
}

/// Kubernetes leaves the kind out of these refusals.
fn invalid(errors: &[FieldError]) -> Status {
    const GROUP: &str = "authorization.k8s.io";
    let status = Status::invalid(GROUP, "", "", errors);
    let causes = status.details["causes"].clone();
    let mut details = details(GROUP, "", "");
    details["causes"] = causes;
    status.with(details)
}

fn subject(spec: &Value) -> User {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|one| text(one).to_owned()).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(&spec["user"]).to_owned(),
        uid: text(&spec["uid"]).to_owned(),
        groups: list(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), list(values))).collect(),
    }
}

fn access(server: &ApiServer, user: &User, spec: &Value) -> Value {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let ask = if path.is_object() {
        let verb = text(&path["verb"]);
        Attributes { verb, path: text(&path["path"]), ..Attributes::default() }
    } else {
        Attributes {
            verb: text(&resource["verb"]),
            api_group: text(&resource["group"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            ..Attributes::default()
        }
    };
    let decision = access::decide(server, user, &ask);
    let mut status = Map::new();
    status.insert("allowed".to_owned(), decision.allowed.into());
    if !decision.reason.is_empty() {
        status.insert("reason".to_owned(), decision.reason.into());
    }
    Value::Object(status)
}
