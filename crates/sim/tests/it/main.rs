//! Whole worlds in one process, on a paused clock.

mod creation;
mod death;
mod deletion;
mod drain;
mod join;
mod judges;
mod leader;
mod life;
mod manifests;
mod oddities;
mod rollout;
mod secrets;
mod storm;
mod story;
mod timing;
mod volumes;
mod workload;
