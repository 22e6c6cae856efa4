//! What a cluster has when its first node comes: who may bootstrap, where to find it, and its network.

use crate::client::Client;
use base64::Engine as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long a new API server may take to make the namespaces that every cluster has.
const NAMESPACES_MAX: Duration = Duration::from_secs(60);
/// Between two looks whether they are there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Creates what is missing; what is there is left as it is.
pub(super) async fn ensure(admin: &Client, server: &str, ca_pem: &str) -> Result<(), super::Error> {
    let until = Instant::now() + NAMESPACES_MAX;
    for (path, object) in objects(&cluster_info(server, ca_pem)) {
        loop {
            match admin.create(path, &object).await {
                Ok(_) => break,
                Err(error) if error.reason == "AlreadyExists" => break,
                Err(error) if error.is_not_found() && Instant::now() < until => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) => {
                    let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
                    return Err(super::Error::Object(name, error));
                }
            }
        }
    }
    Ok(())
}

/// Kubernetes: the ConfigMap `cluster-info` holds a kubeconfig of the cluster without a user.
fn cluster_info(server: &str, ca_pem: &str) -> String {
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    \
         certificate-authority-data: {ca}\n    server: {server}\n"
    )
}

/// Path of the collection and object, in the order in which they are created. Nobody is granted that requests of
/// nodes are approved by themselves: that is for whoever knows the nodes.
fn objects(cluster_info: &str) -> Vec<(&'static str, Value)> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let group = |name: &str| json!([{"apiGroup": RBAC, "kind": "Group", "name": name}]);
    vec![
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "kubelet-bootstrap"},
                "roleRef": {
                    "apiGroup": RBAC, "kind": "ClusterRole", "name": "system:node-bootstrapper",
                },
                "subjects": group("system:bootstrappers"),
            }),
        ),
        (
            "/api/v1/namespaces/kube-public/configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                "data": {"kubeconfig": cluster_info},
            }),
        ),
        ("/apis/apps/v1/namespaces/kube-system/daemonsets", network()),
    ]
}

/// The network of the cluster: a critical DaemonSet that puts its configuration where the runtime looks for it.
fn network() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "cni", "namespace": "kube-system", "labels": {"k8s-app": "cni"}},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "cni"}},
            "template": {
                "metadata": {"labels": {"k8s-app": "cni"}},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "hostNetwork": true,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": "cni",
                        "image": "registry.example/cni:1",
                        "volumeMounts": [{"name": "conf", "mountPath": "/host/etc/cni/net.d"}],
                    }],
                    "volumes": [{"name": "conf", "hostPath": {"path": "/etc/cni/net.d"}}],
                },
            },
        },
    })
}
