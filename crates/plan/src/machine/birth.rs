//! The steps of a birth that a machine's notes and its kubelet tell of, one condition for each.

use super::Certificate;
use super::draft::Draft;
use crate::node;
use crate::reason::Reason;
use drover_api::{ConditionStatus, ConditionType, ProviderStatus};

/// Notes what the cloud is known to have of the machine. MetaKube's order: port, server, floating IP.
pub fn note_made(draft: &mut Draft) {
    let memory = draft.memory();
    let has = |key: &str| memory.contains_key(key);
    if has(ProviderStatus::PORT) {
        draft.passed(ConditionType::PortsReady, Reason::PortsMade);
    }
    if !has(ProviderStatus::SERVER) {
        // One that failed is cleared away and made anew.
        if draft.holds(ConditionType::ServerCreated) && draft.status.provider_id.is_none() {
            let (type_, why) = (ConditionType::ServerCreated, Reason::ServerOrdered);
            draft.condition(type_, ConditionStatus::False, why, "");
        }
        return;
    }
    draft.passed(ConditionType::ServerCreated, Reason::ServerMade);
    let described = draft.seen.description.ok();
    if described.is_none_or(|it| it.server.floating_ip_pool.is_none()) {
        return;
    }
    let type_ = ConditionType::FloatingIpReady;
    if has(ProviderStatus::FLOATING_ADDRESS) {
        draft.passed(type_, Reason::FloatingIpMade);
    } else if !draft.holds(type_) {
        draft.condition(type_, ConditionStatus::False, Reason::FloatingIpAwaited, "");
    }
}

/// What a server that runs is waited for until its Node registers. MetaKube's order: boot, certificate,
/// registered.
pub fn awaited(draft: &mut Draft) -> (Reason, String) {
    let name = node::name_of(draft.seen.machine);
    let (booted, issued) = (ConditionType::Booted, ConditionType::CertificateIssued);
    let certificate = draft.seen.certificate;
    if certificate.is_some() {
        draft.passed(booted, Reason::KubeletStarted);
    }
    let (why, message) = match certificate {
        _ if draft.holds(issued) => return registers(&name),
        Some(Certificate::Approved) => {
            draft.passed(issued, Reason::CertificateIssued);
            return registers(&name);
        }
        None => {
            let why = Reason::BootAwaited;
            let message =
                format!("the server boots; node {name} has not asked for a certificate yet");
            if !draft.holds(booted) {
                draft.condition(booted, ConditionStatus::False, why, &message);
            }
            return (why, message);
        }
        Some(Certificate::Waits(what)) => {
            let message =
                format!("the certificate request of node {name} is not approved yet: {what}");
            (Reason::CertificateAwaited, message)
        }
        Some(Certificate::Denied(cause)) => {
            let message = format!("the certificate request of node {name} was denied: {cause}");
            (Reason::CertificateDenied, message)
        }
    };
    let is_new = draft.condition(issued, ConditionStatus::False, why, &message);
    if is_new && why == Reason::CertificateDenied {
        draft.warn(why, message.clone());
    }
    (why, message)
}

fn registers(name: &str) -> (Reason, String) {
    (Reason::NodeAwaited, format!("node {name} has its certificate and has not registered yet"))
}

/// What a machine has behind it that has a Node, however it came by it.
pub fn note_joined(draft: &mut Draft) {
    draft.passed(ConditionType::Booted, Reason::KubeletStarted);
    draft.passed(ConditionType::CertificateIssued, Reason::CertificateIssued);
}
