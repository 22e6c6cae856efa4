//! What wakes whom: the one table of changes and the objects that are looked at because of them.

use crate::cache::{Change, Key};
use crate::caches::Caches;
use crate::queue::{Queue, Urgency};
use drover_api::{CircuitStatus, DrainStatus, Machine, MachineAddress, MachineSet};
use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// How long a set or a deployment rests after a look before changes of its machines make it be looked at
/// again: a thousand machines that come up one after another are a few writes of its status.
const REST: Duration = Duration::from_millis(500);

/// One queue for each controller.
#[derive(Clone)]
pub struct Queues {
    pub deployments: Queue<Key>,
    pub sets: Queue<Key>,
    pub machines: Queue<Key>,
    pub requests: Queue<Key>,
}

impl Default for Queues {
    fn default() -> Self {
        let (machines, requests) = Default::default();
        Self { deployments: Queue::resting(REST), sets: Queue::resting(REST), machines, requests }
    }
}

/// Fills the queues from the changes of the caches, from now on.
pub fn connect(caches: &Caches, queues: &Queues) {
    own_changes(caches, queues);
    on_machine_change(caches, queues);
    on_node_change(caches, queues);
    while_deleting(caches, queues);
}

/// A deployment, a set, a class, a Cluster or a request itself.
fn own_changes(caches: &Caches, queues: &Queues) {
    let to = queues.clone();
    caches.deployments.listen(move |change| {
        each(change, |deployment| {
            to.deployments.add_afresh(Key::of(deployment.as_ref()), Urgency::Begun);
        });
    });
    let (to, of) = (queues.clone(), caches.clone());
    caches.sets.listen(move |change| {
        if let Change::Put { old: Some(old), new } = change
            && circuit(old) != circuit(new)
        {
            for machine in of.machines_of(new) {
                to.machines.add(Key::of(machine.as_ref()), urgency(&machine));
            }
        }
        each(change, |set| {
            to.sets.add(Key::of(set.as_ref()), Urgency::Begun);
            if let Some(owner) = controller_key(set.as_ref(), "MachineDeployment") {
                to.deployments.add(owner, Urgency::Begun);
            }
        });
    });
    let (to, of) = (queues.clone(), caches.clone());
    caches.classes.listen(move |change| {
        each(change, |class| {
            let namespace = class.namespace().unwrap_or_default();
            for machine in of.machines_of_class(&namespace, &class.name_any()) {
                to.machines.add_afresh(Key::of(machine.as_ref()), urgency(&machine));
            }
        });
    });
    let (to, of) = (queues.clone(), caches.clone());
    caches.clusters.listen(move |change| {
        each(change, |cluster| {
            for machine in of.machines_of_cluster(cluster) {
                to.machines.add_afresh(Key::of(machine.as_ref()), urgency(&machine));
            }
        });
    });
    let to = queues.clone();
    caches.requests.listen(move |change| {
        each(change, |request| {
            to.requests.add_afresh(Key::of(request.as_ref()), Urgency::Begun);
        });
    });
}

fn on_machine_change(caches: &Caches, queues: &Queues) {
    let (to, of) = (queues.clone(), caches.clone());
    caches.machines.listen(move |change| {
        if let Change::Put { old, new } = change
            && addresses(new) != old.as_ref().and_then(|old| addresses(old))
        {
            for request in of.requests_of(new) {
                to.requests.add_afresh(Key::of(request.as_ref()), Urgency::Begun);
            }
        }
        each(change, |machine| {
            if let Some(owner) = controller_key(machine.as_ref(), "MachineSet") {
                to.sets.add_soon(owner, Urgency::Begun);
            }
        });
        if let Some(set) = lost(change).and_then(|machine| of.set_of(machine))
            && let Some(owner) = controller_key(set.as_ref(), "MachineDeployment")
        {
            to.deployments.add_soon(owner, Urgency::Begun);
        }
        match change {
            Change::Put { old, new } if changed_from_outside(*old, new) => {
                to.machines.add_afresh(Key::of(new.as_ref()), urgency(new));
            }
            Change::Put { new, .. } => to.machines.add(Key::of(new.as_ref()), urgency(new)),
            Change::Gone { old } => to.machines.add(Key::of(old.as_ref()), Urgency::Begun),
        }
    });
}

/// A Node's heartbeat wakes nobody; what its machine reads of it does.
fn on_node_change(caches: &Caches, queues: &Queues) {
    let (to, of) = (queues.clone(), caches.clone());
    caches.nodes.listen(move |change| {
        if let Change::Put { old: Some(old), new } = change
            && !node_news(old, new)
        {
            return;
        }
        each(change, |node| {
            for machine in of.machines_of_node(node) {
                to.machines.add(Key::of(machine.as_ref()), Urgency::Begun);
            }
        });
    });
    let (to, of) = (queues.clone(), caches.clone());
    caches.pods.listen(move |change| {
        each(change, |pod| {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
                return;
            };
            for machine in of.machines_of_node_name(node) {
                if reads_pods(&machine) {
                    to.machines.add(Key::of(machine.as_ref()), Urgency::Begun);
                }
            }
        });
    });
}

/// What a drain waits for.
fn while_deleting(caches: &Caches, queues: &Queues) {
    let (to, of) = (queues.clone(), caches.clone());
    caches.attachments.listen(move |change| {
        each(change, |attachment| {
            let here = of.machines_of_node_name(&attachment.spec.node_name);
            let volume = attachment.spec.source.persistent_volume_name.as_ref();
            let from = of.leaving_machines().into_iter().filter(|machine| awaits(machine, volume));
            for machine in here.into_iter().chain(from) {
                to.machines.add(Key::of(machine.as_ref()), Urgency::Begun);
            }
        });
    });
    let (to, of) = (queues.clone(), caches.clone());
    caches.budgets.listen(move |_| {
        for machine in of.leaving_machines() {
            to.machines.add(Key::of(machine.as_ref()), Urgency::Begun);
        }
    });
}

/// The machine, when it began to leave or is gone: a rollout may wait for that.
fn lost<'a>(change: &'a Change<'_, Machine>) -> Option<&'a Machine> {
    match change {
        Change::Put { old: Some(old), new } => (old.metadata.deletion_timestamp.is_none()
            && new.metadata.deletion_timestamp.is_some())
        .then_some(new),
        Change::Put { old: None, .. } => None,
        Change::Gone { old } => Some(old),
    }
}

fn each<K>(change: &Change<'_, K>, mut wake: impl FnMut(&Arc<K>)) {
    change.sides().for_each(&mut wake);
}

fn controller_key<K: Resource>(object: &K, kind: &str) -> Option<Key> {
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == kind)
        .then(|| Key::new(object.namespace().unwrap_or_default(), owner.name.clone()))
}

/// What machines read of their set.
fn circuit(set: &MachineSet) -> Option<&CircuitStatus> {
    set.status.as_ref()?.circuit.as_ref()
}

/// A machine with a server, or on its way out, comes before one that was never touched.
fn urgency(machine: &Machine) -> Urgency {
    let begun = machine.metadata.deletion_timestamp.is_some()
        || machine.status.as_ref().is_some_and(|status| status.phase.is_some());
    if begun { Urgency::Begun } else { Urgency::New }
}

/// Somebody edited it or asked for its end; our own status writes are not that.
fn changed_from_outside(old: Option<&Arc<Machine>>, new: &Machine) -> bool {
    old.is_none_or(|old| {
        old.metadata.generation != new.metadata.generation
            || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            || old.metadata.annotations != new.metadata.annotations
    })
}

/// What a serving certificate may be for.
fn addresses(machine: &Machine) -> Option<&[MachineAddress]> {
    machine.status.as_ref().map(|status| status.addresses.as_slice())
}

fn leaves(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_some() || drain(machine).is_some()
}

fn drain(machine: &Machine) -> Option<&DrainStatus> {
    machine.status.as_ref()?.drain.as_ref()
}

/// Whether its drain waits for this volume to arrive elsewhere.
fn awaits(machine: &Machine, volume: Option<&String>) -> bool {
    let moving = drain(machine).and_then(|drain| drain.moving.as_ref());
    moving.is_some_and(|moving| volume.is_some_and(|volume| moving.volumes.contains(volume)))
}

/// While it is drained its pods leave; before it is Ready its critical pods are waited for.
fn reads_pods(machine: &Machine) -> bool {
    leaves(machine)
        || machine
            .status
            .as_ref()
            .is_some_and(|status| status.phase != Some(drover_api::Phase::Running))
}

fn node_news(old: &Node, new: &Node) -> bool {
    let conditions = |node: &Node| -> Vec<(String, String)> {
        let all = node.status.as_ref().and_then(|status| status.conditions.clone());
        all.unwrap_or_default().into_iter().map(|it| (it.type_, it.status)).collect()
    };
    let addresses = |node: &Node| node.status.as_ref().and_then(|status| status.addresses.clone());
    old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.spec != new.spec
        || addresses(old) != addresses(new)
        || conditions(old) != conditions(new)
}

impl Caches {
    /// The machines that are deleted or drained; few, and asked for seldom.
    fn leaving_machines(&self) -> Vec<Arc<Machine>> {
        let mut machines = self.machines.all();
        machines.retain(|machine| leaves(machine));
        machines
    }

    /// Puts everything that is known into the queues: after a start, and now and then.
    pub fn enqueue_all(&self, queues: &Queues) {
        for deployment in self.deployments.all() {
            queues.deployments.add(Key::of(deployment.as_ref()), Urgency::Begun);
        }
        for set in self.sets.all() {
            queues.sets.add(Key::of::<MachineSet>(set.as_ref()), Urgency::Begun);
        }
        for machine in self.machines.all() {
            queues.machines.add(Key::of(machine.as_ref()), urgency(&machine));
        }
        for request in self.requests.all() {
            queues.requests.add(Key::of(request.as_ref()), Urgency::Begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_serving_certificate_asked_for_too_early_is_looked_at_when_the_addresses_are_known() {
        let (caches, queues) = (Caches::default(), Queues::default());
        let machine = |addresses| {
            serde_json::from_value::<Machine>(json!({
                "metadata": { "namespace": "kube-system", "name": "m1", "uid": "u1" },
                "spec": { "providerSpec": {} },
                "status": { "addresses": addresses },
            }))
            .expect("a machine")
        };
        let request = serde_json::from_value(json!({
            "metadata": { "name": "csr-1" },
            "spec": {
                "request": "", "signerName": "kubernetes.io/kubelet-serving",
                "username": "system:node:m1", "groups": ["system:nodes"],
            },
        }));
        caches.machines.saw(machine(json!([])));
        caches.requests.saw(request.expect("a request"));
        connect(&caches, &queues);
        assert_eq!(queues.requests.depth(), 0);
        caches.machines.saw(machine(json!([{ "type": "InternalIP", "address": "10.0.0.7" }])));
        assert_eq!(queues.requests.take().await.name, "csr-1");
    }
}
