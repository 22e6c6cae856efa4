//! A simulated OpenStack that speaks the REST of Keystone, Nova, Neutron, Glance and Cinder.

mod compute;
mod config;
mod fault;
mod gate;
mod http;
mod identity;
mod image;
mod ledger;
mod network;
mod seed;
mod state;
mod volume;

pub use config::{Config, Delays, HostSize, Quotas};
pub use fault::{Effect, Fault};
pub use ledger::{Entry, Ledger};

use state::State;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// A machine as its hypervisor sees it when it is switched on.
#[derive(Clone)]
pub struct Guest {
    /// The server's id.
    pub server: String,
    /// The server's name.
    pub name: String,
    /// The host name that the metadata service gives.
    pub host_name: String,
    /// The user-data exactly as it was sent, decoded from base64.
    pub user_data: Vec<u8>,
    /// Addresses of its ports.
    pub fixed: Vec<IpAddr>,
    /// Floating addresses that lead to it.
    pub floating: Vec<IpAddr>,
    /// Its availability zone.
    pub zone: String,
    /// The name of its flavor.
    pub flavor: String,
    /// Processors.
    pub vcpus: u64,
    /// Memory in MiB.
    pub ram: u64,
    /// The server's metadata.
    pub metadata: BTreeMap<String, String>,
}

impl fmt::Debug for Guest {
    /// Without the user-data, which carries a machine's secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Guest")
            .field("server", &self.server)
            .field("name", &self.name)
            .field("user_data_bytes", &self.user_data.len())
            .field("fixed", &self.fixed)
            .field("floating", &self.floating)
            .field("zone", &self.zone)
            .field("flavor", &self.flavor)
            .finish_non_exhaustive()
    }
}

/// What happens to a machine's power.
#[derive(Clone, Debug)]
pub enum Power {
    /// It was switched on.
    On(Box<Guest>),
    /// It was switched off and is still there.
    Off {
        /// The server's id.
        server: String,
    },
    /// It is no more.
    Gone {
        /// The server's id.
        server: String,
    },
}

/// A whole cloud. Clones are the same cloud; its work ends when the last one is dropped.
#[derive(Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wake: Arc<Notify>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A call that panicked is that call's failure; the cloud goes on, as a real one does.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Cloud {
    /// A cloud with the demo's contents. Must be called within a tokio runtime, which does its work.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let wake = Arc::new(Notify::new());
        let state = Mutex::new(State::new(config, wake.clone()));
        let shared = Arc::new(Shared { state, wake: wake.clone() });
        tokio::spawn(work(Arc::downgrade(&shared), wake));
        Self { shared }
    }

    /// The services under `/identity`, `/compute`, `/network`, `/image` and `/volume`, and the inspection under
    /// `/lab`: `GET /lab/state`, `GET` and `PUT /lab/faults`.
    pub fn router(&self) -> axum::Router {
        let cloud = self.clone();
        axum::Router::new()
            .fallback(move |request: axum::extract::Request| gate::pass(cloud.clone(), request))
    }

    /// Answers on this listener, in plain HTTP, until stopped.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        listener: tokio::net::TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        axum::serve(listener, self.router()).with_graceful_shutdown(stop.cancelled_owned()).await
    }

    /// What happens to the machines from now on; machines that run already are told first.
    #[must_use]
    pub fn power(&self) -> mpsc::UnboundedReceiver<Power> {
        self.shared.lock().listen()
    }

    /// Appends a line to a server's console; a server that is gone has none.
    pub fn console(&self, server: &str, line: &str) {
        compute::console(&mut self.shared.lock(), server, line);
    }

    /// Takes a server away as if it had never been asked for: no DELETE, the next GET is 404. Its own ports and
    /// volumes stay behind, unbound. False when there is no such server.
    pub fn vanish(&self, server: &str) -> bool {
        compute::vanish(&mut self.shared.lock(), server)
    }

    /// Switches a server off without anybody having asked for it: SHUTOFF, or ERROR if `broken`. False when there
    /// is no such server.
    pub fn crash(&self, server: &str, broken: bool) -> bool {
        compute::crash(&mut self.shared.lock(), server, broken)
    }

    /// Replaces what goes wrong.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.shared.lock().faults.set(faults);
    }

    /// Adds something that goes wrong, after what is there.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.lock().faults.add(fault);
    }

    /// Changes what a project may have from now on.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.shared.lock().config.quotas = quotas;
    }

    /// A floating IP of the demo's pool that its project keeps for later, and what the owner says of it; its id. `None`
    /// when the pool is empty.
    pub fn keep_floating_ip(&self, description: &str) -> Option<String> {
        let state = &mut self.shared.lock();
        let pool = network::external(state)?;
        let project = state.identity.projects.first()?.id.clone();
        network::floating::plant(state, &pool, &project, description)
    }

    /// Makes every token invalid at once, where services have cached it too.
    pub fn expire_tokens(&self) {
        self.shared.lock().identity.expire_all();
    }

    /// What is there and what was ever asked.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let mut state = self.shared.lock();
        state.settle();
        ledger::take(&state)
    }

    /// The machine behind this server, as its hypervisor sees it.
    #[must_use]
    pub fn guest(&self, server: &str) -> Option<Guest> {
        compute::guest(&self.shared.lock(), server)
    }

    /// A clouds.yaml with `drover` (password) and `drover-appcred` (application credential).
    #[must_use]
    pub fn clouds_yaml(&self) -> String {
        seed::clouds_yaml(&self.shared.lock())
    }
}

/// Does the cloud's work when it is due, for as long as there is a cloud.
async fn work(shared: Weak<Shared>, wake: Arc<Notify>) {
    while let Some(cloud) = shared.upgrade() {
        let next = cloud.lock().settle();
        drop(cloud);
        match next {
            Some(due) => {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = wake.notified() => {}
                }
            }
            None => wake.notified().await,
        }
    }
}
