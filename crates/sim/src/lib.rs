//! Whole worlds in one process: scenarios, invariants and benches.

pub mod door;
pub mod faults;
pub mod real;
pub mod scenario;
pub mod stage;
