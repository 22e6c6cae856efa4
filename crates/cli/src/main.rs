//! Drover drives herds of Kubernetes nodes.
fn main() {}
