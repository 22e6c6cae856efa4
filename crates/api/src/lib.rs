//! The nouns of Drover: the kinds it serves, their schemas, and every name it writes.

#![warn(missing_docs)]

mod circuit;
mod class;
mod cluster;
mod condition;
mod crd;
mod deployment;
mod intstr;
pub mod labels;
mod machine;
mod machine_status;
mod meta;
mod provider_spec;
mod rules;
mod schema;
mod selector;
mod set;
mod time;

pub use circuit::CircuitStatus;
pub use class::{ClassNodeTemplate, MachineClass, SecretReference};
pub use cluster::{
    ApiEndpoint, CidrBlocks, Cluster, ClusterNetwork, ClusterProviderSpec, ClusterSpec,
    ClusterStatus,
};
pub use condition::{Condition, ConditionStatus, ConditionType, find_condition, set_condition};
pub use crd::crds;
pub use deployment::{
    FailedMachine, InPlace, InPlaceUpdate, MachineDeployment, MachineDeploymentSpec,
    MachineDeploymentStatus, Orchestration, RollbackTo, RollingUpdate, Strategy, StrategyType,
};
pub use intstr::IntOrPercent;
pub use machine::{
    ClassReference, ConfigSource, Machine, MachineClassRef, MachineSpec, NodeTemplate,
    NodeTemplateSpec, OnDrainTimeout, ProviderSpec, ProviderSpecSource, Versions,
};
pub use machine_status::{
    CurrentStatus, DeletionPolicy, DrainStatus, Hardware, LastOperation, MachineAddress,
    MachineStatus, MovingVolumes, OperationState, OperationType, Phase, ProviderCondition,
    ProviderState, ProviderStatus,
};
pub use meta::{MachineTemplate, TemplateMetadata};
pub use provider_spec::{
    AdditionalVolume, CredentialValue, CredentialsSource, DescriptionError, IpFamily,
    NetworkParameters, OperatingSystem, Provisioning, Reference, ReferenceKind, Resolved,
    RootVolume, SecretText, ServerDescription, ServerParameters, UserDataSource, class_reference,
    credentials_of, describe, is_mirantis, policy_of,
};
pub use selector::Selector;
pub use set::{DeletePolicy, MachineSet, MachineSetSpec, MachineSetStatus};
pub use time::GoDuration;

/// The API group of all kinds here.
pub const GROUP: &str = "cluster.k8s.io";
/// The one version of [`GROUP`] that is served.
pub const VERSION: &str = "v1alpha1";
