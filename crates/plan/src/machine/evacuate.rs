//! Takes pods and volumes off a node with care: for a deletion, for a request for one, for maintenance.

use super::Step;
use super::draft::Draft;
use crate::drain::{self, Deadline, Volumes};
use crate::node;
use crate::reason::Reason;
use crate::time::later;
use drover_api::{
    ConditionStatus, ConditionType, OperationState, OperationType, find_condition, labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often a node is looked at whose volumes detach; a change of them is seen at once.
const DETACH_CHECK: Duration = Duration::from_secs(30);
/// How long a node may be silent, or its disk read-only, before it is not drained any more. Gardener: 5 min.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// Most volumes or hooks that a message names.
const NAMED_MAX: usize = 5;

/// What the node is evacuated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The Machine is being deleted.
    Deletion,
    /// Its description asks for its deletion.
    Request,
    /// Its description asks for maintenance.
    Maintenance,
}

impl Purpose {
    fn reason(self) -> Reason {
        match self {
            Self::Deletion => Reason::DeletionBegun,
            Self::Request => Reason::DeletionRequested,
            Self::Maintenance => Reason::Maintenance,
        }
    }
}

/// Whether the pods are off the node and, before a deletion, its volumes.
pub fn is_evacuated(draft: &mut Draft, purpose: Purpose) -> bool {
    if !draft.holds(ConditionType::Drained) {
        let type_ = ConditionType::Drained;
        if purpose != Purpose::Maintenance && waits_for_hook(draft, labels::HOOK_PRE_DRAIN, type_) {
            return false;
        }
        let Some(node) = draft.node() else { return true };
        begin(draft, purpose);
        if !is_drained(draft, node, purpose) {
            return false;
        }
        if let Some(status) = &mut draft.status.drain {
            status.moving = None;
        }
    }
    let Some(node) = draft.node() else { return true };
    purpose == Purpose::Maintenance || is_detached(draft, node)
}

/// The name of the machine's Node, also when that is gone.
pub fn node_name(draft: &Draft) -> Option<String> {
    let seen = draft.node().map(|node| node.name_any());
    seen.or_else(|| draft.status.node_ref.as_ref().and_then(|node| node.name.clone()))
}

/// Cluster API: as long as there is a hook of this kind, the pipeline waits before its next step. A
/// message names the hooks and what they say of their owners.
pub fn waits_for_hook(draft: &mut Draft, prefix: &str, type_: ConditionType) -> bool {
    let annotations = draft.seen.machine.annotations().iter();
    let hooks: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(prefix))
        .map(|(key, owner)| if owner.is_empty() { key.clone() } else { format!("{key} ({owner})") })
        .collect();
    if hooks.is_empty() {
        return false;
    }
    let named = hooks.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let message = format!("{}: {named}", Reason::HookAwaited.sentence());
    if draft.condition(type_, ConditionStatus::False, Reason::HookAwaited, &message) {
        draft.tell(Reason::HookAwaited, message.clone());
    }
    draft.operation(OperationType::Delete, OperationState::Processing, &message);
    true
}

/// The clock of a drain starts with the deletion, unless that was not yet, or a hook held it.
fn begin(draft: &mut Draft, purpose: Purpose) {
    let held = draft.was(ConditionType::Drained, Reason::HookAwaited);
    let now = draft.now.clone();
    if draft.status.drain.is_none() || held {
        let is_later = held || purpose != Purpose::Deletion;
        draft.status.drain.get_or_insert_default().start_time = is_later.then_some(now);
        if is_later {
            draft.promise();
        }
    }
}

fn is_drained(draft: &mut Draft, node: &Node, purpose: Purpose) -> bool {
    let type_ = ConditionType::Drained;
    cordon(draft, node, purpose);
    let pods = draft.pods_named(&node.name_any());
    let is_bare = pods.iter().all(|pod| drain::stays(pod).is_some());
    match care(draft, node, purpose) {
        Care::None(why) if !is_bare => {
            draft.condition(type_, ConditionStatus::True, Reason::DrainSkipped, &why);
            draft.tell(Reason::DrainSkipped, why);
            return true;
        }
        Care::Later(at) if !is_bare => {
            let why = Reason::NodeUnreachable;
            if draft.condition(type_, ConditionStatus::False, why, "") {
                draft.warn(why, why.sentence().to_owned());
            }
            draft.operation(OperationType::DrainNode, OperationState::Processing, why.sentence());
            draft.wake_at(at);
            return false;
        }
        _ => {}
    }
    let (start, deadline) = deadline(draft, purpose);
    let seen = draft.seen;
    let moving = draft.status.drain.as_ref().and_then(|drain| drain.moving.clone());
    let plan = drain::plan(&drain::Observed {
        pods: &pods,
        budgets: seen.budgets,
        volumes: Volumes {
            node: &node.name_any(),
            claims: seen.claims,
            attachments: seen.attachments,
        },
        moving: moving.as_ref(),
        detach_timeout: seen.settings.detach_timeout,
        refused: seen.refused,
        deadline,
        now: seen.now,
    });
    if let Some(late) = &plan.late {
        draft.warn(Reason::VolumeLate, late.clone());
    }
    if plan.is_done() {
        let was_awaited = draft.since(type_).is_some();
        draft.condition(type_, ConditionStatus::True, Reason::NodeDrained, "");
        if was_awaited {
            draft.tell(Reason::NodeDrained, format!("node {} is drained", node.name_any()));
        }
        return true;
    }
    let until = deadline.map(|it| format!(" until {}", it.at)).unwrap_or_default();
    let story = format!("since {start}{until}: {}", plan.story());
    draft.brief = Some(plan.brief());
    progress(draft, plan, &story);
    false
}

/// Shows how far a drain came, and goes on with it.
fn progress(draft: &mut Draft, plan: drain::Plan, story: &str) {
    let why = plan.reason();
    let is_new = draft.condition(ConditionType::Drained, ConditionStatus::False, why, story);
    let goes_well = matches!(why, Reason::PodsLeaving | Reason::VolumesMoving);
    if is_new && !goes_well {
        draft.warn(why, story.to_owned());
    }
    // Gardener: a budget that can never be satisfied is a failure to be told of, not one to wait for.
    let stuck = why == Reason::BudgetUnsatisfiable;
    let state = if stuck { OperationState::Failed } else { OperationState::Processing };
    draft.operation(OperationType::DrainNode, state, story);
    if let Some(next) = plan.next {
        draft.wake_at(next);
    }
    let status = draft.status.drain.get_or_insert_default();
    if status.moving != plan.moving {
        status.moving = plan.moving;
        draft.promise();
    }
    if !plan.departures.is_empty() {
        draft.step(Step::Leave { departures: plan.departures });
    }
}

/// How a node's pods are to be treated.
enum Care {
    /// They are evicted.
    Eviction,
    /// They cannot be told anything now; perhaps until then.
    Later(Timestamp),
    /// Nothing is asked of them: they go with the server.
    None(String),
}

/// MetaKube: evicting from a node that is not ready, or with nowhere to go, only makes things worse.
/// Gardener: a node that is silent or read-only for five minutes is not waited for.
fn care(draft: &Draft, node: &Node, purpose: Purpose) -> Care {
    let machine = draft.seen.machine;
    let forced = machine.labels().get(labels::FORCE_DELETION).is_some_and(|value| is_true(value));
    let leaves = purpose != Purpose::Maintenance;
    if node.annotations().contains_key(labels::NODE_SKIP_EVICTION) {
        return Care::None(format!("the node's annotation {} says so", labels::NODE_SKIP_EVICTION));
    }
    if leaves && forced {
        return Care::None(format!("the machine's label {} says so", labels::FORCE_DELETION));
    }
    if leaves && draft.was(ConditionType::ServerReady, Reason::ServerGone) {
        return Care::None(Reason::ServerGone.sentence().to_owned());
    }
    if let Some((since, how)) = node::ailing(node) {
        let end = later(since, SILENCE_MAX);
        return if end > draft.seen.now {
            Care::Later(end)
        } else {
            Care::None(format!("the node {how} since {since}, its pods would not leave"))
        };
    }
    if leaves && !draft.seen.has_target {
        return Care::None("no other node takes pods and none is to come".to_owned());
    }
    Care::Eviction
}

/// Go's `ParseBool`, by which Gardener reads the label.
fn is_true(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn cordon(draft: &mut Draft, node: &Node, purpose: Purpose) {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    if !cordoned {
        let patch = json!({
            "metadata": {
                "uid": node.metadata.uid,
                // Somebody else may cordon it in the same moment; then it is not ours to uncordon.
                "resourceVersion": node.metadata.resource_version,
                "annotations": { labels::NODE_CORDONED: purpose.reason().as_str() },
            },
            "spec": { "unschedulable": true },
        });
        draft.step(Step::PatchNode { name: node.name_any(), patch, why: Reason::NodeCordoned });
    }
}

/// When the drain began, and when waiting for pods ends.
fn deadline(draft: &Draft, purpose: Purpose) -> (Timestamp, Option<Deadline>) {
    let machine = draft.seen.machine;
    let deleted = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let started = draft.status.drain.as_ref().and_then(|drain| drain.start_time.as_ref());
    let start = started.map(|time| time.0).or(deleted).unwrap_or(draft.seen.now);
    let given = machine.spec.drain_timeout.map(|timeout| timeout.0);
    let timeout = given.unwrap_or(draft.seen.settings.drain_timeout);
    let then = machine.spec.on_drain_timeout.unwrap_or_default();
    let deadline = Deadline { at: later(start, timeout), then };
    (start, (purpose != Purpose::Maintenance).then_some(deadline))
}

fn is_detached(draft: &mut Draft, node: &Node) -> bool {
    let type_ = ConditionType::VolumesDetached;
    // Pods that were not evicted keep their volumes; the server's end frees them.
    let drained = find_condition(&draft.status.conditions, ConditionType::Drained);
    let skipped = drained.is_some_and(|it| it.reason == Reason::DrainSkipped.as_str());
    if skipped || draft.holds(type_) {
        return true;
    }
    let volumes = attached(draft, node);
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
    let why = Reason::VolumesAttached;
    let message = format!("{}: {named}", why.sentence());
    draft.condition(type_, ConditionStatus::False, why, &message);
    draft.operation(OperationType::DrainNode, OperationState::Processing, &message);
    draft.wake_at(deadline.min(later(draft.seen.now, DETACH_CHECK)));
    false
}

/// The volumes that are attached to the node, but for those of pods that stay on it.
fn attached(draft: &Draft, node: &Node) -> Vec<String> {
    let seen = draft.seen;
    let name = node.name_any();
    let volumes = Volumes { node: &name, claims: seen.claims, attachments: seen.attachments };
    let pods = draft.pods_named(&name);
    let staying = pods.iter().filter(|pod| drain::stays(pod).is_some());
    let kept: Vec<&str> = staying.flat_map(|pod| volumes.of(pod).into_keys()).collect();
    let volume = |it: &Arc<k8s_openapi::api::storage::v1::VolumeAttachment>| {
        it.spec.source.persistent_volume_name.clone().unwrap_or_else(|| it.name_any())
    };
    let here = seen.attachments.iter().filter(|it| it.spec.node_name == name).map(volume);
    let mut left: Vec<String> = here.filter(|it| !kept.contains(&it.as_str())).collect();
    left.sort();
    left
}
