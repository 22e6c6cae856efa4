//! The API server: one engine over schemas, no struct per kind.

pub mod access;
pub mod subresource;
