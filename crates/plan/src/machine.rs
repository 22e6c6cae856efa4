//! The next step in the life of one machine.
