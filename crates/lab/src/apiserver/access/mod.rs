//! Who a request is from and what it may do: certificates, tokens, RBAC and the rules for nodes.

use std::collections::BTreeMap;

/// Everybody who was recognised.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody who was not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// May do everything.
pub const MASTERS: &str = "system:masters";

/// Who a request is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// As `system:node:n1`.
    pub name: String,
    /// Of a service account; empty for others.
    pub uid: String,
    /// As `system:nodes`.
    pub groups: Vec<String>,
    /// What else is known, as the id of the credential.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of this name in these groups and among the authenticated.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Whether the user is in this group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// What a request wants to do. Either `path` is set, or the fields of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// As `list`; for a path the method in lower case.
    pub verb: &'a str,
    /// `""` for the core group.
    pub api_group: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// `""` for the object itself.
    pub subresource: &'a str,
    /// `""` for the whole cluster.
    pub namespace: &'a str,
    /// `""` for all objects, and on create.
    pub name: &'a str,
    /// Of a request that is not for a resource, as `/healthz`.
    pub path: &'a str,
}
