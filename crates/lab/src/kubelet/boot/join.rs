//! What a kubelet was told on its command line and in its files about joining a cluster.

use super::decode_base64;
use super::machine::{Machine, Started};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A taint that a Node registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// `domain/name`.
    pub key: String,
    /// Empty when there is none.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

/// All that a kubelet needs in order to join.
#[derive(Clone)]
pub struct Join {
    /// The version of the binary, `v1.30.3`.
    pub version: String,
    /// The name of the operating system.
    pub os_image: &'static str,
    /// The URL of the API server.
    pub server: String,
    /// The CA that the kubeconfig pins.
    pub ca_pem: String,
    /// The bootstrap token.
    pub token: String,
    /// The name of its Node.
    pub node_name: String,
    /// Labels that it registers with.
    pub labels: BTreeMap<String, String>,
    /// Taints that it registers with.
    pub taints: Vec<Taint>,
    /// A cloud controller manager completes the Node.
    pub cloud_external: bool,
    /// The address it insists on.
    pub node_ip: Option<IpAddr>,
    /// It asks the cluster for its serving certificate.
    pub serving_from_cluster: bool,
    /// Most pods on the node.
    pub max_pods: u64,
    /// CPU kept from the pods, as `200m`.
    pub reserved_cpu: Vec<String>,
    /// Memory kept from the pods, as `200Mi`.
    pub reserved_memory: Vec<String>,
}

/// Kubernetes: the default of maxPods.
const MAX_PODS: u64 = 110;

/// Reads the command line and the files it names, refusing what a kubelet refuses.
pub fn read(machine: &Machine, started: &Started) -> Result<Join, String> {
    let flags = flags(&started.arguments)?;
    let flag = |name: &str| flags.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let version = version(machine, &started.program)?;
    let config = configuration(machine, flag("config"))?;
    if flag("kubeconfig").is_none() {
        return Err("kubelet: no --kubeconfig: it runs standalone and joins no cluster".to_owned());
    }
    let bootstrap = flag("bootstrap-kubeconfig")
        .ok_or("kubelet: no --bootstrap-kubeconfig and no kubeconfig yet: no credentials")?;
    let (server, ca_pem, token) = kubeconfig(machine, bootstrap)?;
    let node_ip = match flag("node-ip") {
        Some(text) => {
            let first = text.split(',').next().unwrap_or(text);
            let address: IpAddr =
                first.parse().map_err(|_| format!("kubelet: bad --node-ip \"{text}\""))?;
            // Kubernetes: `::` and `0.0.0.0` stand for any address of their family.
            Some(address).filter(|address| !address.is_unspecified())
        }
        None => None,
    };
    let reserved = |resource: &str| {
        ["kubeReserved", "systemReserved"]
            .iter()
            .filter_map(|key| config[*key][resource].as_str().map(str::to_owned))
            .collect()
    };
    let node_name = flag("hostname-override").unwrap_or(&machine.host_name).to_ascii_lowercase();
    Ok(Join {
        version,
        os_image: machine.os_image,
        server,
        ca_pem,
        token,
        node_name,
        labels: labels(flag("node-labels").unwrap_or_default())?,
        taints: taints(flag("register-with-taints").unwrap_or_default())?,
        cloud_external: flag("cloud-provider") == Some("external"),
        node_ip,
        serving_from_cluster: config["serverTLSBootstrap"].as_bool().unwrap_or_default()
            || flag("rotate-server-certificates") == Some("true"),
        max_pods: config["maxPods"].as_u64().unwrap_or(MAX_PODS),
        reserved_cpu: reserved("cpu"),
        reserved_memory: reserved("memory"),
    })
}

/// Flags that a kubelet knows beside the deprecated ones that its configuration file replaces.
const KNOWN_FLAGS: [&str; 24] = [
    "bootstrap-kubeconfig",
    "cert-dir",
    "cloud-config",
    "cloud-provider",
    "config",
    "config-dir",
    "container-runtime-endpoint",
    "feature-gates",
    "hostname-override",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "kubeconfig",
    "max-pods",
    "node-ip",
    "node-labels",
    "pod-infra-container-image",
    "provider-id",
    "register-node",
    "register-with-taints",
    "root-dir",
    "rotate-certificates",
    "rotate-server-certificates",
    "runtime-cgroups",
    "v",
];

fn flags(arguments: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut flags = BTreeMap::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return Err(format!("kubelet: unknown command {word}"));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if !KNOWN_FLAGS.contains(&name) {
            return Err(format!("kubelet: failed to parse kubelet flag: unknown flag: --{name}"));
        }
        let is_switch = name.starts_with("rotate-") || name == "register-node";
        let value = match value {
            Some(value) => value,
            None if is_switch => "true".to_owned(),
            None => words
                .next()
                .cloned()
                .ok_or_else(|| format!("kubelet: flag needs an argument: --{name}"))?,
        };
        flags.insert(name.to_owned(), value);
    }
    Ok(flags)
}

/// The version shows in where the binary came from.
fn version(machine: &Machine, program: &str) -> Result<String, String> {
    let origin = machine.file(program).and_then(|file| file.origin()).unwrap_or_default();
    let unknown =
        || format!("kubelet: {program} from \"{origin}\" is no kubelet of a known version");
    let start = |part: &&str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let version = origin.split(['/', ' ']).find(start).ok_or_else(unknown)?;
    if version.split('.').count() < 3 {
        return Err(unknown());
    }
    let foreign = ["/arm64/", "/arm/", "/ppc64le/", "/s390x/"];
    if foreign.iter().any(|arch| origin.contains(arch)) {
        return Err(format!("kubelet.service: {program}: Exec format error"));
    }
    Ok(version.to_owned())
}

fn configuration(machine: &Machine, path: Option<&str>) -> Result<Value, String> {
    let Some(path) = path else { return Ok(Value::Null) };
    let failed = |why: &str| {
        format!("kubelet: failed to load kubelet config file, path: {path}, error: {why}")
    };
    let file = machine.file(path).ok_or_else(|| failed("no such file or directory"))?;
    let config: Value = serde_saphyr::from_str(&file.text())
        .map_err(|error| failed(error.to_string().lines().next().unwrap_or_default()))?;
    if config["kind"] != "KubeletConfiguration" {
        return Err(failed("no kind \"KubeletConfiguration\" is registered"));
    }
    if let Some(ca) = config["authentication"]["x509"]["clientCAFile"].as_str()
        && machine.file(ca).is_none()
    {
        return Err(format!(
            "kubelet: unable to load client CA file {ca}: no such file or directory"
        ));
    }
    Ok(config)
}

fn kubeconfig(machine: &Machine, path: &str) -> Result<(String, String, String), String> {
    let failed = |why: &str| format!("kubelet: unable to load bootstrap kubeconfig {path}: {why}");
    let file = machine.file(path).ok_or_else(|| failed("no such file or directory"))?;
    let config: Value = serde_saphyr::from_str(&file.text())
        .map_err(|error| failed(error.to_string().lines().next().unwrap_or_default()))?;
    let named = |list: &str, entry: &str, name: &Value| {
        let all = config[list].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = all.iter().find(|one| one["name"] == *name).map(|one| one[entry].clone());
        found.ok_or_else(|| failed(&format!("no entry {name} in {list}")))
    };
    let context = named("contexts", "context", &config["current-context"])?;
    let cluster = named("clusters", "cluster", &context["cluster"])?;
    let user = named("users", "user", &context["user"])?;
    let server = cluster["server"].as_str().ok_or_else(|| failed("the cluster has no server"))?;
    let ca = if let Some(data) = cluster["certificate-authority-data"].as_str() {
        let bytes =
            decode_base64(data).ok_or_else(|| failed("certificate-authority-data is no base64"))?;
        String::from_utf8_lossy(&bytes).into_owned()
    } else if let Some(path) = cluster["certificate-authority"].as_str() {
        machine.file(path).ok_or_else(|| failed(&format!("{path}: no such file")))?.text()
    } else {
        return Err(failed("the cluster has no certificate-authority-data"));
    };
    let token = user["token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| failed("the user has no token"))?;
    Ok((server.to_owned(), ca, token.to_owned()))
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, _)) if is_foreign(key) => {
                Err(format!("kubelet: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{key}]"))
            }
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("kubelet: bad --node-labels \"{pair}\", expected key=value")),
        })
        .collect()
}

/// Kubernetes: the labels below kubernetes.io and k8s.io that a kubelet may not give itself.
fn is_foreign(key: &str) -> bool {
    const ALLOWED: [&str; 9] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let below = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    let own = below("kubelet.kubernetes.io") || below("node.kubernetes.io");
    (below("kubernetes.io") || below("k8s.io")) && !own && !ALLOWED.contains(&key)
}

fn taints(text: &str) -> Result<Vec<Taint>, String> {
    let taint = |text: &str| {
        let bad = || format!("kubelet: invalid taint spec: {text}");
        let (pair, effect) = text.rsplit_once(':').ok_or_else(bad)?;
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(format!(
                "kubelet: invalid taint effect: {effect}, unsupported taint effect"
            ));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    };
    text.split(',').filter(|text| !text.is_empty()).map(taint).collect()
}
