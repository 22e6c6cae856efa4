//! Who a request is from and what it may do: certificates, tokens, RBAC and the rules for nodes.

mod authn;
mod bootstrap;
mod certificate;
mod escalation;
mod node;
mod rbac;
pub(crate) mod token;

#[cfg(test)]
mod tests;

pub use authn::authenticate;
pub(crate) use authn::{service_account, user_info, user_of};
pub use bootstrap::bootstrap_objects;
pub(crate) use rbac::{Decision, Memo, Rights};

use super::{ApiServer, Status};
use rbac::Rule;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The rules of the role `system:node`, which every node has without a binding.
static NODE_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let role = bootstrap::role("system:node");
    Rule::all_of(&role)
});

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
    /// Of a list or watch, as the query has it; `None` where nobody knows.
    pub field_selector: Option<&'a str>,
}

/// Whether the user may do this; 403 in Kubernetes' words if not.
pub fn authorize(server: &ApiServer, user: &User, ask: &Attributes<'_>) -> Result<(), Status> {
    let decision = decide(server, user, ask);
    if decision.allowed { Ok(()) } else { Err(refusal(user, ask, &decision.reason)) }
}

/// Asks the masters' group, the rules for nodes and RBAC, in this order.
pub(crate) fn decide(server: &ApiServer, user: &User, ask: &Attributes<'_>) -> Decision {
    if user.is_in(MASTERS) {
        return Decision { allowed: true, reason: String::new() };
    }
    let of_node = match node::name_of(user) {
        Some(name) => node::decide(server, name, ask, &NODE_RULES),
        None => Decision::default(),
    };
    if of_node.allowed {
        return of_node;
    }
    let by_role = rights(server).decide(user, ask);
    if by_role.allowed || of_node.reason.is_empty() {
        return by_role;
    }
    let reasons = [of_node.reason, by_role.reason];
    let told: Vec<String> = reasons.into_iter().filter(|reason| !reason.is_empty()).collect();
    Decision { allowed: false, reason: told.join("\n") }
}

/// The grants that are in force.
pub(crate) fn rights(server: &ApiServer) -> Arc<Rights> {
    server.pki().rights().of(server.store())
}

fn refusal(user: &User, ask: &Attributes<'_>, reason: &str) -> Status {
    let (name, verb) = (&user.name, ask.verb);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !ask.path.is_empty() {
        let message = format!("forbidden: User {name:?} cannot {verb} path {:?}{reason}", ask.path);
        return Status::new(403, "Forbidden", message).with(json!({}));
    }
    let resource = match ask.subresource {
        "" => ask.resource.to_owned(),
        part => format!("{}/{part}", ask.resource),
    };
    let scope = match ask.namespace {
        "" => "at the cluster scope".to_owned(),
        home => format!("in the namespace {home:?}"),
    };
    let why = format!(
        "User {name:?} cannot {verb} resource {resource:?} in API group {:?} {scope}{reason}",
        ask.api_group
    );
    Status::forbidden(ask.api_group, ask.resource, ask.name, &why)
}

/// What a write must keep to beyond the right to write: nobody grants what he does not hold, a node
/// changes only what is its own, and only who may sign signs.
///
/// `new` is the object about to be kept (none on delete), `old` the object before (none on create).
pub fn admit(
    server: &ApiServer,
    user: &User,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    if let Some(name) = node::name_of(user) {
        node::admit(server, name, ask, new, old)?;
    }
    match ask.api_group {
        rbac::GROUP => escalation::admit(server, user, ask, new, old),
        "certificates.k8s.io" => certificate::admit(server, user, ask, new, old),
        _ => Ok(()),
    }
}

/// All that the user may do in a namespace, as a SelfSubjectRulesReview tells it.
pub(crate) fn rules(server: &ApiServer, user: &User, namespace: &str) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    let mut paths: Vec<Value> = Vec::new();
    if user.is_in(MASTERS) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in rights(server).rules(user, namespace) {
        if !rule.urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls}));
            continue;
        }
        let mut told = json!({
            "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
        });
        if !rule.resource_names.is_empty() {
            told["resourceNames"] = rule.resource_names.into();
        }
        resources.push(told);
    }
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
