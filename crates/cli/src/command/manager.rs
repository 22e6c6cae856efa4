//! `drover manager`: the controllers alone, against any Kubernetes API server.

use super::nodes::NodeArgs;
use crate::probe;
use anyhow::{Context, bail};
use drover_api::{DeletionPolicy, GoDuration};
use drover_controllers::manager::{Manager, Settings};
use drover_openstack::{LOCAL_STORAGE, OpenStack};
use drover_plan::bootstrap::{Downloads, KubeletSettings, Outside};
use drover_plan::machine::Cluster;
use drover_provider::Clock;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Where cluster DNS answers; MetaKube's default.
const CLUSTER_DNS: [u8; 4] = [10, 10, 10, 10];
const CLUSTER_DOMAIN: &str = "cluster.local";

#[derive(clap::Args)]
pub struct Args {
    /// How the API server is reached; without it, the Pod's ServiceAccount or the usual kubeconfig
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What marks the cloud resources of this cluster; the UID of the namespace kube-system by default
    #[arg(long, value_name = "NAME")]
    cluster_id: Option<String>,
    /// The API server's URL as nodes reach it; from the ConfigMap kube-public/cluster-info by default
    #[arg(long, value_name = "URL")]
    node_api_server: Option<String>,
    /// The cloud of clouds.yaml that machines without credentials of their own use
    #[arg(long, env = "OS_CLOUD", value_name = "NAME")]
    os_cloud: Option<String>,
    /// What tells managers apart that share a Lease: the Pod's name, so that one that is restarted in its Pod
    /// leads again at once. By default one of its own for each start, which waits until the Lease ran out
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Where metrics are served, such as 127.0.0.1:8080; not at all by default
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<std::net::SocketAddr>,
    /// Machines are servers and nothing more: no node is awaited, drained or deleted (Gardener: no target cluster)
    #[arg(long)]
    without_nodes: bool,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    tuning: Tuning,
}

/// What both `manager` and `dev` can be told about how to work.
#[derive(clap::Args, Clone)]
pub struct Tuning {
    /// Machines worked on at once
    #[arg(long, default_value_t = 64, value_name = "N")]
    concurrent_machines: usize,
    /// How long a machine may take to become a node before it is replaced
    #[arg(long, default_value = "2h", value_name = "DURATION")]
    join_timeout: GoDuration,
    /// How long evictions are tried before pods are deleted
    #[arg(long, default_value = "2h", value_name = "DURATION")]
    drain_timeout: GoDuration,
    /// How careful deletions are that do not say: graceful, unsafe or forced
    #[arg(long, default_value = "graceful", value_name = "POLICY", value_parser = deletion_policy)]
    default_deletion_policy: DeletionPolicy,
    /// In a rollout, machines that are being deleted count against maxSurge too: for little quota, at the price
    /// of waiting for every drain
    #[arg(long)]
    strict_surge: bool,
    /// Flavors with their disk on the host, which cannot boot from a volume: names, * stands for anything
    #[arg(long, default_value = LOCAL_STORAGE, value_delimiter = ',', value_name = "PATTERN,..")]
    pub local_storage_flavors: Vec<String>,
}

fn deletion_policy(text: &str) -> Result<DeletionPolicy, String> {
    let known = [DeletionPolicy::Graceful, DeletionPolicy::Unsafe, DeletionPolicy::Forced];
    let found = known.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| format!("{text:?} is no policy; give graceful, unsafe or forced"))
}

impl Tuning {
    pub fn apply(&self, settings: &mut Settings) {
        settings.concurrent_machines = self.concurrent_machines.max(1);
        settings.machine.join_timeout = self.join_timeout.0;
        settings.machine.drain_timeout = self.drain_timeout.0;
        settings.machine.deletion_policy = self.default_deletion_policy;
        settings.deployment.strict_surge = self.strict_surge;
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = connect(args.kubeconfig.as_deref()).await?;
    let cluster_id = match args.cluster_id {
        Some(id) => id,
        None => cluster_id(&client).await?,
    };
    let mut nodes = match args.without_nodes {
        true => Cluster::default(),
        false => node_settings(&client, args.node_api_server).await?,
    };
    args.nodes.apply(&mut nodes)?;
    let local_storage = &args.tuning.local_storage_flavors;
    let provider = OpenStack::from_environment(args.os_cloud.as_deref(), local_storage)
        .context("reading the cloud's credentials (clouds.yaml or OS_* variables)")?;
    let mut settings = Settings::new(cluster_id, nodes);
    args.tuning.apply(&mut settings);
    settings.machine.joins = !args.without_nodes;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let identity = args.identity.filter(|name| !name.is_empty()).unwrap_or_else(one_of_a_kind);
    let manager = Manager::new(client, Arc::new(provider), settings, Clock::system(), &identity);
    if let Some(address) = args.metrics_address {
        probe::serve(address, manager.metrics(), stop.clone()).await?;
    }
    if !manager.run(stop).await {
        bail!("the lead was lost to another manager; a restart waits for its turn");
    }
    Ok(())
}

/// client-go: the host's name and a random part, for process ids are the same in every container.
fn one_of_a_kind() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), fastrand::u64(..))
}

/// A client that repeats nothing by itself: a budget's 429 is an answer, and waiting is ours to plan.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context("finding the API server; give --kubeconfig")?,
    };
    config.default_retry = false;
    Client::try_from(config).context("building the API server's client")
}

/// The UID of kube-system: there as long as the cluster is, and in no other.
pub async fn cluster_id(client: &Client) -> anyhow::Result<String> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let system = namespaces.get("kube-system").await.context("reading namespace kube-system")?;
    system.uid().context("namespace kube-system has no UID; give --cluster-id")
}

/// Where nodes find the API server and whom they trust (Kubernetes: `cluster-info`).
pub async fn node_settings(client: &Client, url: Option<String>) -> anyhow::Result<Cluster> {
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "kube-public");
    let info = configs
        .get("cluster-info")
        .await
        .context("reading ConfigMap kube-public/cluster-info, which tells nodes the API server")?;
    let text = info.data.unwrap_or_default().remove("kubeconfig").unwrap_or_default();
    let parsed = Kubeconfig::from_yaml(&text)
        .context("ConfigMap kube-public/cluster-info: key kubeconfig is no kubeconfig")?;
    let cluster = parsed.clusters.into_iter().find_map(|named| named.cluster);
    let Some(cluster) = cluster else {
        bail!("ConfigMap kube-public/cluster-info: its kubeconfig names no cluster");
    };
    let ca_pem = decode_ca(cluster.certificate_authority_data.as_deref())?;
    let Some(url) = url.or(cluster.server) else {
        bail!("ConfigMap kube-public/cluster-info names no server; give --node-api-server");
    };
    Ok(Cluster {
        api_server_url: url,
        ca_pem,
        dns: vec![IpAddr::from(CLUSTER_DNS)],
        domain: CLUSTER_DOMAIN.to_owned(),
        kubelet: KubeletSettings::default(),
        downloads: Downloads::default(),
        outside: Outside::default(),
    })
}

fn decode_ca(data: Option<&str>) -> anyhow::Result<String> {
    use base64::Engine;
    let data = data.context(
        "ConfigMap kube-public/cluster-info has no certificate-authority-data for nodes to trust",
    )?;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(data.trim())
        .context("ConfigMap kube-public/cluster-info: certificate-authority-data is no base64")?;
    String::from_utf8(bytes).context("the cluster's CA is not PEM")
}

/// The first Ctrl-C or SIGTERM ends in order, a second one at once.
pub async fn stop_on_signal(stop: CancellationToken) {
    let Ok(mut terminate) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    else {
        return;
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
    let _ = tokio::signal::ctrl_c().await;
    std::process::exit(130);
}
