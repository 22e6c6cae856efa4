//! What a node should carry in labels, annotations and taints.

mod health;
#[cfg(test)]
mod tests;

pub use health::{awaited_pod, complaint, gigabytes, illness};

use crate::{drain, reason::Reason};
use drover_api::{Machine, ServerDescription, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The name the machine's Node has or will have.
#[must_use]
pub fn name_of(machine: &Machine) -> String {
    let given = machine.spec.metadata.name.clone().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| machine.name_any())
}

/// The server's own part of a provider ID: a region may stand before it.
fn server_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

/// The Node of this machine among some that may be: by provider ID, else by its exact name, and never
/// by an address, which clouds give again. A Node that belongs to another machine, or is older than
/// this one, is not taken for its name.
#[must_use]
pub fn of_machine<'a>(machine: &Machine, nodes: &'a [Arc<Node>]) -> Option<&'a Arc<Node>> {
    let id_of = |node: &Node| {
        let id = node.spec.as_ref()?.provider_id.clone()?;
        (!server_id(&id).is_empty()).then(|| server_id(&id).to_lowercase())
    };
    let own = machine
        .spec
        .provider_id
        .as_deref()
        .or_else(|| machine.status.as_ref().and_then(|status| status.provider_id.as_deref()));
    let own = own.map(|id| server_id(id).to_lowercase());
    if let Some(node) = nodes.iter().find(|node| own.is_some() && id_of(node) == own) {
        return Some(node);
    }
    let name = name_of(machine);
    nodes.iter().find(|node| {
        let owner = node.labels().get(labels::NODE_OWNED_BY);
        let ours = owner.map(|uid| Some(uid) == machine.metadata.uid.as_ref());
        let same_server = match (id_of(node), &own) {
            (Some(id), Some(own)) => id == *own,
            _ => true,
        };
        let younger = node.metadata.creation_timestamp >= machine.metadata.creation_timestamp;
        node.name_any() == name && same_server && ours.unwrap_or(younger)
    })
}

/// Whether the Node says that it is Ready.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Since when a Node is silent or cannot write to its disk, if it is, and how. Gardener: Ready is not True,
/// or ReadonlyFilesystem is not False.
#[must_use]
pub fn ailing(node: &Node) -> Option<(Timestamp, &'static str)> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ill = |type_: &str, healthy: &str, how: &'static str| {
        let found = conditions.unwrap_or_default().iter().find(|it| it.type_ == type_);
        let found = found.filter(|it| it.status != healthy)?;
        let since = found.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
        Some((since, how))
    };
    let silent = ill("Ready", "True", "is not ready");
    silent.into_iter().chain(ill("ReadonlyFilesystem", "False", "has a read-only disk")).min()
}

/// Whether the Node carries a taint of this key.
#[must_use]
pub fn has_taint(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key)
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// What a machine wants its Node to carry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

impl Wanted {
    /// By the machine's spec; `nodeTemplate` and the description's labels give way to `metadata` and
    /// `taints`.
    #[must_use]
    pub fn by(machine: &Machine, description: Option<&ServerDescription>) -> Self {
        let spec = &machine.spec;
        let mut wanted = Self::default();
        if let Some(template) = &spec.node_template {
            wanted.labels.extend(template.metadata.labels.clone());
            wanted.annotations.extend(template.metadata.annotations.clone());
            wanted.taints.extend(template.spec.taints.clone());
        }
        wanted.labels.extend(description.into_iter().flat_map(|it| it.node_labels.clone()));
        wanted.labels.extend(spec.metadata.labels.clone());
        wanted.annotations.extend(spec.metadata.annotations.clone());
        wanted.taints.retain(|taint| !spec.taints.iter().any(|it| mark(it) == mark(taint)));
        wanted.taints.extend(spec.taints.clone());
        wanted
    }
}

/// What Drover put on a Node and has to take away again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Synced {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// Key and effect, and the value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    taints: BTreeMap<String, String>,
}

/// A taint's identity. Kubernetes: key and effect.
fn mark(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// A merge patch that makes the Node carry what is wanted, or none when it does. What somebody else
/// put there or changed stays as it is; what Drover put there and is no longer wanted goes.
/// `also` is a taint to take away.
#[must_use]
pub fn sync(machine: &Machine, node: &Node, wanted: &Wanted, also: Option<&str>) -> Option<Value> {
    let past: Synced = node
        .annotations()
        .get(labels::NODE_SYNCED)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut record = Synced::default();
    let mut labels = Map::new();
    merge(&past.labels, node.labels(), &wanted.labels, &mut record.labels, &mut labels);
    let mut annotations = Map::new();
    merge(
        &past.annotations,
        node.annotations(),
        &wanted.annotations,
        &mut record.annotations,
        &mut annotations,
    );
    let uid = machine.uid().unwrap_or_default();
    let name = format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
    force(node.labels(), labels::NODE_OWNED_BY, uid, &mut labels);
    force(node.annotations(), labels::NODE_MACHINE, name, &mut annotations);
    let new_taints = merged_taints(&past, node, wanted, also, &mut record);
    if record != past {
        let text = serde_json::to_string(&record).expect("three maps of texts are JSON");
        annotations.insert(labels::NODE_SYNCED.to_owned(), text.into());
    }

    let mut metadata = Map::new();
    for (name, changes) in [("labels", labels), ("annotations", annotations)] {
        if !changes.is_empty() {
            metadata.insert(name.to_owned(), changes.into());
        }
    }
    let mut patch = Map::new();
    if let Some(taints) = new_taints {
        // A list is replaced whole, so nobody may have changed it in the meantime.
        metadata.insert("resourceVersion".to_owned(), json!(node.metadata.resource_version));
        patch.insert("spec".to_owned(), json!({ "taints": taints }));
    }
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(node.metadata.uid));
    patch.insert("metadata".to_owned(), metadata.into());
    Some(patch.into())
}

fn force(has: &BTreeMap<String, String>, key: &str, value: String, patch: &mut Map<String, Value>) {
    if has.get(key) != Some(&value) {
        patch.insert(key.to_owned(), value.into());
    }
}

fn merge(
    past: &BTreeMap<String, String>,
    has: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    record: &mut BTreeMap<String, String>,
    patch: &mut Map<String, Value>,
) {
    for (key, value) in wanted {
        let present = has.get(key);
        if present.is_none_or(|it| it == value || past.get(key) == Some(it)) {
            record.insert(key.clone(), value.clone());
            if present != Some(value) {
                patch.insert(key.clone(), value.as_str().into());
            }
        }
    }
    for (key, value) in past {
        if !wanted.contains_key(key) && has.get(key) == Some(value) {
            patch.insert(key.clone(), Value::Null);
        }
    }
}

/// The Node's taints as they should be, or none when they are.
fn merged_taints(
    past: &Synced,
    node: &Node,
    wanted: &Wanted,
    also: Option<&str>,
    record: &mut Synced,
) -> Option<Vec<Taint>> {
    let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
    let mut next: Vec<Taint> = Vec::new();
    for taint in taints(node) {
        let ours = past.taints.get(&mark(taint)) == Some(&value(taint));
        match wanted.taints.iter().find(|it| mark(it) == mark(taint)) {
            _ if also == Some(taint.key.as_str()) => {}
            Some(wish) if ours || value(wish) == value(taint) => {
                record.taints.insert(mark(wish), value(wish));
                next.push(Taint { value: wish.value.clone(), ..taint.clone() });
            }
            None if ours => {}
            _ => next.push(taint.clone()),
        }
    }
    for wish in &wanted.taints {
        let gone = also == Some(wish.key.as_str());
        if !gone && !taints(node).iter().any(|it| mark(it) == mark(wish)) {
            record.taints.insert(mark(wish), value(wish));
            next.push(wish.clone());
        }
    }
    (next != taints(node)).then_some(next)
}

/// Why the startup taint has to stay on a Node, or none when it can go.
#[must_use]
pub fn unfit(node: &Node, pods: &[Arc<Pod>]) -> Option<Reason> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref());
    let has_address =
        addresses.unwrap_or_default().iter().any(|address| address.type_ == "InternalIP");
    if !is_ready(node) {
        Some(Reason::NodeNotReady)
    } else if has_taint(node, labels::TAINT_UNINITIALIZED) || !has_address {
        Some(Reason::NodeUninitialized)
    } else if pods.iter().any(|pod| is_critical(pod) && !drain::is_ready(pod)) {
        Some(Reason::CriticalPodsAwaited)
    } else {
        None
    }
}

/// Kubernetes: the two built-in classes of what a cluster cannot do without.
fn is_critical(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
    let critical = matches!(class, Some("system-node-critical" | "system-cluster-critical"))
        || pod.labels().contains_key(labels::CRITICAL);
    critical && drain::stays(pod) == Some(Reason::PodDaemon)
}
