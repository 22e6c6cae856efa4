//! Role-based access: who is granted what, read from the store and kept until one of its objects changes.

use super::{Attributes, User};
use crate::apiserver::{ResourceId, Store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCES: [&str; 4] = ["clusterrolebindings", "rolebindings", "clusterroles", "roles"];

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub urls: Vec<String>,
}

fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|own| own == word)
}

fn has_or_all(list: &[String], word: &str) -> bool {
    list.iter().any(|own| own == word || own == "*")
}

impl Rule {
    /// The rules of a role.
    pub fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::from_value).collect()
    }

    fn from_value(value: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            let all = value[field].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Whether the rule allows this.
    pub fn allows(&self, ask: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, ask.verb) {
            return false;
        }
        if !ask.path.is_empty() {
            return self.urls.iter().any(|url| covers_url(url, ask.path));
        }
        has_or_all(&self.api_groups, ask.api_group)
            && self.resources.iter().any(|own| covers_resource(own, ask.resource, ask.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, ask.name))
    }
}

/// Kubernetes: `*` at the end stands for any rest.
pub(super) fn covers_url(own: &str, path: &str) -> bool {
    own == path || own.strip_suffix('*').is_some_and(|stem| path.starts_with(stem))
}

/// Kubernetes: `*` is everything, `*/scale` that part of everything.
pub(super) fn covers_resource(own: &str, resource: &str, subresource: &str) -> bool {
    if own == "*" {
        return true;
    }
    match own.split_once('/') {
        None => own == resource && subresource.is_empty(),
        Some((whole, part)) => {
            part == subresource && !part.is_empty() && (whole == "*" || whole == resource)
        }
    }
}

/// The rules one binding gives, in one namespace or everywhere.
struct Grant {
    namespace: Option<String>,
    /// The rules, or the words about the role that is not there.
    rules: Result<Arc<[Rule]>, String>,
    /// `ClusterRoleBinding "a" of ClusterRole "b"`.
    source: String,
}

/// That a subject holds a grant, and in which words.
#[derive(Clone)]
struct Hold {
    grant: usize,
    subject: String,
}

/// Every grant, by whom it is held.
pub(crate) struct Rights {
    grants: Vec<Grant>,
    by_user: BTreeMap<String, Vec<Hold>>,
    by_group: BTreeMap<String, Vec<Hold>>,
    read_from: Vec<watch::Receiver<u64>>,
}

/// What the rights were read to be, until they change.
#[derive(Default)]
pub(crate) struct Memo(Mutex<Option<Arc<Rights>>>);

impl Memo {
    /// The rights that this store grants now.
    pub(super) fn of(&self, store: &Store) -> Arc<Rights> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rights) = &*slot
            && rights.are_those_of(store)
        {
            return rights.clone();
        }
        let rights = Arc::new(Rights::read(store));
        *slot = Some(rights.clone());
        rights
    }
}

/// Whether something is allowed, and why or why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The answer.
    pub allowed: bool,
    /// For people; may be empty.
    pub reason: String,
}

impl Rights {
    fn read(store: &Store) -> Self {
        let of = |resource: &str| ResourceId::new(GROUP, resource);
        // Subscribed before reading: a change in between is read again, not missed.
        let read_from = RESOURCES.iter().map(|name| store.pulse(&of(name))).collect();
        let mut roles: BTreeMap<(String, String), Arc<[Rule]>> = BTreeMap::new();
        for role in ["clusterroles", "roles"].iter().flat_map(|name| store.list(&of(name), None).1)
        {
            let home = text(&role["metadata"]["namespace"]).to_owned();
            let key = (home, text(&role["metadata"]["name"]).to_owned());
            roles.insert(key, Rule::all_of(&role).into());
        }
        let mut rights = Self {
            grants: Vec::new(),
            by_user: BTreeMap::new(),
            by_group: BTreeMap::new(),
            read_from,
        };
        for kind in ["clusterrolebindings", "rolebindings"] {
            store.list(&of(kind), None).1.iter().for_each(|binding| rights.add(binding, &roles));
        }
        rights
    }

    fn are_those_of(&self, store: &Store) -> bool {
        let now = store.pulse(&ResourceId::new(GROUP, RESOURCES[0]));
        self.read_from.first().is_some_and(|read| read.same_channel(&now))
            && self.read_from.iter().all(|read| !read.has_changed().unwrap_or(true))
    }

    fn add(&mut self, binding: &Value, roles: &BTreeMap<(String, String), Arc<[Rule]>>) {
        let name = text(&binding["metadata"]["name"]);
        let namespace = binding["metadata"]["namespace"].as_str();
        let role = &binding["roleRef"];
        let (kind, role) = (text(&role["kind"]), text(&role["name"]));
        let home = if kind == "Role" { namespace.unwrap_or_default() } else { "" };
        let rules = roles
            .get(&(home.to_owned(), role.to_owned()))
            .cloned()
            .ok_or_else(|| format!("{}.{GROUP} {role:?} not found", kind.to_ascii_lowercase()));
        let source = match namespace {
            None => format!("ClusterRoleBinding {name:?} of {kind} {role:?}"),
            Some(home) => format!("RoleBinding {:?} of {kind} {role:?}", format!("{name}/{home}")),
        };
        let grant = self.grants.len();
        self.grants.push(Grant { namespace: namespace.map(str::to_owned), rules, source });
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let (kind, name) = (text(&subject["kind"]), text(&subject["name"]));
            let hold = |subject: String| Hold { grant, subject };
            match kind {
                "Group" => {
                    let hold = hold(format!("Group {name:?}"));
                    self.by_group.entry(name.to_owned()).or_default().push(hold);
                }
                "User" => {
                    let hold = hold(format!("User {name:?}"));
                    self.by_user.entry(name.to_owned()).or_default().push(hold);
                }
                "ServiceAccount" => {
                    let home = subject["namespace"].as_str().or(namespace).unwrap_or_default();
                    let hold = hold(format!("ServiceAccount {:?}", format!("{name}/{home}")));
                    let user = format!("system:serviceaccount:{home}:{name}");
                    self.by_user.entry(user).or_default().push(hold);
                }
                _ => {}
            }
        }
    }

    /// What the user holds that counts in a namespace (`""`: everywhere), in the order of the bindings.
    fn held(&self, user: &User, namespace: &str) -> Vec<&Hold> {
        let groups = user.groups.iter().filter_map(|group| self.by_group.get(group));
        let mut held: Vec<&Hold> = self
            .by_user
            .get(&user.name)
            .into_iter()
            .chain(groups)
            .flatten()
            .filter(|hold| match &self.grants[hold.grant].namespace {
                None => true,
                Some(home) => home == namespace,
            })
            .collect();
        held.sort_by_key(|hold| hold.grant);
        held.dedup_by_key(|hold| hold.grant);
        held
    }

    /// Whether the roles of the user allow this.
    pub fn decide(&self, user: &User, ask: &Attributes<'_>) -> Decision {
        let mut missing = Vec::new();
        for hold in self.held(user, ask.namespace) {
            let grant = &self.grants[hold.grant];
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(ask)) => {
                    let reason = format!("RBAC: allowed by {} to {}", grant.source, hold.subject);
                    return Decision { allowed: true, reason };
                }
                Ok(_) => {}
                Err(absent) => missing.push(absent.as_str()),
            }
        }
        missing.dedup();
        let reason = match missing.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision { allowed: false, reason }
    }

    /// All rules the user has in a namespace, in the order of the bindings.
    pub(super) fn rules(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let grants = self.held(user, namespace).into_iter().map(|hold| &self.grants[hold.grant]);
        grants
            .filter_map(|grant| grant.rules.as_ref().ok())
            .flat_map(|rules| rules.to_vec())
            .collect()
    }
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allows(rule: &Value, ask: &Attributes<'_>) -> bool {
        Rule::from_value(rule).allows(ask)
    }

    #[test]
    fn rules_match_as_kubernetes_matches() {
        let pods = json!({"apiGroups": [""], "resources": ["pods", "*/scale"], "verbs": ["get"]});
        let ask = Attributes { verb: "get", resource: "pods", ..Attributes::default() };
        assert!(allows(&pods, &ask));
        assert!(!allows(&pods, &Attributes { verb: "list", ..ask }));
        assert!(!allows(&pods, &Attributes { subresource: "log", ..ask }));
        assert!(!allows(&pods, &Attributes { api_group: "apps", ..ask }));
        assert!(allows(&pods, &Attributes { resource: "things", subresource: "scale", ..ask }));
        let one =
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"]});
        assert!(allows(&one, &Attributes { name: "a", subresource: "log", ..ask }));
        assert!(!allows(&one, &ask));
        let urls = json!({"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]});
        let path = |path| Attributes { verb: "get", path, ..Attributes::default() };
        assert!(allows(&urls, &path("/api/v1")) && allows(&urls, &path("/healthz")));
        assert!(!allows(&urls, &path("/apis")) && !allows(&urls, &ask));
    }

    #[test]
    fn the_memo_follows_the_store() {
        let store = Store::new(100);
        let memo = Memo::default();
        let user = User::new("jane", &["dev"]);
        let ask =
            Attributes { verb: "list", resource: "pods", namespace: "a", ..Attributes::default() };
        assert_eq!(memo.of(&store).decide(&user, &ask), Decision::default());
        let binding = json!({
            "metadata": {"name": "b", "namespace": "a"},
            "subjects": [{"kind": "Group", "name": "dev"}],
            "roleRef": {"kind": "Role", "name": "r"},
        });
        let key = |resource, name| crate::apiserver::Key::new(GROUP, resource, "a", name);
        store.create(&key("rolebindings", "b"), binding).expect("new");
        let absent = memo.of(&store).decide(&user, &ask);
        assert_eq!(absent.reason, "RBAC: role.rbac.authorization.k8s.io \"r\" not found");
        let role = json!({
            "metadata": {"name": "r", "namespace": "a"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        });
        store.create(&key("roles", "r"), role).expect("new");
        let given = memo.of(&store).decide(&user, &ask);
        assert_eq!(
            given.reason,
            "RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to Group \"dev\""
        );
        assert!(!memo.of(&store).decide(&user, &Attributes { namespace: "b", ..ask }).allowed);
        let other = Store::new(100);
        assert!(!memo.of(&other).decide(&user, &ask).allowed, "another store grants nothing");
    }
}
