//! The kinds the controllers watch, by what each is looked up, and what of it is kept.

use crate::cache::{Cache, Key};
use drover_api::{Cluster, Machine, MachineClass, MachineDeployment, MachineSet, labels};
use drover_plan::certificate::{self, Asker};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, Node, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodSpec,
    PodStatus,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{Api, Client, Resource, ResourceExt};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// One cache for each kind.
#[derive(Clone)]
pub struct Caches {
    pub deployments: Cache<MachineDeployment>,
    pub sets: Cache<MachineSet>,
    pub machines: Cache<Machine>,
    pub classes: Cache<MachineClass>,
    pub clusters: Cache<Cluster>,
    pub nodes: Cache<Node>,
    pub pods: Cache<Pod>,
    pub budgets: Cache<PodDisruptionBudget>,
    pub claims: Cache<PersistentVolumeClaim>,
    pub attachments: Cache<VolumeAttachment>,
    pub requests: Cache<CertificateSigningRequest>,
}

const SETS_BY_OWNER: usize = 0;
const MACHINES_BY_OWNER: usize = 0;
const MACHINES_BY_UID: usize = 1;
const MACHINES_BY_PROVIDER_ID: usize = 2;
const MACHINES_BY_NODE: usize = 3;
const MACHINES_BY_CLASS: usize = 4;
const NODES_BY_PROVIDER_ID: usize = 0;
const PODS_BY_NODE: usize = 0;
const BUDGETS_BY_NAMESPACE: usize = 0;
const CLAIMS_BY_NAMESPACE: usize = 0;
const ATTACHMENTS_BY_NODE: usize = 0;
const ATTACHMENTS_BY_VOLUME: usize = 1;
const REQUESTS_BY_ASKING_NODE: usize = 0;

impl Default for Caches {
    fn default() -> Self {
        Self {
            deployments: Cache::new(&[], |_| {}),
            sets: Cache::new(&[controllers_of], |_| {}),
            machines: Cache::new(
                &[controllers_of, uid_of, machine_provider_id, machine_node, machine_class],
                |_| {},
            ),
            classes: Cache::new(&[], |_| {}),
            clusters: Cache::new(&[], |_| {}),
            nodes: Cache::new(&[node_provider_id], slim_node),
            pods: Cache::new(&[pod_node], slim_pod),
            budgets: Cache::new(&[|budget| budget.namespace().into_iter().collect()], |_| {}),
            claims: Cache::new(&[|claim| claim.namespace().into_iter().collect()], slim_claim),
            attachments: Cache::new(
                &[
                    |it| vec![it.spec.node_name.clone()],
                    |it| it.spec.source.persistent_volume_name.clone().into_iter().collect(),
                ],
                |_| {},
            ),
            requests: Cache::new(&[asking_node], slim_request),
        }
    }
}

impl Caches {
    /// Lists and watches every kind until stopped.
    pub fn start(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        macro_rules! watch {
            ($($cache:ident),+) => {$(
                tasks.spawn(self.$cache.clone().run(Api::all(client.clone()), stop.clone()));
            )+};
        }
        watch!(deployments, sets, machines, classes, nodes, pods, budgets, claims, attachments);
        watch!(requests, clusters);
    }

    /// Waits until every kind was listed once: before that, absence means nothing.
    pub async fn synced(&self) {
        self.deployments.synced().await;
        self.sets.synced().await;
        self.machines.synced().await;
        self.classes.synced().await;
        self.clusters.synced().await;
        self.nodes.synced().await;
        self.pods.synced().await;
        self.budgets.synced().await;
        self.claims.synced().await;
        self.attachments.synced().await;
        self.requests.synced().await;
    }

    /// The sets that this deployment controls, those in its namespace that nobody does, and those
    /// that have a name it may want.
    pub fn sets_of(&self, deployment: &MachineDeployment) -> Vec<Arc<MachineSet>> {
        let uid = deployment.uid().unwrap_or_default();
        let namespace = deployment.namespace().unwrap_or_default();
        let mut sets = self.sets.by(SETS_BY_OWNER, &uid);
        sets.extend(self.sets.by(SETS_BY_OWNER, &orphans(deployment)));
        sets.extend(self.sets.named(&namespace, &format!("{}-", deployment.name_any())));
        sets.sort_by_key(|set| set.name_any());
        sets.dedup_by(|a, b| a.metadata.uid == b.metadata.uid);
        sets
    }

    /// The machines that this set controls.
    pub fn machines_controlled_by(&self, set: &MachineSet) -> Vec<Arc<Machine>> {
        self.machines.by(MACHINES_BY_OWNER, &set.uid().unwrap_or_default())
    }

    /// The machines that this set controls, and those in its namespace that nobody does.
    pub fn machines_of(&self, set: &MachineSet) -> Vec<Arc<Machine>> {
        let mut machines = self.machines_controlled_by(set);
        machines.extend(self.machines.by(MACHINES_BY_OWNER, &orphans(set)));
        machines.sort_by_key(|machine| machine.name_any());
        machines
    }

    /// The set that controls a machine.
    pub fn set_of(&self, machine: &Machine) -> Option<Arc<MachineSet>> {
        let mut owners = machine.owner_references().iter();
        let owner = owners.find(|it| it.controller == Some(true) && it.kind == "MachineSet")?;
        let key = Key::new(machine.namespace().unwrap_or_default(), owner.name.clone());
        self.sets.get(&key).filter(|set| set.metadata.uid.as_ref() == Some(&owner.uid))
    }

    pub fn machine_by_uid(&self, uid: &str) -> Option<Arc<Machine>> {
        self.machines.by(MACHINES_BY_UID, uid).into_iter().next()
    }

    /// The certificate requests of this machine's Node that nobody has decided on.
    pub fn requests_of(&self, machine: &Machine) -> Vec<Arc<CertificateSigningRequest>> {
        let nodes = machine_node(machine).into_iter();
        nodes.flat_map(|node| self.requests.by(REQUESTS_BY_ASKING_NODE, &node)).collect()
    }

    /// The Cluster that this machine says it belongs to (Mirantis).
    pub fn cluster_of(&self, machine: &Machine) -> Option<Arc<Cluster>> {
        let name = machine.labels().get(labels::CLUSTER_NAME)?;
        self.clusters.get(&Key::new(machine.namespace().unwrap_or_default(), name))
    }

    /// The machines that say they belong to this Cluster; asked for seldom.
    pub fn machines_of_cluster(&self, cluster: &Cluster) -> Vec<Arc<Machine>> {
        let name = cluster.name_any();
        let mut machines = self.machines.all();
        machines.retain(|machine| {
            machine.namespace() == cluster.namespace()
                && machine.labels().get(labels::CLUSTER_NAME) == Some(&name)
        });
        machines
    }

    pub fn machines_of_class(&self, namespace: &str, name: &str) -> Vec<Arc<Machine>> {
        self.machines.by(MACHINES_BY_CLASS, &format!("{namespace}/{name}"))
    }

    /// The machines that a Node may belong to: by its label, its provider ID or its name.
    pub fn machines_of_node(&self, node: &Node) -> Vec<Arc<Machine>> {
        let mut found = Vec::new();
        if let Some(uid) = node.labels().get(labels::NODE_OWNED_BY) {
            found.extend(self.machines.by(MACHINES_BY_UID, uid));
        }
        for id in node_provider_id(node) {
            found.extend(self.machines.by(MACHINES_BY_PROVIDER_ID, &id));
        }
        found.extend(self.machines.by(MACHINES_BY_NODE, &node.name_any()));
        found.sort_by_key(|machine| (machine.namespace(), machine.name_any()));
        found.dedup_by(|a, b| a.metadata.uid == b.metadata.uid);
        found
    }

    pub fn machines_of_node_name(&self, node: &str) -> Vec<Arc<Machine>> {
        match self.nodes.get(&Key::new("", node)) {
            Some(node) => self.machines_of_node(&node),
            None => self.machines.by(MACHINES_BY_NODE, node),
        }
    }

    pub fn node_by_provider_id(&self, id: &str) -> Vec<Arc<Node>> {
        self.nodes.by(NODES_BY_PROVIDER_ID, server_id(id))
    }

    pub fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.by(PODS_BY_NODE, node)
    }

    pub fn budgets_in(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.by(BUDGETS_BY_NAMESPACE, namespace)
    }

    pub fn claims_in(&self, namespace: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        self.claims.by(CLAIMS_BY_NAMESPACE, namespace)
    }

    /// Where a PersistentVolume is attached.
    pub fn attachments_of(&self, volume: &str) -> Vec<Arc<VolumeAttachment>> {
        self.attachments.by(ATTACHMENTS_BY_VOLUME, volume)
    }

    pub fn attachments_to(&self, node: &str) -> Vec<Arc<VolumeAttachment>> {
        self.attachments.by(ATTACHMENTS_BY_NODE, node)
    }
}

/// The UID of the controller; of an object without one, a word for the orphans of its namespace.
fn controllers_of<K: Resource>(object: &K) -> Vec<String> {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    vec![controller.map_or_else(|| orphans(object), |owner| owner.uid.clone())]
}

fn orphans<K: Resource>(object: &K) -> String {
    format!("orphans of {}", object.namespace().unwrap_or_default())
}

fn uid_of<K: Resource>(object: &K) -> Vec<String> {
    object.uid().into_iter().collect()
}

/// The part after the last slash: a region may stand before it (OpenStack: `openstack://region/id`).
pub fn server_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

fn machine_provider_id(machine: &Machine) -> Vec<String> {
    let seen = machine.status.as_ref().and_then(|status| status.provider_id.as_deref());
    let id = machine.spec.provider_id.as_deref().or(seen);
    id.map(|id| server_id(id).to_owned()).into_iter().collect()
}

fn node_provider_id(node: &Node) -> Vec<String> {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    id.map(|id| server_id(id).to_owned()).into_iter().collect()
}

/// The name its Node has, or will have.
fn machine_node(machine: &Machine) -> Vec<String> {
    let seen = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
    let name = seen
        .and_then(|node| node.name.clone())
        .or_else(|| machine.spec.metadata.name.clone())
        .unwrap_or_else(|| machine.name_any());
    vec![name]
}

fn asking_node(request: &CertificateSigningRequest) -> Vec<String> {
    match certificate::asker(request) {
        Asker::Node(name) if !certificate::is_decided(request) => vec![name],
        _ => Vec::new(),
    }
}

fn machine_class(machine: &Machine) -> Vec<String> {
    let own = machine.namespace().unwrap_or_default();
    let by_value = machine.spec.provider_spec.value_from.as_ref();
    let referred = by_value
        .and_then(|from| from.machine_class.as_ref())
        .map(|class| format!("{}/{}", class.namespace.as_deref().unwrap_or(&own), class.name));
    let direct = machine.spec.class.as_ref().map(|class| format!("{own}/{}", class.name));
    referred.or(direct).into_iter().collect()
}

fn pod_node(pod: &Pod) -> Vec<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).into_iter().collect()
}

/// A Node's images and volumes are most of its bytes and nobody here reads them.
fn slim_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.config = None;
        status.allocatable = None;
        status.runtime_handlers = None;
    }
}

/// Of a request that was decided on only that is read again; Kubernetes keeps it for an hour, with its
/// certificate.
fn slim_request(request: &mut CertificateSigningRequest) {
    if certificate::is_decided(request) {
        request.spec = CertificateSigningRequestSpec::default();
        if let Some(status) = &mut request.status {
            status.certificate = None;
        }
    }
}

/// Of a claim the controllers read which volume it has, and whether others may have it, too.
fn slim_claim(claim: &mut PersistentVolumeClaim) {
    claim.status = None;
    if let Some(spec) = &mut claim.spec {
        *spec = PersistentVolumeClaimSpec {
            access_modes: spec.access_modes.take(),
            volume_name: spec.volume_name.take(),
            ..PersistentVolumeClaimSpec::default()
        };
    }
}

/// Of a pod the controllers read who owns it, where it runs, how it is and what claims it holds.
fn slim_pod(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        *spec = PodSpec {
            node_name: spec.node_name.take(),
            priority: spec.priority,
            priority_class_name: spec.priority_class_name.take(),
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            volumes: spec.volumes.take().map(|mut volumes| {
                volumes.retain(|volume| {
                    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
                });
                for volume in &mut volumes {
                    let made = volume.ephemeral.is_some();
                    volume.ephemeral = made.then(EphemeralVolumeSource::default);
                }
                // Each takes over 3 KiB, whatever it holds.
                volumes.shrink_to_fit();
                volumes
            }),
            ..PodSpec::default()
        };
    }
    if let Some(status) = &mut pod.status {
        let mut conditions = status.conditions.take().unwrap_or_default();
        conditions.retain(|condition| condition.type_ == "Ready");
        conditions.shrink_to_fit();
        *status = PodStatus {
            phase: status.phase.take(),
            conditions: Some(conditions),
            ..PodStatus::default()
        };
    }
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| key == labels::MIRROR_POD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn of_a_pod_only_that_is_kept_which_is_read() {
        let mut pod: Pod = from_value(json!({
            "metadata": {"name": "db-0", "annotations": {
                "kubernetes.io/config.mirror": "x", "example.com/note": "long",
            }},
            "spec": {
                "nodeName": "a",
                "containers": [{"name": "db", "image": "db:1"}],
                "tolerations": [{"operator": "Exists"}],
                "volumes": [
                    {"name": "token", "projected": {}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                ],
            },
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
                ],
                "containerStatuses": [],
            },
        }))
        .unwrap();
        slim_pod(&mut pod);
        let kept = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "db-0", "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {
                "containers": [],
                "nodeName": "a",
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
                    {"name": "scratch", "ephemeral": {}},
                ],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(to_value(&pod).unwrap(), kept);
    }
}
