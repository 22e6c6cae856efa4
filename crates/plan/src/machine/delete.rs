//! The end of a machine: drained with care, deleted in the cloud to the last port, then let go.

use super::draft::{Draft, later};
use super::{Answer, Question, Retry, Step};
use crate::drain;
use crate::node;
use crate::reason::Reason;
use drover_api::{
    ConditionStatus, ConditionType, DeletionPolicy, OperationState, OperationType, Phase, labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;

/// How often a node is looked at whose volumes detach; a change of them is seen at once.
const DETACH_CHECK: Duration = Duration::from_secs(30);
/// After how many refusals of the cloud a forced deletion goes on without it (Mirantis: `forced`).
const FORCED_AFTER: u32 = 3;
/// Most volumes that a message names.
const NAMED_MAX: usize = 5;

/// Goes on with a machine that is being deleted.
pub fn go_on(draft: &mut Draft) {
    let machine = draft.seen.machine;
    if draft.status.phase != Some(Phase::Terminating) {
        draft.tell(Reason::DeletionBegun, Reason::DeletionBegun.sentence().to_owned());
        draft.no_error();
    }
    draft.phase(Phase::Terminating);
    draft.condition(ConditionType::Ready, ConditionStatus::False, Reason::DeletionBegun, "");
    let node = draft.node();
    if machine.finalizers().iter().any(|it| it == labels::FINALIZER_SERVER) {
        let careful = draft.status.deletion_policy == Some(DeletionPolicy::Graceful);
        if let Some(node) = node
            && careful
            && !is_evacuated(draft, node, Reason::DeletionBegun)
        {
            return;
        }
        if !is_deleted(draft) {
            return;
        }
    }
    if let Some(node) = node {
        let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
        draft.step(Step::DeleteNode { name, uid, why: Reason::ServerDeleted });
    }
    draft.step(Step::DeleteToken);
    draft.release();
}

/// What the description of a running machine asks for (Mirantis).
pub fn asked(draft: &Draft) -> Option<Reason> {
    let description = draft.seen.description.ok()?;
    if description.delete {
        Some(Reason::DeletionRequested)
    } else {
        description.maintenance.then_some(Reason::Maintenance)
    }
}

/// Drains a running machine whose description asks for its deletion or for maintenance.
pub fn evacuate_on_request(draft: &mut Draft, node: &Node, why: Reason) {
    let deletes = why == Reason::DeletionRequested;
    let careful = draft.status.deletion_policy == Some(DeletionPolicy::Graceful);
    let evacuated = (deletes && !careful) || is_evacuated(draft, node, why);
    let status = draft.status.provider_status.get_or_insert_default();
    status.delete = deletes.then_some(true);
    status.prepare_deletion_phase =
        deletes.then(|| if evacuated { "completed" } else { "started" }.to_owned());
    status.maintenance = (!deletes).then_some(evacuated);
    if deletes && evacuated {
        draft.step(Step::DeleteMachine { why });
    }
}

/// Undoes what an evacuation did that nobody asks for any more: only a Node that Drover cordoned is
/// uncordoned.
pub fn return_to_service(draft: &mut Draft, node: &Node) {
    if node.annotations().contains_key(labels::NODE_CORDONED) {
        let patch = json!({
            "metadata": { "uid": node.metadata.uid, "annotations": { labels::NODE_CORDONED: null } },
            "spec": { "unschedulable": null },
        });
        let why = Reason::MaintenanceEnded;
        draft.step(Step::PatchNode { name: node.name_any(), patch, why });
        draft.tell(why, why.sentence().to_owned());
    }
    draft.forget(ConditionType::Drained);
    draft.forget(ConditionType::VolumesDetached);
    if let Some(status) = &mut draft.status.provider_status {
        status.delete = None;
        status.prepare_deletion_phase = None;
        status.maintenance = None;
    }
}

/// Whether the pods are off the node and, before a deletion, its volumes.
fn is_evacuated(draft: &mut Draft, node: &Node, purpose: Reason) -> bool {
    if !draft.holds(ConditionType::Drained) && !is_drained(draft, node, purpose) {
        return false;
    }
    purpose == Reason::Maintenance || is_detached(draft, node)
}

fn is_drained(draft: &mut Draft, node: &Node, purpose: Reason) -> bool {
    let type_ = ConditionType::Drained;
    if let Some(message) = skipped(draft, node, purpose) {
        draft.condition(type_, ConditionStatus::True, Reason::DrainSkipped, message);
        draft.tell(Reason::DrainSkipped, message.to_owned());
        return true;
    }
    cordon(draft, node, purpose);
    let deadline = deadline(draft, purpose);
    let seen = draft.seen;
    let pods = draft.pods_on(node);
    let plan = drain::plan(&drain::Observed {
        pods: &pods,
        budgets: seen.budgets,
        refused: seen.refused,
        deadline,
        now: seen.now,
    });
    if plan.is_done() {
        draft.condition(type_, ConditionStatus::True, Reason::NodeDrained, "");
        draft.tell(Reason::NodeDrained, format!("node {} is drained", node.name_any()));
        return true;
    }
    let overdue = deadline.is_some_and(|deadline| deadline <= seen.now);
    let why = if overdue {
        Reason::DrainDeadlineExceeded
    } else if plan.is_blocked() {
        Reason::PodsBlocked
    } else {
        Reason::PodsLeaving
    };
    let story = plan.story();
    if draft.condition(type_, ConditionStatus::False, why, &story) && why != Reason::PodsLeaving {
        draft.warn(why, story.clone());
    }
    draft.operation(OperationType::DrainNode, OperationState::Processing, &story);
    if let Some(next) = plan.next {
        draft.wake_at(next);
    }
    if !plan.departures.is_empty() {
        draft.step(Step::Leave { departures: plan.departures });
    }
    false
}

/// Why nothing is evicted. MetaKube: evicting from a node that is not ready, or with nowhere to go,
/// only makes things worse.
fn skipped(draft: &Draft, node: &Node, purpose: Reason) -> Option<&'static str> {
    if node.annotations().contains_key(labels::NODE_SKIP_EVICTION) {
        Some("the node's annotation kubermatic.io/skip-eviction says so")
    } else if !node::is_ready(node) {
        Some("the node is not ready, its pods would not leave")
    } else if purpose == Reason::DeletionBegun && !draft.seen.has_target {
        Some("no other node takes pods and none is to come")
    } else {
        None
    }
}

fn cordon(draft: &mut Draft, node: &Node, purpose: Reason) {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    if !cordoned {
        let patch = json!({
            "metadata": {
                "uid": node.metadata.uid,
                "annotations": { labels::NODE_CORDONED: purpose.as_str() },
            },
            "spec": { "unschedulable": true },
        });
        draft.step(Step::PatchNode { name: node.name_any(), patch, why: Reason::NodeCordoned });
    }
}

/// When waiting for pods ends: a drain timeout after the deletion, or after it was asked for.
fn deadline(draft: &Draft, purpose: Reason) -> Option<Timestamp> {
    let machine = draft.seen.machine;
    let deleted = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let asked = draft.since(ConditionType::Drained).unwrap_or(draft.seen.now);
    let given = machine.spec.drain_timeout.map(|timeout| timeout.0);
    let timeout = given.unwrap_or(draft.seen.settings.drain_timeout);
    (purpose != Reason::Maintenance).then(|| later(deleted.unwrap_or(asked), timeout))
}

fn is_detached(draft: &mut Draft, node: &Node) -> bool {
    let type_ = ConditionType::VolumesDetached;
    // Pods that were not evicted keep their volumes; the server's end frees them.
    let skipped = draft.status.conditions.iter().any(|condition| {
        condition.type_ == ConditionType::Drained.as_str()
            && condition.reason == Reason::DrainSkipped.as_str()
    });
    let mut volumes: Vec<String> = draft
        .seen
        .attachments
        .iter()
        .filter(|it| Some(&it.spec.node_name) == node.metadata.name.as_ref())
        .map(|it| it.spec.source.persistent_volume_name.clone().unwrap_or_else(|| it.name_any()))
        .collect();
    volumes.sort();
    if skipped || draft.holds(type_) {
        return true;
    }
    if volumes.is_empty() {
        draft.condition(type_, ConditionStatus::True, Reason::VolumesDetached, "");
        return true;
    }
    let drained = draft.since(ConditionType::Drained).unwrap_or(draft.seen.now);
    let deadline = later(drained, draft.seen.settings.detach_timeout);
    let named = volumes.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if deadline <= draft.seen.now {
        let message = format!("still attached: {named}");
        let why = Reason::DetachDeadlineExceeded;
        if draft.condition(type_, ConditionStatus::False, why, &message) {
            draft.warn(why, message);
        }
        return true;
    }
    let message = format!("{} volumes are attached: {named}", volumes.len());
    draft.condition(type_, ConditionStatus::False, Reason::VolumesAttached, &message);
    draft.operation(OperationType::DrainNode, OperationState::Processing, &message);
    draft.wake_at(deadline.min(later(draft.seen.now, DETACH_CHECK)));
    false
}

/// Whether nothing of the machine is left in the cloud.
fn is_deleted(draft: &mut Draft) -> bool {
    let type_ = ConditionType::ServerDeleted;
    match draft.heard(Question::Delete) {
        Some(Answer::Gone) => return true,
        Some(Answer::Deleting { waits_for, .. }) => {
            let message = format!("the cloud is at work: {waits_for}");
            draft.condition(type_, ConditionStatus::False, Reason::ServerDeleting, &message);
            draft.no_error();
        }
        Some(Answer::Refused(refused))
            if refused.retry == Retry::OnChange && was_never_ordered(draft) =>
        {
            return true;
        }
        Some(Answer::Refused(refused)) => {
            let refusals = draft.seen.heard.map_or(0, |heard| heard.refusals);
            let forced = draft.status.deletion_policy == Some(DeletionPolicy::Forced);
            if forced && refusals >= FORCED_AFTER {
                let message = format!("left behind in the cloud: {}", refused.message);
                draft.warn(refused.why, message);
                return true;
            }
            let message = refused.message.as_str();
            if draft.condition(type_, ConditionStatus::False, refused.why, message) {
                draft.warn(refused.why, message.to_owned());
            }
            draft.error("DeleteError", message);
            let (type_, state) = (OperationType::Delete, OperationState::Failed);
            draft.operation_with(type_, state, message, Some(&refused.code));
            return false;
        }
        _ => {
            draft.condition(type_, ConditionStatus::False, Reason::ServerDeleting, "");
            let memory = draft.memory();
            draft.step(Step::DeleteServer { memory });
        }
    }
    let description = Reason::ServerDeleting.sentence();
    draft.operation(OperationType::Delete, OperationState::Processing, description);
    false
}

/// Whether the cloud was never asked to make anything: the promise is written before the first call that
/// does. A description that could not even be ordered by must not hold its machine for ever.
fn was_never_ordered(draft: &Draft) -> bool {
    draft.memory().is_empty()
        && draft.status.provider_id.is_none()
        && draft.seen.machine.spec.provider_id.is_none()
}
