//! The provider against real OpenStack services; `make test-openstack` starts them and says where they are.

mod crash;
mod life;
mod project;
mod refusals;
mod rest;
mod wire;
