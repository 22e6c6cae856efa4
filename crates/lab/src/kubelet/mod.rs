//! Nodes: servers that boot from their user-data and run a kubelet, if that is what it leads to.

pub mod boot;
