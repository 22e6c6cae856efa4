//! The life of a machine, step by step.
