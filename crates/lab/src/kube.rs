//! A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as child processes.
//!
//! It is there to be compared with and to be hurt. Its data is thrown away: etcd listens on loopback without TLS and
//! does not wait for the disk.

mod assets;
mod process;

pub use assets::{Assets, version};

use crate::client::{ApiError, Client};
use crate::clock::Clock;
use crate::dial::{self, DialError};
use crate::kubeconfig::Access;
use crate::pki::{Authority, Pair};
use jiff::Timestamp;
use process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// How long the control plane may take until it answers; it needs about 10 s on two quiet cores.
const READY_MAX: Duration = Duration::from_secs(180);
/// How often it is asked whether it is ready.
const READY_POLL: Duration = Duration::from_millis(200);
/// Where free ports are looked for: below those that the kernel gives to outgoing connections, so that none is
/// taken between being found free and being listened on.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// With what kube-apiserver checks the tokens of ServiceAccounts.
const TOKEN_KEY: &str = "accounts.pem";
/// The cluster's range of service addresses, and its first: that of the API server.
const SERVICES: &str = "10.96.0.0/16";
const SERVICE_IP: &str = "10.96.0.1";

/// How a control plane is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the API server listens on loopback; 0 takes a free port.
    pub api_port: u16,
    /// How long a Node may be silent before it is Unknown (kube-controller-manager: 50 s).
    pub node_monitor_grace: Duration,
    /// Whether every request is written to [`ControlPlane::audit_log`], one JSON object a line, without bodies.
    pub audit: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { api_port: 0, node_monitor_grace: Duration::from_secs(50), audit: false }
    }
}

/// Why a control plane does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or program cannot be used.
    #[error("cannot use {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// No port of loopback is free.
    #[error("no free port on 127.0.0.1 between {} and {}", PORTS.start, PORTS.end)]
    Ports,
    /// A program ended by itself.
    #[error("{name} ended with {status}; the end of {}:\n{tail}", log.display())]
    Ended {
        /// The program.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// All that it said.
        log: PathBuf,
        /// What it said last.
        tail: String,
    },
    /// It runs, but does not answer.
    #[error("the API server is not ready after {READY_MAX:?} ({said}); its log is {}", log.display())]
    NotReady {
        /// What it answered last.
        said: String,
        /// All that it said.
        log: PathBuf,
    },
    /// The certificates made for it cannot be used.
    #[error("cannot reach the API server")]
    Dial(#[from] DialError),
    /// etcd said no.
    #[error("etcd refused to compact")]
    Etcd(#[source] ApiError),
}

/// A running control plane. It is killed when this is dropped; the files in its folder stay.
pub struct ControlPlane {
    // In the order in which they are to end: nobody is left without whom it talks to.
    scheduler: Process,
    controllers: Process,
    api: Process,
    etcd: Process,
    folder: PathBuf,
    pki: Authority,
    url: String,
    etcd_url: String,
}

impl ControlPlane {
    /// Starts it with keys of its own in an empty or new folder: it answers, and `default` has its ServiceAccount, when this returns.
    ///
    /// # Errors
    /// When a program cannot be started, ends, or is not ready in time.
    pub async fn start(assets: &Assets, folder: &Path, options: &Options) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).map_err(|error| Error::File(folder.to_owned(), error))?;
        let folder =
            folder.canonicalize().map_err(|error| Error::File(folder.to_owned(), error))?;
        let pki = Authority::new(&Clock::start(Timestamp::now()));
        let [free_port, etcd_port, peer_port] = free_ports()?;
        let api_port = if options.api_port == 0 { free_port } else { options.api_port };
        let url = format!("https://127.0.0.1:{api_port}");
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        write_files(&folder, &pki, &url)?;

        let start = |name, arguments| Process::start(name, assets.folder(), &folder, arguments);
        let mut etcd = start("etcd", etcd_arguments(&folder, &etcd_url, peer_port))?;
        let mut api =
            start("kube-apiserver", api_arguments(&folder, &etcd_url, api_port, options))?;
        // kube-controller-manager gives up after 10 s without an API server that lets it in.
        let admin = admin_access(&url, &pki).client()?;
        answers(&admin, "/readyz", &folder, &mut [&mut etcd, &mut api]).await?;
        let controllers = start("kube-controller-manager", controller_arguments(&folder, options))?;
        let scheduler = start("kube-scheduler", scheduler_arguments(&folder))?;
        let mut plane = Self { scheduler, controllers, api, etcd, folder, pki, url, etcd_url };
        plane.ready("/api/v1/namespaces/default/serviceaccounts/default").await?;
        Ok(plane)
    }

    /// The API server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate of the cluster's CA, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// Where keys, logs and data are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where requests are written when [`Options::audit`] is set.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// The process ids of etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
    #[must_use]
    pub fn process_ids(&self) -> [u32; 4] {
        [self.etcd.id(), self.api.id(), self.controllers.id(), self.scheduler.id()]
    }

    /// A client certificate for a user of these groups, two at most.
    #[must_use]
    pub fn certificate(&self, user: &str, groups: &[&str]) -> Pair {
        self.pki.issue_client(user, groups)
    }

    /// The way of a user of these groups, two at most.
    #[must_use]
    pub fn access(&self, user: &str, groups: &[&str]) -> Access {
        Access::issued(&self.url, &self.pki, user, groups)
    }

    /// The way of a user who may do everything.
    #[must_use]
    pub fn admin_access(&self) -> Access {
        admin_access(&self.url, &self.pki)
    }

    /// A kubeconfig of a user of these groups, two at most. Secret.
    #[must_use]
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> String {
        self.access(user, groups).kubeconfig()
    }

    /// A kubeconfig that may do everything. Secret.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> String {
        self.admin_access().kubeconfig()
    }

    /// A client that may do everything.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn admin(&self) -> Result<Client, Error> {
        Ok(self.admin_access().client()?)
    }

    /// Kills kube-apiserver, starts it anew and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_api(&mut self) -> Result<(), Error> {
        self.api.restart()?;
        self.ready("/readyz").await
    }

    /// Kills kube-apiserver and starts it anew with a stranger's key for the tokens of ServiceAccounts: it answers 401 to
    /// whoever shows one, until [`Self::know_tokens`].
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn forget_tokens(&mut self) -> Result<(), Error> {
        self.move_key(TOKEN_KEY, "accounts.right.pem")?;
        let stranger = self.pki.issue_server(&["service-accounts"]);
        let key = self.folder.join(TOKEN_KEY);
        std::fs::write(&key, stranger.cert_pem).map_err(|error| Error::File(key, error))?;
        self.restart_api().await
    }

    /// Kills kube-apiserver and starts it anew with the key that [`Self::forget_tokens`] took away.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn know_tokens(&mut self) -> Result<(), Error> {
        self.move_key("accounts.right.pem", TOKEN_KEY)?;
        self.restart_api().await
    }

    fn move_key(&self, from: &str, to: &str) -> Result<(), Error> {
        let from = self.folder.join(from);
        let moved = std::fs::rename(&from, self.folder.join(to));
        moved.map_err(|error| Error::File(from, error))
    }

    /// Halts kube-apiserver: connections stay open, nothing is answered, until [`Self::resume_api`].
    pub fn pause_api(&self) {
        self.api.signal(Signal::STOP);
    }

    /// Lets a halted kube-apiserver go on.
    pub fn resume_api(&self) {
        self.api.signal(Signal::CONT);
    }

    /// Forgets all history in etcd. The API server still answers from its own memory for a while: with
    /// [`Self::restart_api`] after it, a watch, list or `continue` from before gets 410.
    ///
    /// # Errors
    /// When etcd says no.
    pub async fn compact(&self) -> Result<(), Error> {
        let etcd = Client::new(dial::plain()).at(&self.etcd_url);
        let ask = async {
            let any = etcd.create("/v3/kv/range", &json!({"key": "AA=="})).await?;
            let now = any["header"]["revision"].clone();
            etcd.create("/v3/kv/compaction", &json!({"revision": now, "physical": true})).await
        };
        ask.await.map(drop).map_err(Error::Etcd)
    }

    /// Waits until `/readyz` and this path are answered, or a program ends.
    async fn ready(&mut self, path: &str) -> Result<(), Error> {
        let admin = self.admin()?;
        let all = &mut [&mut self.etcd, &mut self.api, &mut self.controllers, &mut self.scheduler];
        answers(&admin, path, &self.folder, all).await
    }

    /// The error of the first program that ended by itself.
    ///
    /// # Errors
    /// When one did.
    pub fn check(&mut self) -> Result<(), Error> {
        let all = [&mut self.etcd, &mut self.api, &mut self.controllers, &mut self.scheduler];
        all.into_iter().try_for_each(Process::check)
    }
}

fn admin_access(url: &str, pki: &Authority) -> Access {
    Access::issued(url, pki, "kubernetes-admin", &["system:masters"])
}

/// Waits until `/readyz` and this path are answered, or one of the programs ends.
async fn answers(
    admin: &Client,
    path: &str,
    folder: &Path,
    programs: &mut [&mut Process],
) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + READY_MAX;
    loop {
        let asked = async { admin.text("/readyz").await.and(admin.text(path).await) };
        let Err(error) = asked.await else { return Ok(()) };
        programs.iter_mut().try_for_each(|program| program.check())?;
        if tokio::time::Instant::now() > deadline {
            let log = folder.join("kube-apiserver.log");
            return Err(Error::NotReady { said: error.message, log });
        }
        tokio::time::sleep(READY_POLL).await;
    }
}

/// Free ports, each another one.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], Error> {
    let mut dice = fastrand::Rng::new();
    let listen = |port: u16| Some((port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?));
    let tried = std::iter::repeat_with(|| dice.u16(PORTS)).take(200);
    // Each is held until all are found.
    let held: Vec<(u16, TcpListener)> = tried.filter_map(listen).take(COUNT).collect();
    let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.try_into().map_err(|_| Error::Ports)
}

/// Keys, kubeconfigs and the audit policy. All are secret but the last.
fn write_files(folder: &Path, pki: &Authority, url: &str) -> Result<(), Error> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        let mut options = std::fs::OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        let written = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Error::File(path, error))
    };
    let serving = pki.issue_server(&[
        "localhost",
        "127.0.0.1",
        SERVICE_IP,
        "kubernetes.default",
        "kubernetes.default.svc",
    ]);
    let accounts = pki.issue_server(&["service-accounts"]);
    write("ca.pem", pki.ca_pem())?;
    write("ca.key", &pki.ca_key_pem())?;
    write("serving.pem", &serving.cert_pem)?;
    write("serving.key", &serving.key_pem)?;
    write(TOKEN_KEY, &accounts.cert_pem)?;
    write("accounts.key", &accounts.key_pem)?;
    for (file, user) in [
        ("controllers.kubeconfig", "system:kube-controller-manager"),
        ("scheduler.kubeconfig", "system:kube-scheduler"),
    ] {
        write(file, &Access::issued(url, pki, user, &[]).kubeconfig())?;
    }
    let policy: Value = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "metadata": {"name": "all"},
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    });
    write("audit-policy.yaml", &policy.to_string())
}

fn etcd_arguments(folder: &Path, url: &str, peer_port: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_arguments(folder: &Path, etcd: &str, port: u16, options: &Options) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let mut arguments = vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        file("client-ca-file", "ca.pem"),
        file("tls-cert-file", "serving.pem"),
        file("tls-private-key-file", "serving.key"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        file("service-account-key-file", TOKEN_KEY),
        file("service-account-signing-key-file", "accounts.key"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--allow-privileged=true".to_owned(),
    ];
    if options.audit {
        arguments.push(file("audit-policy-file", "audit-policy.yaml"));
        arguments.push(file("audit-log-path", "audit.log"));
    }
    arguments
}

/// The three flags with which a program of the control plane is told who it is.
fn identity(folder: &Path, name: &str) -> impl Iterator<Item = String> {
    let path = folder.join(name).display().to_string();
    ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .map(|flag| format!("--{flag}={path}"))
        .into_iter()
}

fn controller_arguments(folder: &Path, options: &Options) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let own = [
        "--secure-port=0".to_owned(),
        file("root-ca-file", "ca.pem"),
        file("cluster-signing-cert-file", "ca.pem"),
        file("cluster-signing-key-file", "ca.key"),
        file("service-account-private-key-file", "accounts.key"),
        "--use-service-account-credentials=true".to_owned(),
        // The cloud's own life cycle of Nodes is that of the cloud controller manager.
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller,-cloud-node-lifecycle-controller"
            .to_owned(),
        "--leader-elect=false".to_owned(),
        file("flex-volume-plugin-dir", "flexvolume"),
        format!("--node-monitor-grace-period={}s", options.node_monitor_grace.as_secs()),
    ];
    identity(folder, "controllers.kubeconfig").chain(own).collect()
}

fn scheduler_arguments(folder: &Path) -> Vec<String> {
    let own = ["--secure-port=0".to_owned(), "--leader-elect=false".to_owned()];
    identity(folder, "scheduler.kubeconfig").chain(own).collect()
}
