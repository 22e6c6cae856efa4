//! Whole worlds in one process: scenarios, invariants and benches.
