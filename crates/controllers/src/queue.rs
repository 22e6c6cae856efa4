//! Which object is looked at next: one entry per object, depth first, with wake times and backoff.
//!
//! Objects already begun come before new ones, so that a machine is finished before the next is
//! started; among equals the one that waited longest comes first. An object is never worked on twice
//! at once. What only counts others is looked at once for a burst of changes ([`Queue::add_soon`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first wait after a failure; it doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest wait after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(120);
/// How urgent an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Begun: has something in the world already.
    Begun,
    /// Not begun.
    New,
}

/// What came of looking at an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do before something changes, or the resync.
    Settled,
    /// To be looked at again after this time at the latest.
    WakeAfter(Duration),
    /// Failed: to be looked at again after a wait that grows with each failure in a row.
    Failed,
    /// Failed, and it is known how long it will go on failing.
    FailedFor(Duration),
}

impl From<drover_plan::Wake> for Outcome {
    fn from(wake: drover_plan::Wake) -> Self {
        match wake {
            drover_plan::Wake::OnChange => Self::Settled,
            drover_plan::Wake::After(wait) => Self::WakeAfter(wait),
        }
    }
}

/// A queue of keys that any number of workers take from.
pub struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    changed: Arc<Notify>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), changed: self.changed.clone() }
    }
}

struct State<K> {
    rest: Duration,
    serial: u64,
    ready: BTreeSet<(Urgency, u64, K)>,
    entries: BTreeMap<K, Entry>,
    timers: BTreeSet<(Instant, K)>,
    /// Until when objects rest that were looked at lately.
    resting: BTreeMap<K, Instant>,
}

#[derive(Default)]
struct Entry {
    ready: Option<(Urgency, u64)>,
    timer: Option<Instant>,
    running: bool,
    again: Option<Urgency>,
    again_soon: bool,
    failures: u32,
}

impl<K: Ord + Clone + Debug> Default for Queue<K> {
    fn default() -> Self {
        Self::resting(Duration::ZERO)
    }
}

impl<K: Ord + Clone + Debug> Queue<K> {
    /// A queue whose objects rest so long after a look before [`Queue::add_soon`] counts.
    pub fn resting(rest: Duration) -> Self {
        let state = State {
            rest,
            serial: 0,
            ready: BTreeSet::new(),
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            resting: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    /// Something changed about this object. A backoff in force is kept: an object that fails and
    /// writes its failure must not wake itself by that write.
    pub fn add(&self, key: K, urgency: Urgency) {
        let mut state = self.lock();
        let failing = state.entries.get(&key).is_some_and(|entry| entry.failures > 0);
        if !failing || state.entries.get(&key).is_some_and(|entry| entry.timer.is_none()) {
            state.make_ready(key, urgency);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// As [`Queue::add`], and forgets failures: what was wrong may be right now.
    pub fn add_afresh(&self, key: K, urgency: Urgency) {
        if let Some(entry) = self.lock().entries.get_mut(&key) {
            entry.failures = 0;
        }
        self.add(key, urgency);
    }

    /// Something changed that the object only counts: it is looked at now if it was not looked at
    /// lately, else when it has rested, together with all that changes until then.
    pub fn add_soon(&self, key: K, urgency: Urgency) {
        let now = Instant::now();
        let mut state = self.lock();
        match state.resting.get(&key).copied().filter(|until| *until > now) {
            None if !state.entries.get(&key).is_some_and(|entry| entry.running) => {
                drop(state);
                self.add(key, urgency);
            }
            until => {
                state.make_ready_later(key, until);
                drop(state);
                self.changed.notify_one();
            }
        }
    }

    /// The next object, as soon as there is one. It is this caller's until [`Queue::done`].
    pub async fn take(&self) -> K {
        loop {
            let (taken, next) = self.lock().take(Instant::now());
            if let Some(key) = taken {
                // There may be more than one ready for more than one worker.
                self.changed.notify_one();
                return key;
            }
            match next {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Gives an object back.
    pub fn done(&self, key: K, outcome: Outcome) {
        self.lock().done(key, outcome, Instant::now());
        self.changed.notify_one();
    }

    /// How many objects wait for a worker now.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone + Debug> State<K> {
    fn make_ready(&mut self, key: K, urgency: Urgency) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again = Some(entry.again.map_or(urgency, |other| other.min(urgency)));
            return;
        }
        if let Some(at) = entry.timer.take() {
            self.timers.remove(&(at, key.clone()));
        }
        match entry.ready {
            Some((known, _)) if known <= urgency => {}
            Some((known, serial)) => {
                self.ready.remove(&(known, serial, key.clone()));
                entry.ready = Some((urgency, serial));
                self.ready.insert((urgency, serial, key));
            }
            None => {
                self.serial += 1;
                entry.ready = Some((urgency, self.serial));
                self.ready.insert((urgency, self.serial, key));
            }
        }
    }

    /// At `until`, or when it has rested from the look that is going on.
    fn make_ready_later(&mut self, key: K, until: Option<Instant>) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again_soon = true;
            return;
        }
        let sooner = entry.timer.is_none_or(|at| until.is_some_and(|until| until < at));
        let Some(until) = until.filter(|_| sooner && entry.ready.is_none() && entry.failures == 0)
        else {
            return;
        };
        if let Some(at) = entry.timer.replace(until) {
            self.timers.remove(&(at, key.clone()));
        }
        self.timers.insert((until, key));
    }

    fn take(&mut self, now: Instant) -> (Option<K>, Option<Instant>) {
        while let Some((at, key)) = self.timers.first().cloned()
            && at <= now
        {
            self.make_ready(key, Urgency::Begun);
        }
        match self.ready.pop_first() {
            Some((_, _, key)) => {
                let entry = self.entries.entry(key.clone()).or_default();
                entry.ready = None;
                entry.running = true;
                (Some(key), None)
            }
            None => (None, self.timers.first().map(|(at, _)| *at)),
        }
    }

    fn done(&mut self, key: K, outcome: Outcome, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.running = false;
        let again = entry.again.take();
        let again_soon = std::mem::take(&mut entry.again_soon);
        let mut wait = match outcome {
            Outcome::Settled => None,
            Outcome::WakeAfter(wait) => Some(wait),
            Outcome::Failed => Some(backoff(entry.failures)),
            Outcome::FailedFor(wait) => Some(wait),
        };
        let failed = matches!(outcome, Outcome::Failed | Outcome::FailedFor(_));
        entry.failures = if failed { entry.failures.saturating_add(1) } else { 0 };
        if again_soon && !failed {
            wait = Some(wait.map_or(self.rest, |wait| wait.min(self.rest)));
        }
        if !self.rest.is_zero() {
            self.resting.retain(|_, until| *until > now);
            self.resting.insert(key.clone(), now + self.rest);
        }
        match (again, wait) {
            (Some(urgency), _) if !failed => self.make_ready(key, urgency),
            (_, Some(wait)) => {
                entry.timer = Some(now + wait);
                self.timers.insert((now + wait, key));
            }
            (Some(urgency), None) => self.make_ready(key, urgency),
            (None, None) => {
                self.entries.remove(&key);
            }
        }
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_begun_comes_first_and_each_once() {
        let queue = Queue::default();
        queue.add("a", Urgency::New);
        queue.add("b", Urgency::New);
        queue.add("c", Urgency::Begun);
        queue.add("b", Urgency::Begun);
        let mut order = Vec::new();
        for _ in 0..3 {
            let key = queue.take().await;
            order.push(key);
            queue.done(key, Outcome::Settled);
        }
        assert_eq!(order, ["b", "c", "a"]);
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_during_work_is_looked_at_afterwards() {
        let queue = Queue::default();
        queue.add("a", Urgency::New);
        let key = queue.take().await;
        queue.add("a", Urgency::New);
        assert_eq!(queue.depth(), 0, "an object is never worked on twice at once");
        queue.done(key, Outcome::Settled);
        assert_eq!(queue.take().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_their_own_writes_do_not_wake_them() {
        let queue = Queue::default();
        let began = Instant::now();
        queue.add("a", Urgency::New);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let key = queue.take().await;
            waits.push(began.elapsed().as_millis());
            queue.done(key, Outcome::Failed);
            queue.add("a", Urgency::Begun);
        }
        assert_eq!(waits[..4], [0, 200, 600, 1400]);
        assert_eq!(waits[11] - waits[10], 120_000, "no wait is longer than two minutes");
        queue.add_afresh("a", Urgency::Begun);
        let before = began.elapsed();
        queue.take().await;
        assert_eq!(began.elapsed(), before, "a change from outside is looked at now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_is_one_look_after_a_rest() {
        const REST: Duration = Duration::from_millis(500);
        let queue = Queue::resting(REST);
        let began = Instant::now();
        queue.add_soon("a", Urgency::Begun);
        let key = queue.take().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the first change is looked at at once");
        queue.add_soon("a", Urgency::Begun);
        queue.done(key, Outcome::WakeAfter(Duration::from_secs(60)));
        queue.add_soon("a", Urgency::Begun);
        queue.take().await;
        assert_eq!(began.elapsed(), REST);
        queue.done(key, Outcome::Settled);
        queue.add_soon("a", Urgency::Begun);
        queue.add("a", Urgency::Begun);
        queue.take().await;
        assert_eq!(began.elapsed(), REST, "its own change is looked at without a rest");
        queue.done(key, Outcome::Settled);
        tokio::time::sleep(REST).await;
        queue.add_soon("a", Urgency::Begun);
        queue.take().await;
        assert_eq!(began.elapsed(), REST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_time_is_kept_and_a_change_comes_sooner() {
        let queue = Queue::default();
        queue.add("a", Urgency::New);
        let key = queue.take().await;
        let began = Instant::now();
        queue.done(key, Outcome::WakeAfter(Duration::from_secs(60)));
        queue.take().await;
        assert_eq!(began.elapsed().as_secs(), 60);
        queue.done(key, Outcome::WakeAfter(Duration::from_secs(60)));
        queue.add("a", Urgency::New);
        queue.take().await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
