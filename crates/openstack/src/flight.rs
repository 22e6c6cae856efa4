//! One value that many ask for and one fetches.

use crate::fault::Fault;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// The last answer to one question. Whoever asks while it is being fetched waits and shares it, a
/// failure too, so that a hundred machines put a question once. A failure is not kept for later.
pub struct Flight<T> {
    /// Orders questions and fetches. Not the clock: on a paused one all would be at once.
    tickets: AtomicU64,
    landed: Mutex<Option<Landed<T>>>,
}

struct Landed<T> {
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
    /// The value, at most `kept` old, by `fetch` when there is none.
    ///
    /// # Errors
    /// The failure of this fetch, or of one that others waited for at the same time.
    pub async fn get(
        &self,
        kept: Duration,
        fetch: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let asked = self.ticket();
        let mut landed = self.landed.lock().await;
        if let Some(last) = &*landed {
            let shared = match &last.outcome {
                Ok(_) => last.ended_at.elapsed() <= kept,
                Err(_) => last.ended > asked,
            };
            if shared {
                return last.outcome.clone();
            }
        }
        let outcome = fetch.await;
        let ended = self.ticket();
        *landed = Some(Landed { ended, ended_at: Instant::now(), outcome: outcome.clone() });
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

    const KEPT: Duration = Duration::from_secs(1);

    async fn fetch(calls: &AtomicU64, fail: bool) -> Result<u64, Fault> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let count = calls.fetch_add(1, Ordering::Relaxed) + 1;
        let error = drover_provider::Error::Invalid("no".into());
        if fail { Err(Fault::Setup(error)) } else { Ok(count) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_questions_at_once_cost_one_fetch_even_when_it_fails() {
        for fail in [false, true] {
            let (flight, calls) = (Arc::new(Flight::default()), Arc::new(AtomicU64::new(0)));
            let questions = (0..100).map(|_| {
                let (flight, calls) = (flight.clone(), calls.clone());
                async move { flight.get(KEPT, fetch(&calls, fail)).await }
            });
            let answers = futures::future::join_all(questions).await;
            assert!(answers.iter().all(|it| it.is_err() == fail));
            assert_eq!(calls.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_kept_for_its_time_and_a_failure_not_at_all() {
        let (flight, calls) = (Flight::default(), AtomicU64::new(0));
        assert!(flight.get(KEPT, fetch(&calls, true)).await.is_err());
        assert_eq!(flight.get(KEPT, fetch(&calls, false)).await.ok(), Some(2));
        assert_eq!(flight.get(KEPT, fetch(&calls, false)).await.ok(), Some(2));
        tokio::time::advance(KEPT * 2).await;
        assert_eq!(flight.get(KEPT, fetch(&calls, false)).await.ok(), Some(3));
    }
}
