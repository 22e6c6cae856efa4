//! What is served: the kinds of every group and version, built-in or from definitions sent at run time.

use super::store::ResourceId;
use crate::schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// When `metadata.generation` goes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// Never; the kind has none.
    #[default]
    None,
    /// With `spec`.
    Spec,
    /// With `spec` and with annotations (Kubernetes: Deployment).
    SpecAndAnnotations,
    /// With everything but `metadata` (and `status`, if that is a subresource): custom resources.
    Content,
}

/// A part of an object with a life of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Subresource {
    /// Group, version and kind of its body.
    pub group: String,
    /// See `group`.
    pub version: String,
    /// See `group`.
    pub kind: String,
    /// As discovery tells them.
    pub verbs: Vec<String>,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The definition as it goes over the wire.
    pub definition: Value,
    /// Where the cell comes from; empty for the columns of built-in kinds.
    pub path: String,
}

/// Paths of the scale subresource.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// As `.spec.replicas`.
    pub spec: String,
    /// As `.status.replicas`.
    pub status: String,
    /// As `.status.selector`; a text.
    pub selector: Option<String>,
}

/// What is particular to a kind's storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// When the generation goes up.
    pub generation: Generation,
    /// PUT to a missing object makes it.
    pub create_on_update: bool,
    /// PUT without resourceVersion is refused.
    pub version_required: bool,
    /// DELETE answers the object, not a Status.
    pub delete_answers_object: bool,
    /// `status` is kept apart: writes to the object do not touch it.
    pub status_apart: bool,
    /// `status` given on create is kept (Kubernetes: Node).
    pub status_on_create: bool,
}

/// One resource in one version.
pub struct Kind {
    /// `""` for the core group.
    pub group: String,
    /// As `v1`.
    pub version: String,
    /// The resource's name in URLs.
    pub plural: String,
    /// What `kubectl` accepts instead.
    pub singular: String,
    /// As `Machine`.
    pub kind: String,
    /// As `MachineList`.
    pub list_kind: String,
    /// As `ma`.
    pub short_names: Vec<String>,
    /// As `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// As discovery tells them; `create` alone for reviews.
    pub verbs: Vec<String>,
    /// By name.
    pub subresources: BTreeMap<String, Subresource>,
    /// What its objects look like.
    pub schema: Schema,
    /// Of its tables.
    pub columns: Vec<Column>,
    /// Where its objects are kept.
    pub storage: ResourceId,
    /// What is particular to it.
    pub behaviour: Behaviour,
    /// `apiVersion` its objects are kept in.
    pub storage_version: String,
    /// Of the scale subresource.
    pub scale: Option<Scale>,
    /// Made from a CustomResourceDefinition.
    pub custom: bool,
    /// Fields beyond `metadata.name` and `metadata.namespace` that field selectors may ask for.
    pub selectable: Vec<String>,
    /// The name of its schema in OpenAPI documents.
    pub definition: String,
    /// Schema of a custom kind as it was sent, for OpenAPI.
    pub published: Value,
    /// Generation of the definition it was made from; 0 for a built-in kind.
    pub revision: i64,
    /// New objects are refused: the definition is being deleted.
    pub closing: bool,
    /// Text of the warning with every answer (a version that is deprecated).
    pub warning: Option<String>,
    /// Nobody acts on its objects here, which is told with every write.
    pub inert: bool,
}

impl Kind {
    /// `apps/v1` or `v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Whether discovery offers this verb.
    #[must_use]
    pub fn offers(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }
}

/// `apps/v1` or `v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The resources of one version of a group, by plural.
pub type Resources = BTreeMap<String, Arc<Kind>>;

/// A group of the API.
#[derive(Clone, Default)]
pub struct Group {
    /// Versions with their resources, the preferred one first.
    pub versions: Vec<(String, Resources)>,
    /// From definitions, not built in.
    pub custom: bool,
}

impl Group {
    /// The resources of a version.
    #[must_use]
    pub fn version(&self, version: &str) -> Option<&Resources> {
        self.versions.iter().find(|(name, _)| name == version).map(|(_, resources)| resources)
    }
}

/// All groups, in the order discovery tells them.
#[derive(Clone, Default)]
pub struct Groups {
    /// Name and content; the core group first.
    pub all: Vec<(String, Group)>,
    /// Changes with every change of what is served.
    pub serial: u64,
}

impl Groups {
    /// A group by name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.all.iter().find(|(found, _)| found == name).map(|(_, group)| group)
    }

    /// A kind by group, version and plural.
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.group(group)?.version(version)?.get(plural)
    }

    /// Every kind.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.all.iter().flat_map(|(_, group)| {
            group.versions.iter().flat_map(|(_, resources)| resources.values())
        })
    }

    /// The kinds that share a storage, all versions.
    pub fn stored_in<'a>(&'a self, id: &'a ResourceId) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.kinds().filter(move |kind| kind.storage == *id)
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        let at = match self.all.iter().position(|(name, _)| *name == kind.group) {
            Some(at) => at,
            None => {
                let group = Group { custom: kind.custom, ..Group::default() };
                self.all.push((kind.group.clone(), group));
                self.all.len() - 1
            }
        };
        let versions = &mut self.all[at].1.versions;
        let at = match versions.iter().position(|(name, _)| *name == kind.version) {
            Some(at) => at,
            None => {
                versions.push((kind.version.clone(), Resources::new()));
                versions.sort_by(|a, b| priority(&b.0).cmp(&priority(&a.0)).then(a.0.cmp(&b.0)));
                versions.iter().position(|(name, _)| *name == kind.version).unwrap_or(0)
            }
        };
        versions[at].1.insert(kind.plural.clone(), Arc::new(kind));
    }

    fn drop_storage(&mut self, id: &ResourceId) {
        for (_, group) in &mut self.all {
            for (_, resources) in &mut group.versions {
                resources.retain(|_, kind| kind.storage != *id);
            }
            group.versions.retain(|(_, resources)| !resources.is_empty());
        }
        self.all.retain(|(_, group)| !group.versions.is_empty());
    }
}

/// Kubernetes' order of versions: v2 before v1 before v1beta1 before v1alpha1, other names last.
fn priority(version: &str) -> (u8, u64, u64) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse::<u64>() else { return (0, 0, 0) };
    let tail = &rest[digits..];
    let minor = |word: &str| tail.strip_prefix(word).and_then(|n| n.parse::<u64>().ok());
    match (tail, minor("beta"), minor("alpha")) {
        ("", _, _) => (3, major, 0),
        (_, Some(beta), _) => (2, major, beta),
        (_, _, Some(alpha)) => (1, major, alpha),
        _ => (0, 0, 0),
    }
}

/// What is served now. Readers take a snapshot; a change makes a new one.
#[derive(Default)]
pub struct Registry {
    groups: RwLock<Arc<Groups>>,
}

impl Registry {
    pub(crate) fn new(groups: Groups) -> Self {
        Self { groups: RwLock::new(Arc::new(groups)) }
    }

    /// What is served at this moment.
    #[must_use]
    pub fn groups(&self) -> Arc<Groups> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A kind by group, version and plural.
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.groups().kind(group, version, plural).cloned()
    }

    /// Serves these kinds, and no others, of a storage.
    pub(crate) fn replace(&self, id: &ResourceId, kinds: Vec<Kind>) {
        let mut slot = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let mut groups = Groups::clone(&slot);
        groups.drop_storage(id);
        kinds.into_iter().for_each(|kind| groups.add(kind));
        groups.serial += 1;
        *slot = Arc::new(groups);
    }
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn versions_are_ordered_as_kubernetes_does() {
        let mut versions = ["v1alpha1", "foo", "v2", "v1beta2", "v1", "v1beta1", "v10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}
