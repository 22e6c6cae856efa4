//! Clouds in trouble: errors, lost answers, limits, expired tokens, no room.

use crate::world::{self, World, order, parameters};
use drover_lab::cloud::{Effect, Fault};
use drover_provider::{Created, Error, Memory, Provider};
use serde_json::json;
use std::time::Duration;

fn status(code: u16, acted: bool) -> Effect {
    Effect::Status { code, retry_after: None, acted }
}

/// Under these faults machines come and go all the same, each with one server.
async fn through(faults: Vec<Fault>) {
    let world = World::new();
    world.cloud.set_faults(faults.clone());
    let provider = world.provider();
    for number in 1..=3 {
        let order = order(number, parameters());
        let mut memory = Memory::default();
        world::create(&provider, &order, &mut memory).await.unwrap();
        let books = world.ledger();
        assert_eq!(books.servers.len(), 1, "{faults:?}");
        assert_eq!(books.servers_made, number as u64, "{faults:?}");
        assert_eq!(books.floating_ips.len(), 1, "{faults:?}");
        world::delete(&provider, &order.claim, &memory).await.unwrap();
        assert!(world.ledger().is_empty(), "{faults:?}: {:?}", world.ledger());
    }
}

#[tokio::test(start_paused = true)]
async fn every_fourth_call_fails() {
    for code in [500, 502, 503, 504] {
        for acted in [false, true] {
            through(vec![Fault::on("", status(code, acted)).every(4)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_fourth_answer_is_lost_after_the_act() {
    through(vec![Fault::on("", Effect::Cut { acted: true }).every(4)]).await;
}

#[tokio::test(start_paused = true)]
async fn every_create_is_done_and_not_answered_at_first() {
    for call in [
        "compute POST /servers",
        "network POST /ports",
        "network POST /floatingips",
        "network PUT /ports",
        "network PUT /floatingips",
    ] {
        for effect in [
            status(504, true),
            Effect::Cut { acted: true },
            Effect::Cut { acted: false },
            Effect::Slow { millis: 45_000 },
        ] {
            through(vec![Fault::on(call, effect).every(2)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lags_does_not_make_a_second_server() {
    through(vec![Fault::on("compute GET /servers/detail", Effect::Lag { millis: 8_000 })]).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_requests() {
    let limit = Effect::Status { code: 429, retry_after: Some(3), acted: false };
    through(vec![Fault::on("", limit).every(5)]).await;
    let hammer = Effect::Status { code: 429, retry_after: Some(0), acted: false };
    through(vec![Fault::on("", hammer).every(4)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_is_the_callers_to_wait_for() {
    let world = World::new();
    let provider = world.provider();
    let limit = Effect::Status { code: 429, retry_after: Some(90), acted: false };
    world.cloud.set_faults(vec![Fault::on("image GET", limit).times(1)]);
    let error = provider.create(&order(1, parameters()), &Memory::default()).await.unwrap_err();
    let Error::Unavailable { retry_after: Some(wait), message } = error else {
        panic!("429 is {error}");
    };
    assert_eq!(wait, Duration::from_secs(90), "{message}");
}

#[tokio::test(start_paused = true)]
async fn tokens_expire_midway() {
    let world = World::new();
    let provider = world.provider();
    let order = order(1, parameters());
    let mut memory = Memory::default();
    loop {
        match provider.create(&order, &memory).await.unwrap() {
            Created::Record(next) => memory = next,
            Created::Waiting { memory: next, after, .. } => {
                memory = next;
                tokio::time::sleep(after.max(Duration::from_secs(6))).await;
            }
            Created::Done { .. } => break,
        }
        world.cloud.expire_tokens();
    }
    assert_eq!(world.ledger().servers_made, 1);
    assert!(world.ledger().count("identity POST /auth/tokens") > 2);
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_are_tried_once() {
    let world = World::new();
    let provider = world.provider();
    let mut order = order(1, parameters());
    let text = world.cloud.clouds_yaml().replace("password: password", "password: wrong");
    assert!(text.contains("wrong"), "{text}");
    order.claim.credentials = drover_openstack::OpenStack::credentials_of(&text, "drover").unwrap();
    for _ in 0..5 {
        let error = provider.create(&order, &Memory::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    assert_eq!(world.ledger().count("identity POST /auth/tokens"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_application_credential_serves_as_well() {
    let world = World::new();
    let provider = world.provider();
    let mut order = order(1, parameters());
    let text = world.cloud.clouds_yaml();
    order.claim.credentials =
        drover_openstack::OpenStack::credentials_of(&text, "drover-appcred").unwrap();
    let mut memory = Memory::default();
    world::create(&provider, &order, &mut memory).await.unwrap();
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_waited_for_and_then_met() {
    let world = World::with(|config| config.quotas.instances = 0);
    let provider = world.provider();
    let order = order(1, parameters());
    let mut memory = Memory::default();
    let error = loop {
        match provider.create(&order, &memory).await {
            Ok(Created::Record(next)) => memory = next,
            Ok(other) => panic!("beyond a quota of none: {other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::QuotaExceeded(_)), "{error}");
    assert!(error.to_string().contains("Quota exceeded for instances"), "{error}");
    let quotas = drover_lab::cloud::Quotas { instances: 1, ..Default::default() };
    world.cloud.set_quotas(quotas);
    world::create(&provider, &order, &mut memory).await.unwrap();
    assert_eq!(world.ledger().ports.len(), 1, "the port of the first attempt is used");
}

#[tokio::test(start_paused = true)]
async fn without_room_the_failed_server_goes_and_another_is_tried() {
    let world = World::new();
    let provider = world.provider();
    let order = order(1, world::with(parameters(), "flavor", json!("m1.impossible")));
    let mut memory = Memory::default();
    let mut refusals = 0;
    while refusals < 3 {
        match provider.create(&order, &memory).await {
            Ok(Created::Record(next)) => memory = next,
            Ok(Created::Waiting { memory: next, after, .. }) => {
                memory = next;
                tokio::time::sleep(after).await;
            }
            Ok(Created::Done { .. }) => panic!("m1.impossible fits nowhere"),
            Err(Error::Exhausted(text)) => {
                assert!(text.contains("No valid host was found"), "{text}");
                refusals += 1;
                tokio::time::sleep(Duration::from_secs(120)).await;
            }
            Err(other) => panic!("no valid host is {other}"),
        }
    }
    assert_eq!(world.ledger().servers_made, 3);
    assert!(world.ledger().servers.is_empty());
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_boot_says_why_and_is_deleted() {
    let world = World::new();
    let provider = world.provider();
    let failure = Effect::BootFailure { message: "disk on fire".into() };
    world.cloud.set_faults(vec![Fault::on("compute POST /servers", failure)]);
    let order = order(1, parameters());
    let mut memory = Memory::default();
    let error = world::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::ServerFailed(_)), "{error}");
    assert!(error.to_string().contains("Exceeded maximum number of retries"), "{error}");
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_disappears_while_it_builds_has_failed() {
    let world = World::new();
    let provider = world.provider();
    let order = order(1, parameters());
    let mut memory = Memory::default();
    while world.ledger().servers.is_empty() {
        match provider.create(&order, &memory).await.unwrap() {
            Created::Record(next) | Created::Waiting { memory: next, .. } => memory = next,
            Created::Done { .. } => panic!("done without a server"),
        }
    }
    let server = world.ledger().servers[0].id.clone();
    assert!(world.cloud.vanish(&server));
    let error = world::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::ServerFailed(_)), "{error}");
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_stuck_in_build_is_waited_for_and_can_be_deleted() {
    let world = World::new();
    let provider = world.provider();
    let stuck = Fault::on("compute POST /servers", Effect::StuckBuild);
    world.cloud.set_faults(vec![stuck]);
    let order = order(1, parameters());
    let mut memory = Memory::default();
    for _ in 0..50 {
        match provider.create(&order, &memory).await.unwrap() {
            Created::Record(next) => memory = next,
            Created::Waiting { memory: next, after, .. } => {
                memory = next;
                tokio::time::sleep(after).await;
            }
            Created::Done { .. } => panic!("a stuck server is done"),
        }
    }
    world::delete(&provider, &order.claim, &memory).await.unwrap();
    assert!(world.ledger().is_empty());
}
