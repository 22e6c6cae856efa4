//! What a schema says of an object, and every way to change one. Pure.

pub mod apply;
pub mod builtin;
mod crd;
mod decode;
mod error;
mod format;
pub mod jsonpath;
mod node;
pub mod patch;
pub mod quantity;
mod rules;
pub mod selector;
mod shape;
mod validate;

pub use error::{Cause, FieldError};

use node::{Arena, Builtins, Id};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A compiled schema: of a built-in kind, or of one version of a CRD. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arena: Arena,
    root: Id,
    /// Whether it is a custom resource's.
    custom: bool,
    /// What Go makes of an object nobody filled in; the server compares creations with it.
    zero: Value,
}

impl Schema {
    /// The schema called `name` in OpenAPI v3 `components.schemas`. A name that is not there gives
    /// a schema that says nothing.
    #[must_use]
    pub fn builtin(components: &Value, name: &str) -> Self {
        let none = Map::new();
        let mut builder = Builtins::new(components.as_object().unwrap_or(&none));
        let root = builder.named(name);
        let arena = builder.arena;
        let mut zero = Value::Object(Map::new());
        shape::complete(&arena, root, &mut zero);
        Self(Arc::new(Inner { arena, root, custom: false, zero }))
    }

    /// The `openAPIV3Schema` of one version of a CRD.
    ///
    /// # Errors
    /// What keeps it from being structural or its rules from compiling; field paths are relative to
    /// the schema.
    pub fn from_crd(open_api_v3_schema: &Value) -> Result<Self, Vec<FieldError>> {
        let (arena, root) = crd::compile(open_api_v3_schema)?;
        Ok(Self(Arc::new(Inner { arena, root, custom: true, zero: Value::Object(Map::new()) })))
    }

    /// Paths of fields the schema does not know, as in `unknown field "spec.x"`, in the order the
    /// server warns of them: those of a custom resource's metadata first.
    #[must_use]
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        shape::unknown(&self.0.arena, self.0.root, object, "", &mut found);
        if self.0.custom {
            found.sort_by_key(|path| !path.starts_with("metadata."));
        }
        found
    }

    /// Drops what the schema does not know; of a built-in object also nulls and empty values that
    /// Go leaves out, and brings its quantities and times into their canonical form.
    pub fn prune(&self, object: &mut Value) {
        if self.0.custom {
            shape::prune(&self.0.arena, self.0.root, object);
        } else {
            shape::normalize(&self.0.arena, self.0.root, object);
        }
    }

    /// Fills in defaults, also in list elements and map values. Comes after `prune` and before
    /// `builtin::default`.
    pub fn default(&self, object: &mut Value) {
        if self.0.custom {
            shape::default(&self.0.arena, self.0.root, object);
        } else {
            shape::complete(&self.0.arena, self.0.root, object);
        }
    }

    /// The text Go's decoder gives for a wrong JSON type (400 at the server): anywhere in a
    /// built-in object, in the metadata of a custom one.
    #[must_use]
    pub fn decode_errors(&self, object: &Value) -> Option<String> {
        if !self.0.custom {
            return decode::first_error(&self.0.arena, self.0.root, object);
        }
        let meta = self.0.arena.get(self.0.root).properties.get("metadata")?.node;
        decode::first_error(&self.0.arena, meta, object.get("metadata")?)
    }

    /// Everything that is wrong with a custom resource, its metadata included; transition rules are
    /// checked where `old` is given. Built-in kinds have `builtin::validate` instead.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        if self.0.custom { validate::custom_resource(&self.0, new, old) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests;
