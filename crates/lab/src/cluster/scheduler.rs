//! The scheduler: every pod gets a node that takes it, the emptiest first.

use super::daemonset::turned;
use super::object::{condition, is_deleting, is_over, meta, node_of, target_of};
use super::placement::{Obstacle, holds_ports, obstacle, ports_clash};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::{ApiError, Client};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pods a node takes if it does not say (Kubernetes: the kubelet's --max-pods).
const PODS_MAX: usize = 110;

#[derive(Default)]
struct Memory {
    /// Pods bound a moment ago, and where: the view may not know yet.
    assumed: BTreeMap<Address, String>,
    /// How many of them each node has.
    extra: BTreeMap<String, usize>,
    /// Pods that no node takes: looked at again when a node changes.
    waiting: BTreeSet<Address>,
}

impl Memory {
    fn assume(&mut self, at: &Address, node: String) {
        *self.extra.entry(node.clone()).or_default() += 1;
        self.assumed.insert(at.clone(), node);
    }

    fn assumed_on(&self, node: &str) -> impl Iterator<Item = &Address> {
        self.assumed.iter().filter(move |(_, on)| *on == node).map(|(at, _)| at)
    }

    fn forget(&mut self, at: &Address) {
        let Some(node) = self.assumed.remove(at) else { return };
        if let Some(count) = self.extra.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.extra.remove(&node);
            }
        }
    }
}

/// Binds pods. Kubernetes' other criteria (resources, spreading) are not looked at.
pub(super) struct Scheduler {
    binder: Client,
    memory: Mutex<Memory>,
}

/// Whether a pod waits for this scheduler.
fn is_pending(pod: &Value) -> bool {
    let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
    node_of(pod).is_empty()
        && scheduler == "default-scheduler"
        && !is_deleting(pod)
        && !is_over(pod)
}

fn capacity(node: &Value) -> usize {
    let pods = &node["status"]["allocatable"]["pods"];
    let count = pods.as_str().map_or_else(|| pods.as_u64(), |text| text.parse().ok());
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(PODS_MAX)
}

/// Kubernetes' words for a pod that no node takes.
fn sentence(nodes: usize, obstacles: &BTreeMap<Obstacle, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let told: Vec<String> =
        obstacles.iter().map(|(obstacle, count)| format!("{count} {}", obstacle.words())).collect();
    format!("0/{nodes} nodes are available: {}.", told.join(", "))
}

impl Scheduler {
    pub(super) fn new(binder: Client) -> Self {
        Self { binder, memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node for a pod, or why there is none.
    fn choose(&self, view: &View, pod: &Value) -> Result<String, String> {
        let memory = self.memory();
        // A pod for one node only (of a DaemonSet) is spared the look at all others.
        let named = view.get("nodes", "", target_of(pod));
        let nodes = named.map_or_else(|| view.list("nodes"), |node| vec![node]);
        let mut obstacles: BTreeMap<Obstacle, usize> = BTreeMap::new();
        let mut best: Option<(usize, String)> = None;
        for node in &nodes {
            let name = meta(node, "name");
            let found = obstacle(&pod["spec"], node).or_else(|| {
                let mut on = view.pods_on(name);
                on.retain(|one| !is_over(one) && !node_of(one).is_empty());
                let extra = memory.extra.get(name).copied().unwrap_or(0);
                let taken = on.len() + extra;
                if extra > 0 && holds_ports(&pod["spec"]) {
                    on.extend(memory.assumed_on(name).filter_map(|at| view.at(at)));
                }
                if on.iter().any(|one| ports_clash(&pod["spec"], &one["spec"])) {
                    return Some(Obstacle::Ports);
                }
                if taken >= capacity(node) {
                    return Some(Obstacle::Full);
                }
                let offer = (taken, name.to_owned());
                if best.as_ref().is_none_or(|known| offer < *known) {
                    best = Some(offer);
                }
                None
            });
            if let Some(found) = found {
                *obstacles.entry(found).or_default() += 1;
            }
        }
        best.map(|(_, name)| name).ok_or_else(|| sentence(nodes.len(), &obstacles))
    }

    async fn bind(
        &self,
        hands: &Hands,
        at: &Address,
        pod: &Value,
        node: String,
    ) -> Result<(), ApiError> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": at.name, "namespace": at.namespace, "uid": meta(pod, "uid")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.memory().assume(at, node);
        let path = format!("{}/binding", hands.path(at)?);
        let done = self.binder.create(&path, &binding).await;
        match done {
            Ok(_) => Ok(()),
            Err(error) => {
                self.memory().forget(at);
                // Gone, going or bound already: the watch will tell.
                if error.is_not_found() || error.is_conflict() { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Tells in the pod's status why it has no node.
    async fn complain(
        &self,
        hands: &Hands,
        at: &Address,
        pod: &Arc<Value>,
        why: &str,
    ) -> Result<(), ApiError> {
        let known = condition(pod, "PodScheduled");
        if known.is_some_and(|one| one["status"] == "False" && one["message"] == why) {
            return Ok(());
        }
        let since =
            known.filter(|one| one["status"] == "False").map(|one| &one["lastTransitionTime"]);
        let scheduled = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": null,
            "lastTransitionTime": since.cloned().unwrap_or_else(|| hands.stamp().into()),
        });
        let others = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut all: Vec<Value> =
            others.filter(|one| one["type"] != "PodScheduled").cloned().collect();
        all.push(scheduled);
        hands.merge(at, "/status", &json!({"status": {"conditions": all}})).await
    }
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn concerns(&self, _: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of("pods") {
            if change.now.as_deref().is_some_and(is_pending) && change.before.is_none() {
                wake(change.address.clone());
            }
            if change.now.as_deref().is_none_or(|pod| !node_of(pod).is_empty()) {
                self.memory().forget(&change.address);
            }
            let left = |pod: &Arc<Value>| !node_of(pod).is_empty();
            let frees = change.now.as_deref().is_none_or(is_over);
            if frees && change.before.as_ref().is_some_and(left) {
                self.memory().waiting.iter().cloned().for_each(wake);
            }
            return;
        }
        let room = |state: &Option<Arc<Value>>| state.as_deref().map(capacity);
        if change.is_of("nodes") && (turned(change) || room(&change.before) != room(&change.now)) {
            self.memory().waiting.iter().cloned().for_each(wake);
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let pod = hands.view.at(at).filter(|pod| is_pending(pod));
        let Some(pod) = pod.filter(|_| !self.memory().assumed.contains_key(at)) else {
            self.memory().waiting.remove(at);
            return Ok(Next::Change);
        };
        match self.choose(&hands.view, &pod) {
            Ok(node) => {
                self.memory().waiting.remove(at);
                self.bind(hands, at, &pod, node).await?;
            }
            Err(why) => {
                self.memory().waiting.insert(at.clone());
                self.complain(hands, at, &pod, &why).await?;
            }
        }
        Ok(Next::Change)
    }
}
