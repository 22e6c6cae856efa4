//! The few controllers of a cluster without which a drain cannot be seen.
