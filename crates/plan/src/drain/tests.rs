//! Which pods leave, which wait, and what is said of them.
