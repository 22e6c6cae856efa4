//! Observe and act for every controller of Drover.

pub mod cache;
mod caches;
mod certificate;
mod context;
pub mod events;
pub mod leader;
mod machine;
mod machine_deployment;
mod machine_set;
pub mod manager;
pub mod metrics;
pub mod queue;
pub mod rbac;
pub mod token;
mod triggers;
mod troubles;
pub mod work;
mod write;
