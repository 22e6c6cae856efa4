//! What the cluster has against a machine whose description is right in itself.

use super::Observed;
use super::draft::Draft;
use crate::reason::Reason;
use crate::skew::{self, Misfit};
use drover_api::{ConditionStatus, ConditionType, GoDuration, Phase, labels};
use kube::ResourceExt;
use semver::Version;
use std::collections::BTreeMap;

/// Shows what the cluster has against the machine, if anything. Only a machine that is yet to come has an
/// error: one that runs goes on as it is.
pub fn raised(draft: &mut Draft) -> bool {
    let Some((why, message)) = objection(draft.seen) else { return false };
    let is_new = draft.condition(ConditionType::Configured, ConditionStatus::False, why, &message);
    if is_new {
        draft.warn(why, message.clone());
    }
    if is_yet_to_come(draft) {
        draft.error("InvalidConfiguration", &message);
    } else if draft.status.error_reason.as_deref() == Some("InvalidConfiguration") {
        draft.no_error();
    }
    true
}

/// Whether no server may be made for the machine.
pub fn forbids(draft: &mut Draft) -> bool {
    if !is_yet_to_come(draft) {
        return false;
    }
    let Some((why, message)) = objection(draft.seen) else { return false };
    draft.phase(Phase::Pending);
    draft.condition(ConditionType::Ready, ConditionStatus::False, why, &message);
    true
}

/// Whether the cloud was never asked to make anything of it.
fn is_yet_to_come(draft: &Draft) -> bool {
    draft.seen.machine.spec.provider_id.is_none()
        && draft.status.node_ref.is_none()
        && draft.memory().is_empty()
}

/// Takes away the labels that the cluster does not allow.
pub fn without_forbidden(seen: &Observed, labels: &mut BTreeMap<String, String>) {
    let Ok(description) = seen.description else { return };
    let Some(allowed) = seen.cluster.and_then(|cluster| cluster.allowed_node_labels()) else {
        return;
    };
    for (key, value) in &description.node_labels {
        if labels.get(key) == Some(value) && !is_allowed(&allowed, key, value) {
            labels.remove(key);
        }
    }
}

fn objection(seen: &Observed) -> Option<(Reason, String)> {
    skew(seen)
        .map(|message| (Reason::VersionSkew, message))
        .or_else(|| Some((Reason::LabelNotAllowed, forbidden_label(seen)?)))
        .or_else(|| Some((Reason::DescriptionInvalid, no_duration(seen)?)))
}

fn no_duration(seen: &Observed) -> Option<String> {
    let key = labels::CREATION_TIMEOUT;
    let text = seen.machine.annotations().get(key)?;
    let is_wrong = text.parse::<GoDuration>().is_err();
    is_wrong
        .then(|| format!("annotation {key}: {text:?} cannot be used; give a duration such as 30m"))
}

fn skew(seen: &Observed) -> Option<String> {
    let kubelet = seen.description.ok()?.kubelet.as_ref()?;
    let server = seen.api_server?;
    let Misfit { why, oldest, .. } = skew::of(kubelet, server)?;
    let Version { major, minor, .. } = server;
    Some(format!(
        "spec.versions.kubelet: {kubelet} is {why}, which is {major}.{minor}; Kubernetes allows a kubelet \
         from {major}.{oldest} to {major}.{minor}"
    ))
}

/// Mirantis: a label must be on the list, and with the value that stands there, if one does.
fn forbidden_label(seen: &Observed) -> Option<String> {
    let allowed = seen.cluster?.allowed_node_labels()?;
    let labels = &seen.description.ok()?.node_labels;
    let (key, value) = labels.iter().find(|(key, value)| !is_allowed(&allowed, key, value))?;
    let list: Vec<String> = allowed
        .iter()
        .map(|(key, value)| value.as_ref().map_or_else(|| key.clone(), |it| format!("{key}={it}")))
        .collect();
    let cluster = seen.cluster?.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "spec.providerSpec.value.nodeLabels: {key}={value} is not among the allowedNodeLabels of Cluster \
         {cluster}: {}; leave it out",
        if list.is_empty() { "none".to_owned() } else { list.join(", ") }
    ))
}

fn is_allowed(allowed: &BTreeMap<String, Option<String>>, key: &str, value: &String) -> bool {
    allowed.get(key).is_some_and(|only| only.as_ref().is_none_or(|only| only == value))
}
