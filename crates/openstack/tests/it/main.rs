//! The provider against a simulated OpenStack in process, on a paused clock.

mod crash;
mod faults;
mod fields;
mod lent;
mod life;
mod network;
mod world;
