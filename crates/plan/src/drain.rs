//! Which pods leave a node now, which wait, and which block a drain.
