//! The description of a server, read strictly from each dialect into one form.

mod fields;
mod machine_class;
mod metakube;
mod mirantis;
mod server;
#[cfg(test)]
mod tests;

pub use fields::Resolved;
pub use server::{AdditionalVolume, NetworkParameters, RootVolume, ServerParameters};

use crate::{DeletionPolicy, MachineClass, MachineSpec, SecretReference};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// A server and its operating system, whatever the dialect it was described in.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerDescription {
    /// What the provider is told.
    pub server: ServerParameters,
    /// What runs on it.
    pub os: OperatingSystem,
    /// Keys that may log in, as lines of `authorized_keys`.
    pub ssh_keys: Vec<String>,
    /// The families of the node's addresses (MetaKube: `network.ipFamily`). Default: as the cloud likes.
    pub ip_family: Option<IpFamily>,
    /// What `/etc/kubernetes/cloud-config` of the node holds (MetaKube: `overwriteCloudConfig`).
    pub cloud_config: Option<SecretText>,
    /// Fields that were given and that nothing here acts on.
    pub without_effect: Vec<String>,
    /// Where the credentials for the cloud are.
    pub credentials: CredentialsSource,
    /// Where the user-data comes from.
    pub user_data: UserDataSource,
    /// The kubelet's version. Empty only when the user-data comes from a Secret.
    pub kubelet: Option<semver::Version>,
    /// Labels of the Node beside those of the Machine's spec (Mirantis: `nodeLabels`).
    pub node_labels: BTreeMap<String, String>,
    /// Resources that no kubelet reports and that the Node is to show (Gardener: `virtualCapacity`).
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// Mirantis: the machine is to be deleted; can be withdrawn while it is drained.
    pub delete: bool,
    /// Mirantis: the machine is to be cordoned and drained, and to stay.
    pub maintenance: bool,
    /// Mirantis: when the machine's turn comes in an upgrade; lower first.
    pub upgrade_index: Option<u32>,
}

/// What runs on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatingSystem {
    /// Ubuntu, set up with cloud-init.
    Ubuntu {
        /// Install all updates, and reboot if needed, at the first boot. Default: false.
        dist_upgrade_on_boot: bool,
    },
    /// Flatcar, set up with Ignition.
    Flatcar {
        /// Neither download nor apply updates. Default: false.
        disable_auto_update: bool,
        /// Do not reboot after updates. Default: false.
        disable_locksmith_d: bool,
        /// Do not download updates. Default: false.
        disable_update_engine: bool,
        /// What reads the user-data. Default: Ignition.
        provisioning: Provisioning,
    },
}

/// What reads the user-data on Flatcar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Ignition, in the initial RAM disk.
    #[default]
    Ignition,
    /// Flatcar's cloud-init, on each boot.
    CloudInit,
}

/// The families of a node's addresses; of two the first is the primary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both, IPv4 first.
    V4V6,
    /// Both, IPv6 first.
    V6V4,
}

/// A text that may hold a password. Does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where user-data comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UserDataSource {
    /// Drover renders it.
    #[default]
    Rendered,
    /// The key `userData` of a Secret (Gardener).
    Secret(SecretReference),
}

/// Where credentials are: whole Secrets, the later ones winning, and single values that win over them.
/// All empty: what the manager was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialsSource {
    /// Whole Secrets; those without a namespace are in the class'.
    pub secrets: Vec<SecretReference>,
    /// Single values by their name in the dialect, such as `identityEndpoint`.
    pub values: BTreeMap<String, CredentialValue>,
    /// MetaKube: whether what the manager was started with stands in for each value that is not named. Not for one
    /// that is named and cannot be found.
    pub are_completed: bool,
}

/// A value, or where to find it. Does not print the value.
#[derive(Clone, PartialEq, Eq)]
pub enum CredentialValue {
    /// The value.
    Inline(String),
    /// Where to find it.
    Reference(Reference),
}

impl fmt::Debug for CredentialValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("(inline)"),
            Self::Reference(reference) => write!(f, "({reference})"),
        }
    }
}

/// A key of a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Which of the two.
    pub kind: ReferenceKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key in its data.
    pub key: String,
}

/// What a reference points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ReferenceKind::Secret => "Secret",
            ReferenceKind::ConfigMap => "ConfigMap",
        };
        write!(f, "key {} of {kind} {}/{}", self.key, self.namespace, self.name)
    }
}

/// Why a description cannot be used. Names the field, the value and the way out, and never a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// A field that no dialect knows.
    #[error("{field}: unknown field; {way_out}")]
    Unknown {
        /// Its path.
        field: String,
        /// What it might have been meant to be.
        way_out: String,
    },
    /// A field that must be given.
    #[error("{field}: missing; {way_out}")]
    Missing {
        /// Its path.
        field: String,
        /// What to give.
        way_out: &'static str,
    },
    /// A value that the field cannot have.
    #[error("{field}: {value} cannot be used; {way_out}")]
    Invalid {
        /// Its path.
        field: String,
        /// The value, shortened.
        value: String,
        /// What to give.
        way_out: &'static str,
    },
    /// A value that the field cannot have and that may be secret.
    #[error("{field}: cannot be used; {way_out}")]
    Unusable {
        /// Its path.
        field: String,
        /// What to give.
        way_out: &'static str,
    },
    /// A reference to nothing.
    #[error("{field}: {reference} does not exist; create it")]
    Unresolved {
        /// The path of the field.
        field: String,
        /// Where it points.
        reference: Reference,
    },
    /// A class that does not exist.
    #[error("{field}: MachineClass {name} does not exist in the namespace; create it")]
    NoClass {
        /// The path of the reference.
        field: String,
        /// The class' name.
        name: String,
    },
}

const VALUE: &str = "spec.providerSpec.value";

/// The class that a spec refers to: where, and its name.
#[must_use]
pub fn class_reference(spec: &MachineSpec) -> Option<(&'static str, &str)> {
    let from = spec.provider_spec.value_from.as_ref().and_then(|from| from.machine_class.as_ref());
    from.map(|class| ("spec.providerSpec.valueFrom.machineClass", class.name.as_str()))
        .or_else(|| spec.class.as_ref().map(|class| ("spec.class", class.name.as_str())))
}

/// Reads the description of a server. `class` is what [`class_reference`] names, `resolved` what
/// is known of the references in it; those of credentials are not needed here.
///
/// # Errors
/// The first thing in it that cannot be used.
pub fn describe(
    spec: &MachineSpec,
    class: Option<&MachineClass>,
    resolved: &Resolved,
) -> Result<ServerDescription, DescriptionError> {
    check_class(spec)?;
    let mut description = match (&spec.provider_spec.value, class_reference(spec)) {
        (Some(_), Some((field, name))) => {
            let value = &Value::String(name.to_owned());
            let way_out = "give a class or spec.providerSpec.value, not both";
            return Err(fields::invalid(field, value, way_out));
        }
        (Some(value), None) if mirantis::is_meant(value) => mirantis::read(VALUE, value, resolved)?,
        (Some(value), None) => metakube::read(VALUE, value, resolved)?,
        (None, Some((field, name))) => match class {
            Some(class) => machine_class::read(class, resolved)?,
            None => {
                let (field, name) = (field.to_owned(), name.to_owned());
                return Err(DescriptionError::NoClass { field, name });
            }
        },
        (None, None) => {
            return Err(DescriptionError::Missing {
                field: VALUE.to_owned(),
                way_out: "describe the server there, or name a MachineClass in spec.class",
            });
        }
    };
    if description.user_data == UserDataSource::Rendered {
        description.kubelet = Some(kubelet_version(spec)?);
    }
    description.without_effect.extend(idle_fields(spec).map(|field| format!("spec.{field}")));
    Ok(description)
}

/// Fields of a spec that Gardener's and the early Cluster API's manifests may have.
fn idle_fields(spec: &MachineSpec) -> impl Iterator<Item = &'static str> {
    [
        ("versions.controlPlane", spec.versions.control_plane.is_some()),
        ("inPlaceUpdateTimeout", spec.in_place_update_timeout.is_some()),
        ("maxEvictRetries", spec.max_evict_retries.is_some()),
        ("machinePreserveTimeout", spec.machine_preserve_timeout.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, is_given)| is_given.then_some(field))
}

/// Whether what a spec calls its class is one: kind and provider, as far as they are given.
fn check_class(spec: &MachineSpec) -> Result<(), DescriptionError> {
    let own = spec.class.as_ref().map(|class| ("spec.class", Some(&class.kind), None));
    let from = spec.provider_spec.value_from.as_ref().and_then(|from| from.machine_class.as_ref());
    let from = from.map(|class| {
        let place = "spec.providerSpec.valueFrom.machineClass";
        (place, class.kind.as_ref(), class.provider.as_ref())
    });
    for (place, kind, provider) in own.into_iter().chain(from) {
        let wrong = |field: &str, value: &String, way_out| {
            let value = Value::String(value.clone());
            Err(fields::invalid(&format!("{place}.{field}"), &value, way_out))
        };
        if let Some(kind) = kind.filter(|kind| *kind != "MachineClass") {
            return wrong("kind", kind, "give MachineClass");
        }
        if let Some(provider) = provider.filter(|it| !it.eq_ignore_ascii_case("openstack")) {
            return wrong("provider", provider, "Drover drives OpenStack");
        }
    }
    Ok(())
}

/// Whether a machine is described in Mirantis' dialect, whose clients read `status.providerStatus`.
#[must_use]
pub fn is_mirantis(spec: &MachineSpec) -> bool {
    spec.provider_spec.value.as_ref().is_some_and(mirantis::is_meant)
}

/// With how much care a machine is to be deleted, as far as its spec says so: also when the rest of its
/// description cannot be read.
#[must_use]
pub fn policy_of(spec: &MachineSpec) -> Option<DeletionPolicy> {
    let said = spec.provider_spec.value.as_ref().and_then(|value| value.get("deletionPolicy"));
    let said = said.and_then(|policy| serde_json::from_value(policy.clone()).ok());
    spec.deletion_policy.or(said)
}

/// Where the credentials are, and in which region, also when the rest of the description cannot be read:
/// what is needed to delete by.
///
/// # Errors
/// When even that cannot be told.
pub fn credentials_of(
    spec: &MachineSpec,
    class: Option<&MachineClass>,
) -> Result<(CredentialsSource, Option<String>), DescriptionError> {
    match (&spec.provider_spec.value, class_reference(spec)) {
        (Some(value), _) if mirantis::is_meant(value) => Ok((CredentialsSource::default(), None)),
        (Some(value), _) => metakube::credentials_of(VALUE, value),
        (None, Some((field, name))) => match class {
            Some(class) => Ok(machine_class::credentials_of(class)),
            None => {
                let (field, name) = (field.to_owned(), name.to_owned());
                Err(DescriptionError::NoClass { field, name })
            }
        },
        (None, None) => Ok((CredentialsSource::default(), None)),
    }
}

fn kubelet_version(spec: &MachineSpec) -> Result<semver::Version, DescriptionError> {
    let field = "spec.versions.kubelet";
    let text = spec.versions.kubelet.as_str();
    if text.is_empty() {
        let way_out = "give the kubelet's version, such as 1.30.3";
        return Err(DescriptionError::Missing { field: field.to_owned(), way_out });
    }
    semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).map_err(|_| {
        fields::invalid(field, &Value::String(text.to_owned()), "give a version such as 1.30.3")
    })
}

/// The parts of a description that all dialects have in common.
fn described(server: ServerParameters, os: OperatingSystem) -> ServerDescription {
    ServerDescription {
        server,
        os,
        ssh_keys: vec![],
        ip_family: None,
        cloud_config: None,
        without_effect: vec![],
        credentials: CredentialsSource::default(),
        user_data: UserDataSource::default(),
        kubelet: None,
        node_labels: BTreeMap::new(),
        virtual_capacity: BTreeMap::new(),
        delete: false,
        maintenance: false,
        upgrade_index: None,
    }
}
