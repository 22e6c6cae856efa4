//! The parts of an object that have a life of their own: eviction, binding, approval, tokens.
