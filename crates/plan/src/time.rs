//! Points in time, as plans count them.

use jiff::Timestamp;
use std::time::Duration;

/// A point in time after another; never overflows.
pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// In whole seconds, as the API server keeps times.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
