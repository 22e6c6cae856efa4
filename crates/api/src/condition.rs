//! Conditions: what was seen of an object, with a reason and the time it last changed.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known about a condition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell at present.
    #[default]
    Unknown,
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The conditions Drover writes, by kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Machine: the description was understood and its references resolve.
    Configured,
    /// Machine: the cloud has its ports. From here on one for each step of a birth, in MetaKube's order;
    /// a step that was not reached has none.
    PortsReady,
    /// Machine: the cloud has the server.
    ServerCreated,
    /// Machine, only where one is ordered: the cloud has the floating IP.
    FloatingIpReady,
    /// Machine: the server runs and has all that was ordered.
    ServerReady,
    /// Machine: its kubelet asked for a certificate.
    Booted,
    /// Machine: its kubelet has the certificate of its Node.
    CertificateIssued,
    /// Machine: a Node registered for it.
    NodeJoined,
    /// Machine: the cloud controller manager told the Node its addresses.
    AddressesKnown,
    /// Machine: the pods that a Node cannot do without are Ready.
    CriticalPodsReady,
    /// Machine: its Node is Ready and its startup taint is gone. MetaKube's name. Its message says in one
    /// phrase what the machine waits for.
    Ready,
    /// Machine, only while it is deleted: the pods are off the node.
    Drained,
    /// Machine, only while it is deleted: the volumes are off the node.
    VolumesDetached,
    /// Machine, only while it is deleted: nothing of it is left in the cloud.
    ServerDeleted,
    /// MachineDeployment and MachineSet: enough machines are available.
    Available,
    /// MachineDeployment: the rollout moves or is complete.
    Progressing,
    /// MachineDeployment and MachineSet: machines cannot be made or deleted.
    ReplicaFailure,
    /// MachineDeployment: it is paused.
    Paused,
    /// MachineDeployment: the autoscaler's bounds in the annotations can be used.
    AutoscalerBounds,
    /// MachineDeployment and MachineSet: new machines failed again and again, and the pool waits before it tries more.
    CircuitOpen,
    /// MachineDeployment and MachineSet: nothing is made until too many machines are gone.
    Frozen,
}

impl ConditionType {
    /// Those of a Machine, in the order of its life.
    pub const OF_MACHINE: &[Self] = &[
        Self::Configured,
        Self::PortsReady,
        Self::ServerCreated,
        Self::FloatingIpReady,
        Self::ServerReady,
        Self::Booted,
        Self::CertificateIssued,
        Self::NodeJoined,
        Self::AddressesKnown,
        Self::CriticalPodsReady,
        Self::Ready,
        Self::Drained,
        Self::VolumesDetached,
        Self::ServerDeleted,
    ];

    /// As it is written in `status.conditions[].type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "Configured",
            Self::PortsReady => "PortsReady",
            Self::ServerCreated => "ServerCreated",
            Self::FloatingIpReady => "FloatingIPReady",
            Self::ServerReady => "ServerReady",
            Self::Booted => "Booted",
            Self::CertificateIssued => "CertificateIssued",
            Self::NodeJoined => "NodeJoined",
            Self::AddressesKnown => "AddressesKnown",
            Self::CriticalPodsReady => "CriticalPodsReady",
            Self::Ready => "Ready",
            Self::Drained => "Drained",
            Self::VolumesDetached => "VolumesDetached",
            Self::ServerDeleted => "ServerDeleted",
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::ReplicaFailure => "ReplicaFailure",
            Self::Paused => "Paused",
            Self::AutoscalerBounds => "AutoscalerBounds",
            Self::CircuitOpen => "CircuitOpen",
            Self::Frozen => "Frozen",
        }
    }
}

/// One thing that was seen of an object. A superset of Kubernetes' `metav1.Condition` and of the node
/// conditions that MetaKube and Gardener's machine-controller-manager write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Whether it holds: True, False or Unknown.
    pub status: ConditionStatus,
    /// Why, in one CamelCase word of Drover's vocabulary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Why, in a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,
    /// When a node condition was last confirmed; Drover does not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_heartbeat_time: Option<Time>,
    /// When anything of this condition last changed. Progressing counts its deadline from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_update_time: Option<Time>,
    /// The `metadata.generation` that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The condition of a type.
#[must_use]
pub fn find_condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Puts `next` in the place of the condition of its type, or at the end. `now` becomes its transition
/// time only when its status differs from the one before, as Kubernetes demands; an equal condition
/// stays as it is.
pub fn set_condition(conditions: &mut Vec<Condition>, mut next: Condition, now: &Time) {
    match conditions.iter_mut().find(|condition| condition.type_ == next.type_) {
        Some(old) => {
            let same = old.status == next.status;
            next.last_transition_time =
                if same { old.last_transition_time.clone() } else { Some(now.clone()) };
            next.last_heartbeat_time = next.last_heartbeat_time.or(old.last_heartbeat_time.clone());
            *old = next;
        }
        None => {
            next.last_transition_time = Some(now.clone());
            conditions.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn ready(status: ConditionStatus, reason: &str) -> Condition {
        Condition {
            type_: ConditionType::Ready.as_str().into(),
            status,
            reason: reason.into(),
            ..Condition::default()
        }
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut seen = vec![];
        set_condition(&mut seen, ready(ConditionStatus::False, "Joining"), &at(1));
        set_condition(&mut seen, ready(ConditionStatus::False, "NotReady"), &at(2));
        assert_eq!(
            (seen[0].reason.as_str(), &seen[0].last_transition_time),
            ("NotReady", &Some(at(1)))
        );
        set_condition(&mut seen, ready(ConditionStatus::True, "NodeReady"), &at(3));
        assert_eq!(seen[0].last_transition_time, Some(at(3)));
        assert_eq!(seen.len(), 1);
    }
}
