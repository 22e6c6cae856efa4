//! Server-side apply, and the managedFields of every other write.

use super::Schema;
use serde_json::Value;

/// Who writes what, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// Of the object as written, `group/version`.
    pub api_version: &'a str,
    /// `status` and the like.
    pub subresource: Option<&'a str>,
    /// Time of the write.
    pub now: jiff::Timestamp,
}

/// Why an applied configuration was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// 409: others own fields that the configuration sets to something else.
    #[error("Apply failed with {}", conflict_count(causes))]
    Conflicts {
        /// `reason: FieldManagerConflict`, `message`, `field` of each, as in `details.causes` of the Status.
        causes: Vec<Value>,
    },
    /// 500: the configuration does not fit the schema.
    #[error("{0}")]
    Typed(String),
    /// 400: the configuration carries managedFields.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
}

fn conflict_count(causes: &[Value]) -> String {
    format!("{} conflicts", causes.len())
}

/// Applies `config` to `live`: the merged object with its new managedFields. Fields the endpoint does not write
/// (status at the object itself, all but status at `/status`) must have been taken out of `config` before.
///
/// # Errors
/// Conflicts without `force`, and a configuration that does not fit the schema.
pub fn apply(
    _schema: &Schema,
    _live: Option<&Value>,
    config: &Value,
    _ctx: &Writer,
    _force: bool,
) -> Result<Value, ApplyError> {
    Ok(config.clone())
}

/// Writes managedFields of an update (create, PUT or patch) into `new`: what changed since `old` belongs to the writer.
pub fn track(_schema: &Schema, _old: Option<&Value>, _new: &mut Value, _ctx: &Writer) {}
