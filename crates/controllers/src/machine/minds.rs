//! What the cloud and the API server last said of each machine. Caches: after a restart they are asked again.

use drover_api::Machine;
use drover_plan::drain::{PodKey, Refusal};
use drover_plan::machine::{Answer, Heard, Question};
use jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One mind for each machine, by UID.
#[derive(Default)]
pub struct Minds(Mutex<BTreeMap<String, Mind>>);

/// What is remembered of one machine.
#[derive(Clone, Default)]
pub struct Mind {
    pub heard: Option<Heard>,
    pub refused: BTreeMap<PodKey, Refusal>,
    /// Its bootstrap token was deleted by this process and not made again.
    pub token_is_gone: bool,
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
            Some(refusal) => mind.refused.insert(pod.clone(), refusal),
            None => mind.refused.remove(pod),
        };
    }

    /// Whether its bootstrap token is known to be gone.
    pub fn token_is_gone(&self, machine: &Machine, gone: bool) {
        self.lock().entry(uid(machine)).or_default().token_is_gone = gone;
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
