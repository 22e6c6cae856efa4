//! What is wrong with one field, in Kubernetes' words.

use serde_json::Value;
use std::fmt;

/// Machine readable reason of a cause in a Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueNotFound`
    NotFound,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
        })
    }
}

/// One thing wrong with one field. Displays as `spec.replicas: Invalid value: -1: should be ...`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Machine readable.
    pub reason: Cause,
    /// Path of the field, as `spec.containers[0].name`.
    pub field: String,
    /// The words behind the field, as `Required value`.
    pub message: String,
}

impl FieldError {
    fn new(reason: Cause, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }

    /// The value is of the right type and wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(Cause::Invalid, field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// The same with a value that is shown as it stands.
    pub(super) fn invalid_text(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self::new(Cause::Invalid, field, format!("Invalid value: {shown}: {detail}"))
    }

    /// A rule that failed. Kubernetes: objects and lists are not shown.
    pub(super) fn of_rule(reason: Cause, field: String, value: &Value, words: &str) -> Self {
        match reason {
            Cause::Forbidden => Self::forbidden(field, words),
            Cause::Required => Self::required(field, words),
            Cause::Duplicate => Self::duplicate(field, value),
            _ if value.is_object() || value.is_array() => {
                Self::new(Cause::Invalid, field, format!("Invalid value: {words}"))
            }
            _ => Self::invalid(field, value, words),
        }
    }

    /// The value is of the wrong type.
    pub fn wrong_type(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(Cause::TypeInvalid, field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// The value is missing; `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Cause::Required, field, with_detail("Required value", detail))
    }

    /// The value may not be given; `detail` may be empty.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Cause::Forbidden, field, with_detail("Forbidden", detail))
    }

    /// The value is none of `supported`.
    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let known: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let message = if known.is_empty() {
            format!("Unsupported value: {}", shown(value))
        } else {
            format!("Unsupported value: {}: supported values: {}", shown(value), known.join(", "))
        };
        Self::new(Cause::NotSupported, field, message)
    }

    /// The value stands twice in a list that is a set.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(Cause::Duplicate, field, format!("Duplicate value: {}", shown(value)))
    }

    /// More than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: u64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {limit} {unit}");
        Self::new(Cause::TooLong, field, message)
    }

    /// More than `limit` elements.
    pub fn too_many(field: impl Into<String>, actual: u64, limit: u64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {limit} {unit}");
        Self::new(Cause::TooMany, field, message)
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

/// A value as Go's field errors show it: JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}
