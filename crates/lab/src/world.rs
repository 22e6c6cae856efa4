//! Everything of the lab put together.
