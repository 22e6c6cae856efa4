//! The end of a machine: drained with care, deleted in the cloud to the last port, then let go.

use super::draft::Draft;
use super::evacuate::{self, Purpose};
use super::{Answer, Question, Retry, Step};
use crate::drain;
use crate::reason::Reason;
use crate::time::later;
use drover_api::{
    ConditionStatus, ConditionType, DeletionPolicy, OperationState, OperationType, Phase, labels,
};
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// After how many refusals of the cloud a forced deletion goes on without it (Mirantis: `forced`).
const FORCED_REFUSALS: u32 = 3;
/// How long a forced deletion waits for a cloud that neither refuses nor gets done.
const FORCED_PATIENCE: Duration = Duration::from_secs(300);

/// Goes on with a machine that is being deleted. MetaKube's order: mark, drain, cloud resources, object.
pub fn go_on(draft: &mut Draft) {
    let machine = draft.seen.machine;
    if draft.status.phase != Some(Phase::Terminating) {
        draft.no_error();
    }
    draft.phase(Phase::Terminating);
    draft.condition(ConditionType::Ready, ConditionStatus::False, Reason::DeletionBegun, "");
    draft.troubled();
    if machine.finalizers().iter().any(|it| it == labels::FINALIZER_SERVER) {
        let careful = draft.status.deletion_policy == Some(DeletionPolicy::Graceful);
        if careful && !evacuate::is_evacuated(draft, Purpose::Deletion) {
            return;
        }
        match is_deleted(draft) {
            Cloud::Holds => return,
            Cloud::Empty => {
                bury(draft);
                let id = draft.seen.machine.spec.provider_id.clone();
                let server = id.map_or("no server".to_owned(), |id| format!("server {id}"));
                let note = format!("{server}: nothing of it is left in the cloud");
                draft.tell(Reason::ServerDeleted, note);
            }
            // Whether the server still runs is not known: nothing is taken from it.
            Cloud::GivenUp => {}
        }
    }
    if let Some(node) = draft.node() {
        let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
        draft.step(Step::DeleteNode { name, uid, why: Reason::ServerDeleted });
    }
    if draft.seen.settings.joins {
        draft.step(Step::DeleteToken);
    }
    draft.release();
}

/// What still refers to a server that is gone is in the way of its successors: Kubernetes itself would
/// wait six minutes for its volumes and for ever for its pods.
fn bury(draft: &mut Draft) {
    let Some(node) = evacuate::node_name(draft) else { return };
    let on_it = |it: &&std::sync::Arc<_>| -> bool {
        let it: &k8s_openapi::api::storage::v1::VolumeAttachment = it;
        it.spec.node_name == node && it.metadata.deletion_timestamp.is_none()
    };
    let attachments: Vec<(String, String)> = draft
        .seen
        .attachments
        .iter()
        .filter(on_it)
        .map(|it| (it.name_any(), it.uid().unwrap_or_default()))
        .collect();
    if !attachments.is_empty() {
        draft.step(Step::Detach { attachments });
    }
    let departures = drain::bereaved(&draft.pods_named(&node));
    if !departures.is_empty() {
        draft.step(Step::Leave { departures });
    }
}

/// What of the machine is left in the cloud.
enum Cloud {
    /// Something, and it is waited for.
    Holds,
    /// Nothing.
    Empty,
    /// Nobody knows, and nobody waits any longer.
    GivenUp,
}

fn is_deleted(draft: &mut Draft) -> Cloud {
    let type_ = ConditionType::ServerDeleted;
    let forced = draft.status.deletion_policy == Some(DeletionPolicy::Forced);
    if !forced && evacuate::waits_for_hook(draft, labels::HOOK_PRE_TERMINATE, type_) {
        return Cloud::Holds;
    }
    if draft.was(type_, Reason::HookAwaited) {
        // The cloud's time begins now.
        draft.forget(type_);
    }
    let heard = draft.heard(Question::Delete);
    match heard {
        Some(Answer::Gone) => return Cloud::Empty,
        Some(Answer::Refused(refused))
            if refused.retry == Retry::OnChange && was_never_ordered(draft) =>
        {
            return Cloud::Empty;
        }
        _ => {}
    }
    if forced && given_up(draft) {
        return Cloud::GivenUp;
    }
    match heard {
        Some(Answer::Deleting { waits_for, .. }) => {
            let message = format!("the cloud is at work: {waits_for}");
            draft.condition(type_, ConditionStatus::False, Reason::ServerDeleting, &message);
            draft.no_error();
        }
        Some(Answer::Refused(refused)) => {
            let message = refused.message.as_str();
            if draft.condition(type_, ConditionStatus::False, refused.why, message) {
                draft.warn(refused.why, message.to_owned());
            }
            draft.error("DeleteError", message);
            let (type_, state) = (OperationType::Delete, OperationState::Failed);
            draft.operation_with(type_, state, message, Some(&refused.code));
            return Cloud::Holds;
        }
        _ => {
            if draft.since(type_).is_none() {
                draft.condition(type_, ConditionStatus::False, Reason::ServerDeleting, "");
            }
            let memory = draft.memory();
            draft.step(Step::DeleteServer { memory });
        }
    }
    let description = Reason::ServerDeleting.sentence();
    draft.operation(OperationType::Delete, OperationState::Processing, description);
    Cloud::Holds
}

/// Mirantis: a forced deletion ends although the cloud is stuck. What may be left is told, for nobody else
/// will know of it.
fn given_up(draft: &mut Draft) -> bool {
    let heard = draft.seen.heard.filter(|heard| heard.to == Question::Delete);
    if heard.is_none() && draft.seen.trouble.is_none() {
        // It was not asked yet.
        return false;
    }
    let refusals = heard.map_or(0, |heard| heard.refusals);
    let since = draft.since(ConditionType::ServerDeleted);
    let end = since.map_or(Timestamp::MAX, |since| later(since, FORCED_PATIENCE));
    if refusals < FORCED_REFUSALS && end > draft.seen.now {
        if since.is_some() {
            draft.wake_at(end);
        }
        return false;
    }
    let last = match heard.map(|heard| &heard.answer) {
        Some(Answer::Refused(refused)) => format!("; the cloud's last word: {}", refused.message),
        Some(Answer::Deleting { waits_for, .. }) => format!("; the cloud was at work: {waits_for}"),
        _ => String::new(),
    };
    draft.warn(Reason::LeftBehind, format!("{}{last}", belongings(draft)));
    true
}

/// What is known to have been made for the machine.
fn belongings(draft: &Draft) -> String {
    let machine = draft.seen.machine;
    let id = machine.spec.provider_id.clone().or_else(|| draft.status.provider_id.clone());
    let server = id.map(|id| format!("server {id}"));
    let notes = draft.memory();
    let notes: Vec<String> = notes.iter().map(|(what, which)| format!("{what}={which}")).collect();
    let notes = (!notes.is_empty()).then(|| notes.join(" "));
    let marks = machine.uid().map(|uid| format!("all that is marked with machine UID {uid}"));
    let parts: Vec<String> = [server, notes, marks].into_iter().flatten().collect();
    format!("may be left in the cloud: {}", parts.join("; "))
}

/// Whether the cloud was never asked to make anything: the promise is written before the first call that
/// does. A description that could not even be ordered by must not hold its machine for ever. A status that
/// was wiped proves nothing: one that tells of the machine's birth does.
fn was_never_ordered(draft: &Draft) -> bool {
    draft.find(ConditionType::Configured).is_some()
        && draft.memory().is_empty()
        && draft.status.provider_id.is_none()
        && draft.seen.machine.spec.provider_id.is_none()
}
