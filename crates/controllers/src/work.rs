//! Workers that take objects from a queue and look at them, a bounded number at once.

use crate::metrics::Metrics;
use crate::queue::{Outcome, Queue};
use futures::FutureExt;
use std::fmt::{Debug, Display};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Looks at objects until stopped, at most `limit` at once, and then waits for those in hand.
///
/// A panic in `look` is one failed look at one object: it is logged, counted and tried again with
/// backoff, and takes nothing else with it.
pub async fn run<K, F, Fut>(
    controller: &'static str,
    queue: Queue<K>,
    limit: usize,
    metrics: Metrics,
    look: F,
    stop: CancellationToken,
) where
    K: Ord + Clone + Debug + Display + Send + 'static,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(limit));
    loop {
        let slot = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            slot = slots.clone().acquire_owned() => slot,
        };
        let Ok(slot) = slot else { break };
        let key = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            key = queue.take() => key,
        };
        metrics.waiting(controller, queue.depth());
        let (queue, metrics, look) = (queue.clone(), metrics.clone(), look.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let looked = AssertUnwindSafe(look(key.clone())).catch_unwind().await;
            let (outcome, word) = match looked {
                Ok(outcome) => (outcome, word(outcome)),
                Err(_) => {
                    tracing::error!(controller, object = %key, "a look at the object panicked");
                    (Outcome::Failed, "panicked")
                }
            };
            metrics.reconciled(controller, word, began.elapsed());
            queue.done(key, outcome);
            drop(slot);
        });
    }
    let all = u32::try_from(limit).unwrap_or(u32::MAX);
    drop(slots.acquire_many(all).await);
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Settled => "settled",
        Outcome::WakeAfter(_) => "waiting",
        Outcome::Failed | Outcome::FailedFor(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Urgency;
    use std::sync::Mutex;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limit_at_once_and_a_panic_is_one_failure() {
        let queue = Queue::default();
        for name in ["a", "b", "c", "d"] {
            queue.add(name, Urgency::New);
        }
        let seen: Arc<Mutex<(usize, usize, Vec<&str>)>> = Arc::default();
        let log = seen.clone();
        let look = move |key: &'static str| {
            let log = log.clone();
            async move {
                {
                    let mut log = log.lock().unwrap();
                    log.0 += 1;
                    log.1 = log.1.max(log.0);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                let first = {
                    let mut log = log.lock().unwrap();
                    log.0 -= 1;
                    log.2.push(key);
                    log.2.iter().filter(|seen| **seen == key).count() == 1
                };
                assert!(!(key == "b" && first), "b panics the first time");
                Outcome::Settled
            }
        };
        let stop = CancellationToken::new();
        let metrics = Metrics::default();
        let work = tokio::spawn(run("test", queue, 2, metrics.clone(), look, stop.clone()));
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
        work.await.unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!((seen.1, &seen.2[..]), (2, ["a", "b", "c", "d", "b"].as_slice()));
        let text = metrics.text();
        assert!(
            text.contains(r#"drover_reconciles_total{controller="test",outcome="panicked"} 1"#),
            "{text}"
        );
    }
}
