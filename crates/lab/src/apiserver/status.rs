//! Refusals as Kubernetes words them: `metav1.Status` of a failure.

use crate::schema::FieldError;
use serde_json::{Map, Value, json};

/// What Go's router says of a path it does not have.
pub const NO_SUCH_PATH: &str = "404 page not found\n";

/// An answer that says no. Becomes a `Status` object with `status: Failure`.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// HTTP status.
    pub code: u16,
    /// Machine readable, `""` where the real server gives none.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// `name`, `group`, `kind`, `uid`, `causes`, `retryAfterSeconds`; null leaves it out.
    pub details: Value,
    /// Where a list can go on after a 410.
    pub resume: Option<String>,
}

/// Sets a key unless the text is empty, as Go's `omitempty`.
fn put(map: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        map.insert(key.to_owned(), Value::String(text.to_owned()));
    }
}

/// `details` of a refusal about one object.
#[must_use]
pub fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut map = Map::new();
    put(&mut map, "name", name);
    put(&mut map, "group", group);
    put(&mut map, "kind", kind);
    Value::Object(map)
}

/// `deployments.apps`, or `pods` for the group without a name.
#[must_use]
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl Status {
    /// A refusal without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, resume: None }
    }

    /// The same with these details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// 404 of an object.
    #[must_use]
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Self::new(404, "NotFound", message).with(details(group, resource, name))
    }

    /// 404 of a resource or version the server does not have.
    #[must_use]
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with(json!({}))
    }

    /// 404 of a path, in plain text.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(404, "", NO_SUCH_PATH)
    }

    /// Whether this is said in plain text.
    #[must_use]
    pub fn is_no_such_path(&self) -> bool {
        self.message == NO_SUCH_PATH
    }

    /// 409 of a creation.
    #[must_use]
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).with(details(group, resource, name))
    }

    /// 409 of an update; `why` is the part behind the colon.
    #[must_use]
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(409, "Conflict", message).with(details(group, resource, name))
    }

    /// 409 of an update with a resourceVersion that is not the newest.
    #[must_use]
    pub fn outdated(group: &str, resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 403; `why` is the part behind the colon.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).with(details(group, resource, name))
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let causes = json!({"causes": [{"message": message}]});
        Self::new(500, "InternalError", format!("Internal error occurred: {message}")).with(causes)
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    /// 422; `kind` with its group stands first in the message.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // Kubernetes: the message tells each mistake once, the causes as often as it was found.
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors.iter().map(cause).collect();
        let mut details = details(group, kind, name);
        details["causes"] = Value::Array(causes);
        let message = format!("{} {name:?} is invalid: {all}", qualified(group, kind));
        Self::new(422, "Invalid", message).with(details)
    }

    /// The object that goes over the wire.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        put(&mut metadata, "continue", self.resume.as_deref().unwrap_or_default());
        let mut map = Map::new();
        map.insert("kind".into(), "Status".into());
        map.insert("apiVersion".into(), "v1".into());
        map.insert("metadata".into(), Value::Object(metadata));
        map.insert("status".into(), "Failure".into());
        put(&mut map, "message", &self.message);
        put(&mut map, "reason", self.reason);
        if !self.details.is_null() {
            map.insert("details".into(), self.details.clone());
        }
        map.insert("code".into(), self.code.into());
        Value::Object(map)
    }
}

fn cause(error: &FieldError) -> Value {
    let text = error.to_string();
    let message = text.strip_prefix(&format!("{}: ", error.field)).unwrap_or(&text);
    json!({"reason": error.reason.to_string(), "message": message, "field": error.field})
}
