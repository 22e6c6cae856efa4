//! The other side of the wire: a Kubernetes API server, an OpenStack cloud and nodes, all simulated.

pub mod apiserver;
pub mod client;
pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod dial;
pub mod kube;
pub mod kubeconfig;
pub mod kubelet;
pub mod openstack;
pub mod pki;
pub mod schema;
pub mod world;
