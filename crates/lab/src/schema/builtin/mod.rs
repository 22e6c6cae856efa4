//! What Kubernetes' own code adds to built-in kinds beyond their OpenAPI: defaults and validation.

pub mod meta;

use super::error::FieldError;
use serde_json::Value;

/// Fills in what the server fills in for a built-in kind. `group` is empty for the core group.
pub fn default(_group: &str, _kind: &str, _object: &mut Value) {}

/// Everything Kubernetes' validation says of `new`; immutability is checked where `old` is given.
#[must_use]
pub fn validate(_group: &str, _kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    meta::validate(new, old, &meta::subdomain)
}
