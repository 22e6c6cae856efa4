//! What real services refuse, each as the error with the right reaction.

use crate::project::{self, Project};
use crate::rest::id;
use crate::wire::{Trick, Wire};
use drover_provider::{Created, Error, Memory, Order, Provider as _, Retry};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// A quota of none is told as what it is; once it is raised, what was made before is used.
async fn quota(of: &str, used: i64, more: Value) {
    let Some(project) = Project::new(&format!("quota-{of}")).await else { return };
    let provider = project.provider();
    let order = project.order(1, more);
    project.quota(of, used).await;
    let mut memory = Memory::default();
    let error = project::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::QuotaExceeded(_)), "{of}: {error}");
    assert!(matches!(error.retry(), Retry::After(wait) if wait >= Duration::from_secs(60)));
    project.quota(of, 500).await;
    project::create(&provider, &order, &mut memory).await.unwrap();
    let ports = project.list("ports").await;
    let ours = ports.iter().filter(|it| it["name"].as_str().unwrap().starts_with("nodes-1"));
    assert_eq!(ours.count(), 1, "the port of the first attempt is used");
    assert_eq!(project.list("servers").await.len(), 1);
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn the_quota_of_servers() {
    quota("instances", 0, json!({})).await;
}

#[tokio::test]
async fn the_quota_of_cores() {
    quota("cores", 0, json!({})).await;
}

#[tokio::test]
async fn the_quota_of_ports() {
    // The router has one, and so has somebody else.
    quota("port", 2, json!({})).await;
}

#[tokio::test]
async fn the_quota_of_floating_ips() {
    quota("floatingip", 0, json!({})).await;
}

#[tokio::test]
async fn the_quota_of_volumes() {
    quota("gigabytes", 0, json!({"rootVolume": {"sizeGiB": 10}})).await;
}

#[tokio::test]
async fn no_valid_host() {
    let Some(project) = Project::new("no-host").await else { return };
    let provider = project.provider();
    let order = project.order(1, json!({"flavor": "m1.impossible"}));
    let mut memory = Memory::default();
    let error = project::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::Exhausted(_)), "{error}");
    assert!(error.to_string().contains("No valid host was found"), "{error}");
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn a_fault_at_boot_and_a_new_machine_after_it() {
    let Some(project) = Project::new("boot").await else { return };
    let provider = project.provider();
    let order = project.order(1, json!({"metadata": {"oslab_boot_error": "disk on fire"}}));
    let mut memory = Memory::default();
    let error = project::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::ServerFailed(_)), "{error}");
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    let next = project.order(2, json!({}));
    let mut memory = Memory::default();
    project::create(&provider, &next, &mut memory).await.unwrap();
    project::delete(&provider, &next.claim, &memory).await.unwrap();
    project.end().await;
}

/// What is refused before anything is made, and names the field.
async fn refused(project: &Project, more: Value, expected: &str) {
    let provider = project.provider();
    let order = project.order(1, more);
    let error = project::create(&provider, &order, &mut Memory::default()).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{expected}: {error}");
    assert!(error.to_string().contains(expected), "{expected}: {error}");
}

#[tokio::test]
async fn names_that_lead_nowhere_or_to_two_things() {
    let Some(project) = Project::new("names").await else { return };
    refused(&project, json!({"image": "nope"}), "image: the cloud has no image named").await;
    refused(&project, json!({"flavor": "nope"}), "flavor: the cloud has no flavor named").await;
    refused(&project, json!({"serverGroup": "nope"}), "serverGroup: the cloud has no").await;
    refused(&project, json!({"floatingIpPool": "nodes"}), "floatingIpPool: the cloud has no").await;
    refused(&project, json!({"networks": [{"network": "nope"}]}), "networks.network").await;
    refused(&project, json!({"availabilityZone": "mars"}), "mars").await;
    refused(&project, json!({"keyName": "nope"}), "nope").await;
    let group = json!({"name": "workers"});
    let twin = project.member.post("network /security-groups", "security_group", group).await;
    refused(&project, json!({}), "securityGroups").await;
    project.member.delete(&format!("network /security-groups/{}", id(&twin))).await;
    let mut twins = Vec::new();
    for _ in 0..2 {
        let image = json!({"name": project.name, "disk_format": "raw", "container_format": "bare"});
        let image = project.member.call("POST", "image /images", Some(image)).await;
        let image = image.body["id"].as_str().unwrap().to_owned();
        let path = format!("image /images/{image}/file");
        project.member.upload(&path, "twin").await;
        twins.push(image);
    }
    refused(&project, json!({"image": project.name}), "image: the cloud has 2 images named").await;
    for image in twins {
        project.member.delete(&format!("image /images/{image}")).await;
    }
    let network = json!({"name": "nodes"});
    let twin = project.member.post("network /networks", "network", network).await;
    refused(&project, json!({"networks": [{"network": "nodes"}]}), "networks.network").await;
    project.member.delete(&format!("network /networks/{}", id(&twin))).await;
    // The zone and the key are refused by the server's create: its port is there by then.
    let provider = project.provider();
    let order = project.order(1, json!({}));
    project::delete(&provider, &order.claim, &Memory::default()).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn an_image_deleted_after_it_was_looked_up() {
    let Some(project) = Project::new("image").await else { return };
    let provider = project.provider();
    let image = json!({"name": project.name, "disk_format": "raw", "container_format": "bare"});
    let answer = project.member.call("POST", "image /images", Some(image)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let image = answer.body["id"].as_str().unwrap().to_owned();
    let order = project.order(1, json!({"image": image}));
    let Ok(Created::Record(mut memory)) = provider.create(&order, &Memory::default()).await else {
        panic!("an image by its id is good");
    };
    project.member.delete(&format!("image /images/{image}")).await;
    let error = project::create(&provider, &order, &mut memory).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

#[tokio::test]
async fn a_port_that_somebody_else_took() {
    let Some(project) = Project::new("port").await else { return };
    // The machine's port is there, its server is not; then somebody starts a server on that port.
    let provider = project.over(&Wire::with(Trick::Lose("/nothing")));
    let order = project.order(1, json!({"keyName": "nope"}));
    let mut memory = Memory::default();
    project::create(&provider, &order, &mut memory).await.unwrap_err();
    let ports = project.list("ports").await;
    let port = ports.iter().find(|it| it["name"] == "nodes-1").expect("the machine's port");
    let server = thief(&project, &id(port)).await;
    let order = project.order(1, json!({}));
    let once = project.provider().create(&order, &memory).await;
    assert!(once.is_ok(), "{once:?}");
    let provider = project.later(&Arc::default(), jiff::SignedDuration::from_mins(2));
    let waited = tokio::time::timeout(
        Duration::from_secs(20),
        project::create(&provider, &order, &mut memory),
    );
    assert!(waited.await.is_err(), "the machine waits until the port is let go");
    assert_eq!(project.list("servers").await.len(), 1, "no second server on that port");
    project.member.delete(&format!("compute /servers/{server}")).await;
    let made = project::create(&provider, &order, &mut memory).await.unwrap();
    assert!(!made.provider_id.ends_with(&server));
    project::delete(&provider, &order.claim, &memory).await.unwrap();
    project.end().await;
}

/// Somebody else's server on this port, running.
async fn thief(project: &Project, port: &str) -> String {
    let flavors = project.member.get("compute /flavors", "flavors").await;
    let flavor = flavors.as_array().unwrap().iter().find(|it| it["name"] == "m1.small").unwrap();
    let images = project.member.get("image /images", "images").await;
    let image = images.as_array().unwrap().iter().find(|it| it["name"] == project::IMAGE).unwrap();
    let server = json!({"name": "thief", "flavorRef": id(flavor), "imageRef": id(image),
        "networks": [{"port": port}]});
    let server = id(&project.member.post("compute /servers", "server", server).await);
    let path = format!("compute /servers/{server}");
    // Ten minutes: services on a busy machine are slow.
    for _ in 0..1200 {
        if project.member.get(&path, "server").await["status"] == "ACTIVE" {
            return server;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the other server does not come up");
}

fn order_as(project: &Project, credentials: drover_provider::Credentials) -> Order {
    let mut order = project.order(1, json!({}));
    order.claim.credentials = credentials;
    order
}

#[tokio::test]
async fn a_reader_and_a_login_without_a_project() {
    let Some(project) = Project::new("reader").await else { return };
    let provider = project.provider();
    let order = order_as(&project, project.with_role("reader").await);
    let error = project::create(&provider, &order, &mut Memory::default()).await.unwrap_err();
    assert!(matches!(error, Error::Forbidden(_)), "{error}");

    let unscoped = order_as(&project, project.credentials(&project.name, None));
    let error = project::create(&provider, &unscoped, &mut Memory::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_) | Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("project"), "{error}");
    let held = provider.holdings(&unscoped.claim.credentials, project::CLUSTER).await;
    assert!(held.is_err(), "an empty list of a token without a project is no answer: {held:?}");

    let wrong = order_as(&project, project.credentials("nobody", Some(&project.name)));
    let error = project::create(&provider, &wrong, &mut Memory::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
    project.end().await;
}
