//! Observe and act for every controller of Drover.
