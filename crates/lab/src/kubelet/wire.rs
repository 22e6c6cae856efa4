//! What kubelets hear of the cluster: one watch of each kind for all nodes of the lab together.
//!
//! A real kubelet watches for itself. A thousand of them in one process would make the server filter each event a
//! thousand times, so that the lab watches once, as itself, and hands each node its own.

use crate::client::{Client, Delta, reflect};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

/// Something that concerns one node.
#[derive(Clone, Debug)]
pub enum Word {
    /// A pod bound to it is new or changed.
    Pod(Arc<Value>),
    /// A pod bound to it is gone.
    PodGone(Arc<Value>),
    /// Its Node changed.
    Node(Arc<Value>),
    /// Its Node was deleted.
    NodeGone,
    /// A certificate request that it follows changed.
    Request(Arc<Value>),
}

type ByName = BTreeMap<(String, String), Arc<Value>>;

#[derive(Default)]
struct State {
    /// Who listens, by node name.
    lines: BTreeMap<String, UnboundedSender<Word>>,
    /// Which node follows which certificate request.
    requests: BTreeMap<String, String>,
    pods: BTreeMap<String, ByName>,
    nodes: BTreeMap<String, Arc<Value>>,
    asked: BTreeMap<String, Arc<Value>>,
}

impl State {
    fn tell(&self, node: &str, word: Word) {
        if let Some(line) = self.lines.get(node) {
            // A node that just went silent no longer listens; its line is taken down with it.
            let _ = line.send(word);
        }
    }
}

/// The lines to all nodes.
#[derive(Clone, Default)]
pub struct Wire {
    state: Arc<Mutex<State>>,
}

impl Wire {
    /// Follows pods, nodes and certificate requests until it is stopped.
    pub fn start(client: &Client, stop: &CancellationToken) -> Self {
        let wire = Self::default();
        let follow = |path: &str, on: fn(&Self, Delta)| {
            let wire = wire.clone();
            let work = reflect(client.clone(), path.to_owned(), move |delta| on(&wire, delta));
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(work).await });
        };
        follow("/api/v1/pods", Self::pods);
        follow("/api/v1/nodes", Self::nodes);
        follow("/apis/certificates.k8s.io/v1/certificatesigningrequests", Self::requests);
        wire
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for the node of this name; what is known already comes first.
    pub fn listen(&self, node: &str) -> UnboundedReceiver<Word> {
        let (line, words) = unbounded_channel();
        let mut state = self.lock();
        state.lines.insert(node.to_owned(), line);
        if let Some(own) = state.nodes.get(node) {
            state.tell(node, Word::Node(Arc::clone(own)));
        }
        for pod in state.pods.get(node).into_iter().flat_map(BTreeMap::values) {
            state.tell(node, Word::Pod(Arc::clone(pod)));
        }
        words
    }

    /// Takes the line of a node down.
    pub fn hang_up(&self, node: &str) {
        let mut state = self.lock();
        state.lines.remove(node);
        state.requests.retain(|_, follower| follower != node);
    }

    /// Lets a node hear of a certificate request, also of what became of it before.
    pub fn follow_request(&self, name: &str, node: &str) {
        let mut state = self.lock();
        state.requests.insert(name.to_owned(), node.to_owned());
        if let Some(request) = state.asked.get(name) {
            state.tell(node, Word::Request(Arc::clone(request)));
        }
    }

    /// A node lets go of a certificate request.
    pub fn forget_request(&self, name: &str) {
        self.lock().requests.remove(name);
    }

    fn pods(&self, delta: Delta) {
        let mut state = self.lock();
        match delta {
            Delta::Replaced(all) => {
                let before = std::mem::take(&mut state.pods);
                for pod in all {
                    take_pod(&mut state, pod);
                }
                for (node, pods) in &before {
                    let now = state.pods.get(node);
                    for (name, pod) in pods {
                        if now.is_none_or(|now| !now.contains_key(name)) {
                            state.tell(node, Word::PodGone(Arc::clone(pod)));
                        }
                    }
                }
            }
            Delta::Applied(pod) => take_pod(&mut state, pod),
            Delta::Deleted(pod) => {
                let node = text(&pod["spec"]["nodeName"]).to_owned();
                if let Some(pods) = state.pods.get_mut(&node) {
                    pods.remove(&name_of(&pod));
                    if pods.is_empty() {
                        state.pods.remove(&node);
                    }
                }
                state.tell(&node, Word::PodGone(pod));
            }
        }
    }

    fn nodes(&self, delta: Delta) {
        let mut state = self.lock();
        let changed = match delta {
            Delta::Replaced(all) => {
                let before = std::mem::take(&mut state.nodes);
                let is_in = |name: &str| all.iter().any(|node| node["metadata"]["name"] == *name);
                for name in before.keys().filter(|name| !is_in(name)) {
                    state.tell(name, Word::NodeGone);
                }
                all
            }
            Delta::Applied(node) => vec![node],
            Delta::Deleted(node) => {
                let name = text(&node["metadata"]["name"]);
                state.nodes.remove(name);
                state.tell(name, Word::NodeGone);
                return;
            }
        };
        for node in changed {
            let name = text(&node["metadata"]["name"]).to_owned();
            state.tell(&name, Word::Node(Arc::clone(&node)));
            state.nodes.insert(name, node);
        }
    }

    fn requests(&self, delta: Delta) {
        let mut state = self.lock();
        let changed = match delta {
            Delta::Replaced(all) => {
                state.asked.clear();
                all
            }
            Delta::Applied(request) => vec![request],
            Delta::Deleted(request) => {
                state.asked.remove(text(&request["metadata"]["name"]));
                return;
            }
        };
        for request in changed {
            let name = text(&request["metadata"]["name"]).to_owned();
            if let Some(node) = state.requests.get(&name) {
                state.tell(node, Word::Request(Arc::clone(&request)));
            }
            state.asked.insert(name, request);
        }
    }
}

fn take_pod(state: &mut State, pod: Arc<Value>) {
    let node = text(&pod["spec"]["nodeName"]).to_owned();
    if !node.is_empty() {
        state.tell(&node, Word::Pod(Arc::clone(&pod)));
        state.pods.entry(node).or_default().insert(name_of(&pod), pod);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Namespace and name of an object.
pub fn name_of(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    (text(&metadata["namespace"]).to_owned(), text(&metadata["name"]).to_owned())
}
