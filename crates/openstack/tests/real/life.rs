//! A machine's life on real services when nothing goes wrong, and what others do to it.

use crate::project::{self, Project};
use crate::rest::id;
use crate::wire::{Trick, Wire};
use drover_provider::{Error, Memory, Provider as _, State, conformance::Subject};
use jiff::SignedDuration;
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// How long anything may take that is sure to come; services on a busy machine take minutes.
const PATIENCE: Duration = Duration::from_mins(10);

#[tokio::test]
async fn the_conformance_suite_passes() {
    let Some(project) = Project::new("conformance").await else { return };
    let subject = Subject {
        provider: &|| project.provider(),
        parameters: project.parameters(),
        credentials: project.credentials(&project.name, Some(&project.name)),
        sleep: &|wait| Box::pin(tokio::time::sleep(wait)),
    };
    subject.run().await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn a_server_comes_and_goes_in_few_calls() {
    let Some(project) = Project::new("life").await else { return };
    let wire = Arc::<Wire>::default();
    let provider = project.over(&wire);
    let order = project.order(1, json!({}));
    let mut memory = Memory::default();
    let made = project::create(&provider, &order, &mut memory).await.unwrap();

    assert_eq!(made.state, State::Running);
    let external: Vec<bool> = made.addresses.iter().map(|it| it.external).collect();
    assert_eq!(external, [false, true], "{:?}", made.addresses);
    let servers = project.list("servers").await;
    assert_eq!(made.provider_id, format!("openstack:///{}", id(&servers[0])));
    let tag = json!(format!("drover.machine.{}", order.claim.owner.machine));
    let port = project.list("ports").await;
    let port = port.iter().find(|it| it["device_id"] == servers[0]["id"]).expect("its port");
    let floating = project.list("floatingips").await;
    for thing in [&servers[0], port, &floating[0]] {
        assert!(thing["tags"].as_array().unwrap().contains(&tag), "{thing}");
    }
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    assert_eq!(provider.look(&order.claim).await.unwrap(), None);
    assert_eq!(wire.count(&["POST", "/auth/tokens"]), 1, "{:#?}", wire.calls());
    let changes = wire.calls().into_iter().filter(|call| !call.starts_with("GET")).count();
    // Login, port and its tags, server, floating IP and its tags; then each of the three deleted. The first of a cluster
    // makes the group that all its servers share, and the last takes it away.
    assert_eq!(changes, 9 + 2, "{:#?}", wire.calls());
    project.end().await;
}

/// Three calls make a server and three remove it; what else is asked, many machines share.
#[tokio::test]
async fn a_server_without_an_address_costs_three_calls_to_make_and_three_to_remove() {
    let Some(project) = Project::new("cost").await else { return };
    let wire = Arc::<Wire>::default();
    let provider = project.over(&wire);
    let shared = [
        "/flavors",
        "/networks",
        "/subnets",
        "/security-groups",
        "/extensions",
        "/images",
        "/os-server-groups",
    ];
    let own = |from: usize| {
        let calls = wire.calls().into_iter().skip(from);
        let listed = |call: &String| {
            call.contains("/servers/detail") || call.contains("/auth/") || call.ends_with("/v2.1/")
        };
        calls.filter(|call| !listed(call) && !shared.iter().any(|it| call.contains(it))).collect()
    };
    let order = project.order(1, json!({"floatingIpPool": null}));
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let made: Vec<String> = own(0);
    assert_eq!(made.len(), 3, "{made:#?}");
    let before = wire.calls().len();
    // As if the machine had lived for longer than a lost create can be under way.
    let later = project.later(&wire, SignedDuration::from_mins(2));
    project::delete(&later, &order.claim, &memory).await.unwrap();
    let removed: Vec<String> = own(before);
    assert_eq!(removed.len(), 3, "{removed:#?}");
    project.end().await;
}

#[tokio::test]
async fn an_own_boot_volume_and_another_beside_it() {
    let Some(project) = Project::new("volume").await else { return };
    let provider = project.provider();
    let volumes = json!({
        "flavor": "kaas.small",
        "rootVolume": {"sizeGiB": 10, "volumeType": "ssd"},
        "additionalVolumes": [{"name": "data", "sizeGiB": 5}],
    });
    let order = project.order(1, volumes);
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let mut names: Vec<String> = Vec::new();
    for volume in project.list("volumes").await {
        assert_eq!(volume["status"], "in-use", "{volume}");
        names.push(volume["name"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["nodes-1-data", "nodes-1-root"]);
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn what_others_made_stays() {
    let Some(mut project) = Project::new("others").await else { return };
    let provider = project.provider();
    let (mut memory, mut theirs) = Default::default();
    let mut foreign = project.order(2, json!({}));
    foreign.claim.owner.cluster = "3f6d5b1c-0000-4000-8000-0000000000ff".into();
    project::create(&provider, &foreign, &mut theirs).await.unwrap();
    let volume = json!({"name": "nodes-1-data", "size": 1});
    let volume = project.member.post("block-storage /volumes", "volume", volume).await;
    settled(&project, "volumes", "available").await;
    project.keep_what_is_there().await;

    let mine = project.order(1, json!({}));
    project::create(&provider, &mine, &mut memory).await.unwrap();
    project::delete(&provider, &mine.claim, &memory).await.unwrap();
    assert!(provider.look(&foreign.claim).await.unwrap().is_some());
    let end = project.list("volumes").await;
    assert_eq!(id(&end[0]), id(&volume));
    let names = |of: Vec<serde_json::Value>| of.iter().map(id).collect::<Vec<_>>();
    assert_eq!(names(project.list("servers").await).len(), 1);

    project.member.delete(&format!("block-storage /volumes/{}", id(&volume))).await;
    project::delete(&provider, &foreign.claim, &theirs).await.unwrap();
    gone(&project, "volumes").await;
    assert_eq!(names(project.list("servers").await), Vec::<String>::new());
    let mut project = project;
    project.keep_what_is_there().await;
    project.end().await;
}

#[tokio::test]
async fn a_server_deleted_by_hand_is_told_and_cleaned_up() {
    let Some(project) = Project::new("deleted").await else { return };
    let provider = project.provider();
    let order = project.order(1, json!({}));
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let server = id(&project.list("servers").await[0]);
    project.member.delete(&format!("compute /servers/{server}")).await;
    gone(&project, "servers").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(provider.look(&order.claim).await.unwrap(), None);
    let error = project::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::ServerFailed(_)), "{error}");
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn a_server_stopped_by_hand_is_seen_as_stopped() {
    let Some(project) = Project::new("stopped").await else { return };
    let provider = project.provider();
    let order = project.order(1, json!({}));
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let server = id(&project.list("servers").await[0]);
    let path = format!("compute /servers/{server}/action");
    let answer = project.member.call("POST", &path, Some(json!({"os-stop": null}))).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    settled(&project, "servers", "SHUTOFF").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seen = provider.look(&order.claim).await.unwrap().expect("it is there");
    assert_eq!(seen.state, State::Stopped);
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn an_application_credential_that_ends_can_be_replaced() {
    let Some(project) = Project::new("appcred").await else { return };
    let wire = Arc::<Wire>::default();
    let provider = project.over(&wire);
    let mut order = project.order(1, json!({}));
    // Longer than services on a busy machine take for a server.
    let life = Duration::from_secs(120);
    let made = tokio::time::Instant::now();
    order.claim.credentials = project.application_credential(life).await;
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    let logins = wire.count(&["POST", "/auth/tokens"]);
    assert!(logins < 5, "{logins} logins: a token that lives short is used all the same");
    tokio::time::sleep_until(made + life + Duration::from_secs(2)).await;
    let error = project::delete(&provider, &order.claim, &memory).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
    order.claim.credentials = project.application_credential(Duration::from_secs(600)).await;
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once() {
    let Some(project) = Project::new("revoked").await else { return };
    let wire = Wire::with(Trick::Revoke(1));
    let provider = project.over(&wire);
    let order = project.order(1, json!({}));
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap();
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    assert_eq!(wire.count(&["POST", "/auth/tokens"]), 2, "{:#?}", wire.calls());
    project.end().await;
}

/// Until all things of a kind have this status.
async fn settled(project: &Project, kind: &str, status: &str) {
    until(project, kind, |things| things.iter().all(|it| it["status"] == status)).await;
}

async fn gone(project: &Project, kind: &str) {
    until(project, kind, <[_]>::is_empty).await;
}

async fn until(project: &Project, kind: &str, done: impl Fn(&[serde_json::Value]) -> bool) {
    let wait = async {
        while !done(&project.list(kind).await) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it comes to an end");
}
