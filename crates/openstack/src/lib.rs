//! The OpenStack provider: servers, ports, volumes and floating IPs as resumable steps.

mod account;
mod cloud;
mod clouds_yaml;
mod complete;
mod create;
mod delete;
mod fault;
mod finish;
mod flight;
mod floating;
mod gate;
mod group;
mod holdings;
mod instance;
mod keystone;
mod lookup;
mod marks;
mod parameters;
mod place;
mod ports;
mod promise;
mod provider;
mod query;
mod recall;
mod session;
pub mod transport;
mod wire;

pub use provider::{LOCAL_STORAGE, OpenStack, Setup};
