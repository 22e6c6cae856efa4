//! A process that dies at some call, and answers that are lost, on real services: never two servers, nothing left.

use crate::project::{self, Project};
use crate::wire::{Trick, Wire};
use drover_provider::{Memory, Order};
use jiff::SignedDuration;
use serde_json::json;
use std::sync::Arc;

/// Calls of a creation that a process dies at; a different sample each day finds more than the same one.
const SAMPLE: usize = 4;
/// A second process believes that all that was on its way has arrived, as it has: nothing is late here.
const SETTLED: SignedDuration = SignedDuration::from_mins(2);

fn seed() -> u64 {
    std::env::var("DROVER_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7)
}

/// A sample of the calls of `all`, and whether the cloud still got the call.
fn sample(all: usize, salt: u64) -> Vec<Trick> {
    let mut dice = fastrand::Rng::with_seed(seed() ^ salt);
    let calls = dice.choose_multiple(1..=all, SAMPLE);
    calls.into_iter().map(|call| Trick::Die { call, acted: dice.bool() }).collect()
}

fn plain(project: &Project, number: usize) -> Order {
    project.order(number, json!({}))
}

fn with_volumes(project: &Project, number: usize) -> Order {
    let root = json!({"sizeGiB": 2});
    project.order(
        number,
        json!({"rootVolume": root, "additionalVolumes": [{"name": "data", "sizeGiB": 1}]}),
    )
}

async fn creation(name: &str, order: fn(&Project, usize) -> Order, calls: usize) {
    let Some(project) = Project::new(name).await else { return };
    for (number, trick) in sample(calls, 1).into_iter().enumerate() {
        let order = order(&project, number);
        let wire = Wire::with(trick);
        let first = project.over(&wire);
        let mut memory = Memory::default();
        tokio::select! {
            biased;
            () = wire.death() => {}
            done = project::create(&first, &order, &mut memory) => { done.unwrap(); }
        }
        drop(first);
        let second = project.later(&Arc::default(), SETTLED);
        project::create(&second, &order, &mut memory).await.unwrap();
        assert_eq!(project.list("servers").await.len(), 1, "{trick:?} at {:#?}", wire.calls());
        assert_eq!(project.list("floatingips").await.len(), 1, "{trick:?} at {:#?}", wire.calls());
        project::delete(&second, &order.claim, &memory).await.unwrap();
    }
    project.end().await;
}

#[tokio::test]
async fn at_some_calls_of_a_creation() {
    creation("crash-create", plain, 20).await;
}

#[tokio::test]
async fn at_some_calls_of_a_creation_with_volumes() {
    creation("crash-volumes", with_volumes, 26).await;
}

#[tokio::test]
async fn at_some_calls_of_a_creation_and_then_it_is_deleted() {
    let Some(project) = Project::new("crash-undo").await else { return };
    for (number, trick) in sample(20, 2).into_iter().enumerate() {
        let order = plain(&project, number);
        let wire = Wire::with(trick);
        let first = project.over(&wire);
        let mut memory = Memory::default();
        tokio::select! {
            biased;
            () = wire.death() => {}
            done = project::create(&first, &order, &mut memory) => { done.unwrap(); }
        }
        drop(first);
        let second = project.later(&Arc::default(), SETTLED);
        project::delete(&second, &order.claim, &memory).await.unwrap();
        assert_eq!(project.list("servers").await.len(), 0, "{trick:?} at {:#?}", wire.calls());
    }
    project.end().await;
}

#[tokio::test]
async fn at_some_calls_of_a_deletion() {
    let Some(project) = Project::new("crash-delete").await else { return };
    for (number, trick) in sample(10, 3).into_iter().enumerate() {
        let order = plain(&project, number);
        let mut memory = Memory::default();
        project::create(&project.provider(), &order, &mut memory).await.unwrap();
        let wire = Wire::with(trick);
        let first = project.over(&wire);
        tokio::select! {
            biased;
            () = wire.death() => {}
            done = project::delete(&first, &order.claim, &memory) => { done.unwrap(); }
        }
        drop(first);
        let second = project.provider();
        project::delete(&second, &order.claim, &memory).await.unwrap();
        assert_eq!(project.list("servers").await.len(), 0, "{trick:?} at {:#?}", wire.calls());
    }
    project.end().await;
}

/// The cloud acted and the process, which lives on, was not told.
async fn lost(name: &str, collection: &'static str) {
    let Some(project) = Project::new(name).await else { return };
    let wire = Wire::with(Trick::Lose(collection));
    let provider = project.over(&wire);
    let order = with_volumes(&project, 1);
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let counted = |kind: &'static str| {
        let project = &project;
        async move { project.list(kind).await.len() }
    };
    assert_eq!(counted("servers").await, 1, "{:#?}", wire.calls());
    assert_eq!(counted("floatingips").await, 1, "{:#?}", wire.calls());
    assert_eq!(counted("volumes").await, 2, "{:#?}", wire.calls());
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn the_answer_to_the_create_of_a_server_is_lost() {
    lost("lost-server", "/servers").await;
}

#[tokio::test]
async fn the_answer_to_the_create_of_a_port_is_lost() {
    lost("lost-port", "/ports").await;
}

#[tokio::test]
async fn the_answer_to_the_create_of_a_floating_ip_is_lost() {
    lost("lost-address", "/floatingips").await;
}

#[tokio::test]
async fn the_answer_to_the_attaching_of_a_volume_is_lost() {
    lost("lost-attachment", "/os-volume_attachments").await;
}

#[tokio::test]
async fn the_answer_to_a_login_is_lost() {
    lost("lost-login", "/auth/tokens").await;
}

#[tokio::test]
async fn the_answer_to_the_create_of_a_volume_is_lost() {
    lost("lost-volume", "/volumes").await;
}
