//! Nodes without a cloud behind them: kubelets that join any API server and run whatever is bound to them.
//!
//! They are there for clients and suites that need Nodes and do not care where these come from. They join as every
//! node does, by a bootstrap token and a certificate request, which is approved here.

use super::agent::Agent;
use super::boot::Join;
use super::wire::Wire;
use super::{Hardware, World};
use crate::client::{ApiError, Client, Informer, PatchKind};
use crate::clock::{Clock, Pace};
use crate::dial::{DialError, Dialer};
use crate::kubeconfig::Access;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Kubernetes: what every token authenticates in besides the groups it names.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// How long the token is good; nodes that are restarted later keep their certificates.
const TOKEN_LIFE: Duration = Duration::from_secs(86_400);
/// How long all nodes together may take to be Ready, and for each of them besides.
const READY_MAX: Duration = Duration::from_secs(120);
const READY_EACH: Duration = Duration::from_millis(500);
/// How long the end may take to tidy up.
const TIDY_MAX: Duration = Duration::from_secs(10);

/// How nodes are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many.
    pub count: usize,
    /// They are called this, `-` and a number from 1.
    pub name: String,
    /// The pace at which pods start and stop.
    pub pace: Pace,
    /// Of ids, delays and the token.
    pub seed: u64,
}

/// Why there are no nodes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server cannot be dialled with what was given.
    #[error("cannot use the API server's kubeconfig")]
    Dial(#[from] DialError),
    /// The API server said no.
    #[error("cannot {0}")]
    Refused(String, #[source] ApiError),
    /// They did not come.
    #[error("{ready} of {count} nodes are Ready after {waited:?}")]
    NotReady {
        /// How many came.
        ready: usize,
        /// How many were to come.
        count: usize,
        /// How long that was.
        waited: Duration,
    },
}

/// Nodes that live until this is stopped or dropped.
pub struct Nodes {
    admin: Client,
    names: Vec<String>,
    token: String,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Nodes {
    /// Makes nodes: all are Ready when this returns. `access` is that of a user who may do everything.
    ///
    /// # Errors
    /// When the API server refuses what they need, or they are not Ready in time.
    pub async fn start(access: &Access, config: Config) -> Result<Self, Error> {
        let clock = Clock::start(Timestamp::now());
        let admin = access.client()?.named("kubelet");
        let mut dice = fastrand::Rng::with_seed(config.seed);
        let version = server_version(&admin).await?;
        let (token, secret) = token(&mut dice, clock.now());
        allow_bootstrapping(&admin).await?;
        create(&admin, SECRETS, &secret).await?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let names: Vec<String> =
            (1..=config.count).map(|n| format!("{}-{n}", config.name)).collect();
        let id = token.split('.').next().unwrap_or_default().to_owned();
        let approving = approve(admin.clone(), format!("system:bootstrap:{id}"));
        let end = stop.clone();
        tasks.spawn(async move {
            end.run_until_cancelled(approving).await;
        });
        let world = World {
            console: super::to_log(),
            dialer: Dialer::Tls,
            wire: Wire::start(&admin, &stop),
            clock,
            pace: config.pace,
        };
        for (number, name) in names.iter().enumerate() {
            let join = join(access, &token, &version, name);
            let hardware = hardware(number, &mut dice);
            let agent = Agent::new(world.clone(), join, hardware, Arc::default(), dice.fork());
            let end = stop.clone();
            tasks.spawn(async move {
                end.run_until_cancelled(agent.run()).await;
            });
        }
        let nodes = Self { admin, names, token: id, stop, tasks };
        nodes.ready().await?;
        Ok(nodes)
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    async fn ready(&self) -> Result<(), Error> {
        let count = self.names.len();
        let waited = READY_MAX + READY_EACH * u32::try_from(count).unwrap_or(u32::MAX);
        let until = Instant::now() + waited;
        let mut all = Informer::start(&self.admin, "/api/v1/nodes");
        loop {
            let is_usable = |name: &&String| all.get("", name).is_some_and(|node| is_usable(&node));
            let ready = self.names.iter().filter(is_usable).count();
            if ready == count {
                return Ok(());
            }
            if tokio::time::timeout_at(until, all.changed()).await.is_err() {
                return Err(Error::NotReady { ready, count, waited });
            }
        }
    }

    /// Silences them and deletes their Nodes and their token.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut self.tasks);
        let tidy = async {
            while tasks.join_next().await.is_some() {}
            let token = format!("{SECRETS}/bootstrap-token-{}", self.token);
            let nodes = self.names.iter().map(|name| format!("/api/v1/nodes/{name}"));
            for path in nodes.chain([token]) {
                if let Err(error) = self.admin.delete(&path, &Value::Null).await {
                    tracing::debug!("{path} stays: {error}");
                }
            }
        };
        if tokio::time::timeout(TIDY_MAX, tidy).await.is_err() {
            tracing::warn!("not all Nodes could be deleted in {TIDY_MAX:?}");
        }
    }
}

/// Ready, and pods are scheduled to it.
fn is_usable(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready =
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    is_ready && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}

async fn server_version(admin: &Client) -> Result<String, Error> {
    let version = admin.get("/version").await;
    let version = version.map_err(|error| Error::Refused("read /version".to_owned(), error))?;
    let version = version["gitVersion"].as_str().unwrap_or_default();
    // A build's own mark is no part of a kubelet's version.
    Ok(version.split('+').next().unwrap_or_default().to_owned())
}

/// A token and the Secret that makes it one.
fn token(dice: &mut fastrand::Rng, now: Timestamp) -> (String, Value) {
    let mut word = |length: usize| -> String {
        std::iter::repeat_with(|| if dice.bool() { dice.lowercase() } else { dice.digit(10) })
            .take(length)
            .collect()
    };
    let (id, half) = (word(6), word(16));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": half, "usage-bootstrap-authentication": "true",
            "expiration": super::seconds(now.saturating_add(TOKEN_LIFE).unwrap_or(Timestamp::MAX)),
            "description": "Nodes without a cloud behind them; deleted with them.",
        },
    });
    (format!("{id}.{half}"), secret)
}

async fn allow_bootstrapping(admin: &Client) -> Result<(), Error> {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubelet-bootstrap"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": BOOTSTRAPPERS}],
    });
    create(admin, BINDINGS, &binding).await
}

async fn create(admin: &Client, path: &str, object: &Value) -> Result<(), Error> {
    match admin.create(path, object).await {
        Err(error) if error.reason != "AlreadyExists" => {
            let what = format!("create {} {}", object["kind"], object["metadata"]["name"]);
            Err(Error::Refused(what, error))
        }
        _ => Ok(()),
    }
}

/// Approves what this user asks for, for ever.
async fn approve(admin: Client, user: String) {
    let mut requests = Informer::start(&admin, REQUESTS);
    loop {
        requests.changed().await;
        for request in requests.list() {
            let spec = &request["spec"];
            let is_ours = spec["username"] == *user && spec["signerName"] == SIGNER;
            if !is_ours || request["status"]["conditions"].is_array() {
                continue;
            }
            let yes = json!({"status": {"conditions": [{
                "type": "Approved", "status": "True", "reason": "LabApproved",
                "message": "a node of the lab, asked for with its token",
            }]}});
            let name = request["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{REQUESTS}/{name}/approval");
            if let Err(error) = admin.patch(&path, PatchKind::Merge, &yes).await {
                tracing::warn!("{name} is not approved: {error}");
            }
        }
    }
}

fn join(access: &Access, token: &str, version: &str, name: &str) -> Join {
    Join {
        version: version.to_owned(),
        os_image: "Ubuntu 24.04 LTS",
        server: access.server.clone(),
        ca_pem: access.ca_pem.clone(),
        token: token.to_owned(),
        node_name: name.to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        cloud_external: false,
        node_ip: None,
        // Nobody answers on the kubelet's port.
        serving_from_cluster: false,
        max_pods: 110,
        reserved_cpu: Vec::new(),
        reserved_memory: Vec::new(),
    }
}

fn hardware(number: usize, dice: &mut fastrand::Rng) -> Hardware {
    let [high, low] = u16::try_from(number + 1).unwrap_or(u16::MAX).to_be_bytes();
    let mut id = || format!("{:08x}-0000-4000-8000-{:012x}", dice.u32(..), dice.u64(..) >> 16);
    Hardware {
        server: id(),
        boot_id: id(),
        cpus: 8,
        memory_mib: 32 << 10,
        addresses: vec![IpAddr::V4(Ipv4Addr::new(172, 18, high, low))],
        network: true,
    }
}
