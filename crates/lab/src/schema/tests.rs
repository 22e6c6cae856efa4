//! Whole objects through a schema, against what a real server answered.
