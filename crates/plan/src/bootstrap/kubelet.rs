//! How the kubelet is configured: its configuration file, its unit, and what it may say of itself.

use super::{Error, Input};
use drover_api::{GoDuration, IpFamily};
use k8s_openapi::api::core::v1::Taint;
use serde::Serialize;
use std::collections::BTreeMap;

pub(super) const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
pub(super) const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.conf";
pub(super) const CLUSTER_CA: &str = "/etc/kubernetes/pki/ca.crt";
const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CERT_DIR: &str = "/var/lib/kubelet/pki";
const RUNTIME_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// What users tune of a kubelet. The defaults are MetaKube's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Resources kept for Kubernetes' own daemons, such as `cpu: 200m`.
    pub kube_reserved: BTreeMap<String, String>,
    /// Resources kept for the operating system.
    pub system_reserved: BTreeMap<String, String>,
    /// Signals at which pods are evicted without grace, such as `memory.available: 100Mi`.
    pub eviction_hard: BTreeMap<String, String>,
    /// Most pods on the node; the kubelet's own default when absent.
    pub max_pods: Option<u32>,
    /// Most bytes of a container's log before it is rotated, such as `100Mi`.
    pub container_log_max_size: String,
    /// Most files of a container's log.
    pub container_log_max_files: u32,
    /// Percent of the disk at which unused images are deleted; the kubelet's own default when absent.
    pub image_gc_high_threshold_percent: Option<u32>,
    /// Percent of the disk at which that ends.
    pub image_gc_low_threshold_percent: Option<u32>,
    /// How long an unused image stays at least.
    pub image_minimum_gc_age: Option<GoDuration>,
    /// How long an unused image stays at most.
    pub image_maximum_gc_age: Option<GoDuration>,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let reserved = [("cpu", "200m"), ("ephemeral-storage", "1Gi"), ("memory", "200Mi")];
        Self {
            kube_reserved: map(&reserved),
            system_reserved: map(&reserved),
            eviction_hard: map(&[
                ("imagefs.available", "15%"),
                ("memory.available", "100Mi"),
                ("nodefs.available", "10%"),
                ("nodefs.inodesFree", "5%"),
            ]),
            max_pods: None,
            container_log_max_size: "100Mi".to_owned(),
            container_log_max_files: 5,
            image_gc_high_threshold_percent: None,
            image_gc_low_threshold_percent: None,
            image_minimum_gc_age: None,
            image_maximum_gc_age: None,
        }
    }
}

/// Whether a kubelet may put a label of this key on its own Node.
///
/// Kubernetes: the NodeRestriction admission plugin and the kubelet itself refuse keys under
/// `kubernetes.io` and `k8s.io` but for a fixed list and two prefixes.
pub fn may_label_itself(key: &str) -> bool {
    const FIXED: [&str; 11] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((domain, _)) = key.split_once('/') else { return true };
    let under = |parent: &str| {
        domain.strip_suffix(parent).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    let reserved = under("kubernetes.io") || under("k8s.io");
    !reserved
        || FIXED.contains(&key)
        || under("kubelet.kubernetes.io")
        || under("node.kubernetes.io")
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    match labels.iter().find(|(key, value)| !is_label_key(key) || !is_label_value(value)) {
        None => Ok(()),
        Some((key, value)) => Err(Error::Label { key: key.to_owned(), value: value.to_owned() }),
    }
}

pub(super) fn check_taints(taints: &[Taint]) -> Result<(), Error> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let valid = |taint: &&Taint| {
        is_label_key(&taint.key)
            && is_label_value(taint.value.as_deref().unwrap_or_default())
            && EFFECTS.contains(&taint.effect.as_str())
    };
    match taints.iter().find(|taint| !valid(taint)) {
        None => Ok(()),
        Some(taint) => Err(Error::Taint { taint: taint_flag(taint) }),
    }
}

fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(|domain| domain.len() <= 253 && super::is_dns_name(domain))
        && !name.is_empty()
        && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let at_an_end = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && at_an_end(value.bytes().next())
        && at_an_end(value.bytes().last())
}

fn taint_flag(taint: &Taint) -> String {
    format!("{}={}:{}", taint.key, taint.value.as_deref().unwrap_or_default(), taint.effect)
}

/// The unit of the kubelet, with all that the Node is to say of itself when it registers.
pub(super) fn unit(input: &Input) -> String {
    let mut flags = vec![
        format!("--bootstrap-kubeconfig={BOOTSTRAP_KUBECONFIG}"),
        format!("--kubeconfig={KUBECONFIG}"),
        format!("--config={KUBELET_CONFIG}"),
        format!("--cert-dir={CERT_DIR}"),
        format!("--container-runtime-endpoint={RUNTIME_ENDPOINT}"),
    ];
    if input.cloud_provider_external {
        flags.push("--cloud-provider=external".to_owned());
    }
    // Kubernetes: any address of this family. Where IPv4 comes first, that is what a kubelet does by itself.
    if matches!(input.ip_family, Some(IpFamily::V6 | IpFamily::V6V4)) {
        flags.push("--node-ip=::".to_owned());
    }
    let own = input.node_labels.iter().filter(|(key, _)| may_label_itself(key));
    let labels: Vec<String> = own.map(|(key, value)| format!("{key}={value}")).collect();
    if !labels.is_empty() {
        flags.push(format!("--node-labels={}", labels.join(",")));
    }
    if !input.taints.is_empty() {
        let mut taints: Vec<String> = input.taints.iter().map(taint_flag).collect();
        taints.sort();
        taints.dedup();
        flags.push(format!("--register-with-taints={}", taints.join(",")));
    }
    include_str!("kubelet.service").replace("@FLAGS@", &flags.join(" \\\n  "))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfiguration<'a> {
    api_version: &'static str,
    kind: &'static str,
    authentication: Authentication,
    authorization: Authorization,
    cgroup_driver: &'static str,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String>,
    cluster_domain: &'a str,
    container_log_max_files: u32,
    container_log_max_size: &'a str,
    eviction_hard: &'a BTreeMap<String, String>,
    kube_reserved: &'a BTreeMap<String, String>,
    max_parallel_image_pulls: u32,
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "Option::is_none")]
    image_gc_high_threshold_percent: Option<u32>,
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "Option::is_none")]
    image_gc_low_threshold_percent: Option<u32>,
    #[serde(rename = "imageMaximumGCAge", skip_serializing_if = "Option::is_none")]
    image_maximum_gc_age: Option<GoDuration>,
    #[serde(rename = "imageMinimumGCAge", skip_serializing_if = "Option::is_none")]
    image_minimum_gc_age: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_pods: Option<u32>,
    protect_kernel_defaults: bool,
    read_only_port: u32,
    resolv_conf: &'static str,
    rotate_certificates: bool,
    serialize_image_pulls: bool,
    #[serde(rename = "serverTLSBootstrap")]
    server_tls_bootstrap: bool,
    static_pod_path: &'static str,
    system_reserved: &'a BTreeMap<String, String>,
    tls_min_version: &'static str,
    volume_plugin_dir: &'static str,
}

#[derive(Serialize)]
struct Authentication {
    anonymous: Switch,
    webhook: Switch,
    x509: X509,
}

#[derive(Serialize)]
struct Switch {
    enabled: bool,
}

#[derive(Serialize)]
struct X509 {
    #[serde(rename = "clientCAFile")]
    client_ca_file: &'static str,
}

#[derive(Serialize)]
struct Authorization {
    mode: &'static str,
}

/// The kubelet's configuration file.
pub(super) fn configuration(input: &Input) -> Result<String, Error> {
    let settings = &input.kubelet;
    let configuration = KubeletConfiguration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        authentication: Authentication {
            anonymous: Switch { enabled: false },
            webhook: Switch { enabled: true },
            x509: X509 { client_ca_file: CLUSTER_CA },
        },
        authorization: Authorization { mode: "Webhook" },
        cgroup_driver: "systemd",
        cluster_dns: input.cluster_dns.iter().map(ToString::to_string).collect(),
        cluster_domain: &input.cluster_domain,
        container_log_max_files: settings.container_log_max_files,
        container_log_max_size: &settings.container_log_max_size,
        eviction_hard: &settings.eviction_hard,
        image_gc_high_threshold_percent: settings.image_gc_high_threshold_percent,
        image_gc_low_threshold_percent: settings.image_gc_low_threshold_percent,
        image_maximum_gc_age: settings.image_maximum_gc_age,
        image_minimum_gc_age: settings.image_minimum_gc_age,
        kube_reserved: &settings.kube_reserved,
        max_parallel_image_pulls: 10,
        max_pods: settings.max_pods,
        protect_kernel_defaults: true,
        read_only_port: 0,
        resolv_conf: "/run/systemd/resolve/resolv.conf",
        rotate_certificates: true,
        serialize_image_pulls: false,
        server_tls_bootstrap: true,
        static_pod_path: "/etc/kubernetes/manifests",
        system_reserved: &settings.system_reserved,
        tls_min_version: "VersionTLS12",
        volume_plugin_dir: "/var/lib/kubelet/volumeplugins",
    };
    super::files::yaml("the kubelet's configuration", &configuration)
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    clusters: [Named<Cluster<'a>>; 1],
    contexts: [Named<Context>; 1],
    current_context: &'static str,
    users: [Named<User<'a>>; 1],
}

#[derive(Serialize)]
struct Named<T> {
    name: &'static str,
    #[serde(flatten)]
    entry: T,
}

#[derive(Serialize)]
struct Cluster<'a> {
    cluster: ClusterEntry<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry<'a> {
    certificate_authority_data: String,
    server: &'a str,
}

#[derive(Serialize)]
struct Context {
    context: ContextEntry,
}

#[derive(Serialize)]
struct ContextEntry {
    cluster: &'static str,
    user: &'static str,
}

#[derive(Serialize)]
struct User<'a> {
    user: UserEntry<'a>,
}

#[derive(Serialize)]
struct UserEntry<'a> {
    token: &'a str,
}

/// The credential of the first hour; the kubelet replaces it by a certificate of its own.
pub(super) fn bootstrap_kubeconfig(input: &Input) -> Result<String, Error> {
    const CLUSTER: &str = "cluster";
    const USER: &str = "kubelet-bootstrap";
    let kubeconfig = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: [Named {
            name: CLUSTER,
            entry: Cluster {
                cluster: ClusterEntry {
                    certificate_authority_data: super::files::base64(
                        input.cluster_ca_pem.as_bytes(),
                    ),
                    server: &input.api_server_url,
                },
            },
        }],
        contexts: [Named {
            name: CLUSTER,
            entry: Context { context: ContextEntry { cluster: CLUSTER, user: USER } },
        }],
        current_context: CLUSTER,
        users: [Named {
            name: USER,
            entry: User { user: UserEntry { token: input.token.expose() } },
        }],
    };
    super::files::yaml("the bootstrap kubeconfig", &kubeconfig)
}
