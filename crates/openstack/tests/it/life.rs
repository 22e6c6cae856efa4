//! A machine's life when nothing goes wrong, and what is refused.

use crate::world::{self, GROUP, SUBNET, World, order, parameters, with};
use drover_provider::{Error, Memory, Provider, State, conformance::Subject};
use serde_json::json;

/// What Neutron and the ledger hold of ours.
fn counts(world: &World) -> (usize, usize, usize, usize) {
    let books = world.ledger();
    (books.servers.len(), books.ports.len(), books.floating_ips.len(), books.volumes.len())
}

#[tokio::test(start_paused = true)]
async fn a_server_with_port_and_floating_ip_comes_and_goes_in_few_calls() {
    let world = World::new();
    let provider = world.provider();
    let order = order(1, parameters());
    let mut memory = Memory::default();
    let made = world::create(&provider, &order, &mut memory).await.unwrap();

    assert_eq!(made.state, State::Running);
    assert_eq!(made.zone.as_deref(), Some("dbl1"));
    let external: Vec<bool> = made.addresses.iter().map(|it| it.external).collect();
    assert_eq!(external, [false, true]);
    let books = world.ledger();
    let server = &books.servers[0];
    assert_eq!(made.provider_id, format!("openstack:///{}", server.id));
    let uid = &order.claim.owner.machine;
    let tag = format!("drover.machine.{uid}");
    assert_eq!(server.metadata["drover-machine"], *uid);
    assert_eq!(server.metadata["pool"], "nodes");
    for tags in [&server.tags, &books.ports[0].tags, &books.floating_ips[0].tags] {
        assert!(tags.contains(&tag) && tags.contains(&"kube".to_owned()), "{tags:?}");
    }
    assert_eq!(books.ports[0].owner.as_ref(), Some(&server.id));
    assert_eq!(books.count("compute POST /servers"), 1);
    assert_eq!(books.count("network POST"), 2);
    assert_eq!(books.count("network PUT"), 2);

    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
    assert_eq!(provider.look(&order.claim).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn fifty_machines_share_look_ups_logins_and_polls() {
    let world = World::new();
    let provider = world.provider();
    let one = |number| {
        let provider = &provider;
        async move {
            let order = order(number, parameters());
            let mut memory = Memory::default();
            world::create(provider, &order, &mut memory).await.unwrap();
            (order, memory)
        }
    };
    let made = futures::future::join_all((0..50).map(one)).await;
    let books = world.ledger();
    assert_eq!(books.servers.len(), 50);
    assert_eq!(books.count("identity POST /auth/tokens"), 1);
    assert_eq!(books.count("image GET"), 1);
    assert_eq!(books.count("compute GET /flavors/detail"), 1);
    let polls = books.count("compute GET /servers/detail");
    assert!(polls < 25, "{polls} polls for fifty machines");
    assert_eq!(books.count("compute GET /servers/{id}"), 0);
    let deletions =
        made.iter().map(|(order, memory)| world::delete(&provider, &order.claim, memory));
    for outcome in futures::future::join_all(deletions).await {
        outcome.unwrap();
    }
    assert!(world.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn boot_from_an_own_volume_with_another_beside_it() {
    let world = World::new();
    let provider = world.provider();
    let volumes = with(parameters(), "rootVolume", json!({"sizeGiB": 10}));
    let volumes = with(volumes, "flavor", json!("kaas.small"));
    let volumes = with(volumes, "additionalVolumes", json!([{"name": "data", "sizeGiB": 5}]));
    let order = order(1, volumes);
    let mut memory = Memory::default();
    world::create(&provider, &order, &mut memory).await.unwrap();
    let books = world.ledger();
    let server = Some(&books.servers[0].id);
    let mut names: Vec<&str> = books.volumes.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["nodes-1-data", "nodes-1-root"]);
    assert!(books.volumes.iter().all(|it| it.owner.as_ref() == server), "{:?}", books.volumes);
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty(), "{:?}", world.ledger());
}

#[tokio::test(start_paused = true)]
async fn without_port_security_and_with_two_networks_on_one_subnet() {
    let world = World::new();
    let provider = world.provider();
    let nics = json!([{"network": GROUP}, {"network": GROUP}]);
    let order = order(1, with(with(parameters(), "networks", nics), "portSecurity", json!(false)));
    let mut memory = Memory::default();
    let made = world::create(&provider, &order, &mut memory).await.unwrap();
    assert_eq!(made.addresses.iter().filter(|it| !it.external).count(), 2);
    assert_eq!(world.ledger().ports.len(), 2);
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

/// MetaKube's scenario 7. What differs: what was found is in the status of the Machine, not in its description, which
/// stays as its user wrote it; where there are several zones or subnets the cloud chooses.
#[tokio::test(start_paused = true)]
async fn metakube_7_a_network_that_is_the_only_one_needs_no_name() {
    for networks in [json!([]), json!([{"subnet": world::SUBNET}])] {
        let world = World::new();
        let mut sparse = with(parameters(), "networks", networks.clone());
        for field in ["region", "availabilityZone"] {
            sparse.as_object_mut().unwrap().remove(field);
        }
        let order = order(1, sparse);
        let mut memory = Memory::default();
        let made = world::create(&world.provider(), &order, &mut memory).await.unwrap();
        assert_eq!(world.ledger().ports.len(), 1);
        assert!(memory.0["networks"].len() >= 36, "{memory:?}");
        assert!(made.zone.is_some());

        world.make("/network/v2.0/networks", json!({"network": {"name": "second"}})).await;
        let next = world::order(2, order.claim.parameters);
        let second = world::create(&world.provider(), &next, &mut Memory::default()).await;
        match second.map_err(|error| error.to_string()) {
            Ok(_) => assert_ne!(networks, json!([]), "a subnet tells its network"),
            Err(error) => {
                assert_eq!(networks, json!([]), "{error}");
                assert!(error.contains("second") && error.contains(GROUP), "{error}");
            }
        }
    }
}

/// In MetaKube the first match wins; here nobody guesses.
#[tokio::test(start_paused = true)]
async fn a_name_that_fits_twice_is_refused_with_the_ids() {
    let cases = [
        ("networks", json!([{"network": GROUP}]), "/network/v2.0/networks", "network"),
        ("securityGroups", json!([GROUP]), "/network/v2.0/security-groups", "security_group"),
    ];
    for (field, value, path, kind) in cases {
        let world = World::new();
        let provider = world.provider();
        let order = order(1, with(parameters(), field, value));
        assert!(provider.create(&order, &Memory::default()).await.is_ok(), "{field}");
        world.make(path, json!({kind: {"name": GROUP}})).await;
        let error = world.provider().create(&order, &Memory::default()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{field}: {error}");
        let text = error.to_string();
        assert!(text.contains(field) && text.contains("give one of the ids"), "{text}");
        let ids = text.split([' ', ',']).filter(|it| it.len() == 36);
        assert_eq!(ids.count(), 2, "{text}");
        assert_eq!(world.ledger().servers_made, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_conformance_suite_passes() {
    let world = World::new();
    let subject = Subject {
        provider: &|| world.provider(),
        parameters: parameters(),
        credentials: world.credentials.clone(),
        sleep: &|wait| Box::pin(tokio::time::sleep(wait)),
    };
    subject.run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_others_made_stays() {
    let world = World::new();
    let provider = world.provider();
    let mine = order(1, parameters());
    let mut foreign = order(1, parameters());
    foreign.claim.owner.cluster = "3f6d5b1c-0000-4000-8000-0000000000ff".into();
    let neighbour = order(2, parameters());
    let (mut memory, mut theirs, mut next) = Default::default();
    world::create(&provider, &mine, &mut memory).await.unwrap();
    world::create(&provider, &foreign, &mut theirs).await.unwrap();
    world::create(&provider, &neighbour, &mut next).await.unwrap();
    assert_eq!(counts(&world), (3, 3, 3, 0));
    world::delete(&provider, &mine.claim, &memory).await.unwrap();
    assert_eq!(counts(&world), (2, 2, 2, 0));
    assert!(provider.look(&foreign.claim).await.unwrap().is_some());
    let held = provider.holdings(&world.credentials, world::CLUSTER).await.unwrap();
    let kinds: Vec<&str> = held.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["floatingip", "port", "server"]);
    assert!(held.iter().all(|it| it.owner.machine == neighbour.claim.owner.machine));
}

#[tokio::test(start_paused = true)]
async fn references_that_lead_nowhere_are_named_before_anything_is_made() {
    let world = World::new();
    let provider = world.provider();
    let cases = [
        ("image", json!("nope"), "image: the cloud has no image named \"nope\""),
        ("flavor", json!("m9"), "flavor: the cloud has no flavor named \"m9\""),
        ("flavor", json!("m9"), "give one of `openstack flavor list`"),
        ("networks", json!([{"network": "n"}]), "networks.network: the cloud has no network"),
        (
            "networks",
            json!([{"network": "ext-net", "subnet": SUBNET}]),
            "give a subnet of that one",
        ),
        ("securityGroups", json!(["g"]), "securityGroups: the cloud has no security group"),
        ("floatingIpPool", json!(GROUP), "floatingIpPool: the cloud has no external network"),
        ("serverGroup", json!("x"), "serverGroup: the cloud has no server group"),
        ("region", json!("mars"), "in region \"mars\"; region and interface may be: dbl "),
        (
            "rootVolume",
            json!({"sizeGiB": 9, "volumeType": "x"}),
            "volumeType \"x\" of the root disk",
        ),
    ];
    for (field, value, expected) in cases {
        let order = order(1, with(parameters(), field, value));
        let error = world::create(&provider, &order, &mut Memory::default()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{field}: {error}");
        assert!(error.to_string().contains(expected), "{field}: {error}");
    }
    assert_eq!(counts(&world), (0, 1, 0, 0), "a type of volumes is known when its volume is made");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_description_means_nothing_any_more_is_deleted_all_the_same() {
    let world = World::new();
    let provider = world.provider();
    let mut order = order(1, parameters());
    let mut memory = Memory::default();
    world::create(&provider, &order, &mut memory).await.unwrap();
    order.claim.parameters = json!({"image": "long gone", "regionn": 1});
    world::delete(&provider, &order.claim, &Memory::default()).await.unwrap();
    assert!(world.ledger().is_empty());
}
