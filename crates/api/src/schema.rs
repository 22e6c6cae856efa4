//! Pieces of OpenAPI schemas that a Rust type cannot say.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The most labels or annotations of one object that a rule may walk over.
const MAP_MAX: u32 = 128;
/// Kubernetes: a label key is a prefix of up to 253 characters, a slash and a name of up to 63.
const LABEL_VALUE_MAX: u32 = 63;

/// A text of a form and a greatest length.
pub fn pattern(pattern: &str, max_length: u32) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern, "maxLength": max_length })
}

/// Any object, kept as it was written.
pub fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Labels: bounded, so that a rule over them has a bounded cost.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MAP_MAX,
        "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_MAX },
    })
}

/// A point in time.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A version such as 1.30.3 or v1.31.0-rc.1.
pub fn version(_: &mut SchemaGenerator) -> Schema {
    pattern(r"^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$", 64)
}

/// A count, or a share of at most all.
pub fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^(100|[1-9]?[0-9])%$",
        "minimum": 0,
        "maxLength": 4,
    })
}

/// The description of a server. The rest is kept as it was written, for the strict reader to judge;
/// declared are the fields whose change a Machine must refuse, for rules cannot see others.
pub fn provider_spec_value(generator: &mut SchemaGenerator) -> Schema {
    open_object(generator)
}
