//! A certificate authority and what it issues.
