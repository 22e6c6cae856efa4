//! Cells of a row.

use super::age;
use crate::apiserver::registry::{Column, Kind};
use crate::schema::jsonpath;
use jiff::Timestamp;
use serde_json::Value;

/// The cells of one object, in the order of its kind's columns.
pub(super) fn of(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    kind.columns
        .iter()
        .enumerate()
        .map(|(at, column)| match at {
            0 if kind.custom => object["metadata"]["name"].clone(),
            _ if kind.custom => custom(column, object, now),
            _ => builtin(column, object, now),
        })
        .collect()
}

fn builtin(column: &Column, object: &Value, now: Timestamp) -> Value {
    match column.definition["name"].as_str().unwrap_or_default() {
        "Name" => object["metadata"]["name"].clone(),
        "Age" => age::since(&object["metadata"]["creationTimestamp"], now).into(),
        "Created At" => object["metadata"]["creationTimestamp"].clone(),
        _ => Value::Null,
    }
}

/// Kubernetes: the first match in the type of its column; what has another type is not shown.
fn custom(column: &Column, object: &Value, now: Timestamp) -> Value {
    let found = jsonpath::find(&column.path, object);
    let Some(&value) = found.first() else { return Value::Null };
    match column.definition["type"].as_str().unwrap_or_default() {
        "integer" if value.is_i64() || value.is_u64() => value.clone(),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "string" => match value {
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        },
        "date" => match value.as_str() {
            Some(_) => age::since(value, now).into(),
            None => Value::Null,
        },
        _ => Value::Null,
    }
}
