//! The three kinds of patch: JSON (RFC 6902), merge (RFC 7386) and Kubernetes' strategic merge.

mod strategic;

use super::Schema;
use json_patch::PatchOperation;
use serde_json::Value;

/// Kubernetes: most operations in one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Why a patch was refused; `code` and `reason` are those of the Status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatchError {
    /// HTTP status.
    pub code: u16,
    /// Reason of the Status; empty where the real server gives none.
    pub reason: &'static str,
    /// In Kubernetes' words.
    pub message: String,
}

impl PatchError {
    fn bad_request(message: String) -> Self {
        Self { code: 400, reason: "BadRequest", message }
    }

    /// What the real server says when a JSON patch does not fit; it never says where.
    fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self { code: 422, reason: "Invalid", message }
    }

    fn internal(message: String) -> Self {
        Self { code: 500, reason: "", message }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Applies a JSON patch. Kubernetes: `replace` of a missing key adds it, `test` for null passes
/// where nothing is.
///
/// # Errors
/// 400 for what is not a JSON patch, 413 for too many operations, 422 for one that does not fit the
/// document.
pub fn json(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        let kind = type_name(patch);
        return Err(PatchError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        );
        return Err(PatchError { code: 413, reason: "RequestEntityTooLarge", message });
    }
    let mut doc = doc.clone();
    for operation in operations {
        let operation: PatchOperation =
            serde_json::from_value(operation.clone()).map_err(|_| PatchError::rejected())?;
        let operation = match operation {
            PatchOperation::Test(test)
                if test.value.is_null() && test.path.resolve(&doc).is_err() =>
            {
                continue;
            }
            PatchOperation::Replace(replace)
                if replace.path.resolve(&doc).is_err()
                    && replace
                        .path
                        .parent()
                        .is_some_and(|p| p.resolve(&doc).is_ok_and(Value::is_object)) =>
            {
                PatchOperation::Add(json_patch::AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            other => other,
        };
        json_patch::patch(&mut doc, &[operation]).map_err(|_| PatchError::rejected())?;
    }
    Ok(doc)
}

/// Applies a JSON merge patch.
///
/// # Errors
/// 400 for a patch that is not an object.
pub fn merge(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        let kind = type_name(patch);
        return Err(PatchError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )));
    }
    let mut doc = doc.clone();
    json_patch::merge(&mut doc, patch);
    Ok(doc)
}

/// Applies a strategic merge patch: lists merge by the keys the schema names, and the directives
/// `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder` are obeyed.
///
/// # Errors
/// 400 for a patch that is not an object, 500 for an element without its merge key or an unknown
/// directive.
pub fn strategic(schema: &Schema, doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Value::Object(patch), Value::Object(doc)) = (patch, doc) else {
        let kind = type_name(patch);
        return Err(PatchError::bad_request(format!(
            "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )));
    };
    strategic::merge(schema, doc.clone(), patch.clone()).map(Value::Object)
}

#[cfg(test)]
mod tests;
