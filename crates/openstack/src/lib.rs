//! The OpenStack provider: servers, ports, volumes and floating IPs as resumable steps.

mod account;
mod clock;
mod clouds_yaml;
mod fault;
mod flight;
mod gate;
mod keystone;
mod session;
pub mod transport;

pub use clock::Clock;
