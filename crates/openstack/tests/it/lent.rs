//! What machines share or borrow: floating IPs that were there before, and the cluster's server group.

use crate::world::{self, CLUSTER, Death, Fuse, World, order, parameters, with};
use drover_lab::cloud::{Effect, Entry, Fault};
use drover_provider::{Error, Memory, Order, Provider};
use serde_json::{Value, json};
use std::time::Duration;

fn floating_ips(world: &World) -> Vec<Entry> {
    world.ledger().floating_ips
}

async fn made(world: &World, order: &Order) -> Memory {
    let mut memory = Memory::default();
    world::create(&world.provider(), order, &mut memory).await.unwrap();
    memory
}

/// MetaKube, scenario 25: a borrowed, pre-existing free floating IP still exists, unassigned, after its Machine is
/// deleted.
#[tokio::test(start_paused = true)]
async fn metakube_25_a_borrowed_floating_ip_is_given_back_as_it_was() {
    let world = World::new();
    let kept = world.cloud.keep_floating_ip("").unwrap();
    let before = floating_ips(&world);
    let (first, second) = (order(1, parameters()), order(2, parameters()));
    let borrower = made(&world, &first).await;
    let there = floating_ips(&world);
    assert_eq!((there.len(), &there[0].id), (1, &kept), "none is allocated while one is free");
    assert!(there[0].owner.is_some(), "it leads to the machine: {there:?}");
    assert_eq!(borrower.0["floatingAddress"], there[0].name);

    let other = made(&world, &second).await;
    assert_eq!(floating_ips(&world).len(), 2, "the second finds none free");
    world::delete(&world.provider(), &second.claim, &other).await.unwrap();
    world::delete(&world.provider(), &first.claim, &borrower).await.unwrap();
    assert_eq!(floating_ips(&world), before, "the allocated one is gone, the borrowed one is back");
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_somebody_keeps_for_something_is_not_borrowed() {
    let world = World::new();
    let kept = world.cloud.keep_floating_ip("the mail server's, from Monday on").unwrap();
    let order = order(1, parameters());
    let memory = made(&world, &order).await;
    let foreign = |all: Vec<Entry>| all.into_iter().find(|it| it.id == kept).unwrap();
    assert_eq!(foreign(floating_ips(&world)).owner, None);
    assert_eq!(floating_ips(&world).len(), 2);
    world::delete(&world.provider(), &order.claim, &memory).await.unwrap();
    assert_eq!(floating_ips(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_clusters_never_borrow_the_same_floating_ip() {
    let world = World::new();
    for _ in 0..3 {
        world.cloud.keep_floating_ip("").unwrap();
    }
    let clusters = ["3f6d5b1c-0000-4000-8000-0000000000c1", "3f6d5b1c-0000-4000-8000-0000000000c2"];
    let providers = clusters.map(|_| world.provider());
    let one = |number: usize| {
        let provider = &providers[number % 2];
        async move {
            let mut order = order(number, parameters());
            order.claim.owner.cluster = clusters[number % 2].to_owned();
            let mut memory = Memory::default();
            world::create(provider, &order, &mut memory).await.unwrap();
            (order, memory)
        }
    };
    let made = futures::future::join_all((0..8).map(one)).await;
    let there = floating_ips(&world);
    assert_eq!(there.len(), 8, "three were there, five are allocated");
    assert!(there.iter().all(|it| it.owner.is_some()), "{there:?}");
    for (order, memory) in &made {
        assert!(there.iter().any(|it| it.name == memory.0["floatingAddress"]), "{there:?}");
        world::delete(&world.provider(), &order.claim, memory).await.unwrap();
    }
    let left = floating_ips(&world);
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|it| it.owner.is_none() && it.description.is_empty()), "{left:?}");
}

/// Dies at each call in turn; the loan is neither doubled nor forgotten.
#[tokio::test(start_paused = true)]
async fn a_loan_survives_the_death_of_the_borrower() {
    let order = order(1, parameters());
    for death in [Death::Before, Death::After, Death::Late(Duration::from_secs(1))] {
        for call in 1.. {
            let world = World::new();
            let kept = world.cloud.keep_floating_ip("").unwrap();
            let before = floating_ips(&world);
            let fuse = Fuse::at(call, death);
            let mut memory = Memory::default();
            let work = async {
                let first = world.mortal(&fuse);
                world::create(&first, &order, &mut memory).await.unwrap();
                world::delete(&first, &order.claim, &memory).await.unwrap();
            };
            if world::until_death(&fuse, work).await.is_ok() {
                assert!(call > 12, "the work took only {call} calls");
                break;
            }
            world::delete(&world.provider(), &order.claim, &memory).await.unwrap();
            tokio::time::sleep(Duration::from_secs(120)).await;
            let left = floating_ips(&world);
            assert_eq!((left.len(), &left[0].id), (1, &kept), "{death:?} at call {call}");
            assert_eq!(left[0].description, before[0].description, "{death:?} at call {call}");
            assert_eq!(left[0].owner, None, "{death:?} at call {call}");
        }
    }
}

fn without_group() -> Value {
    let mut parameters = parameters();
    parameters.as_object_mut().unwrap().remove("serverGroup");
    parameters
}

/// The groups that carry this cluster's mark.
fn groups(world: &World) -> Vec<Entry> {
    let all = world.ledger().server_groups.into_iter();
    all.filter(|it| it.name == format!("drover.cluster.{CLUSTER}")).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_without_a_server_group_share_one_that_goes_with_the_last_of_them() {
    let world = World::new();
    let providers = [world.provider(), world.provider()];
    let one = |number: usize| {
        let provider = &providers[number % 2];
        async move {
            let order = order(number, without_group());
            let mut memory = Memory::default();
            world::create(provider, &order, &mut memory).await.unwrap();
            (order, memory)
        }
    };
    let made = futures::future::join_all((0..6).map(one)).await;
    let found = groups(&world);
    assert_eq!(found[0].status, "soft-anti-affinity");
    for (_, memory) in &made {
        let used = &memory.0["serverGroup"];
        assert!(found.iter().any(|it| it.id == *used), "{used} of {found:?}");
    }
    assert!(world.ledger().count("compute POST /os-server-groups") <= 2, "one for each process");
    for (order, memory) in &made {
        assert!(!groups(&world).is_empty(), "as long as one machine is there");
        world::delete(&providers[0], &order.claim, memory).await.unwrap();
    }
    assert_eq!(groups(&world), []);
    assert_eq!(world.ledger().server_groups.len(), 1, "what the project had stays");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_somebody_deletes_is_made_again() {
    let world = World::new();
    let provider = world.provider();
    let (first, second) = (order(1, without_group()), order(2, without_group()));
    let mut memory = Memory::default();
    world::create(&provider, &first, &mut memory).await.unwrap();
    // Another process takes the last machine for gone.
    world::delete(&world.provider(), &first.claim, &memory).await.unwrap();
    assert_eq!(groups(&world), []);
    let mut memory = Memory::default();
    world::create(&provider, &second, &mut memory).await.unwrap();
    assert_eq!(groups(&world).len(), 1);
    assert_eq!(memory.0["serverGroup"], groups(&world)[0].id);
}

/// Nova: ten servers are all that a group holds by default.
#[tokio::test(start_paused = true)]
async fn a_full_group_holds_no_machine_up() {
    let world = World::with(|config| config.quotas.server_group_members = 2);
    let provider = world.provider();
    let mut grouped = 0;
    for number in 1..=4 {
        let mut memory = Memory::default();
        world::create(&provider, &order(number, without_group()), &mut memory).await.unwrap();
        grouped += usize::from(memory.0.contains_key("serverGroup"));
    }
    assert_eq!((world.ledger().servers.len(), grouped), (4, 2));

    let world = World::with(|config| config.quotas.server_groups = 1);
    let mut memory = Memory::default();
    world::create(&world.provider(), &order(1, without_group()), &mut memory).await.unwrap();
    assert_eq!((world.ledger().servers.len(), groups(&world).len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_creation_went_unanswered_is_found() {
    let world = World::new();
    let lost = Effect::Cut { acted: true };
    world.cloud.set_faults(vec![Fault::on("compute POST /os-server-groups", lost).times(1)]);
    let mut memory = Memory::default();
    world::create(&world.provider(), &order(1, without_group()), &mut memory).await.unwrap();
    assert_eq!(groups(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_names_became_is_told_before_anything_is_made() {
    use drover_provider::Created;
    let world = World::new();
    let order = order(1, parameters());
    let told = world.provider().create(&order, &Memory::default()).await.unwrap();
    let Created::Record(Memory(notes)) = told else { panic!("first comes the promise: {told:?}") };
    assert!(world.ledger().is_empty());
    for note in ["image", "flavor", "networks", "securityGroups", "serverGroup", "promisedAt"] {
        assert!(notes.contains_key(note), "{note} is missing in {notes:?}");
    }
    assert!(notes["networks"].ends_with(world::SUBNET), "{notes:?}");
    assert_ne!(notes["image"], parameters()["image"]);
}

#[tokio::test(start_paused = true)]
async fn a_flavor_with_local_storage_boots_from_no_volume() {
    let world = World::new();
    let volume = with(parameters(), "rootVolume", json!({"sizeGiB": 20}));
    let provider = world.provider();
    let tried = provider.create(&order(1, volume.clone()), &Memory::default()).await;
    assert!(tried.is_ok(), "m1.small has no local storage: {tried:?}");

    let provider = world.provider_where(|setup| setup.local_storage(&["m1.*".to_owned()]));
    let error = provider.create(&order(1, volume), &Memory::default()).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    for part in ["\"m1.small\"", "\"m1.*\"", "cannot boot from a volume"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let own_disk = provider.create(&order(2, parameters()), &Memory::default()).await;
    assert!(own_disk.is_ok(), "{own_disk:?}");
    assert!(world.ledger().is_empty(), "nothing was made of what is refused");
}
