//! The promise before `POST /servers`, and what this process knows of how it was kept.
//!
//! Nova has no fence against a second server: of two creates both are accepted. So a create is
//! promised first, in the memory that the caller writes down; it is sent only within a short window
//! after the promise, and only by the process that made it, and only once. Whoever finds a promise
//! that it knows nothing of waits until the window and the longest life of a request are over, looks,
//! and then makes a promise of its own.

use drover_provider::Error;
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};
use tokio::time::Instant;

/// How long after its promise a create may be sent.
pub const SEND_WINDOW: SignedDuration = SignedDuration::from_secs(10);
/// After this long a promised create is in the list of servers, or was never sent: the window, the
/// life of a request (30 s), and a margin for clocks that differ and queues behind a proxy.
pub const FENCE: SignedDuration = SignedDuration::from_secs(60);

/// What this process did about one machine.
#[derive(Clone, Debug, Default)]
struct Deed {
    promised_at: Option<Timestamp>,
    kept: Kept,
    /// Why the create that was sent has no good answer.
    failure: Option<Error>,
    /// Ports in the order of the networks, when all are there.
    ports: Option<Vec<String>>,
    /// Volumes by slot, when all are there.
    volumes: Option<BTreeMap<String, String>>,
    /// Whether anything of this machine may exist: before the first POST there is nothing to look for.
    touched: bool,
    /// The failed server that this process deleted to try again.
    cleared: Option<String>,
    /// When `POST /servers` was answered.
    posted: Option<Instant>,
    /// When `DELETE` of the server was answered.
    deleted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    #[default]
    Open,
    /// Sent; whether a server came of it is for the list of servers to say.
    Sent,
    /// Sent and refused: there is no server of it.
    Refused,
}

/// How a promise stands, as far as this process can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Made here, nothing sent, and the window is open.
    Open,
    /// Surely no server came of it, nor will: make a new one.
    Void,
    /// A server may have come of it, or may yet come.
    Unsure,
}

/// What this process knows of its machines; a cache whose loss costs time and no server.
#[derive(Default)]
pub struct Deeds(Mutex<BTreeMap<String, Deed>>);

/// Machines remembered at most; beyond it the first in order are forgotten.
const MACHINES: usize = 20_000;

impl Deeds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Deed>> {
        self.0.lock().expect("nobody panics with this lock")
    }

    fn with<T>(&self, machine: &str, act: impl FnOnce(&mut Deed) -> T) -> T {
        let mut deeds = self.lock();
        if deeds.len() >= MACHINES && !deeds.contains_key(machine) {
            deeds.pop_first();
        }
        act(deeds.entry(machine.to_owned()).or_default())
    }

    /// Makes a promise. `newborn`: no promise was ever made for this machine, so nothing of it exists.
    pub fn promise(&self, machine: &str, now: Timestamp, newborn: bool) {
        self.with(machine, |deed| {
            // A promise that the caller failed to write down leaves what was learned since.
            if newborn && deed.promised_at.is_none() {
                *deed = Deed::default();
            } else {
                deed.touched |= !newborn;
            }
            deed.promised_at = Some(now);
            deed.kept = Kept::Open;
            deed.failure = None;
            deed.posted = None;
        });
    }

    /// How the promise that the caller's memory tells of stands.
    pub fn standing(&self, machine: &str, promised_at: Timestamp, now: Timestamp) -> Standing {
        let deeds = self.lock();
        match deeds.get(machine).filter(|deed| deed.promised_at == Some(promised_at)) {
            None => Standing::Unsure,
            Some(deed) => match deed.kept {
                Kept::Open if now < last_moment(promised_at) => Standing::Open,
                Kept::Open | Kept::Refused => Standing::Void,
                Kept::Sent => Standing::Unsure,
            },
        }
    }

    /// Whether something of this machine may exist in the cloud.
    pub fn is_touched(&self, machine: &str) -> bool {
        self.lock().get(machine).is_none_or(|deed| deed.touched)
    }

    /// To be called before the first POST of anything.
    pub fn touch(&self, machine: &str) {
        self.with(machine, |deed| deed.touched = true);
    }

    pub fn ports(&self, machine: &str) -> Option<Vec<String>> {
        self.lock().get(machine).and_then(|deed| deed.ports.clone())
    }

    pub fn set_ports(&self, machine: &str, ports: Vec<String>) {
        self.with(machine, |deed| deed.ports = Some(ports));
    }

    pub fn volumes(&self, machine: &str) -> Option<BTreeMap<String, String>> {
        self.lock().get(machine).and_then(|deed| deed.volumes.clone())
    }

    pub fn set_volumes(&self, machine: &str, volumes: BTreeMap<String, String>) {
        self.with(machine, |deed| deed.volumes = Some(volumes));
    }

    /// To be called before `POST /servers`, so that even a call that is broken off counts as sent.
    pub fn sending(&self, machine: &str) {
        self.with(machine, |deed| {
            deed.touched = true;
            deed.kept = Kept::Sent;
        });
    }

    /// The create was refused, or never left. What it referred to may be gone, so it is looked for anew.
    pub fn refused(&self, machine: &str) {
        self.with(machine, |deed| {
            deed.kept = Kept::Refused;
            deed.ports = None;
            deed.volumes = None;
        });
    }

    /// The create went wrong, and may have been done all the same.
    pub fn failed(&self, machine: &str, failure: Error) {
        self.with(machine, |deed| deed.failure = Some(failure));
    }

    /// What the create of the present promise failed with.
    pub fn failure(&self, machine: &str) -> Option<Error> {
        self.lock().get(machine).and_then(|deed| deed.failure.clone())
    }

    /// The promise under which this process last sent a create that was not refused.
    pub fn sent_at(&self, machine: &str) -> Option<Timestamp> {
        let deeds = self.lock();
        deeds.get(machine).filter(|deed| deed.kept == Kept::Sent).and_then(|deed| deed.promised_at)
    }

    /// The server failed for want of room and was deleted; its ports are looked for anew.
    pub fn cleared(&self, machine: &str, server: &str) {
        self.with(machine, |deed| {
            deed.cleared = Some(server.to_owned());
            deed.ports = None;
            deed.volumes = None;
        });
    }

    /// Whether this process deleted that server to try again.
    pub fn is_cleared(&self, machine: &str, server: &str) -> bool {
        let deeds = self.lock();
        deeds.get(machine).is_some_and(|deed| deed.cleared.as_deref() == Some(server))
    }

    pub fn posted(&self, machine: &str) {
        self.with(machine, |deed| deed.posted = Some(Instant::now()));
    }

    /// When this process made the server; a list that is older cannot show it.
    pub fn posted_at(&self, machine: &str) -> Option<Instant> {
        self.lock().get(machine).and_then(|deed| deed.posted)
    }

    pub fn deleted(&self, machine: &str) {
        self.with(machine, |deed| deed.deleted = Some(Instant::now()));
    }

    /// When this process deleted the server; a list that is older may still show it.
    pub fn deleted_at(&self, machine: &str) -> Option<Instant> {
        self.lock().get(machine).and_then(|deed| deed.deleted)
    }

    /// Lets the server be looked at and deleted again.
    pub fn delete_again(&self, machine: &str) {
        self.with(machine, |deed| deed.deleted = None);
    }

    /// The machine is gone.
    pub fn forget(&self, machine: &str) {
        self.lock().remove(machine);
    }
}

/// The end of the window for sending.
#[must_use]
pub fn last_moment(promised_at: Timestamp) -> Timestamp {
    promised_at.saturating_add(SEND_WINDOW).unwrap_or(Timestamp::MAX)
}

/// How long until nothing can come of a promise any more; zero when that is so.
#[must_use]
pub fn fence_left(promised_at: Timestamp, now: Timestamp) -> std::time::Duration {
    let end = promised_at.saturating_add(FENCE).unwrap_or(Timestamp::MAX);
    std::time::Duration::try_from(now.duration_until(end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_who_promised_may_send_and_only_once_and_soon() {
        let deeds = Deeds::default();
        assert_eq!(deeds.standing("m", at(0), at(1)), Standing::Unsure, "another's promise");
        deeds.promise("m", at(0), true);
        assert_eq!(deeds.standing("m", at(0), at(9)), Standing::Open);
        assert_eq!(deeds.standing("m", at(0), at(10)), Standing::Void, "too late, never sent");
        deeds.sending("m");
        assert_eq!(deeds.standing("m", at(0), at(1)), Standing::Unsure);
        deeds.refused("m");
        assert_eq!(deeds.standing("m", at(0), at(1)), Standing::Void);
    }

    #[test]
    fn the_fence_outlasts_window_and_request() {
        let request = SignedDuration::try_from(crate::session::CALL_TIMEOUT).unwrap();
        assert!(FENCE > SEND_WINDOW + request);
        assert_eq!(fence_left(at(0), at(45)).as_secs(), 15);
        assert!(fence_left(at(0), at(60)).is_zero());
    }

    #[test]
    fn a_newborn_has_nothing_to_look_for() {
        let deeds = Deeds::default();
        deeds.promise("m", at(0), true);
        assert!(!deeds.is_touched("m"));
        deeds.touch("m");
        deeds.promise("m", at(5), true);
        assert!(deeds.is_touched("m"), "the promise was repeated, not the birth");
        assert!(deeds.is_touched("unknown"));
    }
}
