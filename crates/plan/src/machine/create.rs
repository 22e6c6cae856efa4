//! From the order to the Node: the server is made, boots and joins, or the machine fails.

use super::birth;
use super::circuit::{self, Turn};
use super::draft::Draft;
use super::{Answer, Question, Refused, Server, ServerState, Step, creation_timeout, objection};
use crate::node;
use crate::reason::Reason;
use crate::time::later;
use drover_api::{
    ConditionStatus, ConditionType, MachineAddress, OperationState, OperationType, Phase,
    ProviderState, find_condition,
};
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// How long a Node that was deleted may take to come back while its server runs: a kubelet registers again
/// only when it starts.
const NODE_RETURN: Duration = Duration::from_secs(300);

/// Goes on with a machine that has no Node.
pub fn go_on(draft: &mut Draft) {
    if draft.status.node_ref.is_some() {
        node_lost(draft);
    }
    if withdrawn(draft) {
        return;
    }
    let deadline = deadline(draft);
    if draft.status.phase == Some(Phase::Failed) {
        return;
    }
    let waits = draft.seen.settings.joins || draft.seen.machine.spec.provider_id.is_none();
    if waits && deadline <= draft.seen.now {
        return miss_deadline(draft);
    }
    if waits {
        draft.wake_at(deadline);
    }
    if let Err(error) = draft.seen.description {
        draft.phase(Phase::Pending);
        let why = Reason::DescriptionInvalid;
        draft.condition(ConditionType::Ready, ConditionStatus::False, why, error);
        return;
    }
    if objection::forbids(draft) {
        return;
    }
    match &draft.seen.machine.spec.provider_id {
        None => make(draft),
        Some(_) => await_node(draft),
    }
}

/// Whether the order is not carried out to its end: a server may boot and join before it has its
/// floating IP and its volumes.
pub fn is_unfinished(draft: &Draft) -> bool {
    let is_ordered = !draft.memory().is_empty() && draft.status.node_ref.is_none();
    is_ordered && draft.seen.machine.spec.provider_id.is_none()
}

/// Mirantis: a machine whose deletion is asked for, and that has nothing to drain, goes at once.
fn withdrawn(draft: &mut Draft) -> bool {
    let asked = draft.seen.description.is_ok_and(|description| description.delete);
    if asked {
        draft.step(Step::DeleteMachine { why: Reason::DeletionRequested });
    }
    asked
}

/// A Node that was there and is not any more: the clock of joining starts anew.
fn node_lost(draft: &mut Draft) {
    let name = draft.status.node_ref.take().and_then(|node| node.name).unwrap_or_default();
    let message = format!("node {name} was deleted");
    draft.condition(ConditionType::NodeJoined, ConditionStatus::False, Reason::NodeGone, &message);
    draft.condition(ConditionType::Ready, ConditionStatus::False, Reason::NodeGone, &message);
    draft.status.versions = None;
    if draft.status.phase != Some(Phase::Failed) {
        draft.phase(Phase::Unknown);
    }
    draft.warn(Reason::NodeGone, message);
}

/// Until when the machine must have a Node: counted from its birth, or from the loss of its Node.
fn deadline(draft: &Draft) -> Timestamp {
    let machine = draft.seen.machine;
    let born = machine.metadata.creation_timestamp.as_ref().map_or(draft.seen.now, |time| time.0);
    let from = lost_since(draft).unwrap_or(born);
    later(from, creation_timeout(machine, draft.seen.settings))
}

/// Since when it has no Node that had one.
fn lost_since(draft: &Draft) -> Option<Timestamp> {
    let joined = find_condition(&draft.status.conditions, ConditionType::NodeJoined)?;
    let lost = joined.reason == Reason::NodeGone.as_str();
    joined.last_transition_time.as_ref().filter(|_| lost).map(|time| time.0)
}

/// Gardener: who deletes a Node wants its machine gone. A machine that nobody would replace stays.
fn is_abandoned(draft: &mut Draft) -> bool {
    let is_replaced = is_replaced(draft);
    let Some(lost) = lost_since(draft).filter(|_| is_replaced) else { return false };
    let end = later(lost, NODE_RETURN);
    if end > draft.seen.now {
        draft.wake_at(end);
        return false;
    }
    draft.step(Step::DeleteMachine { why: Reason::NodeGone });
    true
}

/// Whether somebody makes another when it goes.
fn is_replaced(draft: &Draft) -> bool {
    let owners = draft.seen.machine.owner_references();
    owners.iter().any(|owner| owner.controller == Some(true))
}

/// What is to be said of a lost machine that nobody replaces.
fn kept(draft: &Draft) -> &'static str {
    if is_replaced(draft) { "" } else { "; no set replaces it, so it stays: delete it" }
}

fn miss_deadline(draft: &mut Draft) {
    let last = draft.status.error_message.clone();
    let cause = last.map(|error| format!("; the last error was: {error}")).unwrap_or_default();
    let message = format!("{}{cause}{}", Reason::JoinDeadlineExceeded.sentence(), kept(draft));
    let (type_, state) = (OperationType::Create, OperationState::Failed);
    draft.operation_with(type_, state, &message, Some("DeadlineExceeded"));
    draft.fail("JoinClusterTimeoutError", Reason::JoinDeadlineExceeded, &message);
}

fn make(draft: &mut Draft) {
    let heard = match circuit::turn(draft) {
        Turn::Wait => return circuit::wait(draft),
        Turn::Over(refused) => return refuse(draft, refused),
        Turn::Now => None,
        Turn::Free => draft.heard(Question::Create),
    };
    match heard {
        // The promise goes into the status, which is written before the step is taken.
        Some(Answer::Record { memory }) => {
            draft.remember(memory);
            draft.promise();
            ordered(draft);
            draft.step(Step::CreateServer { memory: memory.clone() });
        }
        Some(Answer::Waiting { memory, waits_for, .. }) => {
            draft.remember(memory);
            let message = format!("the cloud is at work: {waits_for}");
            under_way(draft, Reason::ServerWaiting, &message);
            draft.no_error();
        }
        Some(Answer::Created { memory, server }) => {
            draft.remember(memory);
            created(draft, server);
        }
        Some(Answer::Refused(refused)) => refuse(draft, refused),
        _ => {
            ordered(draft);
            let memory = draft.memory();
            draft.step(Step::CreateServer { memory });
            draft.say_nothing_yet();
        }
    }
}

fn ordered(draft: &mut Draft) {
    // A machine in trouble, or one that waits for a thing by name, stays so until the cloud gives another answer.
    let waits = draft.was(ConditionType::ServerReady, Reason::ServerWaiting);
    if draft.status.phase != Some(Phase::CrashLoopBackOff) && !waits {
        under_way(draft, Reason::ServerOrdered, "");
    }
}

fn under_way(draft: &mut Draft, why: Reason, message: &str) {
    draft.phase(Phase::Pending);
    draft.condition(ConditionType::ServerReady, ConditionStatus::False, why, message);
    draft.condition(ConditionType::Ready, ConditionStatus::False, why, message);
    let description = Reason::ServerOrdered.sentence();
    draft.operation(OperationType::Create, OperationState::Processing, description);
}

fn created(draft: &mut Draft, server: &Server) {
    draft.spec("providerID", server.provider_id.as_str().into());
    show(draft, server);
    draft.no_error();
    draft.condition(ConditionType::ServerReady, ConditionStatus::True, Reason::ServerRunning, "");
    if draft.seen.settings.joins { await_join(draft) } else { available(draft) }
}

/// Writes down what the cloud showed of a server.
pub fn show(draft: &mut Draft, server: &Server) {
    draft.status.provider_id = Some(server.provider_id.clone());
    draft.status.instance_name = Some(server.name.clone());
    let mut addresses: Vec<MachineAddress> = server
        .addresses
        .iter()
        .map(|(address, external)| MachineAddress {
            type_: if *external { "ExternalIP" } else { "InternalIP" }.to_owned(),
            address: address.to_string(),
        })
        .collect();
    addresses.sort_by_key(|address| address.type_ != "InternalIP");
    let first = |type_: &str| {
        let found = addresses.iter().find(|address| address.type_ == type_);
        found.map(|address| address.address.clone())
    };
    let (private_ip, public_ip) = (first("InternalIP"), first("ExternalIP"));
    // A Node's own word on its addresses is fresher.
    if draft.status.node_ref.is_none() {
        draft.status.addresses = addresses;
    }
    let (state, ready) = match &server.state {
        ServerState::Building => ("BUILD", false),
        ServerState::Running => ("ACTIVE", true),
        ServerState::Stopped => ("SHUTOFF", false),
        ServerState::Deleting => ("DELETING", false),
        ServerState::Failed(_) => ("ERROR", false),
    };
    let id = server.provider_id.rsplit('/').next().map(str::to_owned);
    let status = draft.status.provider_status.get_or_insert_default();
    status.provider_instance_state =
        Some(ProviderState { id, state: Some(state.to_owned()), ready: Some(ready) });
    status.private_ip = private_ip;
    status.public_ip = public_ip;
}

fn await_join(draft: &mut Draft) {
    if lost_since(draft).is_some() {
        // Gardener: it had a Node once, so it is Unknown; Ready says which Node.
        let description = Reason::NodeGone.sentence();
        draft.operation(OperationType::HealthCheck, OperationState::Processing, description);
        return draft.phase(Phase::Unknown);
    }
    draft.phase(Phase::Pending);
    let name = node::name_of(draft.seen.machine);
    let message = format!("node {name} has not registered yet");
    let type_ = ConditionType::NodeJoined;
    draft.condition(type_, ConditionStatus::False, Reason::NodeAwaited, &message);
    let (why, message) = birth::awaited(draft);
    draft.condition(ConditionType::Ready, ConditionStatus::False, why, &message);
    let description = "the server runs and is to become a node";
    draft.operation(OperationType::Create, OperationState::Processing, description);
}

/// Gardener: where no Node is awaited, a machine is Available as soon as its server runs.
fn available(draft: &mut Draft) {
    draft.phase(Phase::Available);
    let (ready, why) = (ConditionType::Ready, Reason::ServerRunning);
    if draft.condition(ready, ConditionStatus::True, why, "") {
        let id = draft.status.provider_id.clone().unwrap_or_default();
        draft.tell(why, format!("server {id} runs"));
    }
    let description = Reason::ServerRunning.sentence();
    draft.operation(OperationType::Create, OperationState::Successful, description);
}

/// The server was made; it is looked at now and then until its Node comes.
fn await_node(draft: &mut Draft) {
    match draft.heard(Question::Look) {
        Some(Answer::Seen(None)) => gone(draft),
        Some(Answer::Seen(Some(server)) | Answer::Created { server, .. }) => {
            show(draft, server);
            if let ServerState::Failed(message) = &server.state {
                let message = format!("the server failed: {message}{}", kept(draft));
                draft.operation(OperationType::Create, OperationState::Failed, &message);
                return draft.fail("CreateError", Reason::ServerFailed, &message);
            }
            let runs = server.state == ServerState::Running;
            let why = if runs { Reason::ServerRunning } else { Reason::ServerStopped };
            draft.condition(ConditionType::ServerReady, runs.into(), why, "");
            follow_server(draft, why);
        }
        Some(Answer::Refused(refused)) => {
            if draft.seen.settings.joins {
                await_join(draft);
            }
            draft.error("CreateError", &refused.message);
        }
        _ => {
            if draft.seen.settings.joins {
                await_join(draft);
                if lost_since(draft).is_none() {
                    // Somebody may have given it more time.
                    draft.step(Step::KeepToken { until: deadline(draft) });
                }
            }
            draft.step(Step::LookAtServer);
        }
    }
}

/// The server is there, and runs or does not.
fn follow_server(draft: &mut Draft, why: Reason) {
    let runs = why == Reason::ServerRunning;
    if !draft.seen.settings.joins {
        if runs {
            return available(draft);
        }
        draft.phase(Phase::Unknown);
        let (type_, state) = (OperationType::HealthCheck, OperationState::Processing);
        draft.operation(type_, state, why.sentence());
    } else if is_abandoned(draft) {
        return;
    } else {
        await_join(draft);
    }
    if !runs {
        draft.condition(ConditionType::Ready, ConditionStatus::False, why, "");
    }
}

/// MetaKube: a server deleted behind our back costs the machine, and its set makes another.
pub fn gone(draft: &mut Draft) {
    let why = Reason::ServerGone;
    draft.condition(ConditionType::ServerReady, ConditionStatus::False, why, "");
    draft.condition(ConditionType::Ready, ConditionStatus::False, why, "");
    draft.warn(why, why.sentence().to_owned());
    draft.step(Step::DeleteMachine { why });
}

fn refuse(draft: &mut Draft, refused: &Refused) {
    let message = refused.message.as_str();
    let (type_, state) = (OperationType::Create, OperationState::Failed);
    draft.operation_with(type_, state, message, Some(&refused.code));
    circuit::told(draft);
    let server = ConditionType::ServerReady;
    let is_new = draft.condition(server, ConditionStatus::False, refused.why, message);
    if refused.why == Reason::ServerFailed {
        let message = format!("{message}{}", kept(draft));
        return draft.fail("CreateError", refused.why, &message);
    }
    draft.phase(Phase::CrashLoopBackOff);
    draft.error("CreateError", message);
    draft.condition(ConditionType::Ready, ConditionStatus::False, refused.why, message);
    if is_new {
        draft.warn(refused.why, message.to_owned());
    }
}
