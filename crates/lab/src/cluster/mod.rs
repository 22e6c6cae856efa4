//! The few controllers of a cluster without which a drain cannot be seen.
//!
//! They share one view of the cluster: each resource is watched once, each change wakes the addresses it
//! concerns, and each controller works those off one by one, with its own writes already in the view.

mod aggregation;
mod attach;
pub mod ccm;
mod csr;
mod daemonset;
mod deployment;
mod gc;
mod kinds;
pub mod lifecycle;
mod namespaces;
mod object;
mod pdb;
mod placement;
mod pods;
mod replicaset;
mod scheduler;
mod serviceaccounts;
mod taints;
mod tokens;
mod view;
mod work;

#[cfg(test)]
mod tests;

use crate::client::{Client, Delta, reflect};
use crate::clock::{Clock, Pace};
use crate::pki::Authority;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use view::{Resource, View};
use work::{AnyController, Ears, Hands, Worker};

/// What the controllers work with.
pub struct Config {
    /// The cluster, as a user who may do everything.
    pub client: Client,
    /// The time of the world.
    pub clock: Clock,
    /// Signs certificates of nodes.
    pub pki: Arc<Authority>,
    /// The pace of what takes time.
    pub pace: Pace,
}

/// The built-in resources that are watched: group, version, plural, kind, in namespaces.
const BUILT_IN: [(&str, &str, &str, &str, bool); 30] = [
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "nodes", "Node", false),
    ("", "v1", "pods", "Pod", true),
    ("", "v1", "secrets", "Secret", true),
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "serviceaccounts", "ServiceAccount", true),
    ("", "v1", "podtemplates", "PodTemplate", true),
    ("", "v1", "services", "Service", true),
    ("", "v1", "persistentvolumes", "PersistentVolume", false),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    ("apps", "v1", "deployments", "Deployment", true),
    ("apps", "v1", "replicasets", "ReplicaSet", true),
    ("apps", "v1", "daemonsets", "DaemonSet", true),
    ("apps", "v1", "statefulsets", "StatefulSet", true),
    ("", "v1", "endpoints", "Endpoints", true),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
    ("batch", "v1", "cronjobs", "CronJob", true),
    ("batch", "v1", "jobs", "Job", true),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", true),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
    ("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", false),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", true),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
];

/// Runs all controllers until it is stopped.
pub async fn run(config: Config, stop: CancellationToken) {
    let Config { client, clock, pki, pace } = config;
    let client = client.named("kube-controller-manager");
    let view = Arc::new(View::default());
    let ears = Ears::default();
    let watches = Watches::new(client.clone(), view.clone(), ears.clone());
    let binder = client.clone().named("kube-scheduler");
    let hands = Hands { client, view, clock, pki, ears: ears.clone() };
    let controllers: Vec<Arc<dyn AnyController>> = vec![
        Arc::new(kinds::Kinds::new(watches.clone())),
        Arc::new(aggregation::Aggregation),
        Arc::new(gc::Collector),
        Arc::new(pods::Pods::new(pace)),
        Arc::new(taints::Expulsions::default()),
        Arc::new(attach::Volumes::new(pace)),
        Arc::new(namespaces::Namespaces),
        Arc::new(serviceaccounts::ServiceAccounts),
        Arc::new(pdb::Budgets),
        Arc::new(csr::Signer),
        Arc::new(tokens::Cleaner),
        Arc::new(deployment::Deployments),
        Arc::new(replicaset::ReplicaSets),
        Arc::new(daemonset::DaemonSets::default()),
        Arc::new(scheduler::Scheduler::new(binder)),
    ];
    let all: Vec<Worker> = controllers.into_iter().map(|one| (one, Arc::default())).collect();
    // Set before the first watch begins: no change goes by unheard.
    ears.set(all.clone());
    for (group, version, plural, kind, namespaced) in BUILT_IN {
        watches.start(Resource::new(group, version, plural, kind, namespaced));
    }
    let work = async {
        watches.ready(BUILT_IN.len()).await;
        let mut tasks = JoinSet::new();
        for (controller, queue) in all {
            tasks.spawn(work::work(controller, queue, hands.clone()));
        }
        while tasks.join_next().await.is_some() {}
    };
    stop.run_until_cancelled(work).await;
    watches.stop();
}

/// The watches of all resources.
#[derive(Clone)]
struct Watches {
    client: Client,
    view: Arc<View>,
    ears: Ears,
    running: Arc<Mutex<BTreeMap<Arc<str>, AbortHandle>>>,
    listed: watch::Sender<usize>,
}

impl Watches {
    fn new(client: Client, view: Arc<View>, ears: Ears) -> Self {
        let listed = watch::Sender::new(0);
        Self { client, view, ears, running: Arc::default(), listed }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch a resource, unless that has begun.
    fn start(&self, resource: Resource) {
        let id = resource.id.clone();
        if self.running().contains_key(&id) {
            return;
        }
        let path = resource.collection("");
        self.view.add(Arc::new(resource));
        let (view, ears, listed) = (self.view.clone(), self.ears.clone(), self.listed.clone());
        let of = id.clone();
        let mut first = true;
        let follow = reflect(self.client.clone(), path, move |delta| {
            let changes = match delta {
                Delta::Replaced(all) => view.replace(&of, all),
                Delta::Applied(one) => view.apply(&of, one, false).into_iter().collect(),
                Delta::Deleted(one) => view.apply(&of, one, true).into_iter().collect(),
            };
            changes.iter().for_each(|change| ears.tell(&view, change));
            if std::mem::take(&mut first) {
                listed.send_modify(|count| *count += 1);
            }
        });
        let task = tokio::spawn(follow).abort_handle();
        self.running().insert(id, task);
    }

    /// Ends the watch of a resource and forgets its objects.
    fn end(&self, id: &str) {
        let task = self.running().remove(id);
        if let Some(task) = task {
            task.abort();
            let changes = self.view.drop_resource(id);
            changes.iter().for_each(|change| self.ears.tell(&self.view, change));
        }
    }

    /// Ends all watches.
    fn stop(&self) {
        std::mem::take(&mut *self.running()).values().for_each(AbortHandle::abort);
    }

    /// Waits until this many resources were listed.
    async fn ready(&self, count: usize) {
        let mut listed = self.listed.subscribe();
        // The sender lives as long as this does.
        let _ = listed.wait_for(|have| *have >= count).await;
    }
}
