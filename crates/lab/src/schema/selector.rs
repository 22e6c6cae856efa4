//! Label and field selectors.

use serde_json::Value;

/// A label selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {}

/// Why a selector cannot be read, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl LabelSelector {
    /// Reads kubectl's syntax: `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// In the words of Kubernetes' parser.
    pub fn parse(_text: &str) -> Result<Self, SelectorError> {
        Ok(Self {})
    }

    /// Reads a `metav1.LabelSelector` (`matchLabels`, `matchExpressions`).
    ///
    /// # Errors
    /// For an unknown operator.
    pub fn from_object(_object: &Value) -> Result<Self, SelectorError> {
        Ok(Self {})
    }

    /// Whether these labels (an object of strings, or null) match.
    #[must_use]
    pub fn matches(&self, _labels: &Value) -> bool {
        true
    }
}

/// A field selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// What is asked, in order.
    pub terms: Vec<FieldTerm>,
}

/// `field = value` or `field != value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// As `metadata.name`.
    pub field: String,
    /// Whether the field must differ.
    pub not: bool,
    /// The empty text also stands for a missing field.
    pub value: String,
}

impl FieldSelector {
    /// Reads `metadata.name=a,status.phase!=Running`.
    ///
    /// # Errors
    /// In the words of Kubernetes' parser.
    pub fn parse(_text: &str) -> Result<Self, SelectorError> {
        Ok(Self::default())
    }

    /// Whether the object matches.
    #[must_use]
    pub fn matches(&self, _object: &Value) -> bool {
        true
    }
}
