//! The files and units that a node is made of, whatever format carries them.

use super::{CNI_PLUGINS_VERSION, Error, Input, OperatingSystem, kubelet, outside};
use base64::{Engine, prelude::BASE64_STANDARD};
use drover_api::{IpFamily, SecretText};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use std::io::Write;

/// Who forwards ignores router advertisements but for this (Linux), and would lose its default route.
const FORWARD_IPV6: &str = "net.ipv6.conf.all.accept_ra = 2\nnet.ipv6.conf.all.forwarding = 1\n";
const SETUP_UNIT: &str = "drover-setup.service";

/// A file with its place and mode.
pub(super) struct File {
    pub path: String,
    pub mode: u32,
    pub content: String,
}

/// A systemd unit, a part of one, or the word that there shall be none.
pub(super) struct Unit {
    pub name: String,
    pub content: String,
    pub state: UnitState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitState {
    /// Runs from the first boot on.
    Enabled,
    /// Is there for another one to start.
    Present,
    /// Cannot be started.
    Masked,
    /// Adds to a unit that the system brings.
    DropIn,
}

pub(super) fn file(path: &str, mode: u32, content: impl Into<String>) -> File {
    File { path: path.to_owned(), mode, content: content.into() }
}

/// Every file but the units, in the order of their paths.
pub(super) fn files(input: &Input) -> Result<Vec<File>, Error> {
    let mut files = vec![
        file("/etc/containerd/config.toml", 0o644, include_str!("containerd.toml")),
        file(
            "/etc/crictl.yaml",
            0o644,
            "runtime-endpoint: unix:///run/containerd/containerd.sock\n",
        ),
        file(kubelet::BOOTSTRAP_KUBECONFIG, 0o600, kubelet::bootstrap_kubeconfig(input)?),
        file(kubelet::KUBELET_CONFIG, 0o644, kubelet::configuration(input)?),
        file(kubelet::CLUSTER_CA, 0o644, input.cluster_ca_pem.clone()),
        file("/etc/modules-load.d/kubernetes.conf", 0o644, include_str!("modules.conf")),
        file("/etc/sysctl.d/90-kubernetes.conf", 0o644, include_str!("sysctl.conf")),
        file("/etc/systemd/journald.conf.d/size.conf", 0o644, "[Journal]\nSystemMaxUse=5G\n"),
        file("/opt/drover/setup", 0o755, setup(input)?),
    ];
    if let Some(SecretText(text)) = &input.cloud_config {
        files.push(file("/etc/kubernetes/cloud-config", 0o600, text.clone()));
    }
    if input.ip_family.is_some_and(|family| family != IpFamily::V4) {
        files.push(file("/etc/sysctl.d/91-kubernetes-ipv6.conf", 0o644, FORWARD_IPV6));
    }
    files.extend(outside::files(input));
    if matches!(input.operating_system, OperatingSystem::Flatcar { .. }) {
        files.push(file("/etc/hostname", 0o644, format!("{}\n", input.machine_name)));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Every unit, in the order of their names.
pub(super) fn units(input: &Input) -> Vec<Unit> {
    let unit = |name: &str, content: String, state| Unit { name: name.to_owned(), content, state };
    let mut units = vec![
        unit(SETUP_UNIT, include_str!("drover-setup.service").to_owned(), UnitState::Enabled),
        unit("kubelet.service", kubelet::unit(input), UnitState::Present),
    ];
    let by_proxy = match input.outside.proxy {
        Some(_) => format!("EnvironmentFile={}\n", outside::PROXY_FILE),
        None => String::new(),
    };
    let mut of_runtime = by_proxy.clone();
    if let OperatingSystem::Flatcar {
        disable_auto_update,
        disable_locksmith,
        disable_update_engine,
        provisioning: _,
    } = input.operating_system
    {
        // Flatcar's containerd reads a file below /usr, where nothing can be written.
        of_runtime.push_str("ExecStart=\n");
        of_runtime.push_str("ExecStart=/usr/bin/containerd --config /etc/containerd/config.toml\n");
        if disable_auto_update || disable_locksmith {
            units.push(unit("locksmithd.service", String::new(), UnitState::Masked));
        }
        if disable_auto_update || disable_update_engine {
            units.push(unit("update-engine.service", String::new(), UnitState::Masked));
        } else if !by_proxy.is_empty() {
            let content = format!("[Service]\n{by_proxy}");
            units.push(unit("update-engine.service", content, UnitState::DropIn));
        }
    }
    if !of_runtime.is_empty() {
        let content = format!("[Service]\n{of_runtime}");
        units.insert(0, unit("containerd.service", content, UnitState::DropIn));
    }
    units
}

fn setup(input: &Input) -> Result<String, Error> {
    let version = input.kubelet_version.strip_prefix('v').unwrap_or(&input.kubelet_version);
    let version = semver::Version::parse(version).map_err(|source| Error::KubeletVersion {
        version: input.kubelet_version.clone(),
        source,
    })?;
    let runtime = match input.operating_system {
        OperatingSystem::Ubuntu { .. } => include_str!("runtime-ubuntu.sh"),
        OperatingSystem::Flatcar { .. } => include_str!("runtime-flatcar.sh"),
    };
    let downloads = &input.downloads;
    let kubelet = |arch: &str| format!("v{version}/bin/linux/{arch}/kubelet");
    let cni = |arch: &str| {
        format!("v{CNI_PLUGINS_VERSION}/cni-plugins-linux-{arch}-v{CNI_PLUGINS_VERSION}.tgz")
    };
    let url = |server: &str, path: String| format!("{server}/{path}");
    Ok(include_str!("setup.sh")
        .replace("@MACHINE_NAME@", &input.machine_name)
        .replace("@RUNTIME@\n", runtime)
        .replace("@CACERT@", &downloads.trust())
        .replace("@CNI_URL@", &url(&downloads.cni_plugins, cni("${arch}")))
        .replace("@CNI_SHA256_AMD64@", &downloads.checksum(&cni("amd64")))
        .replace("@CNI_SHA256_ARM64@", &downloads.checksum(&cni("arm64")))
        .replace("@KUBELET_URL@", &url(&downloads.kubernetes, kubelet("${arch}")))
        .replace("@KUBELET_SHA256_AMD64@", &downloads.checksum(&kubelet("amd64")))
        .replace("@KUBELET_SHA256_ARM64@", &downloads.checksum(&kubelet("arm64"))))
}

/// Writes a value down as YAML that every reader reads back unchanged.
pub(super) fn yaml(document: &'static str, value: &impl Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(value)
        .map_err(|source| Error::Serialise { document, source: Box::new(source) })
}

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Compresses without a time or a name, so that equal content gives equal bytes.
pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.expect("a vector takes every byte")
}
