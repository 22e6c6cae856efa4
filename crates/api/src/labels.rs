//! Every label, annotation, finalizer and taint key that Drover reads or writes.

/// Finalizer of a Machine: a server may exist. MetaKube's name.
pub const FINALIZER_SERVER: &str = "machine-delete-finalizer";
/// Finalizer of a Machine: a Node object may exist. MetaKube's name.
pub const FINALIZER_NODE: &str = "machine-node-delete-finalizer";
/// Finalizer of a Machine that Mirantis Container Cloud made; Drover lets go of it with its own.
pub const FINALIZER_MIRANTIS: &str = "machine.cluster.sigs.k8s.io";
/// Kubernetes: the garbage collector deletes the dependents first.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Label of a Machine: only the manager started with this name takes care of it.
pub const MACHINE_CONTROLLER_NAME: &str = "machine.k8s.io/controller";
/// Annotation of a Machine: not empty means that nobody may touch it yet.
pub const MACHINE_INITIALIZERS: &str = "machine-controller.kubermatic.io/initializers";
/// Annotation of a Machine: not empty makes it the first to go when its set shrinks.
pub const DELETE_MACHINE: &str = "cluster.k8s.io/delete-machine";
/// Annotation of a Machine (Mirantis): where it comes in the upgrade order when the spec is silent.
pub const UPGRADE_INDEX: &str = "lcm.mirantis.com/index";
/// Annotation of a Machine (Mirantis): the floating IP that was allocated for it.
pub const FLOATING_IP: &str = "openstack-floating-ip-address";
/// Label of a Machine: a true value (`true`, `True`, `1` and so on) deletes it without a drain.
/// Gardener's name.
pub const FORCE_DELETION: &str = "force-deletion";
/// Prefix of annotations of a Machine: as long as there is one, its deletion waits before the drain; the
/// value says for whom. Cluster API's name.
pub const HOOK_PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/";
/// Prefix of annotations of a Machine: as long as there is one, its deletion waits before the server is
/// deleted. Cluster API's name.
pub const HOOK_PRE_TERMINATE: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/";
/// Label of a Machine (Mirantis): the Cluster it belongs to.
pub const CLUSTER_NAME: &str = "cluster.sigs.k8s.io/cluster-name";
/// Label of a Machine (Mirantis): it is a manager, whatever the value.
pub const CONTROL_PLANE: &str = "cluster.sigs.k8s.io/control-plane";
/// Label of a Machine (Mirantis): the MachinePool it is a member of.
pub const MACHINE_POOL: &str = "kaas.mirantis.com/machinepool-name";

/// Label of a set, its template, its selector and its Machines: which template they were made from.
pub const TEMPLATE_HASH: &str = "machine-template-hash";
/// Annotation of a deployment and its sets: which template in the order of their use, from 1.
pub const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";
/// Annotation of a set: the revisions it had before, separated by commas.
pub const REVISION_HISTORY: &str = "machinedeployment.clusters.k8s.io/revision-history";
/// Annotation of a set: the replicas its deployment wanted when it was last sized.
pub const DESIRED_REPLICAS: &str = "machinedeployment.clusters.k8s.io/desired-replicas";
/// Annotation of a set: the replicas and the surge its deployment allowed when it was last sized.
pub const MAX_REPLICAS: &str = "machinedeployment.clusters.k8s.io/max-replicas";
/// Annotation of a set: whether its machines take over what they can of its template (`true`) or stay as
/// they were born (`false`). Written when its deployment's strategy differs from the default.
pub const IN_PLACE: &str = "drover.io/in-place";
/// Annotation in a template's metadata: `kubectl rollout restart` writes it; not special, any change
/// rolls.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation that `kubectl apply` keeps its last manifest in; never copied to dependents.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Prefix of annotations of a deployment (or a Machine): what its kubelets are told in place of the defaults, for
/// servers that are made from then on. MetaKube's name.
pub const KUBELET_CONFIG: &str = "v1.kubelet-config.machine-controller.kubermatic.io/";

/// Annotation of a deployment, its sets and its Machines: how long making the server and joining may take, in place of
/// `spec.creationTimeout`; of a deployment for Machines that are made from then on. Gardener's name.
pub const CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";

/// Annotation of a deployment or set: the fewest replicas the cluster autoscaler may ask for.
pub const AUTOSCALER_MIN: &str = "cluster.k8s.io/cluster-api-autoscaler-node-group-min-size";
/// Annotation of a deployment or set: the most replicas the cluster autoscaler may ask for.
pub const AUTOSCALER_MAX: &str = "cluster.k8s.io/cluster-api-autoscaler-node-group-max-size";

/// Annotation of a Node: `<namespace>/<name>` of its Machine. The autoscaler finds the Machine by it;
/// never to be set together with an annotation `cluster-namespace`.
pub const NODE_MACHINE: &str = "cluster.k8s.io/machine";
/// Label of a Node: the UID of its Machine.
pub const NODE_OWNED_BY: &str = "machine-controller/owned-by";
/// Annotation of a Node: whatever its value, nothing is evicted from it. MetaKube's name.
pub const NODE_SKIP_EVICTION: &str = "kubermatic.io/skip-eviction";
/// Annotation of a Node: Drover cordoned it, for the reason in the value. Only such a Node is ever
/// uncordoned by Drover.
pub const NODE_CORDONED: &str = "drover.io/cordoned";
/// Annotation of a Node: the label, annotation and taint keys Drover put there from the Machine, as
/// JSON. What is not in it is somebody else's.
pub const NODE_SYNCED: &str = "drover.io/synced";
/// Label of a pod or its DaemonSet: the startup taint stays until such pods of a node are Ready.
/// Pods of a system-critical priority class count without it.
pub const CRITICAL: &str = "drover.io/node-critical";

/// Taint a Node registers with; it keeps pods away until the critical ones run. MetaKube's name.
pub const TAINT_STARTUP: &str = "node.syseleven.de/not-ready";
/// Taint of a Node that its cloud controller manager has not looked at yet. Kubernetes' name.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Kubernetes: put on a cordoned Node by the node lifecycle controller.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The autoscaler is about to delete the Node.
pub const TAINT_AUTOSCALER_DELETE: &str = "ToBeDeletedByClusterAutoscaler";

/// Annotation of a mirror pod: the kubelet runs it from a file, nobody can evict it. Kubernetes' name.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
/// Label of a bootstrap token's Secret: the UID of the Machine it was made for.
pub const TOKEN_MACHINE: &str = "drover.io/machine-uid";

/// Kubernetes: what a CRD of a protected group must say to be installed.
pub const API_APPROVED: &str = "api-approved.kubernetes.io";
