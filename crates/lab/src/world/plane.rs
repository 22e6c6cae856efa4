//! The API server of a world: the lab's own with the controllers of its cluster, or one that was there before.

use super::{Error, first, listen, report, wait_for};
use crate::apiserver::access::User;
use crate::apiserver::{self, ApiServer, Peer};
use crate::client::Client;
use crate::clock::{Clock, Pace};
use crate::cluster::{self, lifecycle};
use crate::dial::Dialer;
use crate::kubeconfig::Access;
use crate::pki::Authority;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The URL of the API server in process.
const API_URL: &str = "https://api.lab:6443";
/// Who may do everything.
const ADMIN: (&str, &[&str]) = ("kubernetes-admin", &["system:masters"]);

/// How the lab's own API server is made.
pub struct Own {
    /// Where it listens, port 0 taking a free one; None for a service of this process alone.
    pub address: Option<SocketAddr>,
    /// The time of the world.
    pub clock: Clock,
    /// The pace of its controllers.
    pub pace: Pace,
    /// Of uids and names.
    pub seed: u64,
    /// Steps of the past that a watch may be behind before it gets 410; None for the usual number.
    pub watch_history: Option<usize>,
}

enum Server {
    Own { api: ApiServer, pki: Arc<Authority>, url: String, in_process: bool },
    Foreign { access: Access, admin: Client },
}

/// An API server with somebody at work who does what kube-controller-manager and kube-scheduler do.
pub struct Plane {
    server: Server,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Plane {
    /// The lab's own: it answers when this returns.
    ///
    /// # Errors
    /// When the address is taken.
    pub async fn own(config: Own) -> Result<Self, Error> {
        let Own { address, clock, pace, seed, watch_history } = config;
        let pki = Arc::new(Authority::new(&clock));
        let mut server = apiserver::Config::new(clock, Arc::clone(&pki));
        server.seed = seed;
        server.watch_history = watch_history.unwrap_or(server.watch_history);
        let api = ApiServer::new(server);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let url = match address {
            None => API_URL.to_owned(),
            Some(address) => {
                let (listener, at) = listen(address).await?;
                let (api, end) = (api.clone(), stop.clone());
                tasks.spawn(async move { report(api.serve(listener, end).await) });
                format!("https://{at}")
            }
        };
        let server = Server::Own { api, pki: Arc::clone(&pki), url, in_process: address.is_none() };
        let mut plane = Self { server, stop: stop.clone(), tasks };
        plane.populate().await?;
        let manager = plane.client_as("system:kube-controller-manager", &["system:masters"]);
        let manager = manager.named("kube-controller-manager");
        let nodes = lifecycle::run(manager.clone(), clock, pace);
        let end = stop.clone();
        plane.tasks.spawn(async move {
            end.run_until_cancelled(nodes).await;
        });
        let controllers = cluster::Config { client: manager, clock, pki, pace };
        plane.tasks.spawn(cluster::run(controllers, stop));
        Ok(plane)
    }

    /// One that was there before, as a user who may do everything.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses what every cluster has.
    pub async fn foreign(access: Access) -> Result<Self, Error> {
        let admin = access.client()?;
        let stop = CancellationToken::new();
        let server = Server::Foreign { access, admin };
        let plane = Self { server, stop, tasks: JoinSet::new() };
        plane.populate().await?;
        Ok(plane)
    }

    async fn populate(&self) -> Result<(), Error> {
        first::ensure(&self.admin(), self.url(), self.ca_pem()).await
    }

    /// The lab's own API server, if it is the one.
    #[must_use]
    pub fn embedded(&self) -> Option<&ApiServer> {
        match &self.server {
            Server::Own { api, .. } => Some(api),
            Server::Foreign { .. } => None,
        }
    }

    /// The URL that kubeconfigs name.
    #[must_use]
    pub fn url(&self) -> &str {
        match &self.server {
            Server::Own { url, .. } => url,
            Server::Foreign { access, .. } => &access.server,
        }
    }

    /// The certificate of the CA that signed the server's.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        match &self.server {
            Server::Own { pki, .. } => pki.ca_pem(),
            Server::Foreign { access, .. } => &access.ca_pem,
        }
    }

    /// How the servers of kubeconfigs are reached from here.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        match &self.server {
            Server::Own { api, url, in_process: true, .. } => {
                Dialer::InProcess { api: api.clone(), url: url.clone() }
            }
            _ => Dialer::Tls,
        }
    }

    /// A client that may do everything.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.client_as(ADMIN.0, ADMIN.1)
    }

    /// The lab's own takes anybody's word in process; elsewhere everything is done as the one user known.
    fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        match &self.server {
            Server::Own { api, .. } => {
                Client::over(api.service(Peer::User(User::new(user, groups))))
            }
            Server::Foreign { admin, .. } => admin.clone(),
        }
    }

    /// The way of a user who may do everything, with a certificate of its own on the lab's server.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.server {
            Server::Own { pki, url, .. } => Access::issued(url, pki, ADMIN.0, ADMIN.1),
            Server::Foreign { access, .. } => access.clone(),
        }
    }

    /// Ends its parts and waits for them; a foreign server goes on.
    pub async fn stop(mut self) {
        self.end().await;
    }

    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        wait_for(std::mem::take(&mut self.tasks)).await;
    }
}
