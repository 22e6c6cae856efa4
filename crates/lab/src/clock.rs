//! Wall time that follows tokio's clock, so that a paused world has a paused wall, and its pace.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// The time of a world.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began_at: Timestamp,
    began: Instant,
}

impl Clock {
    /// A clock that shows `at` now.
    #[must_use]
    pub fn start(at: Timestamp) -> Self {
        Self { began_at: at, began: Instant::now() }
    }

    /// The time of the world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.began.elapsed()).unwrap_or(SignedDuration::MAX);
        self.began_at.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// How many times faster than life simulated work goes: boots, builds, pod starts.
#[derive(Clone, Copy, Debug)]
pub struct Pace(pub f64);

impl Pace {
    /// The time that work of this length takes here.
    #[must_use]
    pub fn of(self, length: Duration) -> Duration {
        length.div_f64(self.0.max(0.001))
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self(1.0)
    }
}
