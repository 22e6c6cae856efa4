//! What the controllers count, for Prometheus. A registry is a value: one per manager, none global.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::time::Duration;

/// The controller and how a reconcile ended; few values by construction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Because {
    reason: String,
}

/// The counters of one manager.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<Ended, Counter>,
    seconds: Family<Of, Histogram>,
    waiting: Family<Of, Gauge>,
    steps: Family<Because, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("drover");
        let reconciles = Family::default();
        let seconds = Family::<Of, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 4.0, 8))
        });
        let waiting = Family::default();
        let steps = Family::default();
        registry.register("reconciles", "Objects looked at, by how it ended", reconciles.clone());
        registry.register_with_unit(
            "reconcile",
            "Time one look took, API and cloud calls included",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register("waiting", "Objects that wait for a worker", waiting.clone());
        registry.register("steps", "Steps taken, by their reason", steps.clone());
        Self { registry: Arc::new(registry), reconciles, seconds, waiting, steps }
    }
}

impl Metrics {
    /// One look at an object has ended.
    pub fn reconciled(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Ended { controller, outcome }).inc();
        self.seconds.get_or_create(&Of { controller }).observe(took.as_secs_f64());
    }

    /// So many objects wait for a worker.
    pub fn waiting(&self, controller: &'static str, depth: usize) {
        self.waiting
            .get_or_create(&Of { controller })
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A step was taken for a reason of the vocabulary.
    pub fn step(&self, reason: &str) {
        self.steps.get_or_create(&Because { reason: reason.to_owned() }).inc();
    }

    /// All counters in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(std::fmt::Error) => String::new(),
        }
    }
}
