//! How many machines of the new and of the old templates there are to be next, in numbers alone.

use drover_api::{MachineDeploymentSpec, StrategyType};

/// How far a rollout may leave the wanted number of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub replicas: u32,
    /// Most machines above `replicas`.
    pub surge: u32,
    /// Most machines below `replicas` that are not available.
    pub unavailable: u32,
}

/// How large a set is asked to be, and how many of its machines are available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub spec: u32,
    pub available: u32,
}

/// The next change of sizes: one direction at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Nothing can or need change now.
    Stay,
    /// The set of the present template.
    New(u32),
    /// The sets of earlier templates, in the order they were given.
    Old(Vec<u32>),
}

impl Bounds {
    /// Kubernetes: a share of surge is rounded up and one of unavailable down, and when both come to
    /// nothing one machine may be unavailable, for else nothing could ever move.
    pub fn of(spec: &MachineDeploymentSpec) -> Self {
        let replicas = spec.replicas;
        let (surge, unavailable) = match spec.strategy.type_ {
            StrategyType::Recreate => return Self { replicas, surge: 0, unavailable: 0 },
            StrategyType::RollingUpdate => {
                let bounds = spec.strategy.rolling();
                (bounds.max_surge, bounds.max_unavailable)
            }
            StrategyType::InPlaceUpdate => {
                let bounds = spec.strategy.in_place_update.unwrap_or_default();
                (bounds.max_surge, bounds.max_unavailable)
            }
        };
        let surge = surge.round_up(replicas);
        let unavailable = match unavailable.round_down(replicas) {
            0 if surge == 0 => 1,
            unavailable => unavailable,
        };
        Self { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// Most machines there may be; none at all when none is wanted.
    pub fn most(&self) -> u32 {
        if self.replicas == 0 { 0 } else { self.replicas.saturating_add(self.surge) }
    }

    /// Fewest machines that must be available.
    pub fn fewest_available(&self) -> u32 {
        self.replicas - self.unavailable
    }
}

/// The next move of a rolling update. `beyond` counts machines that sets still have above the size
/// they are asked to be: a size is a wish, and what is not gone yet takes its place. `old` is in the
/// order of age.
pub(super) fn roll(bounds: &Bounds, beyond: u32, new: Size, old: &[Size]) -> Move {
    if new.spec > bounds.replicas {
        return Move::New(bounds.replicas);
    }
    let old_spec: u32 = old.iter().map(|size| size.spec).sum();
    let asked = old_spec.saturating_add(new.spec);
    let room = bounds.most().saturating_sub(asked.saturating_add(beyond));
    let missing = bounds.replicas - new.spec;
    if room.min(missing) > 0 {
        return Move::New(new.spec + room.min(missing));
    }
    let unavailable_new = new.spec - new.available.min(new.spec);
    let budget = asked.saturating_sub(bounds.fewest_available()).saturating_sub(unavailable_new);
    shrink(old, budget)
}

/// Takes `budget` machines from the old sets: first those that are not available, which costs
/// nothing, each time from the oldest set first.
fn shrink(old: &[Size], mut budget: u32) -> Move {
    let mut next: Vec<u32> = old.iter().map(|size| size.spec).collect();
    for (spec, size) in next.iter_mut().zip(old) {
        let cut = budget.min(size.spec - size.available.min(size.spec));
        *spec -= cut;
        budget -= cut;
    }
    for spec in &mut next {
        let cut = budget.min(*spec);
        *spec -= cut;
        budget -= cut;
    }
    if next.iter().zip(old).all(|(spec, size)| *spec == size.spec) {
        return Move::Stay;
    }
    Move::Old(next)
}

/// The next move when all old machines go before the first new one comes. `remaining` counts the
/// machines of old sets that still exist, whatever their state.
pub(super) fn recreate(bounds: &Bounds, remaining: u32, new: Size, old: &[Size]) -> Move {
    if old.iter().any(|size| size.spec > 0) {
        return Move::Old(vec![0; old.len()]);
    }
    if remaining > 0 || new.spec == bounds.replicas {
        return Move::Stay;
    }
    Move::New(bounds.replicas)
}

/// A set that has machines while its deployment is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub spec: u32,
    /// The replicas and surge its deployment allowed when the set was last sized.
    pub most_then: u32,
}

/// Spreads a new number of replicas over the active sets in proportion to their sizes; they are
/// given from the newest to the oldest. Kubernetes: what rounding leaves goes to the largest.
pub(super) fn spread(bounds: &Bounds, sets: &[Share]) -> Vec<u32> {
    let asked: i64 = sets.iter().map(|set| i64::from(set.spec)).sum();
    let most = i64::from(bounds.most());
    let delta = most - asked;
    let mut order: Vec<usize> = (0..sets.len()).collect();
    // Of equal sizes the newer grows and the older shrinks first.
    if delta < 0 {
        order.reverse();
    }
    order.sort_by_key(|&index| std::cmp::Reverse(sets[index].spec));
    let mut next: Vec<i64> = sets.iter().map(|set| i64::from(set.spec)).collect();
    let mut left = delta;
    for &index in &order {
        let set = &sets[index];
        let (spec, then) = (i64::from(set.spec), i64::from(set.most_then.max(1)));
        let rounded = (2 * spec * most + then) / (2 * then);
        let share = (rounded - spec).clamp(left.min(0), left.max(0));
        next[index] += share;
        left -= share;
    }
    if let Some(&largest) = order.first() {
        next[largest] += left;
    }
    next.into_iter().map(|spec| u32::try_from(spec.max(0)).unwrap_or(u32::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lets every new machine become available between two moves and writes the sizes down.
    fn trace(replicas: u32, surge: u32, unavailable: u32) -> String {
        let bounds = Bounds { replicas, surge, unavailable };
        let (mut old, mut new) = (replicas, 0);
        let mut sizes = Vec::new();
        loop {
            let all = |spec| Size { spec, available: spec };
            match roll(&bounds, 0, all(new), &[all(old)]) {
                Move::Stay => break,
                Move::New(spec) => new = spec,
                Move::Old(specs) => old = specs[0],
            }
            assert!(old + new <= replicas + surge, "{old},{new} is more than {replicas}+{surge}");
            assert!(old + new >= replicas - unavailable, "{old},{new} is too few");
            sizes.push(format!("{old},{new}"));
        }
        assert_eq!((old, new), (0, replicas));
        sizes.join(" > ")
    }

    #[test]
    fn rollouts_go_step_by_step() {
        assert_eq!(trace(3, 1, 0), "3,1 > 2,1 > 2,2 > 1,2 > 1,3 > 0,3");
        assert_eq!(trace(10, 3, 2), "10,3 > 5,3 > 5,8 > 0,8 > 0,10");
        assert_eq!(trace(3, 0, 1), "2,0 > 2,1 > 1,1 > 1,2 > 0,2 > 0,3");
        assert_eq!(trace(2, 2, 0), "2,2 > 0,2");
        assert_eq!(trace(1, 1, 0), "1,1 > 0,1");
        assert_eq!(trace(1, 0, 1), "0,0 > 0,1");
        assert_eq!(trace(4, 1, 1), "4,1 > 2,1 > 2,3 > 0,3 > 0,4");
        assert_eq!(trace(5, 5, 5), "5,5 > 0,5");
        assert_eq!(trace(0, 1, 0), "");
    }

    #[test]
    fn every_rollout_of_a_healthy_pool_ends_within_its_bounds() {
        for replicas in 0..=12 {
            for surge in 0..=replicas {
                for unavailable in u32::from(surge == 0).min(replicas)..=replicas {
                    trace(replicas, surge, unavailable);
                }
            }
        }
    }

    #[test]
    fn a_template_that_never_works_stops_at_the_surge() {
        let bounds = Bounds { replicas: 3, surge: 1, unavailable: 0 };
        let new = Size { spec: 1, available: 0 };
        let old = Size { spec: 3, available: 3 };
        assert_eq!(roll(&bounds, 0, new, &[old]), Move::Stay);
    }

    #[test]
    fn machines_that_are_not_available_go_first() {
        let bounds = Bounds { replicas: 4, surge: 1, unavailable: 1 };
        let sizes = |pairs: &[(u32, u32)]| -> Vec<Size> {
            pairs.iter().map(|&(spec, available)| Size { spec, available }).collect()
        };
        let new = Size { spec: 1, available: 1 };
        // Two may go: the younger set's broken machine is taken before the older set's good one.
        let old = sizes(&[(2, 2), (2, 1)]);
        assert_eq!(roll(&bounds, 0, new, &old), Move::Old(vec![1, 1]));
        let old = sizes(&[(2, 1), (2, 1)]);
        assert_eq!(roll(&bounds, 0, new, &old), Move::Old(vec![1, 1]));
    }

    #[test]
    fn machines_that_should_be_gone_take_their_place() {
        let bounds = Bounds { replicas: 3, surge: 1, unavailable: 0 };
        let (new, old) = (Size { spec: 1, available: 1 }, Size { spec: 2, available: 2 });
        assert_eq!(roll(&bounds, 0, new, &[old]), Move::New(2));
        assert_eq!(roll(&bounds, 1, new, &[old]), Move::Stay);
    }

    #[test]
    fn a_recreation_waits_for_the_last_old_machine() {
        let bounds = Bounds { replicas: 3, surge: 0, unavailable: 0 };
        let (none, old) = (Size::default(), Size { spec: 3, available: 3 });
        assert_eq!(recreate(&bounds, 3, none, &[old]), Move::Old(vec![0]));
        assert_eq!(recreate(&bounds, 1, none, &[none]), Move::Stay);
        assert_eq!(recreate(&bounds, 0, none, &[none]), Move::New(3));
        assert_eq!(recreate(&bounds, 0, Size { spec: 3, available: 0 }, &[none]), Move::Stay);
    }

    /// Sizes are given from the newest to the oldest.
    fn spread_of(sizes: &[u32], replicas: u32, surge: u32, most_then: u32) -> Vec<u32> {
        let sets: Vec<Share> = sizes.iter().map(|&spec| Share { spec, most_then }).collect();
        spread(&Bounds { replicas, surge, unavailable: 0 }, &sets)
    }

    #[test]
    fn a_paused_pool_scales_in_proportion() {
        assert_eq!(spread_of(&[5, 3, 1], 3, 2, 9), [2, 2, 1]);
        assert_eq!(spread_of(&[6, 3, 1], 5, 2, 10), [4, 2, 1]);
        assert_eq!(spread_of(&[2, 2], 8, 1, 4), [5, 4]);
        assert_eq!(spread_of(&[4, 4], 4, 1, 8), [3, 2]);
        assert_eq!(spread_of(&[3, 2], 0, 2, 5), [0, 0]);
        assert_eq!(spread_of(&[1, 1], 4, 0, 0), [3, 1]);
    }

    #[test]
    fn percentages_round_up_and_down() {
        let bounds = |surge: &str, unavailable: &str, replicas: u32| {
            let spec = serde_json::json!({
                "replicas": replicas,
                "selector": {}, "template": {"spec": {}},
                "strategy": {"rollingUpdate": {
                    "maxSurge": serde_json::from_str::<serde_json::Value>(surge).unwrap(),
                    "maxUnavailable": serde_json::from_str::<serde_json::Value>(unavailable).unwrap(),
                }},
            });
            let bounds = Bounds::of(&serde_json::from_value(spec).unwrap());
            (bounds.surge, bounds.unavailable)
        };
        assert_eq!(bounds("\"25%\"", "\"25%\"", 10), (3, 2));
        assert_eq!(bounds("0", "\"10%\"", 3), (0, 1));
        assert_eq!(bounds("\"100%\"", "0", 2), (2, 0));
        assert_eq!(bounds("0", "0", 0), (0, 0));
        assert_eq!(bounds("1", "7", 3), (1, 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever becomes ready or breaks in whichever order: never more machines are asked for
        /// than allowed, and no move takes an available machine that the bounds still need.
        #[test]
        fn no_move_leaves_the_bounds(
            replicas in 0_u32..20, surge in 0_u32..5, unavailable in 0_u32..5,
            flips in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 1..60),
        ) {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            let bounds = Bounds { replicas, surge, unavailable: unavailable.min(replicas) };
            let (first, second) = (replicas / 2, replicas - replicas / 2);
            let mut old = [Size { spec: first, available: first }, Size { spec: second, available: second }];
            let mut new = Size::default();
            for (a, b, c) in flips {
                // A set deletes what is not available first, so a smaller set keeps what it can.
                let before = old[0].available + old[1].available + new.available;
                match roll(&bounds, 0, new, &old) {
                    Move::Stay => {}
                    Move::New(spec) => new = Size { spec, available: new.available.min(spec) },
                    Move::Old(specs) => for (size, spec) in old.iter_mut().zip(specs) {
                        prop_assert!(spec <= size.spec);
                        *size = Size { spec, available: size.available.min(spec) };
                    },
                }
                let after = old[0].available + old[1].available + new.available;
                prop_assert!(after >= before.min(bounds.fewest_available()), "{before} to {after}");
                prop_assert!(old[0].spec + old[1].spec + new.spec <= replicas + surge);
                new.available = a % (new.spec + 1);
                old[0].available = b % (old[0].spec + 1);
                old[1].available = c % (old[1].spec + 1);
            }
            for _ in 0..200 {
                new.available = new.spec;
                match roll(&bounds, 0, new, &old) {
                    Move::Stay => break,
                    Move::New(spec) => new.spec = spec,
                    Move::Old(specs) => for (size, spec) in old.iter_mut().zip(specs) {
                        *size = Size { spec, available: size.available.min(spec) };
                    },
                }
            }
            prop_assert_eq!((old[0].spec, old[1].spec, new.spec), (0, 0, replicas));
        }
    }
}
