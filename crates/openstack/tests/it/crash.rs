//! A process that dies at any call: never two servers, and nothing is left behind.

use crate::world::{self, Death, Fuse, World, order, parameters, with};
use drover_provider::{Memory, Order};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Two kinds of late: before a port is bound, when Nova takes a second server on it, and long after.
const DEATHS: [Death; 4] = [
    Death::Before,
    Death::After,
    Death::Late(Duration::from_secs(1)),
    Death::Late(Duration::from_secs(25)),
];
/// Longer than anything is on its way.
const SETTLED: Duration = Duration::from_secs(120);

fn with_volumes() -> Order {
    let more = json!([{"name": "data", "sizeGiB": 5}]);
    let parameters = with(parameters(), "additionalVolumes", more);
    order(1, with(parameters, "rootVolume", json!({"sizeGiB": 10})))
}

/// Dies at the call of this number of a creation. `false` when it needed fewer.
async fn die_creating(order: &Order, call: usize, death: Death) -> bool {
    let world = World::new();
    let fuse = Fuse::at(call, death);
    let mut memory = Memory::default();
    let first = world.mortal(&fuse);
    let outcome = world::until_death(&fuse, world::create(&first, order, &mut memory)).await;
    drop(first);
    let died = outcome.is_err();

    let second = world.provider();
    world::create(&second, order, &mut memory).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    let books = world.ledger();
    assert_eq!(books.servers_made, 1, "servers made, {death:?} call {call}");
    assert_eq!(books.servers.len(), 1);
    assert_eq!(books.floating_ips.len(), 1, "floating IPs, {death:?} call {call}");
    assert!(books.ports.iter().any(|it| it.owner.as_ref() == Some(&books.servers[0].id)));

    world::delete(&second, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty(), "left behind, {death:?} call {call}: {:?}", world.ledger());
    died
}

/// Dies at the call of this number of a creation, and the machine is not wanted any more.
async fn die_creating_then_delete(order: &Order, call: usize, death: Death) -> bool {
    let world = World::new();
    let fuse = Fuse::at(call, death);
    let mut memory = Memory::default();
    let first = world.mortal(&fuse);
    let outcome = world::until_death(&fuse, world::create(&first, order, &mut memory)).await;
    drop(first);
    world::delete(&world.provider(), &order.claim, &memory).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    assert!(world.ledger().is_empty(), "left behind, {death:?} call {call}: {:?}", world.ledger());
    assert!(world.ledger().servers_made <= 1);
    outcome.is_err()
}

/// Dies at the call of this number of a deletion.
async fn die_deleting(order: &Order, call: usize, death: Death) -> bool {
    let world = World::new();
    let mut memory = Memory::default();
    world::create(&world.provider(), order, &mut memory).await.unwrap();
    let fuse = Fuse::at(call, death);
    let first = world.mortal(&fuse);
    let outcome = world::until_death(&fuse, world::delete(&first, &order.claim, &memory)).await;
    drop(first);
    world::delete(&world.provider(), &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty(), "left behind, {death:?} call {call}: {:?}", world.ledger());
    outcome.is_err()
}

/// Every call, one after the other, until the work is done in fewer.
async fn every_call<F: Future<Output = bool>>(attempt: impl Fn(usize, Death) -> F) {
    for death in DEATHS {
        let mut call = 1;
        while attempt(call, death).await {
            call += 1;
        }
        assert!(call > 5, "the work took only {call} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn at_any_call_of_a_creation() {
    let order = order(1, parameters());
    every_call(|call, death| die_creating(&order, call, death)).await;
}

#[tokio::test(start_paused = true)]
async fn at_any_call_of_a_creation_with_volumes() {
    let order = with_volumes();
    every_call(|call, death| die_creating(&order, call, death)).await;
}

#[tokio::test(start_paused = true)]
async fn at_any_call_of_a_creation_and_then_it_is_deleted() {
    for order in [order(1, parameters()), with_volumes()] {
        every_call(|call, death| die_creating_then_delete(&order, call, death)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_any_call_of_a_deletion() {
    for order in [order(1, parameters()), with_volumes()] {
        every_call(|call, death| die_deleting(&order, call, death)).await;
    }
}

/// The memory is written down before the create is sent; a process that dies in between sent nothing.
#[tokio::test(start_paused = true)]
async fn between_the_promise_and_the_create() {
    use drover_provider::{Created, Provider};
    let world = World::new();
    let order = order(1, parameters());
    let first = world.provider();
    let Ok(Created::Record(mut memory)) = first.create(&order, &Memory::default()).await else {
        panic!("a newborn machine begins with a promise");
    };
    assert_eq!(world.ledger().servers_made, 0);
    drop(first);
    world::create(&world.provider(), &order, &mut memory).await.unwrap();
    assert_eq!(world.ledger().servers_made, 1);
}

/// A caller that forgot everything, such as a Machine whose status somebody wiped.
#[tokio::test(start_paused = true)]
async fn without_any_memory_the_server_is_found_by_its_marks() {
    let world = World::new();
    let order = order(1, parameters());
    let mut memory = Memory::default();
    let made = world::create(&world.provider(), &order, &mut memory).await.unwrap();
    let (before, mut again) = (world.ledger(), Memory::default());
    let found = world::create(&world.provider(), &order, &mut again).await.unwrap();
    assert_eq!(found, made);
    assert_eq!(world.ledger().servers_made, 1);
    assert_eq!(world.ledger().floating_ips.len(), before.floating_ips.len());
    for key in ["server", "port", "floatingAddress"] {
        assert_eq!(again.0[key], memory.0[key], "{key} is known again");
    }
}

/// A description that changes amid a creation, as a MachineClass can, hides nothing from the deletion.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_description_asked_for_is_deleted_too() {
    use drover_lab::cloud::{Effect, Fault};
    use drover_provider::{Created, Provider};
    let world = World::new();
    world.cloud.add_fault(Fault::on("compute POST /servers", Effect::status(403)));
    let order = with_volumes();
    let (provider, mut memory) = (world.provider(), Memory::default());
    while world.ledger().volumes.is_empty() {
        match provider.create(&order, &memory).await {
            Ok(Created::Record(next) | Created::Waiting { memory: next, .. }) => memory = next,
            other => panic!("nothing was made: {other:?}"),
        }
    }
    let mut claim = order.claim;
    claim.parameters = parameters();
    claim.place = memory.0.get(drover_provider::PLACE).cloned();
    world::delete(&world.provider(), &claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty(), "{:?}", world.ledger());
}

/// Credentials that lead elsewhere one day find nothing of the machine, and that is no proof; another region in the
/// description leads nobody astray.
#[tokio::test(start_paused = true)]
async fn a_machine_is_looked_for_where_it_was_made() {
    use drover_provider::Provider;
    let world = World::new();
    let (provider, order) = (world.provider(), order(1, parameters()));
    let mut memory = Memory::default();
    let made = world::create(&provider, &order, &mut memory).await.unwrap();
    let mut claim = order.claim;
    claim.place = memory.0.get(drover_provider::PLACE).cloned();
    claim.parameters["region"] = serde_json::json!("elsewhere");
    let found = provider.look(&claim).await.unwrap().expect("it is there");
    assert_eq!(found.provider_id, made.provider_id);
    let mut astray = claim.clone();
    astray.place = Some("another-project/dbl".into());
    for refused in [
        provider.look(&astray).await.unwrap_err(),
        provider.delete(&astray, &memory).await.unwrap_err(),
    ] {
        assert!(refused.to_string().contains("is in project another-project"), "{refused}");
    }
    assert_eq!(world.ledger().servers.len(), 1);
    world::delete(&provider, &claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

/// Two processes with one memory, one of them about to lose its lease.
#[tokio::test(start_paused = true)]
async fn a_second_process_does_not_send_what_the_first_promised() {
    use drover_provider::{Created, Provider};
    let world = World::new();
    let order = order(1, parameters());
    let (first, second) = (Arc::new(world.provider()), world.provider());
    let Ok(Created::Record(memory)) = first.create(&order, &Memory::default()).await else {
        panic!("a newborn machine begins with a promise");
    };
    let (mut own, mut other) = (memory.clone(), memory);
    let (one, two) = tokio::join!(
        world::create(&first, &order, &mut own),
        world::create(&second, &order, &mut other)
    );
    assert_eq!(one.unwrap().provider_id, two.unwrap().provider_id);
    assert_eq!(world.ledger().servers_made, 1);
}
