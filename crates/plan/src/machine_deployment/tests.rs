//! Deployments in a line, plans in a line.
