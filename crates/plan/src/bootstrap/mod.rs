//! User-data: the one document from which a fresh server becomes a node, rendered to bytes.
//!
//! There is no second stage. What the server is given is all it needs, so a server that booted with
//! it either joins or shows on its console why it did not.

mod cloud_init;
mod files;
mod flatcar_cloud_init;
mod ignition;
mod kubelet;
mod outside;
#[cfg(test)]
mod tests;
mod tuning;

pub use kubelet::{KubeletSettings, may_label_itself};
pub use outside::{Downloads, Outside, Proxy, Registry, checksums};

use drover_api::{IpFamily, Provisioning, SecretText};
use files::{File, Unit};
use ignition::Packing;
use k8s_openapi::api::core::v1::Taint;
use std::{collections::BTreeMap, net::IpAddr};

/// Nova: `user_data` holds at most 65,535 characters of base64.
pub const USER_DATA_BASE64_CHARS_MAX: usize = 65_535;

/// Linux: a host name has at most 64 bytes; Kubernetes: the value of the label
/// `kubernetes.io/hostname` has at most 63.
pub const MACHINE_NAME_CHARS_MAX: usize = 63;

/// The network plugins that every pod network builds on.
pub const CNI_PLUGINS_VERSION: &str = "1.9.1";

/// What the rendering of one machine's user-data depends on.
#[derive(Clone, Debug)]
pub struct Input {
    /// Becomes the host name and, on OpenStack, the name of the Node.
    pub machine_name: String,
    pub operating_system: OperatingSystem,
    /// Exact, such as `1.30.3`; a leading `v` is allowed.
    pub kubelet_version: String,
    /// Lines as in `authorized_keys`; blanks around them and repetitions are dropped.
    pub ssh_keys: Vec<String>,
    /// As nodes reach it, such as `https://api.example:6443`.
    pub api_server_url: String,
    /// One or more PEM certificates: all that the node trusts as its API server.
    pub cluster_ca_pem: String,
    pub token: BootstrapToken,
    /// Labels of the future Node. Those a kubelet may not give itself are left out here; see
    /// [`may_label_itself`].
    pub node_labels: BTreeMap<String, String>,
    /// Taints the Node registers with, the startup taint among them.
    pub taints: Vec<Taint>,
    /// The addresses of the cluster's name service.
    pub cluster_dns: Vec<IpAddr>,
    /// Usually `cluster.local`.
    pub cluster_domain: String,
    /// The kubelet leaves addresses, zone and instance type to a cloud controller manager.
    pub cloud_provider_external: bool,
    /// Which of its addresses the kubelet prefers, and whether the node forwards IPv6.
    pub ip_family: Option<IpFamily>,
    /// The content of `/etc/kubernetes/cloud-config`, for whoever reads it there.
    pub cloud_config: Option<SecretText>,
    pub kubelet: KubeletSettings,
    pub downloads: Downloads,
    pub outside: Outside,
}

/// What runs on the server before Drover does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatingSystem {
    /// Booted with cloud-init.
    Ubuntu {
        /// MetaKube: `distUpgradeOnBoot`.
        dist_upgrade: bool,
    },
    /// Booted with Ignition, or with a cloud-init of its own.
    Flatcar {
        /// MetaKube: `disableAutoUpdate`; neither updates nor reboots by itself.
        disable_auto_update: bool,
        /// MetaKube: `disableLocksmithD`; updates, but does not reboot by itself.
        disable_locksmith: bool,
        /// MetaKube: `disableUpdateEngine`.
        disable_update_engine: bool,
        /// MetaKube: `provisioningUtility`.
        provisioning: Provisioning,
    },
}

/// The credential with which a kubelet asks for its first certificate. It does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken(String);

impl BootstrapToken {
    /// Kubernetes: a bootstrap token is `[a-z0-9]{6}.[a-z0-9]{16}`.
    ///
    /// # Errors
    /// [`Error::Token`] when it has another form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let word = |part: &str, length| {
            part.len() == length
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match text.split_once('.') {
            Some((id, secret)) if word(id, 6) && word(secret, 16) => Ok(Self(text.to_owned())),
            _ => Err(Error::Token),
        }
    }

    fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.0.split('.').next().unwrap_or_default();
        write!(f, "BootstrapToken({id}.<secret>)")
    }
}

/// Why no user-data can be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "machine name {name:?} cannot be a host name; use at most {MACHINE_NAME_CHARS_MAX} \
         lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
    )]
    MachineName { name: String },
    #[error("kubelet version {version:?} is no exact version; write one such as \"1.30.3\"")]
    KubeletVersion { version: String, source: semver::Error },
    #[error("bootstrap token has not the form of six letters or digits, a dot and sixteen more")]
    Token,
    #[error("API server {url:?} is no https URL without blanks and quotes")]
    ApiServer { url: String },
    #[error("download location {url:?} is no https URL without blanks and quotes")]
    Download { url: String },
    #[error("the CA of downloads holds no PEM certificate; give at least one")]
    DownloadCa,
    #[error(
        "{line:?} is no checksum; write lines as sha256sum does: 64 hexadecimal digits, the path"
    )]
    Checksum { line: String },
    // The URL may hold a password.
    #[error(
        "the proxy is no http or https URL without blanks and quotes, or one of the hosts to be \
         reached without it has blanks or quotes"
    )]
    Proxy,
    #[error(
        "registry {host:?} or one of its mirrors cannot be used; write the registry as a host name, \
         with a port if need be, and its mirrors as http or https URLs"
    )]
    Registry { host: String },
    #[error("the cluster's CA holds no PEM certificate; give at least one")]
    ClusterCa,
    #[error("ssh key number {number} spans several lines; write each key as an entry of its own")]
    SshKey { number: usize },
    #[error(
        "node label {key:?} with value {value:?} is not valid in Kubernetes; in the metadata, the \
         nodeTemplate or the nodeLabels of the spec, write at most 63 letters, digits, '-', '_' and '.', the key \
         with a prefix and a slash before it if need be"
    )]
    Label { key: String, value: String },
    #[error(
        "taint {taint:?} is not valid in Kubernetes; in spec.taints or spec.nodeTemplate.spec.taints, write key, \
         value and effect as for a Node: NoSchedule, PreferNoSchedule or NoExecute"
    )]
    Taint { taint: String },
    #[error("annotation {key}: {value:?} cannot be used; give {way_out}")]
    KubeletAnnotation { key: String, value: String, way_out: &'static str },
    #[error("cluster domain {domain:?} is no DNS name")]
    ClusterDomain { domain: String },
    #[error(
        "user-data is {chars} characters in base64, {USER_DATA_BASE64_CHARS_MAX} are allowed; \
         its largest part is {part} with {part_bytes} bytes"
    )]
    TooBig { chars: usize, part: String, part_bytes: usize },
    #[error("{document} cannot be written down")]
    Serialise { document: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Renders the user-data of one machine. Equal input gives equal bytes.
///
/// # Errors
/// One of [`Error`], before anything is made of a value that could break out of its place.
pub fn render(input: &Input) -> Result<Vec<u8>, Error> {
    check(input)?;
    let keys = ssh_keys(&input.ssh_keys)?;
    let parts = Parts { files: files::files(input)?, units: files::units(input), keys };
    let bytes = parts.render(input, Packing::Each)?;
    if chars(&bytes) <= USER_DATA_BASE64_CHARS_MAX {
        return Ok(bytes);
    }
    let packed = parts.render(input, Packing::Whole)?;
    parts.check_size(&packed)?;
    Ok(packed)
}

/// How long bytes are in base64.
fn chars(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3) * 4
}

/// What both formats are made of.
struct Parts {
    files: Vec<File>,
    units: Vec<Unit>,
    keys: Vec<String>,
}

impl Parts {
    /// What can be read stays so as long as there is room for it.
    fn render(&self, input: &Input, packing: Packing) -> Result<Vec<u8>, Error> {
        let name = &input.machine_name;
        let config = match &input.operating_system {
            OperatingSystem::Ubuntu { dist_upgrade } => {
                cloud_init::render(name, self, *dist_upgrade)?
            }
            OperatingSystem::Flatcar { provisioning: Provisioning::Ignition, .. } => {
                return ignition::render(self, packing);
            }
            OperatingSystem::Flatcar { provisioning: Provisioning::CloudInit, .. } => {
                flatcar_cloud_init::render(name, self)?
            }
        };
        // cloud-init, and Flatcar's: user-data that is gzip is unpacked first.
        Ok(if packing == Packing::Whole { files::gzip(&config) } else { config })
    }

    fn check_size(&self, bytes: &[u8]) -> Result<(), Error> {
        let chars = chars(bytes);
        if chars <= USER_DATA_BASE64_CHARS_MAX {
            return Ok(());
        }
        let keys = ("ssh keys".to_owned(), self.keys.iter().map(String::len).sum());
        let units = self.units.iter().map(|unit| (unit.name.clone(), unit.content.len()));
        let files = self.files.iter().map(|file| (file.path.clone(), file.content.len()));
        let largest = files.chain(units).fold(keys, |a, b| if b.1 > a.1 { b } else { a });
        Err(Error::TooBig { chars, part: largest.0, part_bytes: largest.1 })
    }
}

fn check(input: &Input) -> Result<(), Error> {
    if !is_dns_name(&input.machine_name) || input.machine_name.len() > MACHINE_NAME_CHARS_MAX {
        return Err(Error::MachineName { name: input.machine_name.clone() });
    }
    if !is_plain_https(&input.api_server_url) {
        return Err(Error::ApiServer { url: input.api_server_url.clone() });
    }
    outside::check(input)?;
    if !input.cluster_ca_pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err(Error::ClusterCa);
    }
    if !is_dns_name(&input.cluster_domain) {
        return Err(Error::ClusterDomain { domain: input.cluster_domain.clone() });
    }
    kubelet::check_labels(&input.node_labels)?;
    kubelet::check_taints(&input.taints)
}

fn ssh_keys(given: &[String]) -> Result<Vec<String>, Error> {
    let mut keys: Vec<String> = Vec::new();
    for (index, key) in given.iter().map(|key| key.trim()).enumerate() {
        if key.contains(['\n', '\r', '\0']) {
            return Err(Error::SshKey { number: index + 1 });
        }
        // Flatcar: a key given twice keeps Ignition from finishing.
        if !key.is_empty() && !keys.iter().any(|known| known == key) {
            keys.push(key.to_owned());
        }
    }
    Ok(keys)
}

fn is_plain_https(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|rest| {
        !rest.is_empty()
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/[]%@".contains(&b))
    })
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}
