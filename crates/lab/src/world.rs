//! A whole world to drive: an API server, a cloud, and everything between them, in process or on loopback.

use crate::apiserver::access::User;
use crate::apiserver::{self, ApiServer, Peer};
use crate::client::{ApiError, Client};
use crate::clock::{Clock, Pace};
use crate::cloud::{self, Cloud};
use crate::cluster::{self, ccm};
use crate::dial::{self, Dialer};
use crate::kubeconfig;
use crate::kubelet;
use crate::pki::{Authority, Pair};
use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The URL of the API server in process.
const API_URL: &str = "https://api.lab:6443";
/// The URL of the cloud in process.
const CLOUD_URL: &str = "http://cloud.lab";
/// How long `stop` waits for the parts to end before it lets go of them.
const STOP_MAX: Duration = Duration::from_secs(5);

/// How a world is made.
pub struct Config {
    /// No sockets: both servers are services of this process.
    pub in_process: bool,
    /// Where the API server listens; port 0 takes a free one.
    pub api_addr: SocketAddr,
    /// Where the cloud listens; port 0 takes a free one.
    pub cloud_addr: SocketAddr,
    /// How many times faster than life machines and pods start.
    pub pace: Pace,
    /// Of every name, delay and address.
    pub seed: u64,
    /// The time at which the world begins.
    pub start: Timestamp,
    /// Steps of the past that a watch may be behind before it gets 410; None for the server's usual number.
    pub watch_history: Option<usize>,
    /// Changes the demo's cloud: its quotas, delays and faults.
    pub cloud: Box<dyn FnOnce(&mut cloud::Config) + Send>,
}

impl Config {
    /// A world without sockets that begins at a fixed time: for tests on a paused clock.
    #[must_use]
    pub fn in_process() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            in_process: true,
            api_addr: free,
            cloud_addr: free,
            pace: Pace::default(),
            seed: 1,
            start: Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH),
            watch_history: None,
            cloud: Box::new(|_| {}),
        }
    }

    /// A world on free ports of loopback that begins now.
    #[must_use]
    pub fn loopback(now: Timestamp) -> Self {
        Self { in_process: false, start: now, ..Self::in_process() }
    }
}

/// Why a world did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The first objects of the cluster were refused.
    #[error("cannot create {0}")]
    Object(String, #[source] ApiError),
}

/// A running world. It ends when it is stopped or dropped.
pub struct World {
    api: ApiServer,
    cloud: Cloud,
    pki: Arc<Authority>,
    clock: Clock,
    api_url: String,
    cloud_url: String,
    in_process: bool,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// Begins a world: both servers answer when this returns.
    ///
    /// # Errors
    /// When an address is taken.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let clock = Clock::start(config.start);
        let pki = Arc::new(Authority::new(&clock));
        let mut server = apiserver::Config::new(clock, Arc::clone(&pki));
        server.seed = config.seed;
        server.watch_history = config.watch_history.unwrap_or(server.watch_history);
        let api = ApiServer::new(server);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();

        let (api_url, cloud_url, listeners) = if config.in_process {
            (API_URL.to_owned(), CLOUD_URL.to_owned(), None)
        } else {
            let (api_listener, api_at) = listen(config.api_addr).await?;
            let (cloud_listener, cloud_at) = listen(config.cloud_addr).await?;
            let both = Some((api_listener, cloud_listener));
            (format!("https://{api_at}"), format!("http://{cloud_at}"), both)
        };
        let mut demo = cloud::Config::demo(clock);
        demo.seed = config.seed;
        demo.pace = config.pace;
        demo.base_url.clone_from(&cloud_url);
        (config.cloud)(&mut demo);
        let cloud = Cloud::new(demo);
        if let Some((api_listener, cloud_listener)) = listeners {
            let (server, end) = (api.clone(), stop.clone());
            tasks.spawn(async move { report(server.serve(api_listener, end).await) });
            let (server, end) = (cloud.clone(), stop.clone());
            tasks.spawn(async move { report(server.serve(cloud_listener, end).await) });
        }

        let mut world = Self {
            api,
            cloud,
            pki,
            clock,
            api_url,
            cloud_url,
            in_process: config.in_process,
            stop,
            tasks,
        };
        world.populate().await?;
        world.run_parts(config.pace, config.seed);
        Ok(world)
    }

    fn run_parts(&mut self, pace: Pace, seed: u64) {
        let manager =
            self.client(&User::new("system:kube-controller-manager", &["system:masters"]));
        let transport =
            if self.in_process { dial::in_process(self.cloud.router()) } else { dial::plain() };
        let access = ccm::Access {
            transport,
            auth_url: format!("{}/identity/v3", self.cloud_url),
            user: "drover".to_owned(),
            password: "password".to_owned(),
            project: "drover".to_owned(),
            region: "dbl".to_owned(),
        };
        let ccm_config = ccm::Config {
            client: manager.clone().named("cloud-controller-manager"),
            access,
            clock: self.clock,
            pace,
            regional: false,
        };
        self.tasks.spawn(ccm::run(ccm_config, self.stop.clone()));
        let controllers = cluster::Config {
            client: manager.clone(),
            clock: self.clock,
            pki: Arc::clone(&self.pki),
            pace,
        };
        self.tasks.spawn(cluster::run(controllers, self.stop.clone()));
        let nodes = kubelet::Config {
            cloud: self.cloud.clone(),
            dialer: self.dialer(),
            watcher: manager.named("kubelet"),
            clock: self.clock,
            pace,
            seed,
        };
        self.tasks.spawn(kubelet::run(nodes, self.cloud.power(), self.stop.clone()));
    }

    /// What a cluster has when its first node comes: who may bootstrap, where to find it, and its network.
    async fn populate(&self) -> Result<(), Error> {
        let admin = self.client(&User::new("kubernetes-admin", &["system:masters"]));
        for (path, object) in first_objects(&self.cluster_info()) {
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            admin.create(path, &object).await.map_err(|error| Error::Object(name, error))?;
        }
        Ok(())
    }

    /// The API server.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// The cloud.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The time of the world.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The URL that kubeconfigs name.
    #[must_use]
    pub fn api_url(&self) -> &str {
        &self.api_url
    }

    /// The URL before the cloud's services.
    #[must_use]
    pub fn cloud_url(&self) -> &str {
        &self.cloud_url
    }

    /// The certificate of the cluster's CA.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// A client certificate for a user of these groups.
    #[must_use]
    pub fn certificate(&self, user: &str, groups: &[&str]) -> Pair {
        self.pki.issue_client(user, groups)
    }

    /// How a kubeconfig's server is reached from here.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        if self.in_process {
            Dialer::InProcess { api: self.api.clone(), url: self.api_url.clone() }
        } else {
            Dialer::Tls
        }
    }

    /// A client in process that acts as this user.
    #[must_use]
    pub fn client(&self, user: &User) -> Client {
        Client::over(self.api.service(Peer::User(user.clone())))
    }

    /// A kubeconfig of a user of these groups, who is known by a client certificate.
    #[must_use]
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> String {
        kubeconfig::of(&self.api_url, &self.pki, user, groups)
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> String {
        self.kubeconfig("kubernetes-admin", &["system:masters"])
    }

    /// The cloud's credentials as OpenStack's clients read them.
    #[must_use]
    pub fn clouds_yaml(&self) -> String {
        self.cloud.clouds_yaml()
    }

    /// Ends every part and waits for it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut self.tasks);
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, ended).await.is_err() {
            tracing::warn!("parts of the world still ran {STOP_MAX:?} after they were stopped");
        }
    }

    /// Kubernetes: the ConfigMap `cluster-info` holds a kubeconfig of the cluster without a user.
    fn cluster_info(&self) -> String {
        let ca = base64::engine::general_purpose::STANDARD.encode(self.pki.ca_pem());
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    \
             certificate-authority-data: {ca}\n    server: {}\n",
            self.api_url
        )
    }
}

async fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind(at).await.map_err(|error| Error::Listen(at, error))?;
    let at = listener.local_addr().map_err(|error| Error::Listen(at, error))?;
    Ok((listener, at))
}

fn report(ended: std::io::Result<()>) {
    if let Err(error) = ended {
        tracing::error!("a server of the lab ended: {error}");
    }
}

/// Path of the collection and object, in the order in which they are created.
fn first_objects(cluster_info: &str) -> Vec<(&'static str, Value)> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let group = |name: &str| json!([{"apiGroup": RBAC, "kind": "Group", "name": name}]);
    vec![
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "kubelet-bootstrap"},
                "roleRef": {
                    "apiGroup": RBAC, "kind": "ClusterRole", "name": "system:node-bootstrapper",
                },
                "subjects": group("system:bootstrappers"),
            }),
        ),
        (
            "/api/v1/namespaces/kube-public/configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                "data": {"kubeconfig": cluster_info},
            }),
        ),
        ("/apis/apps/v1/namespaces/kube-system/daemonsets", network()),
    ]
}

/// The network of the cluster: a critical DaemonSet that puts its configuration where the runtime looks for it.
fn network() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "cni", "namespace": "kube-system", "labels": {"k8s-app": "cni"}},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "cni"}},
            "template": {
                "metadata": {"labels": {"k8s-app": "cni"}},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "hostNetwork": true,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": "cni",
                        "image": "registry.example/cni:1",
                        "volumeMounts": [{"name": "conf", "mountPath": "/host/etc/cni/net.d"}],
                    }],
                    "volumes": [{"name": "conf", "hostPath": {"path": "/etc/cni/net.d"}}],
                },
            },
        },
    })
}
