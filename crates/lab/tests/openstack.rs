//! The simulated cloud as its clients see it: recorded exchanges of a real one, and what goes on behind them.

#[path = "openstack/fixture.rs"]
mod fixture;
#[path = "openstack/replay.rs"]
mod replay;
#[path = "openstack/servers.rs"]
mod servers;
#[path = "openstack/trouble.rs"]
mod trouble;
