//! One value that many ask for and one fetches.

use crate::fault::Fault;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// How new an answer must be.
#[derive(Clone, Copy, Debug)]
pub enum Freshness {
    /// Fetched at most this long ago.
    Within(Duration),
    /// Asked of the cloud after this question was put.
    Live,
}

/// The last answer to one question. Whoever asks while it is being fetched waits and shares it, a
/// failure too, so that a hundred machines put a question once. A failure is not kept for later.
pub struct Flight<T> {
    /// Orders questions and fetches. Not the clock: on a paused one all would be at once.
    tickets: AtomicU64,
    landed: Mutex<Option<Landed<T>>>,
}

struct Landed<T> {
    began: u64,
    ended: u64,
    ended_at: Instant,
    outcome: Result<T, Fault>,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { tickets: AtomicU64::new(0), landed: Mutex::new(None) }
    }
}

impl<T: Clone> Flight<T> {
    /// The value, by `fetch` when none is fresh enough.
    ///
    /// # Errors
    /// The failure of this fetch, or of one that others waited for at the same time.
    pub async fn get(
        &self,
        freshness: Freshness,
        fetch: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let asked = self.ticket();
        let mut landed = self.landed.lock().await;
        if let Some(last) = &*landed {
            let shared = match (&last.outcome, freshness) {
                (Ok(_), Freshness::Within(age)) => last.ended_at.elapsed() <= age,
                (Ok(_), Freshness::Live) => last.began > asked,
                (Err(_), _) => last.ended > asked,
            };
            if shared {
                return last.outcome.clone();
            }
        }
        let began = self.ticket();
        let outcome = fetch.await;
        let ended = self.ticket();
        *landed = Some(Landed { began, ended, ended_at: Instant::now(), outcome: outcome.clone() });
        outcome
    }

    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    async fn count(calls: &AtomicU64) -> Result<u64, Fault> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(calls.fetch_add(1, Ordering::Relaxed) + 1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_questions_at_once_cost_at_most_two_fetches() {
        let (flight, calls) = (Arc::new(Flight::default()), Arc::new(AtomicU64::new(0)));
        let questions = (0..100).map(|_| {
            let (flight, calls) = (flight.clone(), calls.clone());
            async move { flight.get(Freshness::Live, count(&calls)).await }
        });
        futures::future::join_all(questions).await;
        assert!(calls.load(Ordering::Relaxed) <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn live_is_fetched_again_even_when_the_clock_stands() {
        let (flight, calls) = (Flight::default(), AtomicU64::new(0));
        let fetch = || async { Ok(calls.fetch_add(1, Ordering::Relaxed) + 1) };
        assert_eq!(flight.get(Freshness::Live, fetch()).await.ok(), Some(1));
        assert_eq!(flight.get(Freshness::Live, fetch()).await.ok(), Some(2));
        let second = Freshness::Within(Duration::from_secs(1));
        assert_eq!(flight.get(second, fetch()).await.ok(), Some(2));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(flight.get(second, fetch()).await.ok(), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let flight = Flight::default();
        let bad = async { Err::<u8, _>(Fault::Setup(drover_provider::Error::Invalid("x".into()))) };
        assert!(flight.get(Freshness::Within(Duration::MAX), bad).await.is_err());
        let good = async { Ok(7) };
        assert_eq!(flight.get(Freshness::Within(Duration::MAX), good).await.ok(), Some(7));
    }
}
