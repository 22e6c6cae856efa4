//! Built-in kinds against what a real server made of them.
