//! Every decision of Drover and every document it renders, as pure functions of values.

pub mod bootstrap;
pub mod certificate;
pub mod drain;
pub mod in_place;
pub mod machine;
pub mod machine_deployment;
pub mod machine_set;
pub mod node;
pub mod reason;
pub mod skew;
mod time;

pub use reason::Wake;
