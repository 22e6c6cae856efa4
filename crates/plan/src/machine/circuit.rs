//! What the circuit of its set means for a machine: whether it may ask the cloud for a server now.

use super::draft::Draft;
use super::{Answer, Heard, Question, Refused};
use crate::reason::Reason;
use crate::time::whole_seconds;
use drover_api::{CircuitStatus, ConditionStatus, ConditionType, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// Whose turn it is.
pub enum Turn<'a> {
    /// Nobody waits for anybody.
    Free,
    /// Others try first.
    Wait,
    /// This machine tries for all, at once.
    Now,
    /// It has tried for all, and this came of it. Its set decides who tries next.
    Over(&'a Refused),
}

/// Who has a server under way goes on with it in any case.
pub fn turn<'a>(draft: &Draft<'a>) -> Turn<'a> {
    let Some((circuit, until)) = open(draft) else { return Turn::Free };
    // A create whose answer was lost may have made a server that joins.
    if is_under_way(draft) || draft.node().is_some() {
        return Turn::Free;
    }
    let refused = last_refusal(draft);
    if !is_turn(draft, circuit, until) {
        return Turn::Wait;
    }
    match refused {
        Some((heard, refused)) if heard.at >= until => Turn::Over(refused),
        Some(_) => Turn::Now,
        None => Turn::Free,
    }
}

fn is_under_way(draft: &Draft) -> bool {
    let heard = draft.seen.heard.filter(|heard| heard.to == Question::Create);
    match heard.map(|heard| &heard.answer) {
        Some(Answer::Waiting { .. } | Answer::Created { .. }) => true,
        Some(Answer::Refused(_)) => false,
        // Nothing was sent yet, or nothing is known of it: what the status says counts.
        _ => !draft.memory().is_empty() && draft.status.phase != Some(Phase::CrashLoopBackOff),
    }
}

/// Says why nothing is done for a machine that never asked; one that was refused says so already.
pub fn wait(draft: &mut Draft) {
    if let Some((_, until)) = open(draft).filter(|(_, until)| *until > draft.seen.now) {
        draft.wake_at(until);
    }
    if draft.status.phase != Some(Phase::CrashLoopBackOff) {
        draft.phase(Phase::Pending);
        for type_ in [ConditionType::ServerReady, ConditionType::Ready] {
            draft.condition(type_, ConditionStatus::False, Reason::CircuitOpen, "");
        }
    }
}

/// A refusal of the machine that tries for all is dated, so that its set tells it from an earlier one in the same words.
pub fn told(draft: &mut Draft) {
    let Some((circuit, until)) = open(draft) else { return };
    let at = draft.seen.heard.map(|heard| heard.at).filter(|at| *at >= until);
    if is_turn(draft, circuit, until)
        && let Some(at) = at
        && let Some(operation) = &mut draft.status.last_operation
    {
        operation.last_update_time = Some(Time(whole_seconds(at)));
    }
}

fn open<'a>(draft: &Draft<'a>) -> Option<(&'a CircuitStatus, Timestamp)> {
    let circuit = draft.seen.circuit.filter(|circuit| circuit.open_since.is_some())?;
    Some((circuit, circuit.until.as_ref().map_or(draft.seen.now, |until| until.0)))
}

fn is_turn(draft: &Draft, circuit: &CircuitStatus, until: Timestamp) -> bool {
    circuit.is_probe(&draft.seen.machine.name_any()) && until <= draft.seen.now
}

fn last_refusal<'a>(draft: &Draft<'a>) -> Option<(&'a Heard, &'a Refused)> {
    let heard = draft.seen.heard.filter(|heard| heard.to == Question::Create)?;
    match &heard.answer {
        Answer::Refused(refused) => Some((heard, refused)),
        _ => None,
    }
}
