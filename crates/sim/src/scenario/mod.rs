//! What users do to pools, told once for every world: in process on a paused clock, and over TLS in real time.

pub mod drain;
pub mod end;
pub mod restart;
pub mod story;

use crate::faults::Life;
use crate::stage::{Stage, Working};

/// A manager at work on this stage that nothing ends.
///
/// # Errors
/// When the cloud's file cannot be read.
pub fn at_work(stage: &Stage) -> anyhow::Result<Working> {
    stage.work(stage.wires(&Life::long()))
}
