//! Whole worlds in one process, on a paused clock.

mod death;
mod drain;
mod leader;
mod storm;
mod story;
