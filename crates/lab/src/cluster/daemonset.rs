//! DaemonSets: one pod for each node that takes it, in the simplest form.

use super::deployment::hash_of;
use super::object::{controller, is_deleting, is_over, is_true, items, meta, node_of, target_of};
use super::placement::{is_expelled, obstacle};
use super::replicaset::{pod_of, pods_of};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const SETS: &str = "daemonsets.apps";
/// The address of one node's part of a set: this and the node's name.
const ON: &str = "on:";
const HASH: &str = "controller-revision-hash";
/// How soon the status is written again: it counts all pods, so it does not follow every one of them.
const STATUS_PAUSE: Duration = Duration::from_millis(500);

/// Kubernetes: what the pods of every DaemonSet tolerate.
const TOLERATED: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
];

/// Makes and deletes the pods of nodes.
#[derive(Default)]
pub(super) struct DaemonSets {
    reported: Mutex<BTreeMap<Address, Instant>>,
}

/// The spec of the set's pods, with what they tolerate. Network-unavailable counts for host-network pods alone.
fn pod_spec(set: &Value) -> Value {
    let mut spec = set["spec"]["template"]["spec"].clone();
    let mut tolerations = items(&spec["tolerations"]).to_vec();
    let host = spec["hostNetwork"] == true;
    for (key, effect) in TOLERATED.iter().take(if host { 7 } else { 6 }) {
        let one = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&one) {
            tolerations.push(one);
        }
    }
    spec["tolerations"] = tolerations.into();
    spec
}

/// A pod of the set for a node: its affinity allows no other.
fn pod_for(set: &Value, spec: Value, node: &str) -> Value {
    let mut template = set["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = hash_of(&set["spec"]["template"]).into();
    template["spec"] = spec;
    let only = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required = &mut template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let mut terms = items(&required["nodeSelectorTerms"]).to_vec();
    if terms.is_empty() {
        terms.push(json!({}));
    }
    terms.iter_mut().for_each(|term| term["matchFields"] = only.clone());
    *required = json!({"nodeSelectorTerms": terms});
    pod_of(set, &template)
}

/// What to do about a set's pods on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    create: bool,
    /// By index of the pods given.
    delete: Vec<usize>,
}

/// Decides by whether the node takes the pod (none: it is gone or not for it) and the pods there are.
fn part(takes: bool, expels: bool, pods: &[Arc<Value>]) -> Part {
    let alive = |pod: &Value| !is_deleting(pod) && !is_over(pod);
    let mut part = Part::default();
    // What has failed is replaced; the bound and the oldest of several stays.
    let mut living: Vec<usize> = (0..pods.len()).filter(|&i| alive(&pods[i])).collect();
    living.sort_by_key(|&i| {
        let pod = &pods[i];
        (
            node_of(pod).is_empty(),
            meta(pod, "creationTimestamp").to_owned(),
            meta(pod, "name").to_owned(),
        )
    });
    let stays = usize::from(takes || !expels);
    part.delete.extend((0..pods.len()).filter(|&i| is_over(&pods[i]) && !is_deleting(&pods[i])));
    part.delete.extend(living.iter().skip(stays));
    // A pod on its way out must have gone before its place is taken.
    part.create = takes && living.is_empty() && !pods.iter().any(|pod| is_deleting(pod));
    part
}

impl DaemonSets {
    async fn on_node(&self, hands: &Hands, at: &Address, name: &str) -> Result<Next, ApiError> {
        let Some(set) = hands.view.at(at).filter(|set| !is_deleting(set)) else {
            return Ok(Next::Change);
        };
        // The pods of a node that is gone are for the pod garbage collector.
        let Some(node) = hands.view.get("nodes", "", name) else { return Ok(Next::Change) };
        let uid = meta(&set, "uid");
        let mut pods = hands.view.pods_on(name);
        pods.retain(|pod| controller(pod).is_some_and(|owner| owner["uid"] == uid));
        let spec = pod_spec(&set);
        let takes = obstacle(&spec, &node).is_none();
        let expels = is_expelled(&spec, &node) || !super::placement::selected(&spec, &node);
        let part = part(takes, expels, &pods);
        for index in part.delete {
            let pod = &pods[index];
            let pod_at = Address::new("pods", &at.namespace, meta(pod, "name"));
            hands.delete(&pod_at, meta(pod, "uid"), "Background").await?;
        }
        if part.create {
            hands.create("pods", &at.namespace, &pod_for(&set, spec, name)).await?;
        }
        Ok(Next::Change)
    }

    /// The status, and the rollout of a changed template.
    async fn whole(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(set) = hands.view.at(at).filter(|set| !is_deleting(set)) else {
            self.reported().remove(at);
            return Ok(Next::Change);
        };
        let now = Instant::now();
        let last = self.reported().get(at).copied();
        if let Some(left) = last.and_then(|last| (last + STATUS_PAUSE).checked_duration_since(now))
            && !left.is_zero()
        {
            return Ok(Next::After(left));
        }
        let pods = pods_of(&hands.view, &set);
        let spec = pod_spec(&set);
        let takes = |node: &&Arc<Value>| obstacle(&spec, node).is_none();
        let wanted = hands.view.list("nodes").iter().filter(takes).count();
        let status = status(&set, &pods, wanted);
        if set["status"] != status {
            self.reported().insert(at.clone(), now);
            let mut new = (*set).clone();
            new["status"] = status;
            hands.replace(at, "/status", &new).await?;
        }
        for (pod_at, pod) in outdated(&set, &pods, wanted) {
            hands.delete(pod_at, meta(pod, "uid"), "Background").await?;
        }
        Ok(Next::Change)
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, BTreeMap<Address, Instant>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pods of an older template that may go now. Kubernetes: RollingUpdate, one at a time by default.
fn outdated<'a>(
    set: &Value,
    pods: &'a [(Address, Arc<Value>)],
    wanted: usize,
) -> Vec<&'a (Address, Arc<Value>)> {
    let strategy = &set["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return Vec::new();
    }
    let hash = hash_of(&set["spec"]["template"]);
    let total = i64::try_from(wanted).unwrap_or(i64::MAX);
    let most = match &strategy["rollingUpdate"]["maxUnavailable"] {
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok());
            (total * percent.unwrap_or(0) + 99) / 100
        }
        Value::Number(count) => count.as_i64().unwrap_or(1),
        _ => 1,
    };
    let is_up = |pod: &Value| is_true(pod, "Ready") && !is_deleting(pod);
    let up = pods.iter().filter(|(_, pod)| is_up(pod)).count();
    let mut spare =
        usize::try_from(most.max(1)).unwrap_or(1).saturating_sub(wanted.saturating_sub(up));
    let old = pods
        .iter()
        .filter(|(_, pod)| pod["metadata"]["labels"][HASH] != hash.as_str() && !is_deleting(pod));
    // Old pods that are not up keep nothing running: they always may go.
    old.filter(|(_, pod)| {
        if !is_up(pod) {
            return true;
        }
        let may = spare > 0;
        spare = spare.saturating_sub(1);
        may
    })
    .collect()
}

fn status(set: &Value, pods: &[(Address, Arc<Value>)], wanted: usize) -> Value {
    let hash = hash_of(&set["spec"]["template"]);
    let placed: Vec<&Arc<Value>> = pods
        .iter()
        .map(|(_, pod)| pod)
        .filter(|pod| !is_deleting(pod) && !node_of(pod).is_empty())
        .collect();
    let ready = placed.iter().filter(|pod| is_true(pod, "Ready")).count();
    let updated =
        placed.iter().filter(|pod| pod["metadata"]["labels"][HASH] == hash.as_str()).count();
    let mut status = Map::new();
    let mut put = |field: &str, value: usize, always: bool| {
        if value > 0 || always {
            status.insert(field.to_owned(), value.into());
        }
    };
    put("currentNumberScheduled", placed.len().min(wanted), true);
    put("desiredNumberScheduled", wanted, true);
    put("numberMisscheduled", placed.len().saturating_sub(wanted), true);
    put("numberReady", ready, true);
    put("numberAvailable", ready, false);
    put("numberUnavailable", wanted.saturating_sub(ready), false);
    put("updatedNumberScheduled", updated, false);
    status.insert("observedGeneration".to_owned(), set["metadata"]["generation"].clone());
    Value::Object(status)
}

/// What of a node counts for where pods go: not its heartbeats.
fn face(node: &Value) -> (&Value, &Value, &Value) {
    (&node["metadata"]["labels"], &node["spec"]["taints"], &node["spec"]["unschedulable"])
}

/// Whether two states of a node differ in what counts for where pods go.
pub(super) fn turned(change: &Change) -> bool {
    change.before.as_deref().map(face) != change.now.as_deref().map(face)
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        "daemon sets"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        let on = |node: &str, namespace: &str, name: &str| {
            Address::new(&format!("{ON}{node}"), namespace, name)
        };
        if change.is_of(SETS) && change.now.is_some() {
            let spec = |state: &Option<Arc<Value>>| state.as_deref().map(|set| set["spec"].clone());
            wake(change.address.clone());
            if spec(&change.before) != spec(&change.now) {
                let Address { namespace, name, .. } = &change.address;
                let nodes = view.list("nodes");
                nodes.iter().for_each(|node| wake(on(meta(node, "name"), namespace, name)));
            }
        }
        if change.is_of("nodes") && turned(change) {
            for set in view.list(SETS) {
                let (namespace, name) = (meta(&set, "namespace"), meta(&set, "name"));
                wake(on(&change.address.name, namespace, name));
                wake(Address::new(SETS, namespace, name));
            }
        }
        if change.is_of("pods") {
            for pod in change.states() {
                let owner = controller(pod).filter(|owner| owner["kind"] == "DaemonSet");
                let Some(name) = owner.and_then(|owner| owner["name"].as_str()) else { continue };
                let home = &change.address.namespace;
                wake(Address::new(SETS, home, name));
                wake(on(target_of(pod), home, name));
            }
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        match at.id.strip_prefix(ON) {
            Some(node) => {
                self.on_node(hands, &Address::new(SETS, &at.namespace, &at.name), node).await
            }
            None => self.whole(hands, at).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str, deleting: bool) -> Arc<Value> {
        let mut pod = json!({
            "metadata": {"name": name}, "spec": {"nodeName": "n"}, "status": {"phase": phase},
        });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = "t".into();
        }
        Arc::new(pod)
    }

    #[test]
    fn one_pod_for_a_node_that_takes_it() {
        let none = Part::default();
        let make = Part { create: true, ..Part::default() };
        let delete = |indices: &[usize]| Part { create: false, delete: indices.to_vec() };
        assert_eq!(part(true, false, &[]), make);
        assert_eq!(part(false, false, &[]), none);
        assert_eq!(part(true, false, &[pod("a", "Running", false)]), none);
        assert_eq!(
            part(false, false, &[pod("a", "Running", false)]),
            none,
            "NoSchedule lets it be"
        );
        assert_eq!(part(false, true, &[pod("a", "Running", false)]), delete(&[0]));
        assert_eq!(part(true, false, &[pod("a", "Running", true)]), none, "its place is not free");
        let failed = Part { create: true, delete: vec![0] };
        assert_eq!(part(true, false, &[pod("a", "Failed", false)]), failed);
        let two = [pod("b", "Running", false), pod("a", "Running", false)];
        assert_eq!(part(true, false, &two), delete(&[0]));
    }

    #[test]
    fn pods_are_bound_to_their_node_by_affinity() {
        let set = json!({"metadata": {"name": "cni"}, "spec": {"template": {
            "metadata": {"labels": {"app": "cni"}}, "spec": {"containers": []},
        }}});
        let pod = pod_for(&set, pod_spec(&set), "n1");
        assert_eq!(target_of(&pod), "n1");
        assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(6));
        let old = pod_for(&set, json!({}), "n1")["metadata"]["labels"][HASH].clone();
        assert_eq!(pod["metadata"]["labels"], json!({"app": "cni", HASH: old}));
    }
}
