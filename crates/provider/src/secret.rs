//! Credentials that do not print themselves.

use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;

/// Named secrets, as a Kubernetes Secret or a section of a `clouds.yaml` holds them. Which names mean
/// what is the provider's affair. Empty means: what the manager was started with.
#[derive(Clone, Default)]
pub struct Credentials(BTreeMap<String, SecretString>);

impl Credentials {
    /// The value of a name, when there is one and it is not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|secret| secret.expose_secret()).filter(|value| !value.is_empty())
    }

    /// Whether nothing was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All pairs in order, for a key of a cache that must never be logged.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, secret)| (name.as_str(), secret.expose_secret()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), SecretString::from(v.into()))).collect())
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
