//! The machines and the pool as a user sees them, with the moment at which each thing was first seen.

use drover_api::{Machine, MachineDeployment};
use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The longest that any chapter may take.
const CHAPTER: Duration = Duration::from_secs(900);

/// What was seen so far.
#[derive(Clone, Default)]
pub struct Seen {
    /// UIDs of machines that are there.
    pub live: BTreeSet<String>,
    /// When each machine that ever was got its Node.
    pub joined: BTreeMap<String, Instant>,
    /// UIDs of all machines that ever were.
    pub ever: BTreeSet<String>,
    /// Those of them that are being deleted.
    pub leaving: BTreeSet<String>,
    /// The most machines that were there and not being deleted, and the most objects, since it was last forgotten.
    pub most: (usize, usize),
    /// Ready machines, as the pool says itself.
    pub ready: u32,
}

impl Seen {
    /// Machines that are there and have a Node.
    pub fn herd(&self) -> usize {
        self.live.iter().filter(|uid| self.joined.contains_key(*uid)).count()
    }
}

/// Follows machines and the pool until it is dropped.
pub struct Herd {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Sender<()>,
}

impl Herd {
    pub fn follow(admin: &Client, namespace: &str) -> Self {
        let herd = Self { seen: Arc::default(), changed: watch::Sender::new(()) };
        let machines = Api::<Machine>::namespaced(admin.clone(), namespace);
        let pools = Api::<MachineDeployment>::namespaced(admin.clone(), namespace);
        let (seen, changed) = (herd.seen.clone(), herd.changed.clone());
        tokio::spawn(async move {
            let mut events = watcher::watcher(machines, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                take(&mut lock(&seen), event.ok());
                changed.send_replace(());
            }
        });
        let (seen, changed) = (herd.seen.clone(), herd.changed.clone());
        tokio::spawn(async move {
            let mut events = watcher::watcher(pools, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(pool) | Event::InitApply(pool)) = event {
                    lock(&seen).ready = pool.status.unwrap_or_default().ready_replicas;
                }
                changed.send_replace(());
            }
        });
        herd
    }

    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    pub fn forget_most(&self) {
        let mut seen = lock(&self.seen);
        seen.most = (0, 0);
    }

    /// Waits until this holds, and tells how long that took.
    pub async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) -> anyhow::Result<f64> {
        let began = Instant::now();
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !holds(&lock(&self.seen)) {
                changed.changed().await?;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(CHAPTER, wait).await {
            Ok(ended) => ended.map(|()| began.elapsed().as_secs_f64()),
            Err(_) => {
                let seen = self.seen();
                anyhow::bail!(
                    "{what}: not after {CHAPTER:?}; {} machines, {} joined, the pool says {} ready",
                    seen.live.len(),
                    seen.herd(),
                    seen.ready
                )
            }
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(seen: &mut Seen, event: Option<Event<Machine>>) {
    match event {
        Some(Event::Apply(machine) | Event::InitApply(machine)) => {
            let uid = machine.uid().unwrap_or_default();
            if machine.status.is_some_and(|status| status.node_ref.is_some()) {
                seen.joined.entry(uid.clone()).or_insert_with(Instant::now);
            }
            if machine.metadata.deletion_timestamp.is_some() {
                seen.leaving.insert(uid.clone());
            }
            seen.ever.insert(uid.clone());
            seen.live.insert(uid);
            let working = seen.live.difference(&seen.leaving).count();
            seen.most = (seen.most.0.max(working), seen.most.1.max(seen.live.len()));
        }
        Some(Event::Delete(machine)) => {
            seen.live.remove(&machine.uid().unwrap_or_default());
        }
        Some(Event::Init) => seen.live.clear(),
        Some(Event::InitDone) | None => {}
    }
}
