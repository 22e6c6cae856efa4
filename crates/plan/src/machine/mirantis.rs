//! `status.providerStatus` as the clients of Mirantis Container Cloud read it.

use super::draft::Draft;
use crate::node;
use drover_api::{Condition, ConditionType, Hardware, ProviderCondition, is_mirantis, labels};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// Shows a machine of Mirantis' dialect in Mirantis' words. Others keep a status without them.
pub fn show(draft: &mut Draft) {
    let machine = draft.seen.machine;
    if !is_mirantis(&machine.spec) || draft.status.phase.is_none() {
        return;
    }
    let given = draft.seen.description.ok().and_then(|it| it.upgrade_index);
    let noted = machine.annotations().get(labels::UPGRADE_INDEX).and_then(|it| it.parse().ok());
    let (value, conditions) = (value(draft).to_owned(), conditions(draft));
    let hardware = draft.node().and_then(|node| hardware(node));
    let status = draft.status.provider_status.get_or_insert_default();
    status.upgrade_index = given.or(noted);
    status.status = Some(value);
    status.conditions = conditions;
    status.hardware = hardware.or(status.hardware.take());
}

/// Mirantis: looked at from top to bottom, the first that fits. Reconfigure, Upgrade and Reboot are of an
/// update in place, Disabled of a machine outside its control; Drover has neither yet.
fn value(draft: &Draft) -> &'static str {
    let held = |type_| draft.holds(type_);
    let provider = draft.status.provider_status.as_ref();
    let once_ready = was_ready(draft);
    if !held(ConditionType::ServerReady) && !once_ready {
        "Provision"
    } else if !held(ConditionType::Booted) {
        "Uninitialized"
    } else if !held(ConditionType::NodeJoined) && !once_ready {
        "Pending"
    } else if !held(ConditionType::AddressesKnown) {
        "Prepare"
    } else if !once_ready {
        "Deploy"
    } else if provider.is_some_and(|it| it.maintenance == Some(true)) {
        "Maintenance"
    } else {
        "Ready"
    }
}

/// Whether its Node was Ready once: what comes later is for the conditions to tell.
fn was_ready(draft: &Draft) -> bool {
    draft.holds(ConditionType::CriticalPodsReady)
}

/// The machine is ready when all of them are.
fn conditions(draft: &Draft) -> Vec<ProviderCondition> {
    let of = |name: &str, ready: bool, message: &str| ProviderCondition {
        type_: name.to_owned(),
        ready,
        message: message.to_owned(),
    };
    let shown = |type_, name: &str| {
        let found: Option<&Condition> = draft.find(type_);
        of(name, draft.holds(type_), found.map_or("", |it| it.message.as_str()))
    };
    let lcm = if was_ready(draft) { "" } else { "the node is being deployed" };
    let mut all = vec![
        shown(ConditionType::ServerReady, "ProviderInstance"),
        of("LCM", was_ready(draft), lcm),
        shown(ConditionType::Ready, "Kubelet"),
    ];
    let provider = draft.status.provider_status.as_ref();
    if let Some(entered) = provider.and_then(|it| it.maintenance) {
        let message = draft.find(ConditionType::Drained).map_or("", |it| it.message.as_str());
        all.push(of("Maintenance", entered, message));
    }
    if let Some(phase) = provider.and_then(|it| it.prepare_deletion_phase.as_deref()) {
        let message = draft.find(ConditionType::Drained).map_or("", |it| it.message.as_str());
        let message =
            if message.is_empty() { phase.to_owned() } else { format!("{phase}: {message}") };
        all.push(of("PrepareDeletion", phase == "completed", &message));
    }
    all
}

/// What the Node says of its size.
fn hardware(node: &Node) -> Option<Hardware> {
    let capacity = node.status.as_ref()?.capacity.as_ref()?;
    let cpu = capacity.get("cpu")?.0.parse().ok()?;
    let ram = node::gigabytes(&capacity.get("memory")?.0)?;
    Some(Hardware { cpu, ram })
}
