//! A deployment, its sets and their machines together, seen through caches that lag and by managers
//! that die between two writes.

mod world;

use proptest::prelude::*;
use world::{Kind, World};

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A cache catches up with so many changes.
    Catch(Kind, u8),
    /// A deployment is looked at; the manager dies after so many writes.
    Roll(u8),
    /// A set is looked at; the manager dies after so many writes.
    Keep(u8, u8),
    /// A machine becomes Ready, or is no longer.
    Flip(u8),
    /// A machine without a Node fails.
    Fail(u8),
    /// A machine that is being deleted is gone.
    Leave(u8),
    /// A user wants so many machines.
    Scale(u8),
    /// A user wants another template.
    Change(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    let kind = prop_oneof![Just(Kind::Deployment), Just(Kind::Set), Just(Kind::Machine)];
    // Most acts are finished; some managers die early.
    let writes = prop_oneof![3 => Just(u8::MAX), 1 => 0_u8..4];
    prop_oneof![
        4 => (kind, any::<u8>()).prop_map(|(kind, count)| Happening::Catch(kind, count)),
        4 => writes.clone().prop_map(Happening::Roll),
        6 => (any::<u8>(), writes).prop_map(|(set, writes)| Happening::Keep(set, writes)),
        4 => any::<u8>().prop_map(Happening::Flip),
        1 => any::<u8>().prop_map(Happening::Fail),
        2 => any::<u8>().prop_map(Happening::Leave),
        1 => (0_u8..8).prop_map(Happening::Scale),
        1 => (0_u8..3).prop_map(Happening::Change),
    ]
}

impl World {
    fn apply(&mut self, happening: Happening) {
        match happening {
            Happening::Catch(kind, count) => self.catch(kind, usize::from(count % 8)),
            Happening::Roll(writes) => self.roll(usize::from(writes)),
            Happening::Keep(set, writes) => self.keep(usize::from(set), usize::from(writes)),
            Happening::Flip(machine) => self.flip(usize::from(machine)),
            Happening::Fail(machine) => self.fail(usize::from(machine)),
            Happening::Leave(machine) => self.leave(usize::from(machine)),
            Happening::Scale(replicas) => self.scale(u32::from(replicas)),
            Happening::Change(template) => self.change(template),
        }
        self.now += 7;
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(100))]

    /// Whatever lags or dies: no set ever has more machines than it was ever asked to have, never
    /// more are asked for than the bounds allow, and left in peace the pool becomes what was wanted.
    #[test]
    fn lag_and_death_delay_but_never_duplicate(
        surge in 0_u32..3, unavailable in 0_u32..3,
        happenings in prop::collection::vec(happening(), 1..150),
    ) {
        let mut world = World::new(3, surge, unavailable);
        for happening in happenings {
            world.apply(happening);
            world.assert_within_bounds();
        }
        world.come_to_rest();
    }

    /// With caches that see everything, no rollout takes an available machine that is still needed,
    /// whatever becomes Ready or breaks on its own, and no set is early enough for one machine too many.
    #[test]
    fn a_rollout_leaves_enough_machines_and_never_too_many(
        surge in 0_u32..3, unavailable in 0_u32..3,
        flips in prop::collection::vec((any::<u8>(), any::<u8>()), 1..60),
    ) {
        let mut world = World::new(5, surge, unavailable);
        world.come_to_rest();
        world.change(1);
        for (flip, first) in flips {
            world.flip(usize::from(flip));
            world.keep_all();
            let before = world.available();
            world.see_all();
            world.roll(usize::MAX);
            world.see_all();
            world.roll(usize::MAX);
            world.see_all();
            // The set that grows may act before the one that shrinks.
            world.keep(usize::from(first), usize::MAX);
            let staying = world.staying().count();
            prop_assert!(staying <= world.most(), "{staying} of {}", world.most());
            world.keep_all();
            let fewest = world.fewest_available();
            prop_assert!(world.available() >= before.min(fewest), "{before} to {}", world.available());
            world.now += 7;
        }
        world.come_to_rest();
    }
}
