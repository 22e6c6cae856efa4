//! When a machine's status is written: at once what others act on, the rest when it has lasted.

use super::{Plan, Step};
use drover_api::{ConditionStatus, ConditionType, Machine, MachineStatus, Phase, find_condition};
use jiff::Timestamp;
use std::time::Duration;

/// How long progress must last to be worth a write of its own: longer than one look at a cloud that
/// builds or deletes, so that a machine that goes through its life at once is told of in one write.
const SETTLE: Duration = Duration::from_secs(3);
/// How long a machine on its way to become a node, whose status was just written, keeps further progress
/// to itself: as long as a kubelet lets pass between two of its own (Kubernetes: `nodeStatusUpdateFrequency`).
const PAUSE: Duration = Duration::from_secs(10);

/// What was told of a machine, as far as this process knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// When its status was last written.
    pub written_at: Option<Timestamp>,
    /// Since when something of it is unwritten.
    pub unwritten_since: Option<Timestamp>,
}

/// When a plan's status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It says what is written already, or nobody will read it.
    Never,
    Now,
    /// It waits for what comes next until then; the next plan is to be drawn from it.
    At(Timestamp),
}

/// When the status of a plan for this machine is written. A status that is lost unwritten is found
/// again from the world.
#[must_use]
pub fn report(machine: &Machine, plan: &Plan, told: Told, now: Timestamp) -> Report {
    let nothing = MachineStatus::default();
    let written = machine.status.as_ref().unwrap_or(&nothing);
    let ends = plan.steps.iter().any(|step| matches!(step, Step::Release { .. }));
    if *written == plan.status || ends {
        return Report::Never;
    }
    let leaves = machine.metadata.deletion_timestamp.is_some();
    let settled = crate::time::later(told.unwritten_since.unwrap_or(now), SETTLE);
    let rested = told.written_at.filter(|_| !leaves).map(|at| crate::time::later(at, PAUSE));
    let until = rested.map_or(settled, |rested| rested.max(settled));
    if plan.promises || until <= now || (!leaves && verdict(written) != verdict(&plan.status)) {
        return Report::Now;
    }
    Report::At(until)
}

/// What sets, autoscalers and users act on.
fn verdict(status: &MachineStatus) -> (bool, bool, Option<&str>) {
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    let is_ready = ready.is_some_and(|ready| ready.status == ConditionStatus::True);
    (is_ready, status.phase == Some(Phase::Failed), status.error_reason.as_deref())
}
