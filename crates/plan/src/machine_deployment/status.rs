//! What a deployment's status says of its sets.

use super::Observed;
use super::family::{Family, Member};
use super::rollout::Bounds;
use crate::machine_set::with_trouble;
use crate::reason::Reason;
use drover_api::{
    Condition, ConditionStatus, ConditionType, MachineDeploymentStatus, MachineSetStatus,
    find_condition, labels, set_condition,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// A status, and what follows from it for this pass.
pub(super) struct Progress {
    pub status: MachineDeploymentStatus,
    /// Every machine is of the present template and available.
    pub is_complete: bool,
    /// When the rollout will have made no progress for too long.
    pub deadline: Option<Timestamp>,
}

pub(super) fn status(
    seen: &Observed,
    bounds: &Bounds,
    family: &Family,
    is_created: bool,
) -> Progress {
    let past = seen.deployment.status.clone().unwrap_or_default();
    let sum = |field: &dyn Fn(&MachineSetStatus) -> u32| -> u32 {
        family.members.iter().filter_map(|m| m.set.status.as_ref()).map(field).sum()
    };
    let asked: u32 = family.members.iter().map(|member| member.set.spec.replicas).sum();
    let available = sum(&|status| status.available_replicas);
    let failed = family.members.iter().filter_map(|m| m.set.status.as_ref());
    let mut status = MachineDeploymentStatus {
        observed_generation: seen.deployment.metadata.generation,
        replicas: sum(&|status| status.replicas),
        updated_replicas: family.new_set().map(Member::replicas).unwrap_or_default(),
        ready_replicas: sum(&|status| status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: asked.saturating_sub(available),
        selector: seen.deployment.spec.selector.to_string(),
        failed_machines: failed.flat_map(|status| status.failed_machines.clone()).collect(),
        ..past.clone()
    };
    status.failed_machines.truncate(crate::machine_set::FAILED_MACHINES_MAX);

    let is_complete = is_complete(bounds, &status, family);
    let mut progressing = progressing(seen, &past, &status, is_complete, is_created);
    let trouble = trouble(family);
    if progressing.reason != Reason::NewMachineSetAvailable.as_str() {
        progressing.message = with_trouble(progressing.message, trouble);
    }
    let deadline = deadline(seen, &progressing);
    let now = Time(seen.now);
    let mut available = availability(bounds, &status);
    if available.status != ConditionStatus::True {
        available.message = with_trouble(available.message, trouble);
    }
    set_condition(&mut status.conditions, available, &now);
    set_condition(&mut status.conditions, progressing, &now);
    let failure = failure(seen, family);
    keep(&mut status.conditions, ConditionType::ReplicaFailure, failure, &now);
    keep(&mut status.conditions, ConditionType::CircuitOpen, circuit(family), &now);
    let paused = seen.deployment.spec.paused.then(|| {
        condition(ConditionType::Paused, ConditionStatus::True, Reason::DeploymentPaused, "")
    });
    keep(&mut status.conditions, ConditionType::Paused, paused, &now);
    keep(&mut status.conditions, ConditionType::AutoscalerBounds, bad_bounds(seen), &now);
    Progress { status, is_complete, deadline }
}

/// What is the matter with a machine of a set, of the present template first.
fn trouble<'a>(family: &'a Family) -> Option<&'a str> {
    let sets = family.new_set().into_iter().chain(family.old());
    sets.filter_map(|member| member.set.status.as_ref()?.error_message.as_deref()).next()
}

fn condition(kind: ConditionType, status: ConditionStatus, why: Reason, text: &str) -> Condition {
    let message = if text.is_empty() { why.sentence() } else { text };
    Condition {
        type_: kind.as_str().to_owned(),
        status,
        reason: why.as_str().to_owned(),
        message: message.to_owned(),
        ..Condition::default()
    }
}

/// Sets a condition that is only there while there is something to say.
fn keep(all: &mut Vec<Condition>, kind: ConditionType, next: Option<Condition>, now: &Time) {
    match next {
        Some(next) => set_condition(all, next, now),
        None => all.retain(|condition| condition.type_ != kind.as_str()),
    }
}

fn is_complete(bounds: &Bounds, status: &MachineDeploymentStatus, family: &Family) -> bool {
    let Some(new) = family.new_set() else { return false };
    let counts = [status.updated_replicas, status.replicas, status.available_replicas];
    new.is_observed()
        && new.set.spec.replicas == bounds.replicas
        && family.old().all(|member| member.set.spec.replicas == 0)
        && counts.into_iter().all(|count| count == bounds.replicas)
}

fn availability(bounds: &Bounds, status: &MachineDeploymentStatus) -> Condition {
    let (available, fewest) = (status.available_replicas, bounds.fewest_available());
    let enough = available >= fewest;
    let why =
        if enough { Reason::MinimumReplicasAvailable } else { Reason::MinimumReplicasUnavailable };
    let text =
        format!("{available} of {} machines are available, {fewest} must be", bounds.replicas);
    condition(ConditionType::Available, enough.into(), why, &text)
}

/// Whether the rollout moves. The time of the last step forward is kept in `lastUpdateTime`.
fn progressing(
    seen: &Observed,
    past: &MachineDeploymentStatus,
    status: &MachineDeploymentStatus,
    is_complete: bool,
    is_created: bool,
) -> Condition {
    let before = find_condition(&past.conditions, ConditionType::Progressing);
    let was = |why: Reason| before.is_some_and(|condition| condition.reason == why.as_str());
    let (holds, why) = if seen.deployment.spec.paused {
        (ConditionStatus::Unknown, Reason::DeploymentPaused)
    } else if is_created {
        (ConditionStatus::True, Reason::NewMachineSetCreated)
    } else if is_complete || (was(Reason::NewMachineSetAvailable) && is_one_template(status)) {
        // Kubernetes: a machine that breaks after the rollout does not begin it again.
        (ConditionStatus::True, Reason::NewMachineSetAvailable)
    } else if !is_step_forward(past, status) && is_overdue(seen, before) {
        (ConditionStatus::False, Reason::ProgressDeadlineExceeded)
    } else {
        (ConditionStatus::True, Reason::RolloutProgressing)
    };
    let text = match why {
        Reason::NewMachineSetAvailable | Reason::DeploymentPaused => String::new(),
        Reason::RolloutProgressing if is_one_template(status) => format!(
            "the machines of the present template come up: {} of {} are available",
            status.available_replicas, status.replicas
        ),
        _ => format!(
            "{}: {} of {} machines are of the present template",
            why.sentence(),
            status.updated_replicas,
            status.replicas
        ),
    };
    let mut next = condition(ConditionType::Progressing, holds, why, &text);
    let moved = why == Reason::RolloutProgressing && is_step_forward(past, status);
    next.last_update_time = match before {
        Some(before) if why == Reason::ProgressDeadlineExceeded => before.last_update_time.clone(),
        Some(before) if was(why) && !moved => before.last_update_time.clone(),
        // A created set and one that grows are one rollout: the clock runs on.
        Some(before) if was(Reason::NewMachineSetCreated) && !moved && !is_complete => {
            before.last_update_time.clone()
        }
        _ => Some(Time(seen.now)),
    };
    next
}

fn is_one_template(status: &MachineDeploymentStatus) -> bool {
    status.updated_replicas == status.replicas
}

fn is_step_forward(past: &MachineDeploymentStatus, status: &MachineDeploymentStatus) -> bool {
    let old =
        |status: &MachineDeploymentStatus| status.replicas.saturating_sub(status.updated_replicas);
    status.updated_replicas > past.updated_replicas
        || old(status) < old(past)
        || status.ready_replicas > past.ready_replicas
        || status.available_replicas > past.available_replicas
}

fn is_overdue(seen: &Observed, before: Option<&Condition>) -> bool {
    before.and_then(|condition| due(seen, condition)).is_some_and(|due| due <= seen.now)
}

fn due(seen: &Observed, condition: &Condition) -> Option<Timestamp> {
    let runs = [
        Reason::RolloutProgressing,
        Reason::NewMachineSetCreated,
        Reason::ProgressDeadlineExceeded,
    ];
    let counts = runs.iter().any(|why| condition.reason == why.as_str());
    let since = condition.last_update_time.as_ref().filter(|_| counts)?.0;
    let seconds = SignedDuration::from_secs(seen.deployment.spec.progress_deadline_seconds.into());
    since.saturating_add(seconds).ok()
}

fn deadline(seen: &Observed, progressing: &Condition) -> Option<Timestamp> {
    due(seen, progressing).filter(|due| *due > seen.now)
}

fn failure(seen: &Observed, family: &Family) -> Option<Condition> {
    let of_sets = family.members.iter().find_map(|member| {
        let conditions = &member.set.status.as_ref()?.conditions;
        let failure = find_condition(conditions, ConditionType::ReplicaFailure)?;
        Some(format!("set {:?}: {}", member.name(), failure.message))
    });
    let kind = ConditionType::ReplicaFailure;
    if !super::is_sound(seen) {
        return Some(condition(kind, ConditionStatus::True, Reason::SelectorMismatch, ""));
    }
    let text = seen.trouble.map(str::to_owned).or(of_sets)?;
    Some(condition(kind, ConditionStatus::True, Reason::ReplicaFailure, &text))
}

/// The set whose circuit is open, if there is one.
fn circuit(family: &Family) -> Option<Condition> {
    family.members.iter().find_map(|member| {
        let conditions = &member.set.status.as_ref()?.conditions;
        let open = find_condition(conditions, ConditionType::CircuitOpen)?;
        let message = format!("set {:?}: {}", member.name(), open.message);
        Some(Condition { message, last_transition_time: None, ..open.clone() })
    })
}

/// What is wrong with the autoscaler's bounds; a schema cannot see annotations.
fn bad_bounds(seen: &Observed) -> Option<Condition> {
    let bound = |key: &str| -> Option<Result<u32, String>> {
        let text = seen.deployment.annotations().get(key)?;
        let wrong = |_| format!("annotation {key:?}: {text:?} is no number of machines");
        Some(text.parse::<u32>().map_err(wrong))
    };
    let text = match (bound(labels::AUTOSCALER_MIN), bound(labels::AUTOSCALER_MAX)) {
        (Some(Err(wrong)), _) | (_, Some(Err(wrong))) => wrong,
        (Some(Ok(min)), Some(Ok(max))) if min > max => {
            let (least, most) = (labels::AUTOSCALER_MIN, labels::AUTOSCALER_MAX);
            format!("annotation {least:?}: {min} is above {max} of annotation {most:?}")
        }
        (Some(Ok(_)), None) => format!("annotation {:?} is missing", labels::AUTOSCALER_MAX),
        (None, Some(Ok(_))) => format!("annotation {:?} is missing", labels::AUTOSCALER_MIN),
        _ => return None,
    };
    let kind = ConditionType::AutoscalerBounds;
    Some(condition(kind, ConditionStatus::False, Reason::AutoscalerBoundsInvalid, &text))
}
