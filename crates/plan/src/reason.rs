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
    MachineReleased => "the set's selector no longer matches the machine",
    MinimumReplicasAvailable => "enough machines are available",
    MinimumReplicasUnavailable => "too few machines are available",
    ReplicaFailure => "machines cannot be made or deleted",
    SelectorMismatch => "the selector does not match the template's labels",

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
    DeploymentResumed => "the deployment is no longer paused",
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
}
