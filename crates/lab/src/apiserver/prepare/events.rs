//! One storage, two faces: core Events and those of events.k8s.io.

use serde_json::Value;

/// Field of events.k8s.io and field of the core group.
const NAMES: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn rename(
    mut object: Value,
    version: &str,
    pairs: impl Iterator<Item = (&'static str, &'static str)>,
) -> Value {
    if let Some(map) = object.as_object_mut() {
        for (from, to) in pairs {
            if let Some(value) = map.remove(from) {
                map.insert(to.to_owned(), value);
            }
        }
    }
    object["apiVersion"] = version.into();
    object
}

/// As stored.
pub(super) fn to_core(object: Value) -> Value {
    rename(object, "v1", NAMES.into_iter())
}

/// As events.k8s.io shows it.
pub(super) fn from_core(object: &Value) -> Value {
    let pairs = NAMES.into_iter().map(|(new, core)| (core, new));
    let mut object = rename(object.clone(), "events.k8s.io/v1", pairs);
    if let Some(map) = object.as_object_mut() {
        // Told in the core group even when empty, not here.
        map.retain(|field, value| !field.starts_with("reporting") || *value != "");
    }
    object
}
