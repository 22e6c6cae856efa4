//! Observe and act for every controller of Drover.

pub mod cache;
pub mod clock;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod queue;
pub mod rbac;
pub mod token;
pub mod work;
