//! What a node should carry in labels, annotations and taints.

mod health;
#[cfg(test)]
mod tests;

pub use health::{awaited_pod, complaint, gigabytes, illness};

use crate::{drain, reason::Reason};
use drover_api::{Machine, ProviderStatus, ServerDescription, class_reference, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
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
/// by an address, which clouds give again. A Node that belongs to another machine, that runs on a server that
/// is not known to be this one's, or that is older than this one, is not taken for its name; nor is any as
/// long as no server was ordered.
#[must_use]
pub fn of_machine<'a>(machine: &Machine, nodes: &'a [Arc<Node>]) -> Option<&'a Arc<Node>> {
    let id_of = |node: &Node| {
        let id = node.spec.as_ref()?.provider_id.clone()?;
        (!server_id(&id).is_empty()).then(|| server_id(&id).to_lowercase())
    };
    let status = machine.status.as_ref();
    let memory = status.and_then(|it| it.provider_status.as_ref()).map(|it| &it.memory);
    let known = machine.spec.provider_id.as_ref();
    let known = known.or_else(|| status?.provider_id.as_ref());
    let known = known.or_else(|| memory?.get(ProviderStatus::SERVER));
    let own = known.map(|id| server_id(id).to_lowercase());
    let is_ordered = own.is_some() || memory.is_some_and(|memory| !memory.is_empty());
    if let Some(node) = nodes.iter().find(|node| own.is_some() && id_of(node) == own) {
        return Some(node);
    }
    let name = name_of(machine);
    nodes.iter().find(|node| {
        let owner = node.labels().get(labels::NODE_OWNED_BY);
        let ours = owner.map(|uid| Some(uid) == machine.metadata.uid.as_ref());
        let id = id_of(node);
        let other_server = id.is_some() && own.is_some() && id != own;
        let younger = node.metadata.creation_timestamp >= machine.metadata.creation_timestamp;
        let likely = || is_ordered && (id.is_none() || own.is_some()) && younger;
        node.name_any() == name && !other_server && ours.unwrap_or_else(likely)
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
    /// Resources that no kubelet reports.
    pub capacity: BTreeMap<String, Quantity>,
    /// Whether another value of a user's gives way. Gardener: it does; MetaKube: it stays.
    pub insists: bool,
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
        wanted.capacity.extend(description.into_iter().flat_map(|it| it.virtual_capacity.clone()));
        wanted.insists = class_reference(spec).is_some();
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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    capacity: BTreeMap<String, String>,
    /// Its startup taint went, which happens once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    started: bool,
}

impl Synced {
    fn of(node: &Node) -> Self {
        let text = node.annotations().get(labels::NODE_SYNCED);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Whether the Node's startup taint went: whoever puts it on again means it.
#[must_use]
pub fn has_started(node: &Node) -> bool {
    Synced::of(node).started
}

/// A taint's identity. Kubernetes: key and effect.
fn mark(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// The writes that make a Node carry what is wanted, in their order; none when it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sync {
    /// A merge patch of the status.
    pub status: Option<Value>,
    /// A merge patch of what server-side apply cannot do: taints are one list of many owners, and a label that
    /// the kubelet registered with as well stays when only Drover gives it up.
    pub merge: Option<Value>,
    /// Server-side apply of all labels and annotations that are Drover's.
    pub apply: Option<Value>,
}

/// What makes the Node carry what is wanted. What somebody else put there stays as it is; what Drover put there
/// and is no longer wanted goes. `also` is a startup taint to take away.
#[must_use]
pub fn sync(machine: &Machine, node: &Node, wanted: &Wanted, also: Option<&str>) -> Sync {
    let past = Synced::of(node);
    let mut record = Synced { started: past.started || also.is_some(), ..Synced::default() };
    let labels = merged(&past.labels, node.labels(), &wanted.labels, wanted.insists);
    let annotations =
        merged(&past.annotations, node.annotations(), &wanted.annotations, wanted.insists);
    let uid = machine.uid().unwrap_or_default();
    let name = format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
    let status = capacity_patch(&past, node, wanted, &mut record);
    let new_taints = merged_taints(&past, node, wanted, also, &mut record);
    record.labels = labels.own;
    record.annotations = annotations.own;
    let is_news = record != past;
    let note = serde_json::to_string(&record).expect("maps of texts are JSON");
    let mut own = (record.labels, record.annotations);
    own.0.insert(labels::NODE_OWNED_BY.to_owned(), uid);
    own.1.insert(labels::NODE_MACHINE.to_owned(), name);
    let in_step = |has: &BTreeMap<String, String>, all: &BTreeMap<String, String>| {
        all.iter().all(|(key, value)| has.get(key) == Some(value))
    };
    let is_applied = in_step(node.labels(), &own.0) && in_step(node.annotations(), &own.1);
    let mut merge = Merge::of(node, labels.gone, annotations.gone, new_taints);
    if is_applied && is_news && merge.is_needed() {
        // The note goes with the other write.
        merge.annotations.insert(labels::NODE_SYNCED.to_owned(), note.into());
        return Sync { status, merge: merge.patch(), apply: None };
    }
    if is_news || past != Synced::default() {
        own.1.insert(labels::NODE_SYNCED.to_owned(), note);
    }
    let apply = (!is_applied || is_news).then(|| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node.metadata.name, "uid": node.metadata.uid,
                "labels": own.0, "annotations": own.1,
            },
        })
    });
    Sync { status, merge: merge.patch(), apply }
}

/// A merge patch in the making.
struct Merge<'a> {
    node: &'a Node,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    taints: Option<Vec<Taint>>,
}

impl<'a> Merge<'a> {
    fn of(
        node: &'a Node,
        labels: Vec<String>,
        annotations: Vec<String>,
        taints: Option<Vec<Taint>>,
    ) -> Self {
        let gone = |keys: Vec<String>| keys.into_iter().map(|key| (key, Value::Null)).collect();
        Self { node, labels: gone(labels), annotations: gone(annotations), taints }
    }

    fn is_needed(&self) -> bool {
        !self.labels.is_empty() || !self.annotations.is_empty() || self.taints.is_some()
    }

    fn patch(self) -> Option<Value> {
        if !self.is_needed() {
            return None;
        }
        let mut metadata = Map::new();
        for (name, changes) in [("labels", self.labels), ("annotations", self.annotations)] {
            if !changes.is_empty() {
                metadata.insert(name.to_owned(), changes.into());
            }
        }
        metadata.insert("uid".to_owned(), json!(self.node.metadata.uid));
        let mut patch = Map::new();
        if let Some(taints) = self.taints {
            // A list is replaced whole, so nobody may have changed it in the meantime.
            let version = json!(self.node.metadata.resource_version);
            metadata.insert("resourceVersion".to_owned(), version);
            patch.insert("spec".to_owned(), json!({ "taints": taints }));
        }
        patch.insert("metadata".to_owned(), metadata.into());
        Some(patch.into())
    }
}

/// Some labels or annotations as they should be.
struct Merged {
    /// Those that are Drover's.
    own: BTreeMap<String, String>,
    /// Those that were and are to go.
    gone: Vec<String>,
}

fn merged(
    past: &BTreeMap<String, String>,
    has: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    insists: bool,
) -> Merged {
    let is_own = |key: &String, value: &String| {
        has.get(key).is_none_or(|it| it == value || past.get(key) == Some(it) || insists)
    };
    let own = wanted.iter().filter(|(key, value)| is_own(key, value));
    let gone = past.iter().filter(|(key, value)| {
        !wanted.contains_key(*key) && has.get(*key).is_some_and(|it| it == *value || insists)
    });
    Merged {
        own: own.map(|(key, value)| (key.clone(), value.clone())).collect(),
        gone: gone.map(|(key, _)| key.clone()).collect(),
    }
}

/// A merge patch of the status by which the Node shows the resources wanted, or none when it does.
fn capacity_patch(
    past: &Synced,
    node: &Node,
    wanted: &Wanted,
    record: &mut Synced,
) -> Option<Value> {
    let none = BTreeMap::new();
    let has = node.status.as_ref().and_then(|status| status.capacity.as_ref()).unwrap_or(&none);
    record.capacity = wanted.capacity.iter().map(|(key, it)| (key.clone(), it.0.clone())).collect();
    let gone = past
        .capacity
        .keys()
        .filter(|key| !wanted.capacity.contains_key(*key) && has.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let new = wanted.capacity.iter().filter(|(key, it)| has.get(*key) != Some(*it));
    let new = new.map(|(key, it)| (key.clone(), Value::from(it.0.as_str())));
    let capacity: Map<String, Value> = gone.chain(new).collect();
    let uid = &node.metadata.uid;
    (!capacity.is_empty())
        .then(|| json!({ "metadata": { "uid": uid }, "status": { "capacity": capacity } }))
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
        let known = past.taints.get(&mark(taint));
        let ours = known == Some(&value(taint)) || (wanted.insists && known.is_some());
        match wanted.taints.iter().find(|it| mark(it) == mark(taint)) {
            _ if also == Some(taint.key.as_str()) => {}
            Some(wish) if ours || wanted.insists || value(wish) == value(taint) => {
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
