//! Whole worlds in one process, on a paused clock.

mod death;
mod drain;
mod storm;
mod story;
