//! Patches against what a real server answered.
