//! Recorded refusals and failed servers of real services, each with the class it must get.

use super::*;
use crate::{instance, wire::Server};
use drover_provider::State;
use http::HeaderName;
use serde_json::Value;

const REFUSALS: &str = include_str!("../../tests/samples/refusals.json");
const SERVERS: &str = include_str!("../../tests/samples/servers.json");

fn samples(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn refusal(name: &str) -> Refusal {
    let all = samples(REFUSALS);
    let sample = all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let mut head = HeaderMap::new();
    for (key, value) in sample["headers"].as_object().unwrap() {
        let key = HeaderName::from_bytes(key.as_bytes()).unwrap();
        head.insert(key, value.as_str().unwrap().parse().unwrap());
    }
    let body = match &sample["body"] {
        Value::String(text) => text.clone().into_bytes(),
        json => serde_json::to_vec(json).unwrap(),
    };
    let status = u16::try_from(sample["status"].as_u64().unwrap()).unwrap();
    let status = StatusCode::from_u16(status).unwrap();
    Refusal::read("call".into(), sample["method"] == "POST", status, &head, &body)
}

fn server(name: &str) -> Server {
    let all = samples(SERVERS);
    let sample = all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_value(sample["server"].clone()).unwrap()
}

#[test]
fn every_recorded_refusal_has_its_class() {
    let expected = [
        (
            "InvalidArgument",
            "nova-err-create-image nova-err-create-flavor nova-err-create-network \
             nova-err-create-port nova-err-create-az nova-err-create-keypair \
             nova-err-create-userdata-big nova-err-create-unknown-property \
             nova-create-flavor-zero-disk nova-err-create-metadata-many nova-err-body-too-large \
             neutron-err-port-network neutron-err-port-sg cinder-err-volume-type \
             cinder-err-volume-delete-in-use",
        ),
        (
            "ResourceExhausted",
            "nova-err-quota-instances nova-err-quota-cores nova-create-port-quota \
             neutron-err-port-quota neutron-err-floatingip-quota cinder-err-volume-quota \
             cinder-err-gigabytes-quota neutron-err-ip-exhausted neutron-err-floatingip-pool-empty",
        ),
        (
            "Aborted",
            "nova-err-port-in-use nova-err-delete-locked nova-err-server-get \
             neutron-err-port-ip-in-use neutron-err-floatingip-port-has-one \
             neutron-err-port-aap-if-match glance-err-image-get",
        ),
        (
            "PermissionDenied",
            "nova-err-reader-create nova-err-unscoped-token neutron-err-reader-create",
        ),
        (
            "Unauthenticated",
            "nova-err-token-expired cinder-err-token-expired glance-err-token-expired \
             keystone-err-wrong-password",
        ),
    ];
    for (code, names) in expected {
        for name in names.split_whitespace() {
            let error = refusal(name).class();
            assert_eq!(error.code(), code, "{name}: {error}");
        }
    }
}

#[test]
fn the_clouds_words_and_its_request_id_are_kept_and_user_data_is_not() {
    let text = refusal("nova-err-quota-instances").class().to_string();
    assert!(text.contains("already used 0 of 0 instances (req-"), "{text}");
    let text = refusal("glance-err-image-get").class().to_string();
    assert!(!text.contains('<'), "{text}");
    for name in ["nova-err-create-userdata-big", "nova-err-create-unknown-property"] {
        let text = refusal(name).class().to_string();
        assert!(!text.contains("eHh4"), "{text}");
    }
    let body = "Invalid input for field/attribute server. Value: {'user_data': 'c2VjcmV0'}. no x";
    assert_eq!(
        hide_values(body),
        "Invalid input for field/attribute server. Value: (not shown). no x"
    );
}

#[test]
fn retry_after_of_zero_is_none() {
    assert_eq!(refusal("cinder-err-volume-quota").retry_after, None);
}

#[test]
fn failed_servers_are_told_apart() {
    let class = |name: &str| {
        let server = server(name);
        of_server(&server.id, Some(&server.fault.message))
    };
    assert!(matches!(class("nova-server-get-anti-affinity"), Error::Exhausted(_)));
    assert!(matches!(class("nova-err-create-ip-exhausted-result"), Error::Exhausted(_)));
    assert!(matches!(class("nova-create-bfv-quota-result"), Error::QuotaExceeded(_)));
    assert!(matches!(class("nova-server-get-spawn-fault"), Error::ServerFailed(_)));
    let text = class("nova-server-get-error-reset").to_string();
    assert!(text.contains("does not say why"), "{text}");
}

#[test]
fn recorded_servers_are_read() {
    let seen = |name: &str| instance::of(&server(name), None);
    assert_eq!(seen("nova-server-get").state, State::Running);
    assert_eq!(seen("nova-server-get-bfv").state, State::Running);
    assert_eq!(seen("nova-server-get-building").state, State::Building);
    assert_eq!(seen("nova-server-get-deleting").state, State::Deleting);
    assert_eq!(seen("nova-server-get-shutoff").state, State::Stopped);
    let floating = seen("nova-server-get-floating");
    let external: Vec<bool> = floating.addresses.iter().map(|it| it.external).collect();
    assert_eq!(external, [false, true]);
}
