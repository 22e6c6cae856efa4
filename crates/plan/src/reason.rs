//! The one vocabulary of reasons.
