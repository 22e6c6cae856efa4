//! How a controller works: changes wake addresses, each is brought forward until nothing is left to do.

use super::view::{Address, Change, Resource, View};
use crate::client::{ApiError, Client, PatchKind};
use crate::clock::Clock;
use crate::pki::Authority;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first pause after a failure; it doubles up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Attempts for one address in a row; then it waits for the next change.
const ATTEMPTS_MAX: u32 = 30;

/// What is left to do at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until something changes.
    Change,
    /// Look again after this time even if nothing changes.
    After(Duration),
}

/// One controller.
pub(super) trait Controller: Send + Sync + 'static {
    /// Its name, for the log.
    fn name(&self) -> &'static str;

    /// Wakes the addresses that a change concerns. Reads the view only.
    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address));

    /// Looks at one address and acts.
    fn sync(
        &self,
        hands: &Hands,
        at: &Address,
    ) -> impl Future<Output = Result<Next, ApiError>> + Send;
}

/// A controller of whatever type.
pub(super) trait AnyController: Send + Sync {
    fn name(&self) -> &'static str;
    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address));
    fn sync<'a>(
        &'a self,
        hands: &'a Hands,
        at: &'a Address,
    ) -> BoxFuture<'a, Result<Next, ApiError>>;
}

impl<C: Controller> AnyController for C {
    fn name(&self) -> &'static str {
        Controller::name(self)
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        Controller::concerns(self, view, change, wake);
    }

    fn sync<'a>(
        &'a self,
        hands: &'a Hands,
        at: &'a Address,
    ) -> BoxFuture<'a, Result<Next, ApiError>> {
        Box::pin(Controller::sync(self, hands, at))
    }
}

#[derive(Default)]
struct Waiting {
    ready: VecDeque<Address>,
    queued: BTreeSet<Address>,
    later: BTreeSet<(Instant, Address)>,
    /// When each address of `later` is due: one waits once, for its earliest time.
    due: BTreeMap<Address, Instant>,
}

impl Waiting {
    fn put_off(&mut self, address: Address, until: Instant) {
        match self.due.get(&address) {
            Some(known) if *known <= until => return,
            Some(known) => self.later.remove(&(*known, address.clone())),
            None => false,
        };
        self.due.insert(address.clone(), until);
        self.later.insert((until, address));
    }

    fn take_due(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, address)) = self.later.pop_first() else { break };
            self.due.remove(&address);
            if self.queued.insert(address.clone()) {
                self.ready.push_back(address);
            }
        }
    }
}

/// The addresses a controller has to look at, each once.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    bell: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an address unless it waits already.
    pub fn push(&self, address: Address) {
        let mut waiting = self.lock();
        if waiting.queued.insert(address.clone()) {
            waiting.ready.push_back(address);
            self.bell.notify_one();
        }
    }

    /// Adds an address after a while.
    pub fn push_after(&self, address: Address, pause: Duration) {
        self.lock().put_off(address, Instant::now() + pause);
        self.bell.notify_one();
    }

    /// The next address; waits for one.
    async fn next(&self) -> Address {
        loop {
            let due = {
                let mut waiting = self.lock();
                waiting.take_due(Instant::now());
                if let Some(address) = waiting.ready.pop_front() {
                    waiting.queued.remove(&address);
                    return address;
                }
                waiting.later.first().map(|(at, _)| *at)
            };
            match due {
                Some(at) => tokio::select! {
                    () = self.bell.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.bell.notified().await,
            }
        }
    }
}

/// Works off a controller's queue for ever.
pub(super) async fn work(controller: Arc<dyn AnyController>, queue: Arc<Queue>, hands: Hands) {
    let mut failures: BTreeMap<Address, u32> = BTreeMap::new();
    loop {
        let address = queue.next().await;
        match controller.sync(&hands, &address).await {
            Ok(next) => {
                failures.remove(&address);
                if let Next::After(pause) = next {
                    queue.push_after(address, pause);
                }
            }
            Err(error) => {
                let count = failures.entry(address.clone()).or_default();
                *count += 1;
                tracing::debug!(
                    controller = controller.name(),
                    object = %format_args!("{}/{}/{}", address.id, address.namespace, address.name),
                    attempt = *count,
                    "failed: {error}"
                );
                if *count > ATTEMPTS_MAX {
                    failures.remove(&address);
                    continue;
                }
                let pause = PAUSE_MIN.saturating_mul(1 << (*count - 1).min(20)).min(PAUSE_MAX);
                queue.push_after(address, pause);
            }
        }
    }
}

/// A controller and what it has to look at.
pub(super) type Worker = (Arc<dyn AnyController>, Arc<Queue>);

/// All controllers with their queues: whoever learns of a change tells them.
#[derive(Clone, Default)]
pub(super) struct Ears(Arc<OnceLock<Vec<Worker>>>);

impl Ears {
    /// Sets who is told, once.
    pub fn set(&self, controllers: Vec<Worker>) {
        // Set by whoever starts the controllers, and by nobody else.
        let _ = self.0.set(controllers);
    }

    /// Tells everybody.
    pub fn tell(&self, view: &View, change: &Change) {
        for (controller, queue) in self.0.get().into_iter().flatten() {
            controller.concerns(view, change, &mut |address| queue.push(address));
        }
    }
}

/// What a controller acts with. Its own writes are in the view when a call returns.
#[derive(Clone)]
pub(super) struct Hands {
    /// The cluster.
    pub client: Client,
    /// What is known of it.
    pub view: Arc<View>,
    /// The time of the world.
    pub clock: Clock,
    /// Signs certificates.
    pub pki: Arc<Authority>,
    /// Who is told of own writes.
    pub ears: Ears,
}

impl Hands {
    /// Now, as Kubernetes writes times: whole seconds.
    pub fn stamp(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn resource(&self, id: &str) -> Result<Arc<Resource>, ApiError> {
        self.view.resource(id).ok_or_else(|| ApiError {
            code: 404,
            reason: "NotFound".to_owned(),
            message: format!("the resource {id} is not served"),
            body: Value::Null,
        })
    }

    /// The path of an object.
    pub fn path(&self, address: &Address) -> Result<String, ApiError> {
        let resource = self.resource(&address.id)?;
        Ok(format!("{}/{}", resource.collection(&address.namespace), address.name))
    }

    fn learn(&self, id: &str, object: &Value) -> Result<(), ApiError> {
        let id = self.resource(id)?.id.clone();
        if let Some(change) = self.view.learn(&id, object.clone()) {
            self.ears.tell(&self.view, &change);
        }
        Ok(())
    }

    /// Creates an object.
    pub async fn create(&self, id: &str, namespace: &str, object: &Value) -> Result<(), ApiError> {
        let path = self.resource(id)?.collection(namespace);
        let made = self.client.create(&path, object).await?;
        self.learn(id, &made)
    }

    /// Replaces an object, or with `part` a subresource of it; refused when it changed since it was read.
    pub async fn replace(&self, at: &Address, part: &str, object: &Value) -> Result<(), ApiError> {
        let made = self.client.replace(&format!("{}{part}", self.path(at)?), object).await?;
        self.learn(&at.id, &made)
    }

    /// Merges a patch into an object, or with `part` into a subresource of it.
    pub async fn merge(&self, at: &Address, part: &str, patch: &Value) -> Result<(), ApiError> {
        let path = format!("{}{part}", self.path(at)?);
        let made = self.client.patch(&path, PatchKind::Merge, patch).await?;
        self.learn(&at.id, &made)
    }

    /// Deletes the object with this uid; that it is gone already, or another, is fine.
    pub async fn delete(&self, at: &Address, uid: &str, policy: &str) -> Result<(), ApiError> {
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": policy});
        match self.client.delete(&self.path(at)?, &options).await {
            Ok(answer) if answer["metadata"]["deletionTimestamp"].is_string() => {
                // A pod without grace is answered as it was last; only the watch tells that it went.
                let waits = answer["metadata"]["deletionGracePeriodSeconds"] != 0
                    || answer["metadata"]["finalizers"].is_array();
                if waits { self.learn(&at.id, &answer) } else { Ok(()) }
            }
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
