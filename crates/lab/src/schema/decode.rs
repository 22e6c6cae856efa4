//! The errors of Go's JSON decoder, for objects whose types Go knows.

use super::format;
use super::node::{Arena, Id, Node, Type};
use super::quantity;
use serde_json::Value;

/// The first value of a wrong type, in the decoder's words.
pub(super) fn first_error(arena: &Arena, id: Id, value: &Value) -> Option<String> {
    Walk { arena, fields: Vec::new(), owner: "" }.check(id, value)
}

struct Walk<'a> {
    arena: &'a Arena,
    /// Names of the fields from the root.
    fields: Vec<&'a str>,
    /// The Go type that has the last field.
    owner: &'a str,
}

impl<'a> Walk<'a> {
    fn check(&mut self, id: Id, value: &'a Value) -> Option<String> {
        let node = self.arena.get(id);
        if value.is_null() {
            return None;
        }
        match (node.kind, value) {
            (Type::Object, Value::Object(fields)) => self.object(node, fields),
            (Type::Array, Value::Array(items)) => {
                let child = node.items?;
                items.iter().find_map(|item| self.check(child, item))
            }
            (Type::String, Value::String(text)) => text_error(node, text),
            (Type::Integer, Value::Number(n)) if !integral(node, n) => {
                Some(self.wrong(node, &format!("number {n}")))
            }
            (Type::Quantity, Value::String(text)) => quantity_error(text),
            (Type::Any, _)
            | (Type::Boolean, Value::Bool(_))
            | (
                Type::Integer | Type::Number | Type::Quantity | Type::IntOrString,
                Value::Number(_),
            )
            | (Type::IntOrString, Value::String(_)) => None,
            _ => Some(self.wrong(node, name_of(value))),
        }
    }

    fn object(
        &mut self,
        node: &'a Node,
        fields: &'a serde_json::Map<String, Value>,
    ) -> Option<String> {
        for (name, value) in fields {
            let field = node.properties.get(name);
            let child = field.map(|f| f.node).or(node.additional);
            let Some(child) = child else { continue };
            let owner = self.owner;
            if field.is_some() {
                self.fields.push(name);
                self.owner = node.go.rsplit('.').next().unwrap_or_default();
            }
            let found = self.check(child, value);
            if found.is_some() {
                return found;
            }
            if field.is_some() {
                self.fields.pop();
                self.owner = owner;
            }
        }
        None
    }

    fn wrong(&self, node: &Node, actual: &str) -> String {
        let wanted = self.go_type(node);
        if self.fields.is_empty() {
            return format!("json: cannot unmarshal {actual} into Go value of type {wanted}");
        }
        let path = self.fields.join(".");
        format!(
            "json: cannot unmarshal {actual} into Go struct field {}.{path} of type {wanted}",
            self.owner
        )
    }

    fn go_type(&self, node: &Node) -> String {
        match node.kind {
            Type::Integer if node.format == "int64" => "int64".to_owned(),
            Type::Integer => "int32".to_owned(),
            Type::Boolean => "bool".to_owned(),
            Type::Number => "float64".to_owned(),
            Type::Array => {
                let of = node.items.map_or_else(
                    || "interface {}".to_owned(),
                    |id| self.go_type(self.arena.get(id)),
                );
                format!("[]{of}")
            }
            Type::Object if !node.go.is_empty() => node.go.clone(),
            Type::Object => {
                let of = node.additional.map_or_else(
                    || "interface {}".to_owned(),
                    |id| self.go_type(self.arena.get(id)),
                );
                format!("map[string]{of}")
            }
            Type::IntOrString => "intstr.IntOrString".to_owned(),
            _ => "string".to_owned(),
        }
    }
}

fn integral(node: &Node, n: &serde_json::Number) -> bool {
    match n.as_i64() {
        Some(i) => node.format == "int64" || i32::try_from(i).is_ok(),
        None => false,
    }
}

fn text_error(node: &Node, text: &str) -> Option<String> {
    match node.format.as_str() {
        "date-time" if !format::is_time(text) => {
            let layout = if node.go.ends_with("MicroTime") {
                MICRO_TIME
            } else {
                "2006-01-02T15:04:05Z07:00"
            };
            Some(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
        }
        "date-time" if node.go.ends_with("MicroTime") => micro_error(text),
        "byte" => base64_error(text),
        _ => None,
    }
}

/// Go's layout of times with microseconds.
const MICRO_TIME: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Microseconds have six digits, no more and no fewer.
fn micro_error(text: &str) -> Option<String> {
    let rest = text.get(19..)?;
    let digits =
        rest.strip_prefix('.').map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    let (found, wanted) = match digits {
        6 => return None,
        0..=5 => (rest, ".000000"),
        _ => (rest.get(7..)?, "Z07:00"),
    };
    Some(format!("parsing time {text:?} as {MICRO_TIME:?}: cannot parse {found:?} as {wanted:?}"))
}

/// Go: `illegal base64 data at input byte N`.
fn base64_error(text: &str) -> Option<String> {
    if format::fits("byte", text) {
        return None;
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    let at = text.bytes().position(|b| !good(b)).unwrap_or(text.len() - text.len() % 4);
    Some(format!("illegal base64 data at input byte {at}"))
}

fn quantity_error(text: &str) -> Option<String> {
    quantity::parse(text).is_none().then(|| {
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()
    })
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
