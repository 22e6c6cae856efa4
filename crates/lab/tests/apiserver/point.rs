//! Places in an answer: JSON pointers that also find an element of a list by one of its fields.
//!
//! `/status/conditions/[type=Ready]/status` is the status of the condition of that type; `/items/*/metadata/name`
//! are the names of all items. `~1` stands for a slash in a key.

use serde_json::Value;

fn segments(pointer: &str) -> Vec<String> {
    let parts = pointer.split('/').filter(|part| !part.is_empty());
    parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

/// The place of the element that a segment names.
fn place(list: &[Value], segment: &str) -> Option<usize> {
    let named = segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match named.and_then(|named| named.split_once('=')) {
        Some((field, wanted)) => list.iter().position(|one| one[field].as_str() == Some(wanted)),
        None => segment.parse().ok().filter(|&at: &usize| at < list.len()),
    }
}

fn find(value: &Value, path: &[String]) -> Option<Value> {
    let Some((first, rest)) = path.split_first() else { return Some(value.clone()) };
    match value {
        Value::Array(list) if first == "*" => {
            let all = list.iter().map(|one| find(one, rest).unwrap_or(Value::Null));
            Some(all.collect())
        }
        Value::Array(list) => place(list, first).and_then(|at| find(&list[at], rest)),
        Value::Object(map) => map.get(first).and_then(|one| find(one, rest)),
        _ => None,
    }
}

/// What is at this place.
pub fn get(value: &Value, pointer: &str) -> Option<Value> {
    find(value, &segments(pointer))
}

fn cut(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Value::Array(list) if first == "*" => list.iter_mut().for_each(|one| cut(one, rest)),
        Value::Array(list) => {
            if let Some(at) = place(list, first) {
                if rest.is_empty() {
                    list.remove(at);
                } else {
                    cut(&mut list[at], rest);
                }
            }
        }
        Value::Object(map) if rest.is_empty() => {
            map.remove(first);
        }
        Value::Object(map) => {
            if let Some(inner) = map.get_mut(first) {
                cut(inner, rest);
            }
        }
        _ => {}
    }
}

/// Takes away what is at this place.
pub fn remove(value: &mut Value, pointer: &str) {
    cut(value, &segments(pointer));
}

/// What is waited for: a status, or something in the body.
#[derive(Clone, Debug)]
pub enum Condition {
    Status(u16),
    Present(String),
    Absent(String),
    Equal(String, Value),
}

impl Condition {
    /// `200`, `/status/phase`, `no /status/phase` or `/status/phase = "Running"`.
    pub fn read(text: &str) -> Self {
        if let Ok(status) = text.parse() {
            return Self::Status(status);
        }
        if let Some(pointer) = text.strip_prefix("no ") {
            return Self::Absent(pointer.to_owned());
        }
        match text.split_once(" = ") {
            Some((pointer, value)) => Self::Equal(
                pointer.to_owned(),
                serde_json::from_str(value).expect("the value after = is JSON"),
            ),
            None => Self::Present(text.to_owned()),
        }
    }

    pub fn holds(&self, status: u16, body: &Value) -> bool {
        match self {
            Self::Status(wanted) => status == *wanted,
            Self::Present(pointer) => get(body, pointer).is_some(),
            Self::Absent(pointer) => get(body, pointer).is_none(),
            Self::Equal(pointer, wanted) => get(body, pointer).as_ref() == Some(wanted),
        }
    }
}

#[test]
fn an_element_is_found_by_a_field_and_all_by_a_star() {
    let body = serde_json::json!({"a": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]});
    assert_eq!(get(&body, "/a/[n=y]/v"), Some(2.into()));
    assert_eq!(get(&body, "/a/*/v"), Some(serde_json::json!([1, 2])));
    assert_eq!(get(&body, "/a/[n=z]/v"), None);
}
