//! A collection kept up to date: listed once, watched for ever, listed again when the server has forgotten.

use super::{ApiError, Client, Event, with_query};
use futures::StreamExt as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The first pause after a failure; it doubles up to `BACKOFF_MAX`, with a jitter of half of it.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// What a collection did.
#[derive(Clone, Debug)]
pub enum Delta {
    /// All there is, after a list.
    Replaced(Vec<Arc<Value>>),
    /// One object is new or changed.
    Applied(Arc<Value>),
    /// One object is gone; this is its last state.
    Deleted(Arc<Value>),
}

/// Follows a collection for ever and hands on what it does; the path may carry selectors.
pub async fn reflect(client: Client, path: String, mut on: impl FnMut(Delta) + Send) {
    // Seeded by the path: two runs of one world wait alike, two informers of one world do not.
    let seed = path.bytes().fold(17_u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte));
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut pause = BACKOFF_MIN;
    let mut version = None;
    loop {
        match follow(&client, &path, &mut version, &mut on).await {
            Ok(true) => pause = BACKOFF_MIN,
            Ok(false) => {}
            Err(error) if error.is_expired() => version = None,
            Err(error) => {
                tracing::debug!(path, code = error.code, "watch failed: {error}");
            }
        }
        tokio::time::sleep(pause.mul_f64(0.5 + dice.f64() / 2.0)).await;
        pause = (pause * 2).min(BACKOFF_MAX);
    }
}

/// One list, when there is no version to go on from, and one watch; true when it brought anything.
async fn follow(
    client: &Client,
    path: &str,
    version: &mut Option<String>,
    on: &mut (impl FnMut(Delta) + Send),
) -> Result<bool, ApiError> {
    let mut progress = false;
    let from = match version {
        Some(from) => from.clone(),
        None => {
            let (from, items) = list(client, path).await?;
            on(Delta::Replaced(items));
            progress = true;
            *version = Some(from.clone());
            from
        }
    };
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true");
    let mut events = std::pin::pin!(client.watch(&with_query(path, &query)).await?);
    while let Some(event) = events.next().await {
        progress = true;
        match event? {
            Event::Added(object) | Event::Modified(object) => {
                *version = version_of(&object);
                on(Delta::Applied(object));
            }
            Event::Deleted(object) => {
                *version = version_of(&object);
                on(Delta::Deleted(object));
            }
            Event::Bookmark { resource_version } => *version = Some(resource_version),
        }
    }
    Ok(progress)
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

async fn list(client: &Client, path: &str) -> Result<(String, Vec<Arc<Value>>), ApiError> {
    let mut answer = client.get(path).await?;
    let api_version = answer["apiVersion"].clone();
    let kind = answer["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let kind = kind.map(str::to_owned);
    let version = version_of(&answer).unwrap_or_default();
    let Value::Array(items) = answer["items"].take() else { return Ok((version, Vec::new())) };
    let items = items.into_iter().map(|mut item| {
        // Items of a built-in list do not name their kind, those of a watch do.
        if item["kind"].is_null() {
            item["kind"] = kind.clone().into();
            item["apiVersion"] = api_version.clone();
        }
        Arc::new(item)
    });
    Ok((version, items.collect()))
}

/// Namespace (empty for cluster-scoped objects) and name.
pub type Name = (String, String);

/// The namespace and name of an object.
fn name_of(object: &Value) -> Name {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

#[derive(Default)]
struct Kept {
    objects: Mutex<BTreeMap<Name, Arc<Value>>>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Value>>> {
        // Each change is a single map operation: a panic elsewhere cannot leave it half done.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A local copy of a collection. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Informer {
    kept: Arc<Kept>,
    /// Counts changes; 0 until the first list.
    changes: watch::Receiver<u64>,
    _end: Arc<DropGuard>,
}

impl Informer {
    /// Starts to follow a collection, as `/api/v1/pods` or `/api/v1/nodes?labelSelector=a%3Db`.
    #[must_use]
    pub fn start(client: &Client, path: &str) -> Self {
        let kept = Arc::new(Kept::default());
        let (changed, changes) = watch::channel(0_u64);
        let end = CancellationToken::new();
        let into = Arc::clone(&kept);
        let work = reflect(client.clone(), path.to_owned(), move |delta| {
            match delta {
                Delta::Replaced(all) => {
                    *into.lock() = all.into_iter().map(|one| (name_of(&one), one)).collect();
                }
                Delta::Applied(one) => {
                    into.lock().insert(name_of(&one), one);
                }
                Delta::Deleted(one) => {
                    into.lock().remove(&name_of(&one));
                }
            }
            changed.send_modify(|count| *count += 1);
        });
        let ended = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = work => {}
            }
        });
        Self { kept, changes, _end: Arc::new(end.drop_guard()) }
    }

    /// One object; the namespace of a cluster-scoped one is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.kept.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects by namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Value>> {
        self.kept.lock().values().cloned().collect()
    }

    /// Waits for a change that this clone has not been told of; many changes at once are one.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The follower ends only with its runtime; nothing will ever change again.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the first list.
    pub async fn ready(&self) {
        let mut changes = self.changes.clone();
        if changes.wait_for(|count| *count > 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
