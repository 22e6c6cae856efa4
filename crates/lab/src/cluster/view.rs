//! What the controllers know of the cluster: every object, by name, by owner, by node.

use super::object::{meta, owners, revision, target_of};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Uids remembered as deleted, so that nobody needs to ask for them.
const GONE_MAX: usize = 20_000;

/// A resource of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// `pods`, `deployments.apps`.
    pub id: Arc<str>,
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// As `pods`.
    pub plural: String,
    /// As `Pod`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// Of this group (`""` for the core) and version.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Self {
        let (id, api_version) = match group {
            "" => (plural.to_owned(), version.to_owned()),
            _ => (format!("{plural}.{group}"), format!("{group}/{version}")),
        };
        let (plural, kind) = (plural.to_owned(), kind.to_owned());
        Self { id: id.into(), api_version, plural, kind, namespaced }
    }

    /// The group; empty for the core.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Where its objects of a namespace are; with `""` those of all.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let Self { api_version, plural, .. } = self;
        match namespace {
            "" => format!("/{root}/{api_version}/{plural}"),
            _ => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
        }
    }
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    /// Of its resource.
    pub id: Arc<str>,
    /// `""` for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Address {
    /// Of this resource, namespace and name.
    pub fn new(id: &str, namespace: &str, name: &str) -> Self {
        Self { id: id.into(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Of an object of this resource.
    pub fn of(id: &Arc<str>, object: &Value) -> Self {
        let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
        Self { id: id.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Where it is.
    pub address: Address,
    /// As it was; none if it is new.
    pub before: Option<Arc<Value>>,
    /// As it is; none if it is gone.
    pub now: Option<Arc<Value>>,
}

impl Change {
    /// Whether it is of this resource.
    pub fn is_of(&self, id: &str) -> bool {
        *self.address.id == *id
    }

    /// The states before and now, those that exist.
    pub fn states(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.before.iter().chain(&self.now)
    }
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<(String, String), Arc<Value>>,
    /// The newest revision its watch has told of.
    seen: u64,
}

#[derive(Default)]
struct Inner {
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
    tables: BTreeMap<Arc<str>, Table>,
    by_uid: BTreeMap<String, Address>,
    by_owner: BTreeMap<String, BTreeSet<Address>>,
    by_node: BTreeMap<String, BTreeSet<(String, String)>>,
    gone: BTreeSet<String>,
    gone_order: VecDeque<String>,
}

/// A local copy of the cluster with its own writes in it.
#[derive(Default)]
pub(super) struct View {
    inner: Mutex<Inner>,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to know a resource.
    pub fn add(&self, resource: Arc<Resource>) {
        let mut inner = self.lock();
        inner.tables.entry(resource.id.clone()).or_default();
        inner.resources.insert(resource.id.clone(), resource);
    }

    /// Forgets a resource and tells what went with it.
    pub fn drop_resource(&self, id: &str) -> Vec<Change> {
        let changes = self.replace(id, Vec::new());
        let mut inner = self.lock();
        inner.tables.remove(id);
        inner.resources.remove(id);
        changes
    }

    /// A resource by its id.
    pub fn resource(&self, id: &str) -> Option<Arc<Resource>> {
        self.lock().resources.get(id).cloned()
    }

    /// A resource by what owner references say of it; versions do not matter.
    pub fn resource_of(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let inner = self.lock();
        inner.resources.values().find(|one| one.kind == kind && one.group() == group).cloned()
    }

    /// All resources.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.lock().resources.values().cloned().collect()
    }

    /// One object.
    pub fn get(&self, id: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.lock().tables.get(id)?.objects.get(&key).cloned()
    }

    /// The object at an address.
    pub fn at(&self, address: &Address) -> Option<Arc<Value>> {
        self.get(&address.id, &address.namespace, &address.name)
    }

    /// All objects of a resource, by namespace and name.
    pub fn list(&self, id: &str) -> Vec<Arc<Value>> {
        let inner = self.lock();
        inner.tables.get(id).map(|t| t.objects.values().cloned().collect()).unwrap_or_default()
    }

    /// The objects of a resource in a namespace, by name.
    pub fn within(&self, id: &str, namespace: &str) -> Vec<Arc<Value>> {
        let inner = self.lock();
        let Some(table) = inner.tables.get(id) else { return Vec::new() };
        let from = (namespace.to_owned(), String::new());
        let range = table.objects.range(from..).take_while(|((home, _), _)| home == namespace);
        range.map(|(_, object)| object.clone()).collect()
    }

    /// The objects that name this uid among their owners.
    pub fn dependents(&self, uid: &str) -> Vec<(Address, Arc<Value>)> {
        let inner = self.lock();
        let addresses = inner.by_owner.get(uid).into_iter().flatten();
        addresses.filter_map(|at| Some((at.clone(), inner.at(at)?.clone()))).collect()
    }

    /// The object with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<(Address, Arc<Value>)> {
        let inner = self.lock();
        let address = inner.by_uid.get(uid)?;
        Some((address.clone(), inner.at(address)?.clone()))
    }

    /// Whether the object with this uid was seen to go.
    pub fn was_deleted(&self, uid: &str) -> bool {
        self.lock().gone.contains(uid)
    }

    /// The pods that are on a node or can go nowhere else, by namespace and name.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Value>> {
        let inner = self.lock();
        let Some(pods) = inner.tables.get("pods") else { return Vec::new() };
        let names = inner.by_node.get(node).into_iter().flatten();
        names.filter_map(|name| pods.objects.get(name).cloned()).collect()
    }

    /// Takes in what a watch told: the object as it is now, or (`gone`) as it was last.
    pub fn apply(&self, id: &Arc<str>, object: Arc<Value>, gone: bool) -> Option<Change> {
        let mut inner = self.lock();
        let at = revision(&object);
        if let Some(table) = inner.tables.get_mut(id) {
            table.seen = table.seen.max(at);
        }
        inner.put(id, object, gone)
    }

    /// Takes in the answer to an own write, unless the watch is ahead of it.
    pub fn learn(&self, id: &Arc<str>, object: Value) -> Option<Change> {
        let mut inner = self.lock();
        if revision(&object) <= inner.tables.get(id)?.seen {
            return None;
        }
        inner.put(id, Arc::new(object), false)
    }

    /// Takes in a whole list.
    pub fn replace(&self, id: &str, all: Vec<Arc<Value>>) -> Vec<Change> {
        let mut inner = self.lock();
        let Some(id) = inner.resources.get(id).map(|one| one.id.clone()) else { return Vec::new() };
        let kept: BTreeSet<Address> = all.iter().map(|one| Address::of(&id, one)).collect();
        let known: Vec<Arc<Value>> =
            inner.tables.get(&id).into_iter().flat_map(|t| t.objects.values().cloned()).collect();
        let lost = known.into_iter().filter(|one| !kept.contains(&Address::of(&id, one)));
        let mut changes: Vec<Change> = Vec::new();
        for (object, gone) in lost.map(|one| (one, true)).chain(all.into_iter().map(|o| (o, false)))
        {
            changes.extend(inner.put(&id, object, gone));
        }
        changes
    }
}

impl Inner {
    fn at(&self, address: &Address) -> Option<&Arc<Value>> {
        let key = (address.namespace.clone(), address.name.clone());
        self.tables.get(&address.id)?.objects.get(&key)
    }

    fn put(&mut self, id: &Arc<str>, object: Arc<Value>, gone: bool) -> Option<Change> {
        let address = Address::of(id, &object);
        let key = (address.namespace.clone(), address.name.clone());
        let table = self.tables.get_mut(id)?;
        let before = table.objects.get(&key).cloned();
        if before.as_ref().is_some_and(|was| revision(was) > revision(&object)) {
            return None;
        }
        if gone {
            table.objects.remove(&key)?;
        } else {
            if before.as_ref().is_some_and(|was| revision(was) == revision(&object)) {
                return None;
            }
            table.objects.insert(key, object.clone());
        }
        if let Some(was) = &before {
            self.unindex(&address, was);
        }
        let now = (!gone).then_some(object);
        if let Some(is) = &now {
            self.index(&address, is);
        }
        let same = |was: &Arc<Value>| now.as_ref().is_some_and(|is| uid(is) == uid(was));
        if let Some(was) = before.as_ref().filter(|was| !same(was)) {
            self.remember_gone(uid(was));
        }
        Some(Change { address, before, now })
    }

    fn index(&mut self, address: &Address, object: &Value) {
        self.by_uid.insert(uid(object).to_owned(), address.clone());
        for owner in owners(object) {
            let owner = owner["uid"].as_str().unwrap_or_default().to_owned();
            self.by_owner.entry(owner).or_default().insert(address.clone());
        }
        if *address.id == *"pods" && !target_of(object).is_empty() {
            let name = (address.namespace.clone(), address.name.clone());
            self.by_node.entry(target_of(object).to_owned()).or_default().insert(name);
        }
    }

    fn unindex(&mut self, address: &Address, object: &Value) {
        self.by_uid.remove(uid(object));
        for owner in owners(object) {
            take(&mut self.by_owner, owner["uid"].as_str().unwrap_or_default(), address);
        }
        if *address.id == *"pods" {
            let name = (address.namespace.clone(), address.name.clone());
            take(&mut self.by_node, target_of(object), &name);
        }
    }

    fn remember_gone(&mut self, uid: &str) {
        if self.gone.insert(uid.to_owned()) {
            self.gone_order.push_back(uid.to_owned());
        }
        if self.gone_order.len() > GONE_MAX
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }
}

fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

fn take<T: Ord>(index: &mut BTreeMap<String, BTreeSet<T>>, key: &str, one: &T) {
    if let Some(set) = index.get_mut(key) {
        set.remove(one);
        if set.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, version: u64, node: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
                "ownerReferences": [{"uid": "set"}],
            },
            "spec": {"nodeName": node},
        })
    }

    fn view() -> (View, Arc<str>) {
        let view = View::default();
        let pods = Arc::new(Resource::new("", "v1", "pods", "Pod", true));
        let id = pods.id.clone();
        view.add(pods);
        (view, id)
    }

    #[test]
    fn own_writes_are_seen_until_the_watch_is_ahead() {
        let (view, pods) = view();
        assert!(view.learn(&pods, pod("p", 5, "")).is_some());
        assert_eq!(view.dependents("set").len(), 1);
        assert!(view.apply(&pods, Arc::new(pod("p", 5, "")), false).is_none(), "known already");
        assert!(view.apply(&pods, Arc::new(pod("p", 9, "")), true).is_some());
        assert!(view.learn(&pods, pod("p", 7, "")).is_none(), "the watch saw it go");
        assert!(view.list("pods").is_empty() && view.dependents("set").is_empty());
        assert!(view.was_deleted("p"));
    }

    #[test]
    fn pods_are_found_by_their_node() {
        let (view, pods) = view();
        view.apply(&pods, Arc::new(pod("p", 1, "")), false);
        assert!(view.pods_on("n").is_empty());
        view.apply(&pods, Arc::new(pod("p", 2, "n")), false);
        assert_eq!(view.pods_on("n").len(), 1);
        let changes = view.replace("pods", vec![Arc::new(pod("q", 3, "n"))]);
        assert_eq!(changes.len(), 2);
        assert_eq!(meta(&view.pods_on("n")[0], "name"), "q");
    }
}
