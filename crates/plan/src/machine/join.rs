//! A machine with its Node: kept in step, watched, and drained when its description asks for it.

use super::draft::Draft;
use super::{Answer, Question, Step, birth, create, objection, request};
use crate::node;
use crate::reason::Reason;
use crate::time::later;
use drover_api::{
    ConditionStatus, ConditionType, MachineAddress, OperationState, OperationType, Phase, Versions,
    labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::ResourceExt;
use std::{sync::Arc, time::Duration};

/// Follows a machine that has a Node.
pub fn follow(draft: &mut Draft, node: &Arc<Node>) {
    let is_new = draft.status.node_ref.as_ref().and_then(|it| it.uid.clone()) != node.uid();
    refer(draft, node);
    if !matches!(draft.status.phase, Some(Phase::Running | Phase::Unknown)) {
        // Again and again until it is Ready, for a crash may come between any two steps.
        draft.step(Step::DeleteToken);
    }
    birth::note_joined(draft);
    draft.condition(ConditionType::NodeJoined, ConditionStatus::True, Reason::NodeJoined, "");
    if draft.seen.machine.spec.provider_id.is_none() {
        adopt_id(draft, node);
    }
    keep_in_step(draft, node);
    if node.metadata.deletion_timestamp.is_some() {
        // Gardener: who deletes a Node wants its machine gone. Something holds it, so there is time to drain.
        draft.step(Step::DeleteMachine { why: Reason::NodeGone });
    }
    match request::asked(draft) {
        Some(why) => request::fulfil(draft, node, why),
        // Nothing is withdrawn by a description that cannot be read.
        None if draft.seen.description.is_err() => {}
        None => request::withdraw(draft, node),
    }
    watch(draft, node, is_new);
}

fn refer(draft: &mut Draft, node: &Node) {
    draft.status.node_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name_any()),
        uid: node.uid(),
        ..ObjectReference::default()
    });
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    if let Some(info) = info {
        draft.status.versions =
            Some(Versions { kubelet: info.kubelet_version.clone(), control_plane: None });
    }
    let shown = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    // Until the cloud controller manager has looked, the Node knows less than the cloud said.
    if shown.iter().any(|address| address.type_ == "InternalIP") {
        let rank = |type_: &str| ["InternalIP", "ExternalIP"].iter().position(|it| *it == type_);
        let mut addresses: Vec<MachineAddress> = shown
            .iter()
            .map(|it| MachineAddress { type_: it.type_.clone(), address: it.address.clone() })
            .collect();
        addresses.sort_by_key(|it| rank(&it.type_).unwrap_or(usize::MAX));
        draft.status.addresses = addresses;
    }
}

/// The cloud's answer was lost, or the machine was made by another hand: the Node knows its server.
fn adopt_id(draft: &mut Draft, node: &Node) {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        draft.status.provider_id = Some(id.clone());
        draft.spec("providerID", id.into());
    }
}

fn keep_in_step(draft: &mut Draft, node: &Node) {
    if node.metadata.deletion_timestamp.is_some() {
        return;
    }
    let seen = draft.seen;
    let startup = startup_taint(draft, node).filter(|_| !node::has_started(node));
    let fit = startup.is_some() && node::unfit(node, &draft.pods_on(node)).is_none();
    let mut wanted = node::Wanted::by(seen.machine, seen.description.ok());
    wanted.taints.retain(|taint| !seen.settings.startup_taints.contains(&taint.key));
    objection::without_forbidden(seen, &mut wanted.labels);
    let also = startup.filter(|_| fit);
    if seen.description.is_err() {
        // Labels that only the description knows would be taken away.
        return;
    }
    let node::Sync { status, merge, apply } = node::sync(seen.machine, node, &wanted, also);
    let name = node.name_any();
    if let Some(patch) = status {
        let why = Reason::NodeSynced;
        draft.step(Step::PatchNodeStatus { name: name.clone(), patch, why });
    }
    if let Some(patch) = merge {
        let why = if fit { Reason::StartupTaintRemoved } else { Reason::NodeSynced };
        draft.step(Step::PatchNode { name: name.clone(), patch, why });
    }
    if let Some(object) = apply {
        draft.step(Step::ApplyNode { name, object, why: Reason::NodeSynced });
    }
}

/// The first startup taint that the Node carries.
fn startup_taint<'a>(draft: &Draft<'a>, node: &Node) -> Option<&'a str> {
    let keys = draft.seen.settings.startup_taints.iter();
    keys.map(String::as_str).find(|key| node::has_taint(node, key))
}

/// Gardener: which conditions of the Node tell that it is ill.
fn illness(draft: &Draft, node: &Node) -> Option<String> {
    match draft.seen.machine.spec.node_conditions.as_deref() {
        Some(listed) => node::illness(node, listed.split(',')),
        None => node::illness(node, draft.seen.settings.node_conditions.iter().map(String::as_str)),
    }
}

/// Sets Ready and the phase by what the Node says.
fn watch(draft: &mut Draft, node: &Node, is_new: bool) {
    let tainted = startup_taint(draft, node).is_some() && !node::has_started(node);
    let why = if !node::is_ready(node) {
        Some(Reason::NodeNotReady)
    } else if illness(draft, node).is_some() {
        Some(Reason::NodeUnhealthy)
    } else if node::has_taint(node, labels::TAINT_UNINITIALIZED) {
        Some(Reason::NodeUninitialized)
    } else if tainted {
        node::unfit(node, &draft.pods_on(node)).or(Some(Reason::CriticalPodsAwaited))
    } else if is_new {
        // Not in the pass that deletes the token: a machine that is Ready has none.
        draft.wake_after(Duration::ZERO);
        Some(Reason::NodeJoined)
    } else {
        None
    };
    match why {
        None => ready(draft, node),
        Some(why) => unready(draft, node, why),
    }
}

fn ready(draft: &mut Draft, node: &Node) {
    let ready = ConditionType::Ready;
    if draft.condition(ready, ConditionStatus::True, Reason::NodeReady, "") {
        let story = birth_story(draft);
        draft.tell(Reason::NodeReady, format!("node {} is ready{story}", node.name_any()));
    }
    let server = ConditionType::ServerReady;
    draft.condition(server, ConditionStatus::True, Reason::ServerRunning, "");
    draft.passed(ConditionType::AddressesKnown, Reason::AddressesKnown);
    draft.passed(ConditionType::CriticalPodsReady, Reason::CriticalPodsReady);
    draft.phase(Phase::Running);
    draft.operation(OperationType::Create, OperationState::Successful, "the node is ready");
    let ours = ["CreateError", "JoinClusterTimeoutError", "UnhealthyNode"];
    if draft.status.error_reason.as_deref().is_some_and(|reason| ours.contains(&reason)) {
        draft.no_error();
    }
}

/// How long a machine took that is Ready for the first time. The one Event of a creation that goes well:
/// each step of it is a condition already.
fn birth_story(draft: &Draft) -> String {
    let born = draft.seen.machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let steps = [
        born,
        draft.since(ConditionType::ServerReady),
        draft.since(ConditionType::NodeJoined),
        Some(draft.now.0),
    ];
    let (Some(Phase::Pending), [Some(born), Some(made), Some(joined), Some(ready)]) =
        (draft.status.phase, steps)
    else {
        return String::new();
    };
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs().max(0);
    format!(
        " after {} s: server {} s, join {} s, ready {} s",
        seconds(born, ready),
        seconds(born, made),
        seconds(made, joined),
        seconds(joined, ready)
    )
}

fn unready(draft: &mut Draft, node: &Node, why: Reason) {
    if draft.status.phase == Some(Phase::Failed) {
        return;
    }
    let was_ready = matches!(draft.status.phase, Some(Phase::Running | Phase::Unknown));
    let message = message(draft, node, why);
    let is_new = draft.condition(ConditionType::Ready, ConditionStatus::False, why, &message);
    if !was_ready {
        draft.phase(Phase::Pending);
        note_step(draft, why, &message);
        let description = "the node registered and is to become ready";
        draft.operation(OperationType::Create, OperationState::Processing, description);
        return;
    }
    draft.phase(Phase::Unknown);
    if is_new {
        draft.warn(why, format!("node {}: {message}", node.name_any()));
    }
    draft.operation(OperationType::HealthCheck, OperationState::Processing, &message);
    if !outlived(draft) {
        look(draft);
    }
}

/// What the Node itself, or a pod on it, says of why the machine is not Ready.
fn message(draft: &Draft, node: &Node, why: Reason) -> String {
    let said = match why {
        Reason::NodeNotReady => Some(node::complaint(node)),
        Reason::NodeUnhealthy => illness(draft, node),
        Reason::CriticalPodsAwaited => node::awaited_pod(&draft.pods_on(node))
            .map(|pod| format!("the node's critical pod {pod} is not ready yet")),
        _ => None,
    };
    said.unwrap_or_else(|| why.sentence().to_owned())
}

/// MetaKube's order: addresses, critical pods, ready.
fn note_step(draft: &mut Draft, why: Reason, message: &str) {
    let (addresses, pods) = (ConditionType::AddressesKnown, ConditionType::CriticalPodsReady);
    match why {
        Reason::NodeUninitialized => {
            draft.condition(addresses, ConditionStatus::False, why, message);
        }
        Reason::CriticalPodsAwaited => {
            draft.passed(addresses, Reason::AddressesKnown);
            draft.condition(pods, ConditionStatus::False, why, message);
        }
        _ => {}
    }
}

/// Gardener: a machine that is unhealthy for longer than its health timeout is Failed.
fn outlived(draft: &mut Draft) -> bool {
    let spec = &draft.seen.machine.spec;
    let never = spec.disable_health_timeout.unwrap_or(false);
    let Some(timeout) = spec.health_timeout.filter(|_| !never) else { return false };
    let since = draft.since(ConditionType::Ready).unwrap_or(draft.seen.now);
    let end = later(since, timeout.0);
    if end > draft.seen.now {
        draft.wake_at(end);
        return false;
    }
    let message = format!("the node was not ready for {timeout}");
    let (type_, state) = (OperationType::HealthCheck, OperationState::Failed);
    draft.operation(type_, state, &message);
    draft.fail("UnhealthyNode", Reason::HealthDeadlineExceeded, &message);
    true
}

/// Whether the server behind a Node that fell silent is still there.
fn look(draft: &mut Draft) {
    match draft.heard(Question::Look) {
        Some(Answer::Seen(None)) => create::gone(draft),
        Some(Answer::Seen(Some(server))) => {
            create::show(draft, server);
            let runs = server.state == super::ServerState::Running;
            let why = if runs { Reason::ServerRunning } else { Reason::ServerStopped };
            draft.condition(ConditionType::ServerReady, runs.into(), why, "");
        }
        Some(Answer::Refused(_)) => {}
        _ => draft.step(Step::LookAtServer),
    }
}
