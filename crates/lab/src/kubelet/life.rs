//! The pods of one node and when something is due for each of them.

use super::pods;
use crate::clock::Pace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Something to do at a certain time.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Renew the Lease.
    Lease,
    /// Report the status though nothing changed.
    Heartbeat,
    /// Ask for a serving certificate.
    Serving,
    /// The containers of this pod are up.
    Start(Name),
    /// The containers of this pod are down.
    Stop(Name),
}

/// Namespace and name of a pod.
pub type Name = (String, String);

#[derive(PartialEq)]
enum Phase {
    /// Waits for the network.
    Held,
    Starting,
    Running,
    Stopping,
}

/// A pod on this node.
struct Kept {
    pod: Arc<Value>,
    phase: Phase,
    /// Failed attempts to write what became of it.
    tries: u32,
}

/// All that is due, in order of time.
#[derive(Default)]
pub struct Agenda {
    entries: BTreeMap<(Instant, u64), Due>,
    added: u64,
}

impl Agenda {
    /// Adds an entry.
    pub fn add(&mut self, at: Instant, due: Due) {
        self.added += 1;
        self.entries.insert((at, self.added), due);
    }

    /// When the next entry is due.
    pub fn next(&self) -> Option<Instant> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next entry if its time has come.
    pub fn take(&mut self, now: Instant) -> Option<Due> {
        let entry = self.entries.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// The pods of a node.
pub struct Life {
    pods: BTreeMap<Name, Kept>,
    pub agenda: Agenda,
    pace: Pace,
    pub network: bool,
}

/// Attempts to write a pod's status before the kubelet lets it be.
const TRIES_MAX: u32 = 30;
/// Between two attempts.
const RETRY: Duration = Duration::from_secs(1);

impl Life {
    /// A node without pods.
    pub fn new(pace: Pace, network: bool) -> Self {
        Self { pods: BTreeMap::new(), agenda: Agenda::default(), pace, network }
    }

    /// Takes in what the API server says of a pod.
    pub fn seen(&mut self, pod: Arc<Value>, now: Instant, dice: &mut fastrand::Rng) {
        let name = super::wire::name_of(&pod);
        let known = self.pods.get(&name);
        let is_same =
            known.is_some_and(|kept| kept.pod["metadata"]["uid"] == pod["metadata"]["uid"]);
        if !is_same {
            let runs = pod["status"]["phase"] == "Running";
            let phase = if runs { Phase::Running } else { Phase::Held };
            self.network |= runs && pods::brings_network(&pod);
            self.pods.insert(name.clone(), Kept { pod: Arc::clone(&pod), phase, tries: 0 });
        }
        let Some(kept) = self.pods.get_mut(&name) else { return };
        if pods::is_going(&pod) {
            let runs =
                matches!(kept.phase, Phase::Running | Phase::Stopping) && !pods::is_over(&pod);
            let needed = if runs { self.pace.of(pods::stop_time(&pod)) } else { Duration::ZERO };
            // A second deletion can only shorten the grace; the earlier of two entries counts.
            let shorter = pods::grace(&pod) < pods::grace(&kept.pod);
            if kept.phase != Phase::Stopping || shorter {
                self.agenda.add(now + needed.min(pods::grace(&pod)), Due::Stop(name));
            }
            kept.phase = Phase::Stopping;
        } else if kept.phase == Phase::Held
            && !pods::is_over(&pod)
            && (self.network || pods::on_host_network(&pod))
        {
            kept.phase = Phase::Starting;
            let at = now + self.pace.of(pods::start_time(&pod, dice));
            self.agenda.add(at, Due::Start(name));
        }
        kept.pod = pod;
    }

    /// Forgets a pod.
    pub fn gone(&mut self, pod: &Value) {
        let name = super::wire::name_of(pod);
        if self.pods.get(&name).is_some_and(|k| k.pod["metadata"]["uid"] == pod["metadata"]["uid"])
        {
            self.pods.remove(&name);
        }
    }

    /// The pod whose containers are up now, unless it was asked to go meanwhile.
    pub fn starting(&self, name: &Name) -> Option<Arc<Value>> {
        let kept = self.pods.get(name)?;
        (kept.phase == Phase::Starting).then(|| Arc::clone(&kept.pod))
    }

    /// The pod whose containers are down now.
    pub fn stopping(&self, name: &Name) -> Option<Arc<Value>> {
        let kept = self.pods.get(name)?;
        (kept.phase == Phase::Stopping).then(|| Arc::clone(&kept.pod))
    }

    /// It was written that the pod runs; true when it brought the network.
    pub fn started(&mut self, name: &Name, now: Instant, dice: &mut fastrand::Rng) -> bool {
        let Some(kept) = self.pods.get_mut(name) else { return false };
        kept.phase = Phase::Running;
        kept.tries = 0;
        if self.network || !pods::brings_network(&kept.pod) {
            return false;
        }
        self.network = true;
        let held = self.pods.values().filter(|kept| kept.phase == Phase::Held);
        let held: Vec<_> = held.map(|kept| Arc::clone(&kept.pod)).collect();
        for pod in held {
            self.seen(pod, now, dice);
        }
        true
    }

    /// A write did not succeed: it is tried again a little later, but not for ever.
    pub fn failed(&mut self, due: Due, now: Instant) {
        if let Due::Start(name) | Due::Stop(name) = &due
            && let Some(kept) = self.pods.get_mut(name)
        {
            kept.tries += 1;
            if kept.tries <= TRIES_MAX {
                self.agenda.add(now + RETRY, due);
            }
        }
    }
}
