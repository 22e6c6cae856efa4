//! What the cloud and the API server last said of each machine. Caches: after a restart they are asked again.

use crate::token::Token;
use drover_api::{Machine, MachineStatus};
use drover_plan::drain::{PodKey, Refusal};
use drover_plan::machine::{Answer, Certificate, Heard, Question, Told};
use jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One mind for each machine, by UID.
#[derive(Default)]
pub struct Minds(Mutex<BTreeMap<String, Mind>>);

/// What is remembered of one machine.
#[derive(Clone, Default)]
pub struct Mind {
    pub heard: Option<Heard>,
    pub certificate: Option<Certificate>,
    pub refused: BTreeMap<PodKey, Refusal>,
    pub token: Known,
    unwritten: Option<Unwritten>,
    written_at: Option<Timestamp>,
}

/// What this process knows of a machine's bootstrap token.
#[derive(Clone, Default)]
pub enum Known {
    /// Nothing: it may be there.
    #[default]
    Nothing,
    There(Token),
    Gone,
}

/// What the last plan says of a machine, and waits to be written with what comes next.
#[derive(Clone)]
struct Unwritten {
    status: MachineStatus,
    since: Timestamp,
}

impl Mind {
    /// The machine with the status of its last plan.
    pub fn complete(&self, machine: &Arc<Machine>) -> Arc<Machine> {
        match &self.unwritten {
            None => machine.clone(),
            Some(Unwritten { status, .. }) => {
                let status = Some(status.clone());
                Arc::new(Machine { status, ..machine.as_ref().clone() })
            }
        }
    }

    /// What was told of its status.
    pub fn told(&self) -> Told {
        let unwritten_since = self.unwritten.as_ref().map(|unwritten| unwritten.since);
        Told { written_at: self.written_at, unwritten_since }
    }
}

impl Minds {
    /// What is remembered of this machine.
    pub fn of(&self, machine: &Machine) -> Mind {
        self.lock().get(&uid(machine)).cloned().unwrap_or_default()
    }

    /// The cloud answered a question.
    pub fn hear(&self, machine: &Machine, to: Question, answer: Answer, at: Timestamp) {
        let mut minds = self.lock();
        let mind = minds.entry(uid(machine)).or_default();
        let before = mind.heard.as_ref().filter(|heard| heard.to == to);
        let before = before.map_or(0, |heard| heard.refusals);
        let refused = matches!(answer, Answer::Refused(_));
        let refusals = if refused { before.saturating_add(1) } else { 0 };
        let generation = machine.metadata.generation;
        mind.heard = Some(Heard { to, answer, at, generation, refusals });
    }

    /// The API server would not let a pod go; `None` when it did.
    pub fn refuse(&self, machine: &Machine, pod: &PodKey, refusal: Option<Refusal>) {
        let mut minds = self.lock();
        let mind = minds.entry(uid(machine)).or_default();
        match refusal {
            Some(mut refusal) => {
                refusal.times += mind.refused.get(pod).map_or(0, |before| before.times);
                mind.refused.insert(pod.clone(), refusal)
            }
            None => mind.refused.remove(pod),
        };
    }

    /// What is known of its bootstrap token now.
    pub fn knows_token(&self, machine: &Machine, token: Known) {
        self.lock().entry(uid(machine)).or_default().token = token;
    }

    /// What became of the request for its kubelet's first certificate.
    pub fn certificate(&self, machine: &Machine, what: Certificate) {
        self.lock().entry(uid(machine)).or_default().certificate = Some(what);
    }

    /// A status that is not written yet, since `now` if not longer.
    pub fn withhold(&self, machine: &Machine, status: MachineStatus, now: Timestamp) {
        let mut minds = self.lock();
        let mind = minds.entry(uid(machine)).or_default();
        let since = mind.told().unwritten_since.unwrap_or(now);
        mind.unwritten = Some(Unwritten { status, since });
    }

    /// Nothing of its status is unwritten; it was written now, or there was nothing to write.
    pub fn wrote(&self, machine: &Machine, now: Option<Timestamp>) {
        let mut minds = self.lock();
        let mind = minds.entry(uid(machine)).or_default();
        mind.unwritten = None;
        mind.written_at = now.or(mind.written_at);
    }

    /// The machine is gone.
    pub fn forget(&self, machine: &Machine) {
        self.lock().remove(&uid(machine));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Mind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uid(machine: &Machine) -> String {
    machine.uid().unwrap_or_default()
}
