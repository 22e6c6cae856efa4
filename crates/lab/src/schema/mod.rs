//! What a schema says of an object, and every way to change one. Pure.
