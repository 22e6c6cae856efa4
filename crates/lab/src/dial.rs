//! How a server named in a kubeconfig is reached.
