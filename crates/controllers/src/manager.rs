//! All controllers of one manager: what they are given, and how they start and stop together.

use crate::cache::Key;
use crate::caches::Caches;
use crate::context::Context;
use crate::events::Recorder;
use crate::leader::Candidate;
use crate::machine::Minds;
use crate::metrics::Metrics;
use crate::queue::{Outcome, Queue};
use crate::rbac::NAMESPACE;
use crate::triggers::{self, Queues};
use crate::troubles::{AllTroubles, chain};
use crate::{certificate, machine, machine_deployment, machine_set, work};
use drover_provider::Clock;
use drover_provider::Provider;
use kube::{Api, Client};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often everything is looked at even when nothing changed; jitter is not needed, for a look
/// that finds nothing to do writes nothing.
const RESYNC: Duration = Duration::from_secs(600);

/// How a manager works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mark of this cluster on every cloud resource.
    pub cluster_id: String,
    /// What all nodes boot with.
    pub nodes: drover_plan::machine::Cluster,
    pub machine: drover_plan::machine::Settings,
    pub deployment: drover_plan::machine_deployment::Settings,
    pub set: drover_plan::machine_set::Settings,
    pub concurrent_deployments: usize,
    pub concurrent_sets: usize,
    pub concurrent_machines: usize,
    pub concurrent_requests: usize,
    /// Whether managers take turns by a Lease; off where there can be only one.
    pub elect_leader: bool,
}

impl Settings {
    /// The defaults for a cluster.
    #[must_use]
    pub fn new(cluster_id: String, nodes: drover_plan::machine::Cluster) -> Self {
        Self {
            cluster_id,
            nodes,
            machine: drover_plan::machine::Settings::default(),
            deployment: drover_plan::machine_deployment::Settings::default(),
            set: drover_plan::machine_set::Settings::default(),
            concurrent_deployments: 16,
            concurrent_sets: 16,
            concurrent_machines: 64,
            concurrent_requests: 16,
            elect_leader: true,
        }
    }
}

/// A manager that has not started.
pub struct Manager {
    client: Client,
    provider: Arc<dyn Provider>,
    settings: Settings,
    clock: Clock,
    identity: String,
    metrics: Metrics,
}

impl Manager {
    /// A manager by the name `identity`, unique among those that share a Lease.
    pub fn new(
        client: Client,
        provider: Arc<dyn Provider>,
        settings: Settings,
        clock: Clock,
        identity: &str,
    ) -> Self {
        let identity = identity.to_owned();
        Self { client, provider, settings, clock, identity, metrics: Metrics::default() }
    }

    /// The counters of this manager.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Leads when it is this manager's turn, works until stopped or until the lead is lost, and ends
    /// when all that was in hand is done. Whether it was stopped, and not overthrown, is the answer.
    pub async fn run(self, stop: CancellationToken) -> bool {
        if !self.settings.elect_leader {
            self.work(stop.child_token()).await;
            return true;
        }
        let leases = Api::namespaced(self.client.clone(), NAMESPACE);
        let candidate = Candidate::new(leases, "drover", &self.identity, self.clock.clone());
        tracing::info!(manager = self.identity, "waits for the lead, the Lease {NAMESPACE}/drover");
        let Some(lead) = candidate.lead(stop.clone()).await else { return true };
        tracing::info!(manager = self.identity, "leads");
        self.work(lead.working.clone()).await;
        lead.give_up().await;
        stop.is_cancelled()
    }

    async fn work(self, stop: CancellationToken) {
        let recorder =
            Recorder::start(self.client.clone(), &self.identity, self.clock.clone(), stop.clone());
        let ctx = Arc::new(Context {
            client: self.client,
            caches: Caches::default(),
            provider: self.provider,
            settings: self.settings,
            clock: self.clock,
            recorder,
            metrics: self.metrics,
            troubles: AllTroubles::default(),
            minds: Minds::default(),
            api_server: Mutex::default(),
        });
        let queues = Queues::default();
        let tasks = TaskTracker::new();
        triggers::connect(&ctx.caches, &queues);
        ctx.caches.start(&ctx.client, &tasks, &stop);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ready(&ctx) => start_workers(&ctx, &queues, &tasks, &stop),
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// Waits for all that has to be known before anything is decided.
async fn ready(ctx: &Context) {
    ctx.caches.synced().await;
    ctx.learn_version().await;
}

fn start_workers(
    ctx: &Arc<Context>,
    queues: &Queues,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    macro_rules! controller {
        ($name:literal, $queue:expr, $limit:expr, $reconcile:path) => {
            let context = ctx.clone();
            let look = move |key: Key| {
                let context = context.clone();
                async move { report($name, &key.clone(), $reconcile(key, context).await) }
            };
            let queue: Queue<Key> = $queue.clone();
            tasks.spawn(work::run($name, queue, $limit, ctx.metrics.clone(), look, stop.clone()));
        };
    }
    let settings = &ctx.settings;
    controller!(
        "machine_deployment",
        queues.deployments,
        settings.concurrent_deployments,
        machine_deployment::reconcile
    );
    controller!("machine_set", queues.sets, settings.concurrent_sets, machine_set::reconcile);
    controller!("machine", queues.machines, settings.concurrent_machines, machine::reconcile);
    controller!(
        "certificate",
        queues.requests,
        settings.concurrent_requests,
        certificate::reconcile
    );
    tasks.spawn(resync(ctx.clone(), queues.clone(), stop.clone()));
}

async fn resync(ctx: Arc<Context>, queues: Queues, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RESYNC) => {
                ctx.learn_version().await;
                ctx.caches.enqueue_all(&queues);
            }
        }
    }
}

/// How long a look waits for the page that made its write a conflict; usually it is there at once
/// and wakes the object itself.
const STALE_PAGE_WAIT: Duration = Duration::from_secs(1);

/// The one place where a failed look is logged.
fn report<E: std::error::Error + 'static>(
    controller: &str,
    key: &Key,
    looked: Result<Outcome, E>,
) -> Outcome {
    match looked {
        Ok(outcome) => outcome,
        Err(error) if is_conflict(&error) => Outcome::WakeAfter(STALE_PAGE_WAIT),
        Err(error) => {
            tracing::warn!(controller, object = %key, error = chain(&error), "look failed");
            Outcome::Failed
        }
    }
}

fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            return status.code == 409;
        }
        next = error.source();
    }
    false
}
