//! What clients send: JSON, YAML or protobuf, checked against the kind the URL names, with Go's words for what is wrong.

use super::create::without_managers;
use super::protobuf;
use super::registry::Kind;
use super::request::Request;
use super::status::Status;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;

mod yaml;

pub(super) use yaml::{warnings, yaml};

/// What a client sent, read.
pub(super) struct Decoded {
    /// The last of duplicate fields wins.
    pub object: Value,
    /// What a strict reader complains of, as `duplicate field "spec.size"`.
    pub complaints: Vec<String>,
}

/// Reads a body; custom kinds have no form in protobuf.
pub(super) fn decode(request: &Request) -> Result<Decoded, Status> {
    let media = request.content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "" | "application/json" => json(&request.body).map_err(|why| {
            let kind = &request.kind.kind;
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({})",
                excerpt(&request.body)
            ))
        }),
        "application/yaml" => yaml(&request.body).and_then(whole).map_err(|why| {
            let kind = &request.kind.kind;
            let excerpt = excerpt(&request.body);
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why} ({excerpt})"
            ))
        }),
        protobuf::MEDIA if !request.kind.custom => {
            let object = protobuf::decode(&request.body).map_err(|why| {
                Status::bad_request(format!("the object provided is unrecognized: {why}"))
            })?;
            Ok(Decoded { object, complaints: Vec::new() })
        }
        _ => {
            let more = if request.kind.custom { String::new() } else { format!(", {}", protobuf::MEDIA) };
            let why = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
            Err(Status::new(415, "UnsupportedMediaType", format!("{why}{more}")))
        }
    }
}

/// Kubernetes: a document with nothing in it is an object without fields; a list or a text is none.
fn whole(mut decoded: Decoded) -> Result<Decoded, String> {
    if decoded.object.is_null() {
        decoded.object = Value::Object(Map::new());
    }
    match &decoded.object {
        Value::Object(_) => Ok(decoded),
        other => Err(format!("couldn't get version/kind; json parse error: {}", no_object(other))),
    }
}

/// Go's words for a document that is no object.
fn no_object(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go_type(value)
    )
}

/// Longest piece of a body that an error repeats.
const EXCERPT: usize = 30;

fn excerpt(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    if body[0] != b'{' {
        return body.iter().take(EXCERPT).map(|byte| format!("{byte:02x}")).collect();
    }
    match body.get(..EXCERPT) {
        Some(start) if body.len() > EXCERPT => {
            format!("{} ...", String::from_utf8_lossy(start))
        }
        _ => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Reads JSON; the error is in the words of Go's decoder.
pub(super) fn json(body: &[u8]) -> Result<Decoded, String> {
    let notes = Notes::default();
    let mut source = serde_json::Deserializer::from_slice(body);
    let read = Node { notes: &notes }.deserialize(&mut source).and_then(|value| {
        source.end()?;
        Ok(value)
    });
    match read {
        Ok(value) if value.is_object() => Ok(Decoded { object: value, complaints: notes.taken() }),
        Ok(value) => Err(no_object(&value)),
        Err(error) => Err(syntax(body, &error)),
    }
}

/// What Go calls a JSON value in its errors.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's words for a syntax error.
pub(super) fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() || body.is_empty() {
        return "unexpected end of JSON input".to_owned();
    }
    let before = body.split_inclusive(|&byte| byte == b'\n').take(error.line() - 1);
    let at = before.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
    let odd = char::from(body.get(at).copied().unwrap_or(b' '));
    let text = error.to_string();
    let place = if text.starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{odd}' {place}")
}

/// What the complaint about a key that comes twice in JSON begins with.
const DUPLICATE: &str = "duplicate field";

/// What is checked of a body that is an object of the request's kind.
pub(super) fn object(request: &Request) -> Result<(Value, Vec<String>), Status> {
    let mut decoded = decode(request)?;
    identify(request, &mut decoded.object)?;
    let kind = &request.kind;
    if let Some(why) = kind.schema.decode_errors(&decoded.object) {
        return Err(unreadable(kind, &why));
    }
    let mut complaints = decoded.complaints;
    let warnings = match request.query.text("fieldValidation") {
        "Ignore" => Vec::new(),
        strictness => {
            let unknown =
                without_managers(&mut decoded.object, |object| kind.schema.unknown_fields(object));
            let repeats = complaints.iter().any(|one| one.starts_with(DUPLICATE));
            if !repeats || kind.custom {
                complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
            } else {
                complaints = in_order(&request.body, unknown);
            }
            if strictness == "Strict" && !complaints.is_empty() {
                let all = format!("strict decoding error: {}", complaints.join(", "));
                return Err(unreadable(kind, &all));
            }
            complaints
        }
    };
    Ok((decoded.object, yaml::warnings(warnings)))
}

/// Kubernetes: one reader finds both kinds of mistakes in built-in objects, in the order of the text.
fn in_order(body: &[u8], unknown: Vec<String>) -> Vec<String> {
    let notes = Notes { unknown, ..Notes::default() };
    let mut source = serde_json::Deserializer::from_slice(body);
    // The body was read before: it is well-formed.
    let _ = Node { notes: &notes }.deserialize(&mut source);
    notes.taken()
}

fn unreadable(kind: &Kind, why: &str) -> Status {
    let Kind { kind: name, version, .. } = kind;
    Status::bad_request(format!(
        "{name} in version {version:?} cannot be handled as a {name}: {why}"
    ))
}

/// Checks `apiVersion` and `kind`; those left out of a built-in object follow from the URL.
fn identify(request: &Request, object: &mut Value) -> Result<(), Status> {
    let kind = &request.kind;
    let wanted = kind.api_version();
    let given = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, name) = (given("apiVersion"), given("kind"));
    if kind.custom && (api_version.is_empty() || name.is_empty()) {
        let missing = if name.is_empty() { "Kind" } else { "apiVersion" };
        let text = String::from_utf8_lossy(&request.body);
        let message = format!(
            "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{text}' ({})",
            kind.kind,
            excerpt(&request.body)
        );
        return Err(Status::bad_request(message));
    }
    if !name.is_empty() && name != kind.kind {
        let own = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(other_kind(request, &api_version, &name, own));
    }
    if !api_version.is_empty() && api_version != wanted {
        return Err(Status::bad_request(if kind.custom {
            format!(
                "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
            )
        } else {
            format!(
                "{0} in version {1:?} cannot be handled as a {0}: no kind {0:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"",
                kind.kind, kind.version
            )
        }));
    }
    object["apiVersion"] = wanted.into();
    object["kind"] = kind.kind.clone().into();
    Ok(())
}

fn other_kind(request: &Request, version: &str, name: &str, object: &str) -> Status {
    let kind = &request.kind;
    if kind.custom {
        let text = Value::String(name.to_owned());
        let why = format!("must be {}", kind.kind);
        let error = crate::schema::FieldError::invalid("kind", &text, &why);
        return Status::invalid(&kind.group, name, object, &[error]);
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    let package = if kind.group.is_empty() { "core" } else { &kind.group };
    Status::bad_request(format!(
        "{name} in version {short:?} cannot be handled as a {0}: converting ({short}.{name}) to ({package}.{0}): unknown conversion",
        kind.kind
    ))
}

#[derive(Default)]
struct Notes {
    path: RefCell<Vec<Step>>,
    found: RefCell<Vec<String>>,
    /// Paths to be told of where they come.
    unknown: Vec<String>,
}

enum Step {
    Field(String),
    Index(usize),
}

impl Notes {
    /// Notes the field that is about to be read, if it is one of the unknown.
    fn entered(&self) {
        if self.unknown.is_empty() {
            return;
        }
        let path = self.here();
        let complaint = format!("unknown field {path:?}");
        if self.unknown.contains(&path) && !self.found.borrow().contains(&complaint) {
            self.found.borrow_mut().push(complaint);
        }
    }

    fn duplicate(&self, key: &str) {
        let path = self.here();
        let dot = if path.is_empty() { "" } else { "." };
        self.found.borrow_mut().push(format!("{DUPLICATE} \"{path}{dot}{key}\""));
    }

    fn here(&self) -> String {
        let mut path = String::new();
        for step in self.path.borrow().iter() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    fn taken(self) -> Vec<String> {
        self.found.into_inner()
    }
}

/// Reads a value and notes keys that come twice.
#[derive(Clone, Copy)]
struct Node<'a> {
    notes: &'a Notes,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.notes.path.borrow_mut().push(Step::Index(list.len()));
            let next = seq.next_element_seed(self)?;
            self.notes.path.borrow_mut().pop();
            match next {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Key(key)) = access.next_key()? {
            self.notes.path.borrow_mut().push(Step::Field(key));
            self.notes.entered();
            let value = access.next_value_seed(self)?;
            let Some(Step::Field(key)) = self.notes.path.borrow_mut().pop() else { continue };
            if map.contains_key(&key) {
                self.notes.duplicate(&key);
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        String::deserialize(source).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_told_with_their_path() {
        let body = br#"{"spec":{"a":1,"a":2,"list":[{"b":1},{"b":1,"b":3}]}}"#;
        let read = json(body).expect("it is JSON");
        let want = ["duplicate field \"spec.a\"", "duplicate field \"spec.list[1].b\""];
        assert_eq!(read.complaints, want);
        assert_eq!(read.object["spec"]["a"], 2);
    }

    #[test]
    fn syntax_errors_have_gos_words() {
        let why = |body: &str| json(body.as_bytes()).err().unwrap_or_default();
        assert_eq!(why(""), "unexpected end of JSON input");
        assert_eq!(why(r#"{"metadata": "#), "unexpected end of JSON input");
        let key = "invalid character 'b' looking for beginning of object key string";
        assert_eq!(why("{bad"), key);
        assert!(why("[]").starts_with("json: cannot unmarshal array into Go value"));
    }
}
