//! Which certificate requests of kubelets are approved, and why.
