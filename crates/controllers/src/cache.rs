//! What the API server last said of a kind: one watch, ordered, indexed, with our own writes in it.
//!
//! A write's answer is put in at once ([`Cache::saw`]), so a controller never plans from a page older
//! than its own last word. Resource versions are compared as numbers (Kubernetes: API concepts,
//! "Resource versions" are ordered since 1.35, and have been in etcd-backed servers before).

use crate::troubles::chain;
use futures::{StreamExt, TryStreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// What happened to an object, as a listener is told.
pub enum Change<'a, K> {
    Put { old: Option<&'a Arc<K>>, new: &'a Arc<K> },
    Gone { old: &'a Arc<K> },
}

impl<K> Change<'_, K> {
    /// The object before and after, as far as there is one.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<K>> {
        let (old, new) = match self {
            Self::Put { old, new } => (*old, Some(*new)),
            Self::Gone { old } => (Some(*old), None),
        };
        old.into_iter().chain(new)
    }
}

/// The words under which an object is found in one index.
pub type IndexFn<K> = fn(&K) -> Vec<String>;
type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// How many deletions are remembered, so that a late answer does not bring an object back.
const DELETIONS_REMEMBERED_MAX: usize = 4096;
/// Objects a list asks for in one page.
const PAGE_SIZE: u32 = 500;

/// All objects of a kind, shared by whoever holds a clone.
pub struct Cache<K: 'static> {
    inner: Arc<Inner<K>>,
}

impl<K: 'static> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<K> {
    objects: Mutex<Objects<K>>,
    listeners: Mutex<Vec<Listener<K>>>,
    slim: fn(&mut K),
    synced: watch::Sender<bool>,
}

struct Objects<K> {
    all: BTreeMap<Arc<Key>, Arc<K>>,
    deleted: BTreeMap<Key, u64>,
    indexes: Vec<Index<K>>,
}

struct Index<K> {
    words: IndexFn<K>,
    /// In the order of the keys. Most words have one: a set for each would take a kilobyte.
    keys: BTreeMap<Box<str>, Vec<Arc<Key>>>,
}

/// The bounds every cached kind satisfies.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync
{
}
impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync> Kind for K {}

impl<K: Kind> Cache<K> {
    /// An empty cache with these indexes; `slim` drops what no controller reads.
    pub fn new(indexes: &[IndexFn<K>], slim: fn(&mut K)) -> Self {
        let indexes =
            indexes.iter().map(|words| Index { words: *words, keys: BTreeMap::new() }).collect();
        Self {
            inner: Arc::new(Inner {
                objects: Mutex::new(Objects {
                    all: BTreeMap::new(),
                    deleted: BTreeMap::new(),
                    indexes,
                }),
                listeners: Mutex::default(),
                slim,
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// Calls `tell` after every change, in the order of the changes, and never while the cache is locked.
    pub fn listen(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        lock(&self.inner.listeners).push(Box::new(tell));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        lock(&self.inner.objects).all.get(key).cloned()
    }

    /// All objects in the order of their keys.
    pub fn all(&self) -> Vec<Arc<K>> {
        lock(&self.inner.objects).all.values().cloned().collect()
    }

    /// The objects that index number `index` holds under `word`, in the order of their keys.
    pub fn by(&self, index: usize, word: &str) -> Vec<Arc<K>> {
        let objects = lock(&self.inner.objects);
        let Some(keys) = objects.indexes[index].keys.get(word) else { return Vec::new() };
        keys.iter().filter_map(|key| objects.all.get(key).cloned()).collect()
    }

    /// The objects of a namespace whose names begin so, in the order of their names.
    pub fn named(&self, namespace: &str, prefix: &str) -> Vec<Arc<K>> {
        let objects = lock(&self.inner.objects);
        let from = objects.all.range(Arc::new(Key::new(namespace, prefix))..);
        from.take_while(|(key, _)| key.namespace == namespace && key.name.starts_with(prefix))
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub fn len(&self) -> usize {
        lock(&self.inner.objects).all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this cache, so waiting cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }

    /// Takes in the answer of an own write.
    pub fn saw(&self, object: K) {
        let ended = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
        if !ended {
            self.put(object);
        }
    }

    /// Lists and watches until stopped; the only writer besides [`Cache::saw`].
    pub async fn run(self, api: Api<K>, stop: CancellationToken) {
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let events = watcher(api, config).default_backoff().take_until(stop.cancelled_owned());
        pin_mut!(events);
        let mut unlisted = BTreeMap::new();
        loop {
            match events.try_next().await {
                Ok(Some(event)) => self.apply(event, &mut unlisted),
                Ok(None) => return,
                Err(error) => {
                    // The watcher's own words repeat those of the answer at length.
                    let why = chain(error.source().unwrap_or(&error));
                    tracing::warn!(kind = %K::kind(&()), error = why, "watch failed, it is begun again");
                }
            }
        }
    }

    /// `unlisted`: what was here when a list began and was not seen in it yet, with its version. What
    /// an own write adds while the list runs is not in it, so the list cannot take it away.
    fn apply(&self, event: watcher::Event<K>, unlisted: &mut BTreeMap<Key, u64>) {
        match event {
            watcher::Event::Apply(object) => self.put(object),
            watcher::Event::Delete(object) => self.gone(&Key::of(&object), version(&object)),
            watcher::Event::Init => *unlisted = self.versions(),
            watcher::Event::InitApply(object) => {
                unlisted.remove(&Key::of(&object));
                self.put(object);
            }
            watcher::Event::InitDone => {
                let now = self.versions();
                for (key, version) in std::mem::take(unlisted) {
                    if now.get(&key) == Some(&version) {
                        self.gone(&key, version);
                    }
                }
                self.inner.synced.send_replace(true);
            }
        }
    }

    fn versions(&self) -> BTreeMap<Key, u64> {
        let objects = lock(&self.inner.objects);
        let version_of =
            |(key, object): (&Arc<Key>, &Arc<K>)| (key.as_ref().clone(), version(object.as_ref()));
        objects.all.iter().map(version_of).collect()
    }

    fn put(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        (self.inner.slim)(&mut object);
        let key = Key::of(&object);
        let object = Arc::new(object);
        let old = {
            let mut objects = lock(&self.inner.objects);
            if objects.is_stale(&key, version(object.as_ref())) {
                return;
            }
            objects.insert(key, object.clone())
        };
        self.tell(&Change::Put { old: old.as_ref(), new: &object });
    }

    fn gone(&self, key: &Key, version: u64) {
        let old = lock(&self.inner.objects).remove(key, version);
        if let Some(old) = old {
            self.tell(&Change::Gone { old: &old });
        }
    }

    fn tell(&self, change: &Change<'_, K>) {
        for tell in lock(&self.inner.listeners).iter() {
            tell(change);
        }
    }
}

impl<K: Resource> Objects<K> {
    fn is_stale(&self, key: &Key, version_new: u64) -> bool {
        let known = self.all.get(key).map(|object| version(object.as_ref()));
        known.is_some_and(|known| known >= version_new && version_new > 0)
            || self.deleted.get(key).is_some_and(|deleted| *deleted >= version_new)
    }

    fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let known = self.all.get_key_value(&key).map(|(known, _)| known.clone());
        let key = known.unwrap_or_else(|| Arc::new(key));
        let old = self.all.insert(key.clone(), object.clone());
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &object);
        }
        old
    }

    fn remove(&mut self, key: &Key, version: u64) -> Option<Arc<K>> {
        if self.deleted.len() >= DELETIONS_REMEMBERED_MAX
            && let Some(oldest) =
                self.deleted.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            self.deleted.remove(&oldest);
        }
        self.deleted.insert(key.clone(), version);
        let old = self.all.remove(key)?;
        for index in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }
}

impl<K> Index<K> {
    fn insert(&mut self, key: &Arc<Key>, object: &K) {
        for word in (self.words)(object) {
            let keys = self.keys.entry(word.into()).or_insert_with(|| Vec::with_capacity(1));
            if let Err(at) = keys.binary_search(key) {
                keys.insert(at, key.clone());
            }
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for word in (self.words)(object) {
            let Some(keys) = self.keys.get_mut(word.as_str()) else { continue };
            if let Ok(at) = keys.binary_search_by(|it| it.as_ref().cmp(key)) {
                keys.remove(at);
            }
            if keys.is_empty() {
                self.keys.remove(word.as_str());
            }
        }
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A listener that panicked leaves the data whole: every change is one insert or one remove.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, version: u64, word: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.resource_version = Some(version.to_string());
        object.metadata.labels = Some([("word".to_owned(), word.to_owned())].into());
        object
    }

    fn cache() -> Cache<ConfigMap> {
        Cache::new(&[|object| object.labels().values().cloned().collect()], |_| {})
    }

    fn names(cache: &Cache<ConfigMap>, word: &str) -> Vec<String> {
        cache.by(0, word).iter().map(|object| object.name_any()).collect()
    }

    #[test]
    fn an_older_page_does_not_hide_an_own_write() {
        let cache = cache();
        cache.saw(object("a", 5, "new"));
        cache.apply(watcher::Event::Apply(object("a", 4, "old")), &mut BTreeMap::new());
        assert_eq!((names(&cache, "new").len(), names(&cache, "old").len()), (1, 0));
    }

    #[test]
    fn a_late_answer_does_not_bring_back_the_dead() {
        let cache = cache();
        cache.saw(object("a", 5, "x"));
        cache.apply(watcher::Event::Delete(object("a", 7, "x")), &mut BTreeMap::new());
        cache.saw(object("a", 6, "x"));
        assert!(cache.is_empty());
        cache.saw(object("a", 8, "x"));
        assert_eq!(cache.len(), 1, "a new object of the old name is another one");
    }

    #[test]
    fn a_relist_deletes_what_it_no_longer_shows() {
        let cache = cache();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        cache.listen(move |change| {
            let word = if matches!(change, Change::Gone { .. }) { "gone" } else { "put" };
            log.lock().unwrap().push(word);
        });
        let mut listed = BTreeMap::new();
        cache.saw(object("a", 5, "x"));
        cache.saw(object("b", 6, "x"));
        cache.apply(watcher::Event::Init, &mut listed);
        cache.apply(watcher::Event::InitApply(object("b", 6, "x")), &mut listed);
        cache.saw(object("c", 8, "x"));
        cache.apply(watcher::Event::InitDone, &mut listed);
        assert_eq!(names(&cache, "x"), ["b", "c"], "c was written after the list was made");
        assert_eq!(*heard.lock().unwrap(), ["put", "put", "put", "gone"]);
    }

    #[test]
    fn an_index_follows_its_object() {
        let cache = cache();
        cache.saw(object("a", 1, "x"));
        cache.saw(object("a", 2, "y"));
        assert_eq!((names(&cache, "x").len(), names(&cache, "y")), (0, vec!["a".to_owned()]));
    }
}
