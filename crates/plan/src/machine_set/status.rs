//! What a set's status says of its machines.

use super::Observed;
use super::choice::View;
use crate::reason::Reason;
use drover_api::{Condition, ConditionStatus, ConditionType, MachineSetStatus, set_condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// The names the set has given and will give.
pub(super) struct Names {
    pub minted: u64,
    pub promised: Vec<String>,
}

pub(super) fn status(seen: &Observed, staying: &[View], names: Names) -> MachineSetStatus {
    let past = seen.set.status.clone().unwrap_or_default();
    let count = |holds: &dyn Fn(&View) -> bool| {
        u32::try_from(staying.iter().filter(|view| holds(view)).count()).unwrap_or(u32::MAX)
    };
    let wanted = &seen.set.spec.template.metadata.labels;
    let is_labeled = |view: &View| {
        let labels = view.machine.labels();
        wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let mut status = MachineSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: count(&is_labeled),
        ready_replicas: count(&|view| view.available_at.is_some()),
        available_replicas: count(&|view| view.is_available()),
        observed_generation: seen.set.metadata.generation,
        selector: seen.set.spec.selector.to_string(),
        minted: names.minted,
        promised: names.promised,
        ..past
    };
    let (available, replicas) = (status.available_replicas, seen.set.spec.replicas);
    let enough = available >= replicas;
    let next = Condition {
        type_: ConditionType::Available.as_str().to_owned(),
        status: enough.into(),
        reason: availability(enough).as_str().to_owned(),
        message: format!("{available} of {replicas} machines are available"),
        ..Condition::default()
    };
    let now = Time(seen.now);
    set_condition(&mut status.conditions, next, &now);
    match seen.trouble {
        Some(trouble) => set_condition(&mut status.conditions, failure(trouble), &now),
        None => {
            let failure = ConditionType::ReplicaFailure.as_str();
            status.conditions.retain(|condition| condition.type_ != failure);
        }
    }
    status
}

fn availability(enough: bool) -> Reason {
    if enough { Reason::MinimumReplicasAvailable } else { Reason::MinimumReplicasUnavailable }
}

fn failure(trouble: &str) -> Condition {
    Condition {
        type_: ConditionType::ReplicaFailure.as_str().to_owned(),
        status: ConditionStatus::True,
        reason: Reason::ReplicaFailure.as_str().to_owned(),
        message: trouble.to_owned(),
        ..Condition::default()
    }
}
