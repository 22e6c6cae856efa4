//! Credentials that do not print themselves.

use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;

/// Named secrets, as a Kubernetes Secret or a section of a `clouds.yaml` holds them. Which names mean
/// what is the provider's affair. Empty means: what the manager was started with.
#[derive(Clone, Default)]
pub struct Credentials {
    values: BTreeMap<String, SecretString>,
    are_completed: bool,
}

impl Credentials {
    /// The value of a name, when there is one and it is not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(ExposeSecret::expose_secret).filter(|value| !value.is_empty())
    }

    /// Whether nothing was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The same, to be completed with what the manager was started with, value by value.
    #[must_use]
    pub fn completed(self) -> Self {
        Self { are_completed: true, ..self }
    }

    /// Whether what the manager was started with stands in for each value that is not there. Default: no.
    #[must_use]
    pub fn are_completed(&self) -> bool {
        self.are_completed
    }

    /// All pairs in order, for a key of a cache that must never be logged.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, secret)| (name.as_str(), secret.expose_secret()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let secret = |(name, value): (K, V)| (name.into(), SecretString::from(value.into()));
        Self { values: pairs.into_iter().map(secret).collect(), are_completed: false }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}
