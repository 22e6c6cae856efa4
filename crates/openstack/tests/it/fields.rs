//! Every field of a description arrives at the cloud, in the request that it belongs to.

use crate::world::{self, GROUP, SUBNET, World, order};
use axum::body::Body;
use drover_provider::Memory;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Speaks to the cloud as the project's user.
async fn post(world: &World, token: &str, path: &str, body: &Value) -> Response<Body> {
    let request = Request::post(format!("http://cloud.lab{path}"))
        .header("content-type", "application/json")
        .header("x-auth-token", token)
        .body(Body::from(body.to_string()))
        .unwrap();
    world.cloud.router().oneshot(request).await.unwrap()
}

/// A key pair of the user, as `openstack keypair create` makes one.
async fn key_pair(world: &World, name: &str) {
    let login = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": "drover", "domain": {"name": "Default"}, "password": "password",
        }}},
        "scope": {"project": {"name": "drover", "domain": {"name": "Default"}}},
    }});
    let answer = post(world, "", "/identity/v3/auth/tokens", &login).await;
    let token = answer.headers()["x-subject-token"].to_str().unwrap().to_owned();
    let body = json!({"keypair": {"name": name}});
    let answer = post(world, &token, "/compute/v2.1/os-keypairs", &body).await;
    let (status, text) = (answer.status(), answer.into_body().collect().await.unwrap().to_bytes());
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&text));
}

#[tokio::test(start_paused = true)]
async fn every_field_arrives() {
    let world = World::new();
    key_pair(&world, "ops").await;
    let all = json!({
        "image": "Ubuntu Noble 24.04 (2024-08-01)",
        "flavor": "kaas.small",
        "availabilityZone": "dbl2",
        "region": "dbl",
        "networks": [
            {"network": GROUP, "subnet": SUBNET, "fixedIp": "192.168.48.77"},
            {"network": GROUP, "pods": false},
        ],
        "securityGroups": [GROUP],
        "floatingIpPool": "ext-net",
        "rootVolume": {"sizeGiB": 30, "volumeType": "ssd"},
        "additionalVolumes": [{"name": "data", "sizeGiB": 5}],
        "keyName": "ops",
        "configDrive": true,
        "allowedAddressPairs": ["10.244.0.0/16", "fd00:10:244::/56"],
        "tags": ["kube"],
        "metadata": {"pool": "nodes"},
    });
    let mut memory = Memory::default();
    world::create(&world.provider(), &order(1, all), &mut memory).await.unwrap();
    insta::assert_snapshot!(world.sent.lock().unwrap().join("\n"));
    let size: usize = memory.0.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(size < 1024, "{size} bytes of memory: {memory:?}");
}
