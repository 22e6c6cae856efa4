//! One phrase for what a machine waits for: the message of Ready, which `kubectl get ma -o wide` prints.

use super::draft::Draft;
use drover_api::{Condition, ConditionStatus, ConditionType, set_condition};

/// The steps of an end and of a drain on request, the last first.
const STEPS: [ConditionType; 3] =
    [ConditionType::ServerDeleted, ConditionType::VolumesDetached, ConditionType::Drained];

/// A machine that is drained or deleted waits for the step that it came to. The steps before the Node is
/// Ready speak for themselves.
pub fn speak(draft: &mut Draft) {
    let Some(ready) = draft.find(ConditionType::Ready).cloned() else { return };
    let leaves = draft.seen.machine.metadata.deletion_timestamp.is_some();
    let is_open = |it: &&Condition| it.status == ConditionStatus::False;
    let mut reached = STEPS.iter().filter_map(|type_| draft.find(*type_));
    let open = reached.clone().find(is_open);
    let Some(step) = open.or_else(|| reached.next().filter(|_| !leaves)).cloned() else { return };
    let brief = draft.brief.clone().unwrap_or(step.message);
    let next = if leaves {
        Condition { reason: step.reason, message: brief, ..ready }
    } else {
        Condition { message: format!("{}; {brief}", ready.message), ..ready }
    };
    set_condition(&mut draft.status.conditions, next, &draft.now);
}
