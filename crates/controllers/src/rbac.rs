//! Exactly the rights the controllers use, and the objects that grant them.
//!
//! The lab enforces what is printed here, so a verb that is missing fails a test.

use serde_json::{Value, json};

/// The ServiceAccount the manager runs as, in [`NAMESPACE`].
pub const SERVICE_ACCOUNT: &str = "drover";
/// Where the manager keeps its Lease, and where bootstrap tokens must be (Kubernetes: bootstrap tokens).
pub const NAMESPACE: &str = "kube-system";
/// The group that bootstrap tokens of Drover authenticate in.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:drover";

/// A line of a role: API group, resources, resource names (empty: all), verbs.
type Rule =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const CLUSTER_RULES: &[Rule] = &[
    (
        "cluster.k8s.io",
        &["clusters", "machineclasses", "machinedeployments", "machinesets", "machines"],
        &[],
        &["get", "list", "watch"],
    ),
    ("cluster.k8s.io", &["machinedeployments"], &[], &["patch", "update"]),
    ("cluster.k8s.io", &["machinesets", "machines"], &[], &["create", "patch", "delete"]),
    // Owner references with blockOwnerDeletion are checked against these (Kubernetes:
    // OwnerReferencesPermissionEnforcement).
    (
        "cluster.k8s.io",
        &["machinedeployments/finalizers", "machinesets/finalizers", "machines/finalizers"],
        &[],
        &["update"],
    ),
    (
        "cluster.k8s.io",
        &["machinedeployments/status", "machinesets/status", "machines/status"],
        &[],
        &["patch", "update"],
    ),
    // Its UID marks the cluster's resources in the cloud.
    ("", &["namespaces"], &["kube-system"], &["get"]),
    ("", &["nodes"], &[], &["get", "list", "watch", "patch", "delete"]),
    // Resources that no kubelet reports (Gardener: virtualCapacity).
    ("", &["nodes/status"], &[], &["patch"]),
    ("", &["pods"], &[], &["get", "list", "watch", "delete"]),
    ("", &["pods/eviction"], &[], &["create"]),
    ("policy", &["poddisruptionbudgets"], &[], &["get", "list", "watch"]),
    ("", &["persistentvolumeclaims"], &[], &["list", "watch"]),
    // Deleted only when the server they name is gone.
    ("storage.k8s.io", &["volumeattachments"], &[], &["list", "watch", "delete"]),
    ("certificates.k8s.io", &["certificatesigningrequests"], &[], &["get", "list", "watch"]),
    ("certificates.k8s.io", &["certificatesigningrequests/approval"], &[], &["patch", "update"]),
    (
        "certificates.k8s.io",
        &["signers"],
        &["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"],
        &["approve"],
    ),
    ("events.k8s.io", &["events"], &[], &["create", "patch"]),
];

/// In kube-system: the Lease, the bootstrap tokens, and credentials kept there.
const SYSTEM_RULES: &[Rule] = &[
    ("coordination.k8s.io", &["leases"], &[], &["create"]),
    ("coordination.k8s.io", &["leases"], &["drover"], &["get", "update"]),
    ("", &["secrets"], &[], &["get", "list", "watch", "create", "patch", "delete"]),
    ("", &["configmaps"], &[], &["get"]),
    // Its UID marks what this cluster has in the cloud.
    ("", &["namespaces"], &[NAMESPACE], &["get"]),
];

/// In a namespace with credentials that machines refer to.
const CREDENTIALS_RULES: &[Rule] = &[("", &["secrets", "configmaps"], &[], &["get"])];

/// In kube-public: where and with which CA nodes find the API server.
const PUBLIC_RULES: &[Rule] = &[("", &["configmaps"], &["cluster-info"], &["get"])];

/// All objects in the order in which they can be applied. Secrets that machines refer to are readable
/// in kube-system and in the namespaces named here, nowhere else.
#[must_use]
pub fn objects(credentials_namespaces: &[String]) -> Vec<Value> {
    let mut objects = vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": SERVICE_ACCOUNT, "namespace": NAMESPACE },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "drover" }, "rules": rules(CLUSTER_RULES),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "drover" },
            "roleRef": role_ref("ClusterRole", "drover"), "subjects": [manager()],
        }),
        // New nodes may ask for a certificate; only Drover approves, so `nodeclient` is not granted.
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "drover:node-bootstrapper" },
            "roleRef": role_ref("ClusterRole", "system:node-bootstrapper"),
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAP_GROUP,
            }],
        }),
    ];
    objects.extend(role("drover", NAMESPACE, SYSTEM_RULES));
    objects.extend(role("drover", "kube-public", PUBLIC_RULES));
    for namespace in credentials_namespaces {
        objects.extend(role("drover:credentials", namespace, CREDENTIALS_RULES));
    }
    objects
}

fn role(name: &str, namespace: &str, of: &[Rule]) -> [Value; 2] {
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": name, "namespace": namespace }, "rules": rules(of),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": namespace },
            "roleRef": role_ref("Role", name), "subjects": [manager()],
        }),
    ]
}

fn rules(of: &[Rule]) -> Vec<Value> {
    of.iter()
        .map(|(group, resources, names, verbs)| {
            let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
            if !names.is_empty() {
                rule["resourceNames"] = json!(names);
            }
            rule
        })
        .collect()
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

fn manager() -> Value {
    json!({ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE })
}
