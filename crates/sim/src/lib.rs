//! Whole worlds in one process: scenarios, invariants and benches.

pub mod faults;
pub mod stage;
