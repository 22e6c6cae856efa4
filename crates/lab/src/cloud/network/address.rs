//! The addresses of subnets: which are free, and which are whose.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// So many random draws before the pool is searched from its start.
const DRAWS: u32 = 8;

/// A block of addresses, `192.168.48.0/20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cloud) struct Block {
    first: u128,
    bits: u32,
    v6: bool,
}

impl Block {
    pub(super) fn parse(cidr: &str) -> Option<Self> {
        let (address, length) = cidr.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv6() { 128 } else { 32 };
        let length: u32 = length.parse().ok().filter(|length| *length <= width)?;
        let bits = width - length;
        let first =
            number(address).checked_shr(bits).map_or(0, |high| high.checked_shl(bits).unwrap_or(0));
        Some(Self { first, bits, v6: address.is_ipv6() })
    }

    pub(super) fn is_v6(self) -> bool {
        self.v6
    }

    fn last(self) -> u128 {
        self.first + 1_u128.checked_shl(self.bits).map_or(u128::MAX - self.first, |size| size - 1)
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv6() == self.v6 && (self.first..=self.last()).contains(&number(address))
    }

    /// Whether they have an address in common.
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.v6 == other.v6 && self.first <= other.last() && other.first <= self.last()
    }

    /// The address that is so far from the block's first.
    pub(super) fn at(self, offset: u128) -> IpAddr {
        from_number(self.first + offset, self.v6)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_number(number: u128, v6: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(short) if !v6 => Ipv4Addr::from_bits(short).into(),
        _ => Ipv6Addr::from_bits(number).into(),
    }
}

/// The addresses of one subnet.
#[derive(Debug)]
pub(in crate::cloud) struct Pool {
    pub block: Block,
    pub network: String,
    /// What is given out to those who ask for nothing in particular: first and last of each range, in order.
    ranges: Vec<(u128, u128)>,
    used: BTreeSet<u128>,
}

impl Pool {
    /// All of the block but its ends and its gateway.
    pub(super) fn new(network: &str, block: Block, gateway: Option<IpAddr>) -> Self {
        let last = block.last();
        let (first, last) = (block.first + 1, if block.v6 { last } else { last.saturating_sub(1) });
        let ranges = match gateway.map(number) {
            Some(gateway) if (first..=last).contains(&gateway) => {
                vec![(first, gateway - 1), (gateway + 1, last)]
            }
            _ => vec![(first, last)],
        };
        let ranges = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        Self { block, network: network.to_owned(), ranges, used: BTreeSet::new() }
    }

    /// These ranges of the block.
    pub(super) fn of(network: &str, block: Block, ranges: &[(IpAddr, IpAddr)]) -> Self {
        let mut ranges: Vec<(u128, u128)> =
            ranges.iter().map(|(first, last)| (number(*first), number(*last))).collect();
        ranges.sort_unstable();
        Self { block, network: network.to_owned(), ranges, used: BTreeSet::new() }
    }

    /// What another pool of the same subnet has given out is given out here.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.used.clone_from(&before.used);
    }

    /// As Neutron shows it.
    pub(super) fn ranges(&self) -> Value {
        let shown = self.ranges.iter().map(|(first, last)| {
            json!({"start": from_number(*first, self.block.v6), "end": from_number(*last, self.block.v6)})
        });
        shown.collect()
    }

    /// Takes this address; false when somebody has it.
    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        self.used.insert(number(address))
    }

    /// Takes any free address of the ranges.
    pub(super) fn draw(&mut self, rng: &mut fastrand::Rng) -> Option<IpAddr> {
        let (first, last) = (self.ranges.first()?.0, self.ranges.last()?.1);
        let within =
            |one: &u128| self.ranges.iter().any(|(first, last)| (first..=last).contains(&one));
        let drawn = (0..DRAWS).map(|_| rng.u128(first..=last));
        let free = drawn.filter(within).find(|one| !self.used.contains(one)).or_else(|| {
            let mut all = self.ranges.iter().flat_map(|(first, last)| *first..=*last);
            all.find(|one| !self.used.contains(one))
        })?;
        self.used.insert(free);
        Some(from_number(free, self.block.v6))
    }

    pub(super) fn free(&mut self, address: IpAddr) {
        self.used.remove(&number(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_each_address_once_and_then_no_more() {
        let block = Block::parse("10.0.0.0/29").unwrap();
        let mut pool = Pool::new("n", block, Some(block.at(1)));
        assert_eq!(pool.ranges(), json!([{"start": "10.0.0.2", "end": "10.0.0.6"}]));
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn: BTreeSet<IpAddr> = std::iter::from_fn(|| pool.draw(&mut rng)).collect();
        assert_eq!(drawn.len(), 5);
        assert!(drawn.iter().all(|one| block.contains(*one)));
        pool.free("10.0.0.4".parse().unwrap());
        assert_eq!(pool.draw(&mut rng), Some("10.0.0.4".parse().unwrap()));
    }

    #[test]
    fn blocks_know_their_family_and_ends() {
        let v6 = Block::parse("2001:db8::/64").unwrap();
        assert!(v6.contains("2001:db8::ffff".parse().unwrap()));
        assert!(!v6.contains("2001:db9::1".parse().unwrap()));
        assert!(!Block::parse("0.0.0.0/0").unwrap().contains("::1".parse().unwrap()));
        assert_eq!(Block::parse("10.0.0.0/33"), None);
    }
}
