//! Tables and bare metadata: what `kubectl get` asks for.

use super::registry::{Column, Kind};
use super::request::Query;
use super::status::Status;
use crate::schema::FieldError;
use jiff::Timestamp;
use serde_json::{Value, json};

mod age;
mod batch;
mod builtin;
mod cells;
mod pods;

pub(super) use builtin::builtin_columns;

/// An object's metadata alone.
#[must_use]
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// A list of metadata alone.
#[must_use]
pub(super) fn partial_list(objects: &[Value], metadata: Value) -> Value {
    // Kubernetes: an empty list of this kind is null.
    let items = match objects {
        [] => Value::Null,
        some => some.iter().map(partial).collect(),
    };
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata, "items": items,
    })
}

/// Objects of a kind as a table.
pub(super) fn table(
    kind: &Kind,
    metadata: Value,
    objects: &[Value],
    query: &Query,
    now: Timestamp,
) -> Result<Value, Status> {
    let include = query.text("includeObject");
    if !matches!(include, "" | "Metadata" | "Object" | "None") {
        let why = "must be 'Metadata', 'Object', 'None', or empty";
        let error = FieldError::invalid("includeObject", &json!(include), why);
        let why = format!("Unable to convert to Table as requested: {error}");
        return Err(Status::bad_request(why));
    }
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": cells::of(kind, object, now)});
            match include {
                "None" => row["object"] = Value::Null,
                "Object" => row["object"] = object.clone(),
                _ => row["object"] = partial(object),
            }
            row
        })
        .collect();
    let columns: Vec<&Value> = kind.columns.iter().map(|column| &column.definition).collect();
    Ok(json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    }))
}

/// The columns of a definition: the name first, then its own, the age if it has none.
#[must_use]
pub(super) fn custom_columns(definitions: Option<&Vec<Value>>) -> Vec<Column> {
    let known = builtin_columns();
    let mut columns = vec![known.name()];
    let Some(own) = definitions.filter(|list| !list.is_empty()) else {
        columns.push(known.custom_age());
        return columns;
    };
    for column in own {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let description = match text("description") {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text("jsonPath")
            ),
            given => given.to_owned(),
        };
        columns.push(Column {
            definition: json!({
                "name": text("name"), "type": text("type"), "format": text("format"),
                "description": description, "priority": column["priority"].as_i64().unwrap_or(0),
            }),
            path: text("jsonPath").to_owned(),
        });
    }
    columns
}
