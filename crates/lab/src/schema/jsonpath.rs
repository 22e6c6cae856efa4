//! The JSONPath subset of printer columns, scale paths and selectable fields.

use serde_json::Value;

/// Every value that `path` (as `.spec.replicas`) names in `object`, in order. A path that cannot be read names nothing.
#[must_use]
pub fn find<'a>(_path: &str, _object: &'a Value) -> Vec<&'a Value> {
    Vec::new()
}
