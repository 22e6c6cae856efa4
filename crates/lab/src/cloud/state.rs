//! All that the cloud knows, and the work it still has to do.

use super::compute::Compute;
use super::config::Config;
use super::fault::Faults;
use super::identity::Identity;
use super::image::Images;
use super::ledger::Counters;
use super::network::Network;
use super::volume::Volumes;
use super::{Guest, Power, seed};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// A step of work on the object of this id. It looks whether the object still waits for it: nothing is cancelled.
pub(super) type Step = fn(&mut State, &str);

/// The cloud's memory; one call or one step at a time has it.
pub(super) struct State {
    pub config: Config,
    pub identity: Identity,
    pub images: Images,
    pub compute: Compute,
    pub network: Network,
    pub volumes: Volumes,
    pub faults: Faults,
    pub counters: Counters,
    rng: fastrand::Rng,
    steps: BTreeMap<(Instant, u64), (Step, String)>,
    serial: u64,
    wake: Arc<Notify>,
    listeners: Vec<mpsc::UnboundedSender<Power>>,
}

impl State {
    pub(super) fn new(config: Config, wake: Arc<Notify>) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let faults = Faults::new(config.faults.clone(), rng.fork());
        let mut state = Self {
            identity: Identity::default(),
            images: Images::default(),
            compute: Compute::new(&config),
            network: Network::default(),
            volumes: Volumes::default(),
            faults,
            counters: Counters::default(),
            rng,
            steps: BTreeMap::new(),
            serial: 0,
            wake,
            listeners: Vec::new(),
            config,
        };
        seed::plant(&mut state);
        // What was there from the beginning nobody made.
        state.counters = Counters::default();
        state
    }

    /// The time of the world.
    pub(super) fn now(&self) -> Timestamp {
        self.config.clock.now()
    }

    /// A random UUID.
    pub(super) fn uuid(&mut self) -> String {
        let (a, b) = (self.rng.u64(..), self.rng.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// A random id of 32 hexadecimal digits, as projects and users have.
    pub(super) fn hex(&mut self) -> String {
        format!("{:032x}", self.rng.u128(..))
    }

    pub(super) fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }

    /// Does this step after about this long (at pace 1).
    pub(super) fn after(&mut self, delay: Duration, step: Step, id: &str) {
        let jitter = 0.8 + 0.4 * self.rng.f64();
        let delay = self.config.pace.of(delay.mul_f64(jitter));
        self.at(delay, step, id);
    }

    /// Does this step after exactly this long.
    pub(super) fn at(&mut self, delay: Duration, step: Step, id: &str) {
        self.serial += 1;
        self.steps.insert((Instant::now() + delay, self.serial), (step, id.to_owned()));
        self.wake.notify_one();
    }

    /// Does all steps that are due; returns when the next one is.
    pub(super) fn settle(&mut self) -> Option<Instant> {
        let now = Instant::now();
        loop {
            let (&(due, serial), _) = self.steps.first_key_value()?;
            if due > now {
                return Some(due);
            }
            if let Some((step, id)) = self.steps.remove(&(due, serial)) {
                step(self, &id);
            }
        }
    }

    /// Tells the hypervisor side.
    pub(super) fn tell(&mut self, power: &Power) {
        self.listeners.retain(|listener| listener.send(power.clone()).is_ok());
    }

    /// A new listener; it first hears of every guest that runs.
    pub(super) fn listen(&mut self) -> mpsc::UnboundedReceiver<Power> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for guest in self.running() {
            // The receiver is at hand: this cannot fail.
            let _ = sender.send(Power::On(Box::new(guest)));
        }
        self.listeners.push(sender);
        receiver
    }

    fn running(&self) -> Vec<Guest> {
        let ids: Vec<&String> = self
            .compute
            .servers
            .values()
            .filter(|server| server.powered)
            .map(|server| &server.id)
            .collect();
        ids.into_iter().filter_map(|id| super::compute::guest(self, id)).collect()
    }
}

/// `2026-11-20T22:38:15Z`, as Nova and Neutron write times.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-11-20T22:38:15.000000`, as Cinder and Nova's `launched_at`.
pub(super) fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}
