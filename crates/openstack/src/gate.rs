//! The limiter of one endpoint: how much is in flight, and whether the cloud asked for a pause.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// Calls to one endpoint at the same time. What is in flight is bounded, not calls per second: a quick
/// cloud is used in full and a slow one is not drowned.
pub const CALLS_IN_FLIGHT: usize = 32;

/// The pause that a caller waits out by itself; a longer one goes back to whoever ordered.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause that a cloud can impose with one answer.
const PAUSE_CAP: Duration = Duration::from_secs(300);

/// One endpoint's limiter.
pub struct Gate {
    permits: Semaphore,
    closed_until: Mutex<Option<Instant>>,
}

impl Gate {
    fn new() -> Self {
        Self { permits: Semaphore::new(CALLS_IN_FLIGHT), closed_until: Mutex::new(None) }
    }

    /// Waits for a free place. `Err` is how long the cloud wants to be left alone.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, Duration> {
        loop {
            let pause = self.pause();
            if pause > LONGEST_PAUSE {
                return Err(pause);
            }
            tokio::time::sleep(pause).await;
            let permit = self.permits.acquire().await.expect("a gate's semaphore is never closed");
            if self.pause().is_zero() {
                return Ok(permit);
            }
        }
    }

    /// Lets nobody in for so long, as `Retry-After` asked.
    pub fn close(&self, pause: Duration) {
        let until = Instant::now() + pause.min(PAUSE_CAP);
        let mut closed = self.closed_until.lock().expect("nobody panics with this lock");
        *closed = (*closed).max(Some(until));
    }

    fn pause(&self) -> Duration {
        let closed = self.closed_until.lock().expect("nobody panics with this lock");
        closed.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// The gates of all endpoints, shared by all credentials.
#[derive(Default)]
pub struct Gates(Mutex<BTreeMap<String, Arc<Gate>>>);

impl Gates {
    /// The gate of an endpoint, known by scheme, host, port and first path segment.
    pub fn of(&self, endpoint: &str) -> Arc<Gate> {
        let mut gates = self.0.lock().expect("nobody panics with this lock");
        gates.entry(endpoint.to_owned()).or_insert_with(|| Arc::new(Gate::new())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_short_pause_is_waited_out_and_a_long_one_is_told() {
        let gate = Gate::new();
        let began = Instant::now();
        gate.close(Duration::from_secs(2));
        assert!(gate.enter().await.is_ok());
        assert_eq!(began.elapsed().as_secs(), 2);
        gate.close(Duration::from_secs(60));
        assert!(gate.enter().await.is_err_and(|pause| pause.as_secs() >= 59));
    }
}
