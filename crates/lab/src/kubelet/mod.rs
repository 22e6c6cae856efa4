//! Nodes: servers that boot from their user-data and run a kubelet, if that is what it leads to.

mod agent;
pub mod boot;
mod credentials;
pub mod idle;
mod life;
mod node;
mod pods;
pub mod power;
mod wire;

pub(crate) use node::seconds;
pub use pods::STOP_SECONDS;

use crate::client::Client;
use crate::clock::{Clock, Pace};
use crate::cloud::{Guest, Power};
use crate::dial::Dialer;
use agent::{Agent, Memory};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use wire::Wire;

/// From power to a running kubelet: firmware, kernel, cloud-init, downloads. A third more or less by chance.
const BOOT: Duration = Duration::from_secs(40);

/// What a node's hardware is, as far as a Node tells it.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The server's id.
    pub server: String,
    /// Different after each boot.
    pub boot_id: String,
    /// Processors.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Addresses of its ports.
    pub addresses: Vec<IpAddr>,
    /// Whether its image configures a network, so that no DaemonSet has to bring one.
    pub network: bool,
}

/// What all nodes share.
pub struct Config {
    /// What they print on.
    pub console: Console,
    /// How the servers of their kubeconfigs are reached.
    pub dialer: Dialer,
    /// Reads pods, nodes and certificate requests for all nodes at once.
    pub watcher: Client,
    /// The time of the world.
    pub clock: Clock,
    /// The pace of boots and pod starts.
    pub pace: Pace,
    /// Of names, delays and ids.
    pub seed: u64,
}

/// Takes a server's id and the line that it prints.
pub type Console = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// A console of whoever has none: the log.
#[must_use]
pub fn to_log() -> Console {
    Arc::new(|server, line| tracing::info!(server, "{line}"))
}

/// What one node needs of the world.
#[derive(Clone)]
struct World {
    console: Console,
    dialer: Dialer,
    wire: Wire,
    clock: Clock,
    pace: Pace,
}

struct Server {
    stop: CancellationToken,
    memory: Arc<Mutex<Memory>>,
}

/// Boots servers as they are switched on and silences them as they are switched off, until it is stopped.
pub async fn run(config: Config, mut power: UnboundedReceiver<Power>, stop: CancellationToken) {
    let wire = Wire::start(&config.watcher, &stop);
    let world = World {
        console: config.console,
        dialer: config.dialer,
        wire,
        clock: config.clock,
        pace: config.pace,
    };
    let mut dice = fastrand::Rng::with_seed(config.seed);
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => None,
            change = power.recv() => change,
        };
        match change {
            None => break,
            Some(Power::On(guest)) => {
                let server = servers
                    .entry(guest.server.clone())
                    .or_insert_with(|| Server { stop: stop.child_token(), memory: Arc::default() });
                server.stop.cancel();
                server.stop = stop.child_token();
                let memory = Arc::clone(&server.memory);
                let life = live(world.clone(), *guest, memory, dice.fork());
                let stop = server.stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(life).await });
            }
            Some(Power::Off { server }) => {
                if let Some(server) = servers.get(&server) {
                    server.stop.cancel();
                }
            }
            Some(Power::Gone { server }) => {
                if let Some(server) = servers.remove(&server) {
                    server.stop.cancel();
                }
            }
        }
    }
    for server in servers.values() {
        server.stop.cancel();
    }
}

/// One server from power on; whatever was begun ends where it is when the power goes.
async fn live(world: World, guest: Guest, memory: Arc<Mutex<Memory>>, mut dice: fastrand::Rng) {
    tokio::time::sleep(world.pace.of(BOOT.mul_f64(2.0 / 3.0 + dice.f64() * 2.0 / 3.0))).await;
    let boot = boot::boot(&guest.user_data, &guest.host_name);
    for line in &boot.console {
        (world.console)(&guest.server, line);
    }
    let Some(join) = boot.join else { return };
    let started =
        format!("Started kubelet.service: kubelet {} of node {}", join.version, join.node_name);
    (world.console)(&guest.server, &started);
    let hardware = Hardware {
        boot_id: format!("{:08x}-0000-4000-8000-{:012x}", dice.u32(..), dice.u64(..) >> 16),
        cpus: guest.vcpus,
        memory_mib: guest.ram,
        addresses: guest.fixed,
        network: false,
        server: guest.server,
    };
    Agent::new(world, join, hardware, memory, dice).run().await;
}
