//! One manager at work at a time, by a Lease.
//!
//! The rules are client-go's (tools/leaderelection): a Lease is judged expired by how long this
//! process has seen it unchanged, never by the clocks of others, and every write carries the
//! resource version it was decided on, so of two candidates one is refused.

use drover_provider::Clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a Lease holds after its last renewal.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// After this time without a renewal the holder stops work, before anyone else may begin.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the holder renews and the others look.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A candidate for the lead.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    seen: Option<(String, Instant)>,
}

/// The lead, held until it is lost or given up.
pub struct Lead {
    /// Cancelled when the lead is lost, or when the manager is to stop.
    pub working: CancellationToken,
    given_up: CancellationToken,
    holding: JoinHandle<()>,
}

impl Lead {
    /// Lets the next one in at once. To be called when nothing is in hand any more.
    pub async fn give_up(self) {
        self.given_up.cancel();
        // A holder that panicked leaves a Lease that runs out.
        let _ = self.holding.await;
    }
}

impl Candidate {
    /// A candidate for the Lease `name` in the namespace of `api`; `identity` is unique per process.
    pub fn new(api: Api<Lease>, name: &str, identity: &str, clock: Clock) -> Self {
        Self { api, name: name.to_owned(), identity: identity.to_owned(), clock, seen: None }
    }

    /// Waits until this candidate leads; `None` when `stop` comes first.
    pub async fn lead(mut self, stop: CancellationToken) -> Option<Lead> {
        loop {
            if matches!(self.step().await, Ok(true)) {
                break;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(RETRY_PERIOD) => {}
            }
        }
        let (working, given_up) = (stop.child_token(), CancellationToken::new());
        let holding = tokio::spawn(self.hold(working.clone(), given_up.clone()));
        Some(Lead { working, given_up, holding })
    }

    /// Renews until the lead is given up, also while the last work is being finished.
    async fn hold(mut self, working: CancellationToken, given_up: CancellationToken) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::select! {
                biased;
                () = given_up.cancelled() => return self.release().await,
                () = tokio::time::sleep(RETRY_PERIOD) => {}
            }
            let tried = Instant::now();
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.step()).await {
                Ok(Ok(true)) => renewed = tried,
                Ok(Ok(false)) => break,
                Ok(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "lease not renewed");
                }
                Err(_) => {}
            }
        }
        tracing::error!(lease = self.name, "the lead is lost, work stops");
        working.cancel();
    }

    /// One look and at most one write: whether this candidate leads now.
    async fn step(&mut self) -> Result<bool, kube::Error> {
        let now = MicroTime(self.clock.now());
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            return self.create(now).await;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(known, _)| *known != version) {
            self.seen = Some((version, Instant::now()));
        }
        let unchanged_for = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        let spec = lease.spec.get_or_insert_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let mine = holder == self.identity;
        if !mine && !holder.is_empty() && unchanged_for < LEASE_DURATION {
            return Ok(false);
        }
        if !mine {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
            spec.acquire_time = Some(now.clone());
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(seconds(LEASE_DURATION));
        won(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    async fn create(&self, now: MicroTime) -> Result<bool, kube::Error> {
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.name.clone());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds(LEASE_DURATION)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        });
        won(self.api.create(&PostParams::default(), &lease).await)
    }

    /// Best effort: otherwise the Lease runs out.
    async fn release(self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            spec.holder_identity = None;
            let _ = self.api.replace(&self.name, &PostParams::default(), &lease).await;
        }
    }
}

fn won(answer: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
