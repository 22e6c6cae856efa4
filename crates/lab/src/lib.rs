//! The other side of the wire: a Kubernetes API server, an OpenStack cloud and nodes, all simulated.
