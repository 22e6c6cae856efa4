//! Every field of a description arrives at the cloud, in the request that it belongs to.

use crate::world::{self, GROUP, SUBNET, World, order};
use drover_provider::Memory;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn every_field_arrives() {
    let world = World::new();
    world.make("/compute/v2.1/os-keypairs", json!({"keypair": {"name": "ops"}})).await;
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
