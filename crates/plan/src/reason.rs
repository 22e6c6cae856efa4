//! The one vocabulary of reasons: the words of conditions, Events, metrics, the CLI and golden tests.

use jiff::Timestamp;
use std::time::Duration;

/// Declares each reason once, with the sentence that explains it to a person.
macro_rules! reasons {
    ($($name:ident => $sentence:literal,)*) => {
        /// Why something was done, or is waited for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $sentence] $name,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As it is written in conditions and Events.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// What it means.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

reasons! {
    // MachineSet
    MachineMissing => "the set has fewer machines than replicas",
    MachineSurplus => "the set has more machines than replicas",
    MachineFailed => "the machine failed and is replaced",
    MachineAdopted => "the set's selector matches a machine that nobody controlled",
    MachineFollows => "the machine takes over what it can of its template",
    MachineReleased => "the set's selector no longer matches the machine",
    MinimumReplicasAvailable => "enough machines are available",
    MinimumReplicasUnavailable => "too few machines are available",
    ReplicaFailure => "machines cannot be made or deleted",
    SelectorMismatch => "the selector does not match the template's labels",

    CircuitOpened => "new machines failed again and again; the pool waits before it tries more",
    CircuitClosed => "the pool makes new machines again",

    // Machine: making the server
    CircuitOpen => "the pool asks the cloud for no new server now",
    DescriptionUnderstood => "the description of the server can be used",
    VersionSkew => "the kubelet's version does not go with the API server's",
    LabelNotAllowed => "the cluster does not allow a label of the node",
    DescriptionInvalid => "the description of the server cannot be used",
    ServerOrdered => "the server is being made",
    ServerWaiting => "the cloud is at work",
    PortsMade => "the cloud has the ports",
    ServerMade => "the cloud has the server",
    FloatingIpMade => "the cloud has the floating IP",
    FloatingIpAwaited => "the server has no floating IP yet",
    ServerRunning => "the server runs and has all that was ordered",
    ServerStopped => "the server does not run",
    ServerFailed => "the server failed to come up",
    ServerGone => "the cloud has no server of this machine any more",
    CredentialsRefused => "the cloud refused the credentials",
    CredentialsMissing => "the credentials of the machine cannot be read",
    CloudForbids => "the credentials do not suffice",
    DescriptionRefused => "the cloud cannot fulfil the description",
    QuotaExceeded => "a quota of the project is used up",
    CapacityExhausted => "the cloud has no room",
    CloudConflict => "the cloud's objects changed under our hands",
    CloudUnavailable => "the cloud says that it cannot just now",
    CloudSilent => "the cloud did not answer in time",
    WriteRefused => "the API server refused a write",

    // Machine: its node
    BootAwaited => "the server boots; its kubelet has not asked for a certificate yet",
    KubeletStarted => "the kubelet runs",
    CertificateAwaited => "the kubelet's certificate request is not decided yet",
    CertificateDenied => "the kubelet's certificate request was denied",
    CertificateIssued => "the kubelet has its certificate",
    NodeAwaited => "the server has not become a node yet",
    NodeJoined => "the node registered",
    NodeReady => "the node is ready",
    NodeNotReady => "the node is not ready",
    NodeUnhealthy => "the node says that it is ill",
    NodeGone => "the node was deleted",
    NodeUninitialized => "the cloud controller manager has not seen the node yet",
    AddressesKnown => "the cloud controller manager told the node its addresses",
    CriticalPodsAwaited => "the node's critical pods are not ready yet",
    CriticalPodsReady => "the node's critical pods are ready",
    StartupTaintRemoved => "the node is ready for ordinary pods",
    NodeSynced => "the node follows its machine in labels, annotations and taints",
    JoinDeadlineExceeded => "the server did not become a node in time",
    HealthDeadlineExceeded => "the node was not ready for too long",

    // Machine: its end
    DeletionBegun => "the machine is being deleted",
    DeletionRequested => "the machine's description asks for its deletion",
    Maintenance => "the machine's description asks for maintenance",
    MaintenanceEnded => "the maintenance is over, or the deletion was withdrawn",
    NodeCordoned => "no new pods may come to the node",
    PodsLeaving => "pods are leaving the node",
    PodsBlocked => "disruption budgets keep pods on the node",
    BudgetUnsatisfiable => "a disruption budget can never be satisfied, so a pod stays until the drain's deadline; change the budget",
    VolumesMoving => "volumes are on their way to another node",
    VolumeLate => "a volume took too long to move",
    NodeUnreachable => "the node does not answer; it is given some minutes to come back",
    HookAwaited => "somebody asked to wait; the machine's annotations say who",
    DrainDeadlineExceeded => "the drain took too long, pods are deleted without regard for budgets",
    DrainSkipped => "the drain is skipped",
    NodeDrained => "all pods that can leave have left the node",
    VolumesAttached => "volumes are still attached to the node",
    VolumesDetached => "no volume is attached to the node",
    DetachDeadlineExceeded => "volumes did not detach in time",
    ServerDeleting => "the cloud is deleting the server",
    ServerDeleted => "nothing of the machine is left in the cloud",
    VolumeOrphaned => "the server that a volume is attached to is gone",
    LeftBehind => "the machine was let go although not everything of it is known to be gone",
    MachineUnheld => "nothing holds the machine any more",

    // Drain
    PodDaemon => "the pod belongs to a DaemonSet, which would bring it back",
    PodMirror => "the pod is run by the kubelet from a file",
    PodFinished => "the pod has finished",
    PodTerminating => "the pod is terminating",
    PodEvicted => "the pod is asked to leave",
    PodProtected => "a disruption budget allows no disruption now",
    PodUnmovable => "a disruption budget will never allow a disruption",
    PodInLine => "the pod has a volume and waits for another pod's to move",
    PodOfLaterTier => "the pod is critical and leaves after all others",
    PodBereaved => "the server of the pod is gone",
    PodRefused => "the API server refused the eviction",
    PodOverdue => "the pod is deleted because the drain took too long",

    // MachineDeployment
    NewMachineSetCreated => "no set has the present template",
    NewMachineSetGrows => "the set of the present template takes over",
    NewMachineSetShrinks => "the deployment wants fewer machines",
    OldMachineSetShrinks => "the machines of an earlier template are replaced",
    MachineSetScaled => "the deployment wants another number of machines",
    MachineSetUpdated => "the set follows its deployment",
    MachineSetAdopted => "the deployment's selector matches a set that nobody controlled",
    HistoryLimitReached => "more empty sets are kept than revisionHistoryLimit allows",
    NewMachineSetAvailable => "all machines are of the present template and available",
    RolloutProgressing => "machines of an earlier template are being replaced",
    ProgressDeadlineExceeded => "the rollout made no progress for progressDeadlineSeconds",
    DeploymentPaused => "the deployment is paused",
    RolledBack => "the template was set back to an earlier revision",
    RollbackRevisionNotFound => "no set has the revision to go back to",
    AutoscalerBoundsInvalid => "the autoscaler's bounds in the annotations cannot be used",
}

/// When an object is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// When anything of it changes.
    OnChange,
    /// Then, or when anything of it changes.
    After(Duration),
}

impl Wake {
    /// At a point in time, when there is one; the past is now.
    #[must_use]
    pub fn at(time: Option<Timestamp>, now: Timestamp) -> Self {
        let Some(time) = time else { return Self::OnChange };
        Self::After(Duration::try_from(time.duration_since(now)).unwrap_or_default())
    }

    /// The sooner of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::OnChange, wake) | (wake, Self::OnChange) => wake,
        }
    }
}
