//! The simulated cloud as its clients see it: recorded exchanges of a real one, and what goes on behind them.

#[path = "openstack/fixture.rs"]
mod fixture;
#[path = "openstack/home.rs"]
mod home;
#[path = "openstack/recorded.rs"]
mod recorded;
#[path = "openstack/script.rs"]
mod script;
#[path = "openstack/servers.rs"]
mod servers;
#[path = "openstack/side.rs"]
mod side;
#[path = "openstack/trouble.rs"]
mod trouble;
