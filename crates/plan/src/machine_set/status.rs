//! What a set's status says of its machines.

use super::Observed;
use super::choice::View;
use super::circuit::Circuit;
use crate::reason::Reason;
use drover_api::{
    Condition, ConditionStatus, ConditionType, FailedMachine, MachineSetStatus, set_condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// The names the set has given and will give.
pub(super) struct Names {
    pub minted: u64,
    pub promised: Vec<String>,
}

pub(super) fn status(
    seen: &Observed,
    staying: &[View],
    names: Names,
    circuit: Circuit,
) -> MachineSetStatus {
    let past = seen.set.status.clone().unwrap_or_default();
    let count = |holds: &dyn Fn(&View) -> bool| {
        u32::try_from(staying.iter().filter(|view| holds(view)).count()).unwrap_or(u32::MAX)
    };
    let wanted = &seen.set.spec.template.metadata.labels;
    let is_labeled = |view: &View| {
        let labels = view.machine.labels();
        wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let trouble = first_trouble(staying);
    let mut status = MachineSetStatus {
        error_reason: trouble.as_ref().map(|(reason, _)| reason.clone()),
        error_message: trouble.map(|(_, message)| message),
        replicas: count(&|_| true),
        fully_labeled_replicas: count(&is_labeled),
        ready_replicas: count(&|view| view.available_at.is_some()),
        available_replicas: count(&|view| view.is_available()),
        observed_generation: seen.set.metadata.generation,
        selector: seen.set.spec.selector.to_string(),
        minted: names.minted,
        promised: names.promised,
        failed_machines: failed_machines(staying),
        circuit: circuit.status,
        ..past
    };
    let (available, replicas) = (status.available_replicas, seen.set.spec.replicas);
    let enough = available >= replicas;
    let next = Condition {
        type_: ConditionType::Available.as_str().to_owned(),
        status: enough.into(),
        reason: availability(enough).as_str().to_owned(),
        message: with_trouble(
            format!("{available} of {replicas} machines are available"),
            status.error_message.as_deref(),
        ),
        ..Condition::default()
    };
    let now = Time(seen.now);
    set_condition(&mut status.conditions, next, &now);
    let trouble = seen.trouble.map(|trouble| failure(Reason::ReplicaFailure, trouble));
    for (type_, next) in
        [(ConditionType::ReplicaFailure, trouble), (ConditionType::CircuitOpen, circuit.condition)]
    {
        match next {
            Some(next) => set_condition(&mut status.conditions, next, &now),
            None => status.conditions.retain(|condition| condition.type_ != type_.as_str()),
        }
    }
    status
}

/// What is the matter with the first machine by name that has an error and is not available.
fn first_trouble(staying: &[View]) -> Option<(String, String)> {
    let troubled = staying.iter().filter(|view| !view.is_available()).filter_map(|view| {
        let status = view.machine.status.as_ref()?;
        let reason = status.error_reason.clone().unwrap_or_default();
        Some((view.name, reason, status.error_message.as_ref()?))
    });
    let (name, reason, message) = troubled.min_by_key(|(name, ..)| *name)?;
    Some((reason, format!("machine {name}: {message}")))
}

/// A sentence, and what stands in the way of a better one.
pub(crate) fn with_trouble(text: String, trouble: Option<&str>) -> String {
    trouble.map_or_else(|| text.clone(), |trouble| format!("{text}; {trouble}"))
}

fn failed_machines(staying: &[View]) -> Vec<FailedMachine> {
    let mut failed: Vec<&View> = staying.iter().filter(|view| view.is_failed).collect();
    failed.sort_by_key(|view| view.name);
    let failed = failed.into_iter().take(super::FAILED_MACHINES_MAX).map(|view| FailedMachine {
        name: view.name.to_owned(),
        provider_id: view.machine.spec.provider_id.clone(),
        last_operation: view.machine.status.as_ref().and_then(|it| it.last_operation.clone()),
        owner_ref: view.machine.owner_references().first().cloned(),
    });
    failed.collect()
}

fn availability(enough: bool) -> Reason {
    if enough { Reason::MinimumReplicasAvailable } else { Reason::MinimumReplicasUnavailable }
}

/// The status of a set whose selector does not match its own template.
pub(super) fn misfit(seen: &Observed) -> MachineSetStatus {
    let past = seen.set.status.clone().unwrap_or_default();
    let mut status = MachineSetStatus { observed_generation: seen.set.metadata.generation, ..past };
    let why = Reason::SelectorMismatch;
    set_condition(&mut status.conditions, failure(why, why.sentence()), &Time(seen.now));
    status
}

fn failure(why: Reason, trouble: &str) -> Condition {
    Condition {
        type_: ConditionType::ReplicaFailure.as_str().to_owned(),
        status: ConditionStatus::True,
        reason: why.as_str().to_owned(),
        message: trouble.to_owned(),
        ..Condition::default()
    }
}
