//! The cloud of a world: the lab's own, or one that was there before.

use super::{Error, listen, report};
use crate::clock::{Clock, Pace};
use crate::cloud::{self, Cloud, Power};
use crate::dial;
use crate::kubelet::{self, Console, power};
use crate::openstack::{Access, Client, Service};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The URL of the cloud in process.
const CLOUD_URL: &str = "http://cloud.lab";

/// An OpenStack that is there already.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// A user of the project in which servers are made.
    pub account: Access,
    /// Who may read what the servers boot from: their nodes are simulated. Without, servers boot by themselves.
    pub admin: Option<Access>,
}

/// How the lab's own cloud is made.
pub(super) struct Own {
    /// Where it listens; None for a service of this process alone.
    pub address: Option<SocketAddr>,
    pub clock: Clock,
    pub pace: Pace,
    pub seed: u64,
    pub change: Box<dyn FnOnce(&mut cloud::Config) + Send>,
}

pub(super) enum Sky {
    Own { cloud: Cloud, url: String, account: Client },
    Foreign { account: Client, admin: Option<Client> },
}

impl Sky {
    pub async fn own(
        own: Own,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, Error> {
        let listener = match own.address {
            None => None,
            Some(address) => Some(listen(address).await?),
        };
        let url = listener.as_ref().map_or(CLOUD_URL.to_owned(), |(_, at)| format!("http://{at}"));
        let mut demo = cloud::Config::demo(own.clock);
        demo.seed = own.seed;
        demo.pace = own.pace;
        demo.base_url.clone_from(&url);
        (own.change)(&mut demo);
        let cloud = Cloud::new(demo);
        let auth_url = format!("{url}/identity/v3");
        let mut access = Access::of([
            ("auth_url", auth_url.as_str()),
            ("username", "drover"),
            ("password", "password"),
            ("project_name", "drover"),
            ("region_name", "dbl"),
        ])?;
        match listener {
            None => access = access.over(dial::in_process(cloud.router())),
            Some((listener, _)) => {
                let (server, end) = (cloud.clone(), stop.clone());
                tasks.spawn(async move { report(server.serve(listener, end).await) });
            }
        }
        Ok(Self::Own { cloud, url, account: Client::new(access) })
    }

    /// One that is there: whether both users can do what they are for is tried at once.
    pub async fn foreign(foreign: Foreign) -> Result<Self, Error> {
        let account = Client::new(foreign.account);
        account.call(http::Method::GET, Service::Compute, "/servers?limit=1", None).await?;
        let admin = foreign.admin.map(Client::new);
        if let Some(admin) = &admin {
            let everybodys = "/servers?limit=1&all_tenants=1";
            let seen = admin.call(http::Method::GET, Service::Compute, everybodys, None).await;
            seen.map_err(Error::Admin)?;
        }
        Ok(Self::Foreign { account, admin })
    }

    pub fn embedded(&self) -> Option<&Cloud> {
        match self {
            Self::Own { cloud, .. } => Some(cloud),
            Self::Foreign { .. } => None,
        }
    }

    pub fn url(&self) -> &str {
        match self {
            Self::Own { url, .. } => url,
            Self::Foreign { account, .. } => account.auth_url(),
        }
    }

    pub fn account(&self) -> Client {
        let (Self::Own { account, .. } | Self::Foreign { account, .. }) = self;
        account.clone()
    }

    /// What happens to the servers whose nodes are simulated, and what these print on; None when servers boot by themselves.
    pub fn guests(&self, stop: &CancellationToken) -> Option<(UnboundedReceiver<Power>, Console)> {
        match self {
            Self::Own { cloud, .. } => {
                let screen = cloud.clone();
                let console: Console = Arc::new(move |server, line| screen.console(server, line));
                Some((cloud.power(), console))
            }
            Self::Foreign { account, admin: Some(admin) } => {
                let told = power::follow(account.clone(), admin.clone(), stop.clone());
                Some((told, kubelet::to_log()))
            }
            Self::Foreign { admin: None, .. } => None,
        }
    }
}
