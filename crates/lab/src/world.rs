//! A whole world to drive: an API server, a cloud, and everything between them, in process or on loopback.

mod first;
mod plane;
mod sky;

pub use plane::{Own, Plane};
pub use sky::Foreign;

use crate::client::{ApiError, Client};
use crate::clock::{Clock, Pace};
use crate::cloud::{self, Cloud};
use crate::cluster::ccm;
use crate::dial::DialError;
use crate::kubeconfig::Access;
use crate::{kubelet, openstack};
use jiff::Timestamp;
use sky::Sky;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long `stop` waits for the parts to end before it lets go of them.
const STOP_MAX: Duration = Duration::from_secs(5);

/// How a world is made.
pub struct Config {
    /// No sockets: both servers are services of this process.
    pub in_process: bool,
    /// An API server that is there already, as a user who may do everything, in place of the lab's own and of the
    /// controllers of its cluster; not in process.
    pub api: Option<Access>,
    /// An OpenStack that is there already, in place of the lab's own; not in process.
    pub openstack: Option<Foreign>,
    /// Where the lab's own API server listens; port 0 takes a free one.
    pub api_addr: SocketAddr,
    /// Where the lab's own cloud listens; port 0 takes a free one.
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
            api: None,
            openstack: None,
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
    /// The API server cannot be dialled with what was given.
    #[error("cannot use the API server's kubeconfig")]
    Dial(#[from] DialError),
    /// The cloud that is there cannot be used.
    #[error("cannot use the cloud")]
    Cloud(#[from] openstack::Error),
    /// Who is to read what servers boot from may not.
    #[error(
        "cannot list everybody's servers as an administrator, who is to read what they boot from"
    )]
    Admin(#[source] openstack::Error),
}

/// A running world. It ends when it is stopped or dropped.
pub struct World {
    plane: Plane,
    sky: Sky,
    clock: Clock,
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
    /// When an address is taken, or the API server that is there cannot be used.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let Config { in_process, pace, seed, .. } = config;
        let clock = Clock::start(config.start);
        let plane = match config.api {
            Some(access) => Plane::foreign(access).await?,
            None => {
                let address = (!in_process).then_some(config.api_addr);
                let watch_history = config.watch_history;
                Plane::own(Own { address, clock, pace, seed, watch_history }).await?
            }
        };
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let sky = match config.openstack {
            Some(foreign) => Sky::foreign(foreign).await?,
            None => {
                let address = (!in_process).then_some(config.cloud_addr);
                let own = sky::Own { address, clock, pace, seed, change: config.cloud };
                Sky::own(own, &stop, &mut tasks).await?
            }
        };
        let mut world = Self { plane, sky, clock, stop, tasks };
        world.run_parts(pace, seed);
        Ok(world)
    }

    fn run_parts(&mut self, pace: Pace, seed: u64) {
        let admin = self.plane.admin();
        let guests = self.sky.guests(&self.stop);
        // A cluster with nodes of its own has its own.
        if guests.is_some() || self.plane.embedded().is_some() {
            let ccm_config = ccm::Config {
                client: admin.clone().named("cloud-controller-manager"),
                cloud: self.sky.account(),
                // A real cloud is not looked at more often than in life.
                pace: if self.cloud().is_some() { pace } else { Pace::default() },
                regional: false,
            };
            self.tasks.spawn(ccm::run(ccm_config, self.stop.clone()));
        }
        let Some((power, console)) = guests else { return };
        let nodes = kubelet::Config {
            console,
            dialer: self.plane.dialer(),
            watcher: admin.named("kubelet"),
            clock: self.clock,
            pace,
            seed,
        };
        self.tasks.spawn(kubelet::run(nodes, power, self.stop.clone()));
    }

    /// The API server.
    #[must_use]
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The lab's own cloud, if it is the one.
    #[must_use]
    pub fn cloud(&self) -> Option<&Cloud> {
        self.sky.embedded()
    }

    /// The time of the world.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The URL that kubeconfigs name.
    #[must_use]
    pub fn api_url(&self) -> &str {
        self.plane.url()
    }

    /// The URL before the services of the lab's own cloud, or Keystone's of another.
    #[must_use]
    pub fn cloud_url(&self) -> &str {
        self.sky.url()
    }

    /// The certificate of the cluster's CA.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.plane.ca_pem()
    }

    /// A client of the API server that may do everything.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.plane.admin()
    }

    /// The credentials of the lab's own cloud as OpenStack's clients read them.
    #[must_use]
    pub fn clouds_yaml(&self) -> Option<String> {
        self.cloud().map(Cloud::clouds_yaml)
    }

    /// Ends every part and waits for it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        wait_for(std::mem::take(&mut self.tasks)).await;
        self.plane.end().await;
    }
}

async fn wait_for(mut tasks: JoinSet<()>) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_MAX, ended).await.is_err() {
        tracing::warn!("parts of the world still ran {STOP_MAX:?} after they were stopped");
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
