//! One file for each verb of the command line.

mod demo;
pub mod dev;
pub mod manager;
pub mod manifests;
mod narrate;
