//! Requests as good and bad kubelets would send them, made byte by byte.

use super::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

const NOW: &str = "2026-11-21T10:00:00Z";
const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const OU: &[u8] = &[0x55, 4, 11];
const SAN_OID: &[u8] = &[0x55, 0x1d, 17];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len();
    let head = match length {
        0..128 => vec![tag, length as u8],
        128..256 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [head, content].concat()
}

fn extension_request(names: &[(u8, &[u8])]) -> Vec<u8> {
    let names: Vec<Vec<u8>> = names.iter().map(|(tag, value)| tlv(*tag, &[value])).collect();
    let names = tlv(0x04, &[&tlv(0x30, &[&names.concat()])]);
    let extension = tlv(0x30, &[&tlv(0x06, &[SAN_OID]), &names]);
    let set = tlv(0x31, &[&tlv(0x30, &[&extension])]);
    tlv(0x30, &[&tlv(0x06, &[EXTENSION_REQUEST]), &set])
}

/// A request with a subject and, for each entry, an attribute of alternative names.
fn der(subject: &[(&[u8], &str)], names: &[&[(u8, &[u8])]]) -> Vec<u8> {
    let subject: Vec<Vec<u8>> = subject
        .iter()
        .map(|(oid, text)| {
            let pair = tlv(0x30, &[&tlv(0x06, &[oid]), &tlv(0x0c, &[text.as_bytes()])]);
            tlv(0x31, &[&pair])
        })
        .collect();
    let ed25519 = tlv(0x30, &[&tlv(0x06, &[&[0x2b, 0x65, 0x70]])]);
    let key = tlv(0x30, &[&ed25519, &tlv(0x03, &[&[0; 33]])]);
    let attributes: Vec<Vec<u8>> = names.iter().map(|names| extension_request(names)).collect();
    let info = tlv(
        0x30,
        &[&[2, 1, 0], &tlv(0x30, &[&subject.concat()]), &key, &tlv(0xa0, &[&attributes.concat()])],
    );
    tlv(0x30, &[&info, &ed25519, &tlv(0x03, &[&[0; 65]])])
}

fn pem(der: &[u8]) -> String {
    let body = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        lines.join("\n")
    )
}

fn request(signer: &str, user: &str, groups: &[&str], auth: &str, pem: &str) -> Observation {
    let mut request = CertificateSigningRequest::default();
    request.metadata.creation_timestamp = Some(Time("2026-11-21T09:59:00Z".parse().unwrap()));
    request.spec.signer_name = signer.to_owned();
    request.spec.username = Some(user.to_owned());
    request.spec.groups = Some(groups.iter().map(|&group| group.to_owned()).collect());
    request.spec.usages = Some(vec!["digital signature".to_owned(), auth.to_owned()]);
    request.spec.request = ByteString(pem.as_bytes().to_vec());
    let machine = KnownMachine {
        name: "m1".to_owned(),
        node_name: "m1".to_owned(),
        addresses: vec!["10.0.0.5".to_owned(), "fd00::5".to_owned(), "m1.example".to_owned()],
        ..KnownMachine::default()
    };
    Observation { request, machines: vec![machine], now: NOW.parse().unwrap() }
}

struct Observation {
    request: CertificateSigningRequest,
    machines: Vec<KnownMachine>,
    now: Timestamp,
}

const SUBJECT: [(&[u8], &str); 2] = [(O, "system:nodes"), (CN, "system:node:m1")];

fn first() -> Observation {
    let groups = ["system:bootstrappers", "system:authenticated"];
    request(
        CLIENT_SIGNER,
        "system:bootstrap:abcdef",
        &groups,
        "client auth",
        &pem(&der(&SUBJECT, &[])),
    )
}

fn renewal() -> Observation {
    let groups = ["system:nodes", "system:authenticated"];
    let mut seen =
        request(CLIENT_SIGNER, "system:node:m1", &groups, "client auth", &pem(&der(&SUBJECT, &[])));
    seen.machines[0].has_node = true;
    seen
}

fn serving(names: &[&[(u8, &[u8])]]) -> Observation {
    let groups = ["system:nodes", "system:authenticated"];
    let pem = pem(&der(&SUBJECT, names));
    request(SERVING_SIGNER, "system:node:m1", &groups, "server auth", &pem)
}

const OWN: &[(u8, &[u8])] = &[(DNS, b"m1"), (IP, &[10, 0, 0, 5])];

fn shown(seen: &Observation) -> String {
    let Observation { request, machines, now } = seen;
    match decide(&Observed { request, machines, now: *now }) {
        Decision::Approve { why } => format!("approve: {why}"),
        Decision::Deny { why } => format!("deny: {why}"),
        Decision::Ignore { why } => format!("ignore: {why}"),
        Decision::Wait { why, after } => format!("wait {}s: {why}", after.as_secs()),
    }
}

#[track_caller]
fn check(mut seen: Observation, change: impl FnOnce(&mut Observation), expected: &str) {
    change(&mut seen);
    assert_eq!(shown(&seen), expected);
}

fn with_request(der: Vec<u8>) -> impl FnOnce(&mut Observation) {
    move |seen| seen.request.spec.request = ByteString(pem(&der).into_bytes())
}

fn later(seen: &mut Observation) {
    seen.now += SETTLING_MAX;
}

fn condition(seen: &mut Observation, kind: &str) {
    let condition =
        CertificateSigningRequestCondition { type_: kind.to_owned(), ..Default::default() };
    seen.request.status = Some(CertificateSigningRequestStatus {
        conditions: Some(vec![condition]),
        ..Default::default()
    });
}

#[test]
fn a_token_brings_one_machine_in() {
    let approved =
        "approve: first client certificate of the Node of machine \"m1\", asked for with its token";
    check(first(), |_| (), approved);
    let rsa = |seen: &mut Observation| {
        seen.request.spec.usages.as_mut().unwrap().push("key encipherment".to_owned());
    };
    check(first(), rsa, approved);
    let renewed = "approve: renewed client certificate of the Node of machine \"m1\"";
    check(renewal(), |_| (), renewed);
}

#[test]
fn a_token_brings_nobody_else_in() {
    let other = [(O, "system:nodes"), (CN, "system:node:m2")];
    let cn = "deny: common name \"system:node:m2\" is not \"system:node:m1\"";
    check(first(), with_request(der(&other, &[])), cn);
    check(renewal(), with_request(der(&other, &[])), cn);
    let unknown = "no machine is known to user \"system:bootstrap:abcdef\"";
    check(first(), |seen| seen.machines.clear(), &format!("wait 30s: {unknown}"));
    let gone = |seen: &mut Observation| {
        seen.machines.clear();
        later(seen);
    };
    check(first(), gone, &format!("ignore: {unknown}"));
    let twins = |seen: &mut Observation| seen.machines.push(seen.machines[0].clone());
    let ambiguous =
        "deny: machines [\"m1\", \"m1\"] share the identity of user \"system:bootstrap:abcdef\"";
    check(first(), twins, ambiguous);
    let joined = "deny: machine \"m1\" has joined already; its token is spent";
    check(first(), |seen| seen.machines[0].has_node = true, joined);
    let deleting = "deny: machine \"m1\" is being deleted";
    check(first(), |seen| seen.machines[0].is_deleting = true, deleting);
    let stranger =
        "ignore: user \"system:bootstrap:abcdef\" is neither a bootstrap token nor a Node";
    check(first(), |seen| seen.request.spec.groups = None, stranger);
    let admin = "ignore: user \"admin\" is neither a bootstrap token nor a Node";
    check(first(), |seen| seen.request.spec.username = Some("admin".into()), admin);
    let signer = |seen: &mut Observation| seen.request.spec.signer_name = SERVING_SIGNER.to_owned();
    let usages =
        "deny: usages [\"client auth\", \"digital signature\"] are not those of this signer";
    check(first(), signer, usages);
}

#[test]
fn a_client_request_has_one_form() {
    let subject =
        "deny: the subject is not exactly one organisation \"system:nodes\" and one common name";
    for wrong in [
        vec![(O, "system:masters"), (CN, "system:node:m1")],
        vec![(O, "system:nodes"), (O, "system:masters"), (CN, "system:node:m1")],
        vec![(O, "system:nodes"), (CN, "system:node:m1"), (CN, "system:node:m2")],
        vec![(O, "system:nodes"), (OU, "x"), (CN, "system:node:m1")],
        vec![(CN, "system:node:m1")],
        vec![(O, "system:nodes")],
        vec![],
    ] {
        check(first(), with_request(der(&wrong, &[])), subject);
    }
    let named = der(&SUBJECT, &[&[(DNS, b"m1")]]);
    check(first(), with_request(named), "deny: a client certificate has no alternative names");
    let add = |seen: &mut Observation| {
        seen.request.spec.usages.as_mut().unwrap().push("server auth".to_owned());
    };
    let usages = "deny: usages [\"client auth\", \"digital signature\", \"server auth\"] are not those of this signer";
    check(first(), add, usages);
}

/// MetaKube 9.2 scenario 20.
#[test]
fn metakube_20_a_serving_request_is_approved_for_a_known_nodes_own_names_only() {
    let foreign_ip: &[(u8, &[u8])] = &[(IP, &[10, 0, 0, 6])];
    let foreign_name: &[(u8, &[u8])] = &[(DNS, b"m2")];
    let with_subject = |subject: &[(&[u8], &str)]| {
        let mut seen = serving(&[OWN]);
        with_request(der(subject, &[OWN]))(&mut seen);
        seen
    };
    let client_auth = || {
        let mut seen = serving(&[OWN]);
        seen.request.spec.usages.as_mut().unwrap().push("client auth".to_owned());
        seen
    };
    let of_control_plane = || {
        let mut seen = serving(&[OWN]);
        seen.machines.clear();
        seen
    };
    let denied = || {
        let mut seen = serving(&[OWN]);
        condition(&mut seen, "Denied");
        seen
    };
    for (what, mut seen, decision) in [
        ("own names and addresses", serving(&[OWN]), "approve"),
        ("a foreign address", serving(&[foreign_ip]), "deny"),
        ("a foreign name", serving(&[foreign_name]), "deny"),
        (
            "another common name",
            with_subject(&[(O, "system:nodes"), (CN, "system:node:m2")]),
            "deny",
        ),
        ("another group", with_subject(&[(O, "system:masters"), (CN, "system:node:m1")]), "deny"),
        ("another usage", client_auth(), "deny"),
        ("a node of a control plane", of_control_plane(), "ignore"),
        ("what was denied", denied(), "ignore"),
    ] {
        // Not only early: a cloud may tell an address to the Node first.
        later(&mut seen);
        let shown = shown(&seen);
        assert!(shown.starts_with(decision), "{what}: {shown}");
    }
}

#[test]
fn a_serving_certificate_stays_within_the_machine() {
    let approved = "approve: serving certificate within the names and addresses of machine \"m1\"";
    check(serving(&[OWN]), |_| (), approved);
    let v6 = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    check(serving(&[&[(IP, &v6), (DNS, b"m1.example")]]), |_| (), approved);
    check(
        serving(&[&[(IP, &[10, 0, 0, 5])]]),
        |seen| seen.machines[0].is_deleting = true,
        approved,
    );

    let foreign = "alternative name \"10.0.0.6\" does not belong to machine \"m1\"";
    let mixed: &[(u8, &[u8])] = &[(IP, &[10, 0, 0, 5]), (IP, &[10, 0, 0, 6])];
    check(serving(&[mixed]), |_| (), &format!("wait 30s: {foreign}"));
    check(serving(&[mixed]), later, &format!("deny: {foreign}"));
    let second = serving(&[OWN, &[(IP, &[10, 0, 0, 6])]]);
    check(second, later, &format!("deny: {foreign}"));
    let dns = "deny: alternative name \"kubernetes.default\" does not belong to machine \"m1\"";
    check(serving(&[&[(DNS, b"kubernetes.default")]]), later, dns);
    let none = "deny: a serving certificate needs a DNS name or an IP address";
    check(serving(&[]), |_| (), none);
    for (tag, name) in [(EMAIL, "RFC822Name(a@b)"), (URI, "URI(a@b)")] {
        let expected =
            format!("deny: alternative name {name} is neither a DNS name nor an IP address");
        check(serving(&[&[OWN[0], (tag, b"a@b")]]), |_| (), &expected);
    }
    let malformed = "deny: the request is not exactly one PEM block of a certificate request";
    check(serving(&[&[(IP, &[10, 0, 0])]]), |_| (), malformed);
}

#[test]
fn only_the_node_itself_asks_for_its_serving_certificate() {
    let stranger =
        |seen: &mut Observation| seen.request.spec.username = Some("system:node:".into());
    let ignored = "ignore: user \"system:node:\" is neither a bootstrap token nor a Node";
    check(serving(&[OWN]), stranger, ignored);
    let by_token = |seen: &mut Observation| {
        seen.request.spec.username = Some("system:bootstrap:abcdef".to_owned());
        seen.request.spec.groups = Some(vec!["system:bootstrappers".to_owned()]);
    };
    let refused = "deny: a bootstrap token may not ask for a serving certificate";
    check(serving(&[OWN]), by_token, refused);
    let other = |seen: &mut Observation| {
        seen.request.spec.username = Some("system:node:m2".to_owned());
    };
    check(serving(&[OWN]), other, "deny: common name \"m1\" is not \"system:node:m2\"");
    let no_server_auth = |seen: &mut Observation| {
        seen.request.spec.usages = Some(vec!["digital signature".to_owned()]);
    };
    let usages = "deny: usages [\"digital signature\"] are not those of this signer";
    check(serving(&[OWN]), no_server_auth, usages);
}

#[test]
fn what_is_decided_or_foreign_is_left_alone() {
    for kind in ["Approved", "Denied", "Failed"] {
        check(first(), |seen| condition(seen, kind), "ignore: the request is decided already");
    }
    let other = |seen: &mut Observation| {
        seen.request.spec.signer_name = "kubernetes.io/kube-apiserver-client".to_owned();
    };
    let signer = "ignore: signer \"kubernetes.io/kube-apiserver-client\" is not one for kubelets";
    check(first(), other, signer);
}

#[test]
fn a_request_is_one_small_block() {
    let malformed = "deny: the request is not exactly one PEM block of a certificate request";
    let good = pem(&der(&SUBJECT, &[]));
    let cut = &good[..good.len() / 2];
    for text in
        ["", "hello", cut, &good.repeat(2), &good.replace(" REQUEST", ""), &format!("x\n{good}")]
    {
        let change = |seen: &mut Observation| {
            seen.request.spec.request = ByteString(text.as_bytes().to_vec());
        };
        check(first(), change, malformed);
    }
    let long = |seen: &mut Observation| {
        seen.request.spec.request.0.resize(REQUEST_BYTES_MAX + 1, b' ');
    };
    check(first(), long, "deny: the request is 16385 bytes, 16384 are allowed");
    let trailing = [der(&SUBJECT, &[]), vec![0]].concat();
    check(first(), with_request(trailing), malformed);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Neither noise nor a good request with a flipped byte panics or is approved for another name.
    #[test]
    fn hostile_bytes_are_never_approved_for_a_foreign_name(
        at in 0_usize..150, value in any::<u8>(), noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut changed = der(&SUBJECT, &[OWN]);
        let last = changed.len() - 1;
        changed[at.min(last)] = value;
        for bytes in [changed, noise] {
            let mut seen = serving(&[]);
            with_request(bytes)(&mut seen);
            seen.machines[0].node_name = "m2".to_owned();
            prop_assert!(!shown(&seen).starts_with("approve"));
            seen.machines[0].node_name = "m1".to_owned();
            shown(&seen);
        }
    }
}
