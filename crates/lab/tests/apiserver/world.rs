//! The world in which cases are played: the lab's API server with its controllers, or a real control plane.

use drover_lab::apiserver::access::User;
use drover_lab::apiserver::{ApiServer, Config, Peer};
use drover_lab::client::Client;
use drover_lab::clock::{Clock, Pace};
use drover_lab::cluster;
use drover_lab::dial::{self, Credential, Transport};
use drover_lab::kube::{Assets, ControlPlane, Options};
use drover_lab::pki::{Authority, Pair};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// Who sends a request, and by what the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A client certificate of `system:masters`.
    Admin,
    /// A client certificate of this name and these groups, two at most.
    User { name: String, groups: Vec<String> },
    /// A bearer token; placeholders in it are filled in.
    Bearer(String),
    /// Nothing is shown.
    Anonymous,
}

impl Who {
    /// `as NAME`, `as NAME in GROUP, GROUP`, `as nobody` or `bearer TOKEN`.
    pub fn read(line: &str) -> Option<Self> {
        if let Some(token) = line.strip_prefix("bearer ") {
            return Some(Self::Bearer(token.to_owned()));
        }
        let who = line.strip_prefix("as ")?;
        if who == "nobody" {
            return Some(Self::Anonymous);
        }
        let (name, groups) = who.split_once(" in ").unwrap_or((who, ""));
        let groups = groups.split(", ").filter(|group| !group.is_empty());
        Some(Self::User { name: name.to_owned(), groups: groups.map(str::to_owned).collect() })
    }
}

enum Server {
    Lab { api: ApiServer, pki: Arc<Authority>, clock: Clock },
    Real { plane: Box<ControlPlane>, folder: PathBuf },
}

/// A server with everything that works on it, until it is dropped.
pub struct World {
    server: Server,
    stop: CancellationToken,
    known: Mutex<BTreeMap<Who, Transport>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// The lab's server with the lab's controllers, on the clock of the runtime.
    pub fn lab() -> Self {
        let clock = Clock::start("2026-11-21T11:00:00Z".parse().expect("a time"));
        let pki = Arc::new(Authority::new(&clock));
        let api = ApiServer::new(Config::new(clock, Arc::clone(&pki)));
        let manager = User::new("system:kube-controller-manager", &["system:masters"]);
        let controllers = cluster::Config {
            client: Client::over(api.service(Peer::User(manager))).named("kube-controller-manager"),
            clock,
            pki: Arc::clone(&pki),
            pace: Pace::default(),
        };
        let stop = CancellationToken::new();
        tokio::spawn(cluster::lifecycle::run(controllers.client.clone(), clock, Pace::default()));
        tokio::spawn(cluster::run(controllers, stop.clone()));
        // As in the real one: cases speak of resource versions too old to be known.
        api.store().compact();
        let server = Server::Lab { api, pki, clock };
        Self { server, stop, known: Mutex::default() }
    }

    /// A real control plane, whose history begins now.
    pub async fn real(assets: &Assets) -> Self {
        let folder = std::env::temp_dir().join(format!("drover-apiserver-{}", std::process::id()));
        let plane = ControlPlane::start(assets, &folder, &Options::default()).await;
        let mut plane = plane.expect("the control plane starts");
        // Cases speak of resource versions too old to be known, to etcd and to the server's memory.
        plane.compact().await.expect("etcd compacts");
        plane.restart_api().await.expect("the API server comes back");
        let server = Server::Real { plane: Box::new(plane), folder };
        Self { server, stop: CancellationToken::new(), known: Mutex::default() }
    }

    /// What stands before a path.
    pub fn url(&self) -> &str {
        match &self.server {
            Server::Lab { .. } => "",
            Server::Real { plane, .. } => plane.url(),
        }
    }

    /// The time of the server.
    pub fn now(&self) -> Timestamp {
        match &self.server {
            Server::Lab { clock, .. } => clock.now(),
            Server::Real { .. } => Timestamp::now(),
        }
    }

    /// How this one reaches the server.
    pub fn transport(&self, who: &Who) -> Transport {
        let mut known = self.known.lock().expect("nobody panicked with it");
        known.entry(who.clone()).or_insert_with(|| self.dial(who)).clone()
    }

    fn dial(&self, who: &Who) -> Transport {
        let certificate = match who {
            Who::Admin => Some(self.certificate("kubernetes-admin", &["system:masters"])),
            Who::User { name, groups } => {
                let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
                Some(self.certificate(name, &groups))
            }
            Who::Bearer(_) | Who::Anonymous => None,
        };
        match &self.server {
            Server::Lab { api, .. } => {
                let peer = certificate.map_or(Peer::Anonymous, |pair| {
                    let chain = dial::certificates(&pair.cert_pem).expect("a certificate");
                    Peer::Certificate(chain[0].to_vec())
                });
                dial::in_process(api.service(peer))
            }
            Server::Real { plane, .. } => {
                let who = certificate
                    .map_or(Credential::Bearer(String::new()), |Pair { cert_pem, key_pem }| {
                        Credential::Certificate { cert_pem, key_pem }
                    });
                dial::tls(plane.ca_pem(), &who).expect("certificates fit")
            }
        }
    }

    fn certificate(&self, name: &str, groups: &[&str]) -> Pair {
        match &self.server {
            Server::Lab { pki, .. } => pki.issue_client(name, groups),
            Server::Real { plane, .. } => plane.certificate(name, groups),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The logs stay when something went wrong.
        if let Self::Real { folder, .. } = self
            && !std::thread::panicking()
        {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
