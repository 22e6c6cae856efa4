//! What is kept: objects by key, one revision counter, and a bounded past of every resource for watches.

use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::watch;

/// Storage identity of a resource, its version apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// `""` for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
}

impl ResourceId {
    /// The resource of this group and plural.
    #[must_use]
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }
}

/// Where one object is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Of what resource.
    pub resource: ResourceId,
    /// `""` for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        let resource = ResourceId::new(group, resource);
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Objects are ordered by these bytes, as in etcd.
    pub(crate) fn path(&self) -> String {
        path(&self.namespace, &self.name)
    }
}

/// `namespace/name`, or the name alone of a cluster-scoped object.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is new.
    Added,
    /// It was written.
    Modified,
    /// It is gone.
    Deleted,
}

/// An object at one revision.
#[derive(Debug)]
pub struct Entry {
    /// The object; its `metadata.resourceVersion` is the revision.
    pub object: Arc<Value>,
    /// The revision of the write that made it.
    pub revision: u64,
    json: OnceLock<bytes::Bytes>,
}

impl Entry {
    fn new(object: Value, revision: u64) -> Arc<Self> {
        Arc::new(Self { object: Arc::new(object), revision, json: OnceLock::new() })
    }

    /// The object as JSON, made once for everybody who asks.
    #[must_use]
    pub fn json(&self) -> bytes::Bytes {
        self.json
            .get_or_init(|| serde_json::to_vec(&*self.object).unwrap_or_default().into())
            .clone()
    }
}

/// One step of a resource's past.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub what: Happened,
    /// `namespace/name`.
    pub path: Arc<str>,
    /// The object afterwards; of a deletion its last state at the revision of the deletion.
    pub now: Arc<Entry>,
    /// The object before.
    pub before: Option<Arc<Entry>>,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The name is taken.
    #[error("the object exists already")]
    Exists,
    /// There is no such object.
    #[error("the object does not exist")]
    Missing,
    /// It is at another revision than expected.
    #[error("the object is at revision {0}")]
    Conflict(u64),
}

struct Table {
    objects: BTreeMap<String, Arc<Entry>>,
    past: VecDeque<Change>,
    /// Revision of the newest step that was forgotten; a watch must begin here or later.
    forgotten: u64,
    pulse: watch::Sender<u64>,
}

struct Inner {
    revision: u64,
    /// What was there before this revision is forgotten, in resources that come later, too.
    compacted: u64,
    tables: BTreeMap<ResourceId, Table>,
}

impl Inner {
    fn table(&mut self, resource: &ResourceId) -> &mut Table {
        // A resource nobody wrote yet has no past: watches may begin at any revision.
        if !self.tables.contains_key(resource) {
            let table = Table {
                objects: BTreeMap::new(),
                past: VecDeque::new(),
                forgotten: self.compacted,
                pulse: watch::Sender::new(0),
            };
            self.tables.insert(resource.clone(), table);
        }
        self.tables.get_mut(resource).expect("the table was just made")
    }
}

/// All objects of a cluster.
pub struct Store {
    inner: Mutex<Inner>,
    watch_history: usize,
}

/// What a watcher found behind its revision.
pub enum Past {
    /// The steps after it, oldest first; may be empty.
    Changes(Vec<Change>),
    /// Steps after it are forgotten up to this revision.
    Gone(u64),
}

impl Store {
    /// An empty store that keeps this many steps of each resource.
    #[must_use]
    pub fn new(watch_history: usize) -> Self {
        let inner = Inner { revision: 1, compacted: 0, tables: BTreeMap::new() };
        Self { inner: Mutex::new(inner), watch_history: watch_history.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.entry(key).map(|entry| entry.object.clone())
    }

    /// One object with its revision.
    #[must_use]
    pub fn entry(&self, key: &Key) -> Option<Arc<Entry>> {
        self.lock().tables.get(&key.resource)?.objects.get(&key.path()).cloned()
    }

    /// The newest revision and all objects of a resource (of one namespace) in the order of their paths.
    #[must_use]
    pub fn list(&self, resource: &ResourceId, namespace: Option<&str>) -> (u64, Vec<Arc<Value>>) {
        let (revision, entries) = self.entries(resource, namespace);
        (revision, entries.into_iter().map(|(_, entry)| entry.object.clone()).collect())
    }

    /// The same with paths and revisions.
    #[must_use]
    pub fn entries(
        &self,
        resource: &ResourceId,
        namespace: Option<&str>,
    ) -> (u64, Vec<(String, Arc<Entry>)>) {
        let inner = self.lock();
        let entries = inner.tables.get(resource).map(|table| within(&table.objects, namespace));
        (inner.revision, entries.unwrap_or_default())
    }

    /// The objects as they were at a revision, or the oldest revision that is still known.
    pub fn entries_at(
        &self,
        resource: &ResourceId,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<(String, Arc<Entry>)>, u64> {
        let inner = self.lock();
        let Some(table) = inner.tables.get(resource) else { return Ok(Vec::new()) };
        if revision < table.forgotten {
            return Err(table.forgotten);
        }
        let mut objects = table.objects.clone();
        for change in table.past.iter().rev().take_while(|c| c.now.revision > revision) {
            match &change.before {
                Some(before) => objects.insert(change.path.to_string(), before.clone()),
                None => objects.remove(&*change.path),
            };
        }
        Ok(within(&objects, namespace))
    }

    /// Keeps a new object. Its resourceVersion is set here.
    pub fn create(&self, key: &Key, object: Value) -> Result<Arc<Entry>, StoreError> {
        let mut inner = self.lock();
        let path = key.path();
        if inner.table(&key.resource).objects.contains_key(&path) {
            return Err(StoreError::Exists);
        }
        Ok(self.commit(&mut inner, &key.resource, path, Happened::Added, object))
    }

    /// Keeps a new state of an object, which must be at the revision expected (if any).
    pub fn replace(
        &self,
        key: &Key,
        object: Value,
        expected: Option<u64>,
    ) -> Result<Arc<Entry>, StoreError> {
        let mut inner = self.lock();
        let path = key.path();
        check(inner.table(&key.resource).objects.get(&path), expected)?;
        Ok(self.commit(&mut inner, &key.resource, path, Happened::Modified, object))
    }

    /// Forgets an object. The answer is its last state at the revision of the deletion.
    pub fn remove(&self, key: &Key, expected: Option<u64>) -> Result<Arc<Entry>, StoreError> {
        self.remove_as(key, expected, |_| {})
    }

    /// The same with a last change, which only those who watch will see.
    pub fn remove_as(
        &self,
        key: &Key,
        expected: Option<u64>,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Entry>, StoreError> {
        let mut inner = self.lock();
        let path = key.path();
        let old = check(inner.table(&key.resource).objects.get(&path), expected)?;
        let mut last = (*old.object).clone();
        change(&mut last);
        Ok(self.commit(&mut inner, &key.resource, path, Happened::Deleted, last))
    }

    fn commit(
        &self,
        inner: &mut Inner,
        resource: &ResourceId,
        path: String,
        what: Happened,
        mut object: Value,
    ) -> Arc<Entry> {
        inner.revision += 1;
        let revision = inner.revision;
        object["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let now = Entry::new(object, revision);
        let table = inner.table(resource);
        let name: Arc<str> = path.as_str().into();
        let before = match what {
            Happened::Deleted => table.objects.remove(&path),
            Happened::Added | Happened::Modified => table.objects.insert(path, now.clone()),
        };
        table.past.push_back(Change { what, path: name, now: now.clone(), before });
        if table.past.len() > self.watch_history
            && let Some(oldest) = table.past.pop_front()
        {
            table.forgotten = oldest.now.revision;
        }
        table.pulse.send_replace(revision);
        now
    }

    /// What happened after a revision.
    #[must_use]
    pub fn past(&self, resource: &ResourceId, after: u64) -> Past {
        let inner = self.lock();
        let Some(table) = inner.tables.get(resource) else { return Past::Changes(Vec::new()) };
        if after < table.forgotten {
            return Past::Gone(table.forgotten);
        }
        let start = table.past.partition_point(|change| change.now.revision <= after);
        Past::Changes(table.past.range(start..).cloned().collect())
    }

    /// Wakes when the resource changes.
    #[must_use]
    pub fn pulse(&self, resource: &ResourceId) -> watch::Receiver<u64> {
        self.lock().table(resource).pulse.subscribe()
    }

    /// Ends the pulse of a resource that is not served any more, and with it its watches.
    pub fn hang_up(&self, resource: &ResourceId) {
        self.lock().table(resource).pulse = watch::Sender::new(0);
    }

    /// Forgets the whole past, as a compaction does: every older watch must list again.
    pub fn compact(&self) {
        let mut inner = self.lock();
        let revision = inner.revision;
        inner.compacted = revision;
        for table in inner.tables.values_mut() {
            table.past.clear();
            table.forgotten = revision;
        }
    }
}

fn check(found: Option<&Arc<Entry>>, expected: Option<u64>) -> Result<Arc<Entry>, StoreError> {
    let old = found.ok_or(StoreError::Missing)?;
    match expected {
        Some(revision) if revision != old.revision => Err(StoreError::Conflict(old.revision)),
        _ => Ok(old.clone()),
    }
}

fn within(
    objects: &BTreeMap<String, Arc<Entry>>,
    namespace: Option<&str>,
) -> Vec<(String, Arc<Entry>)> {
    let copy = |(path, entry): (&String, &Arc<Entry>)| (path.clone(), entry.clone());
    match namespace {
        None => objects.iter().map(copy).collect(),
        Some(namespace) => {
            let start = format!("{namespace}/");
            // '0' follows '/': the range holds exactly the paths of this namespace.
            let end = format!("{namespace}0");
            objects.range(start..end).map(copy).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new("", "configmaps", namespace, name)
    }

    fn object(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    fn names(entries: &[(String, Arc<Entry>)]) -> Vec<&str> {
        entries.iter().map(|(path, _)| path.as_str()).collect()
    }

    #[test]
    fn a_write_needs_the_revision_it_was_made_from() {
        let store = Store::new(10);
        let first = store.create(&key("a", "x"), object("x")).expect("new");
        assert_eq!(store.create(&key("a", "x"), object("x")).err(), Some(StoreError::Exists));
        let second =
            store.replace(&key("a", "x"), object("x"), Some(first.revision)).expect("fresh");
        assert!(second.revision > first.revision);
        let stale = store.replace(&key("a", "x"), object("x"), Some(first.revision));
        assert_eq!(stale.err(), Some(StoreError::Conflict(second.revision)));
        let missing = store.remove(&key("a", "y"), None);
        assert_eq!(missing.err(), Some(StoreError::Missing));
    }

    #[test]
    fn a_namespace_is_listed_without_its_neighbours() {
        let store = Store::new(10);
        for namespace in ["a", "a-b", "b"] {
            store.create(&key(namespace, "x"), object("x")).expect("new");
        }
        let resource = ResourceId::new("", "configmaps");
        assert_eq!(names(&store.entries(&resource, Some("a")).1), ["a/x"]);
        assert_eq!(store.entries(&resource, None).1.len(), 3);
    }

    #[test]
    fn the_past_can_be_listed_until_it_is_forgotten() {
        let store = Store::new(2);
        let resource = ResourceId::new("", "configmaps");
        let first = store.create(&key("a", "x"), object("x")).expect("new").revision;
        store.create(&key("a", "y"), object("y")).expect("new");
        store.remove(&key("a", "x"), None).expect("there");
        assert_eq!(names(&store.entries(&resource, None).1), ["a/y"]);
        let then = store.entries_at(&resource, None, first).expect("still known");
        assert_eq!(names(&then), ["a/x"]);
        store.create(&key("a", "z"), object("z")).expect("new");
        assert!(store.entries_at(&resource, None, first).is_err());
    }

    #[test]
    fn a_watcher_that_is_too_far_behind_is_told_so() {
        let store = Store::new(2);
        let resource = ResourceId::new("", "configmaps");
        let first = store.create(&key("a", "0"), object("0")).expect("new").revision;
        let Past::Changes(none) = store.past(&resource, first) else {
            panic!("nothing is forgotten")
        };
        assert!(none.is_empty());
        for name in ["1", "2"] {
            store.create(&key("a", name), object(name)).expect("new");
        }
        let Past::Changes(two) = store.past(&resource, first) else { panic!("both are known") };
        assert_eq!(two.iter().map(|change| &*change.path).collect::<Vec<_>>(), ["a/1", "a/2"]);
        store.create(&key("a", "3"), object("3")).expect("new");
        assert!(matches!(store.past(&resource, first), Past::Gone(oldest) if oldest > first));
    }
}
