//! The controllers against the lab's own API server, on a paused clock.

use super::object::{condition, is_deleting, is_true, items, meta, node_of};
use super::*;
use crate::apiserver::access::User;
use crate::apiserver::{self, ApiServer, Peer, ResourceId};
use crate::client::ApiError;
use crate::client::PatchKind;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

struct Cluster {
    server: ApiServer,
    client: Client,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Longest time a test waits for the cluster, in the world's time.
const PATIENCE: Duration = Duration::from_secs(300);

impl Cluster {
    async fn start() -> Self {
        let clock = Clock::start("2026-11-21T09:00:00Z".parse().expect("a time"));
        let pki = Arc::new(Authority::new(&clock));
        let server = ApiServer::new(apiserver::Config::new(clock, pki.clone()));
        let user = User::new("system:kube-controller-manager", &["system:masters"]);
        let client = Client::over(server.service(Peer::User(user)));
        let stop = CancellationToken::new();
        let config = Config { client: client.clone(), clock, pki, pace: Pace::default() };
        tokio::spawn(run(config, stop.clone()));
        let cluster = Self { server, client, stop };
        cluster.until("", "serviceaccounts", |all| all.len() == 4).await;
        cluster
    }

    fn list(&self, group: &str, plural: &str) -> Vec<Arc<Value>> {
        self.server.store().list(&ResourceId::new(group, plural), None).1
    }

    /// Waits until all objects of a resource are as wanted.
    async fn until(&self, group: &str, plural: &str, good: impl Fn(&[Arc<Value>]) -> bool) {
        let mut pulse = self.server.store().pulse(&ResourceId::new(group, plural));
        let waited = timeout(PATIENCE, async {
            while !good(&self.list(group, plural)) {
                pulse.changed().await.expect("the store lives");
            }
        });
        if waited.await.is_err() {
            panic!("{plural} never became as wanted: {:#?}", self.list(group, plural));
        }
    }

    async fn create(&self, path: &str, object: Value) {
        self.client.create(path, &object).await.expect(path);
    }

    async fn node(&self, name: &str) {
        self.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        let patch = json!({"spec": {"taints": null}});
        let path = format!("/api/v1/nodes/{name}");
        self.client.patch(&path, PatchKind::Merge, &patch).await.expect("a patch");
    }

    /// Plays the kubelet once.
    async fn run_pods(&self) {
        for pod in self.list("", "pods").iter().filter(|pod| !is_deleting(pod)) {
            play(&self.client, pod).await;
        }
    }

    /// Plays the kubelet until dropped: what is bound runs, what is told to go goes.
    fn kubelet(&self) -> AbortOnDrop {
        let (server, client) = (self.server.clone(), self.client.clone());
        let pods = ResourceId::new("", "pods");
        AbortOnDrop(tokio::spawn(async move {
            let mut pulse = server.store().pulse(&pods);
            loop {
                for pod in server.store().list(&pods, None).1 {
                    play(&client, &pod).await;
                }
                pulse.changed().await.expect("the store lives");
            }
        }))
    }

    async fn evict(&self, pod: &str) -> Result<Value, ApiError> {
        let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
        });
        self.client.create(&path, &eviction).await
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a kubelet does about a pod: it runs, or ends when told to go.
async fn play(client: &Client, pod: &Value) {
    let (namespace, name) = (meta(pod, "namespace"), meta(pod, "name"));
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    if is_deleting(pod) {
        let ended = client.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
        assert!(ended.as_ref().err().is_none_or(ApiError::is_not_found), "{ended:?}");
    } else if !node_of(pod).is_empty() && !is_true(pod, "Ready") {
        let status = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let path = format!("{path}/status");
        let ran = client.patch(&path, PatchKind::Strategic, &status).await;
        assert!(ran.as_ref().err().is_none_or(ApiError::is_not_found), "{ran:?}");
    }
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    })
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": template("web"),
        },
    })
}

fn bound(pods: &[Arc<Value>]) -> usize {
    pods.iter().filter(|pod| !node_of(pod).is_empty()).count()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_rolls_and_goes() {
    let cluster = Cluster::start().await;
    for name in ["n1", "n2"] {
        cluster.node(name).await;
    }
    cluster.create(DEPLOYMENTS, deployment(4)).await;
    cluster.until("", "pods", |pods| bound(pods) == 4).await;
    let on = |node: &str| cluster.list("", "pods").iter().filter(|p| node_of(p) == node).count();
    assert_eq!((on("n1"), on("n2")), (2, 2), "pods are spread");
    let kubelet = cluster.kubelet();
    let available = |all: &[Arc<Value>]| all[0]["status"]["availableReplicas"] == 4;
    cluster.until("apps", "deployments", available).await;

    let web = format!("{DEPLOYMENTS}/web");
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}});
    cluster.client.patch(&web, PatchKind::Merge, &patch).await.expect("a patch");
    let rolled = |all: &[Arc<Value>]| {
        let status = &all[0]["status"];
        status["observedGeneration"] == all[0]["metadata"]["generation"]
            && status["updatedReplicas"] == 4
            && status["replicas"] == 4
            && status["availableReplicas"] == 4
    };
    cluster.until("apps", "replicasets", |sets| sets.len() == 2).await;
    cluster.until("apps", "deployments", rolled).await;
    assert_eq!(cluster.list("apps", "replicasets").len(), 2, "the old set is kept for a way back");

    drop(kubelet);
    let options = json!({"propagationPolicy": "Foreground"});
    cluster.client.delete(&web, &options).await.expect("a delete");
    cluster.until("", "pods", |pods| pods.iter().all(|pod| is_deleting(pod))).await;
    assert_eq!(cluster.list("apps", "deployments").len(), 1, "it waits for what it owns");
    let _kubelet = cluster.kubelet();
    cluster.until("apps", "deployments", |all| all.is_empty()).await;
    assert!(cluster.list("apps", "replicasets").is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_lose_their_owner() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment(1)).await;
    cluster.until("", "pods", |pods| pods.len() == 1).await;
    let options = json!({"propagationPolicy": "Orphan"});
    cluster.client.delete(&format!("{DEPLOYMENTS}/web"), &options).await.expect("a delete");
    cluster.until("apps", "deployments", |all| all.is_empty()).await;
    let sets = cluster.list("apps", "replicasets");
    assert!(sets[0]["metadata"]["ownerReferences"].is_null());
    assert_eq!(cluster.list("", "pods").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_names_an_owner_that_never_was_goes() {
    let cluster = Cluster::start().await;
    let map = |name: &str, kind: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": "ghost", "uid": "no-such-uid"},
        ]}})
    };
    let path = "/api/v1/namespaces/default/configmaps";
    cluster.create(path, map("orphan", "Secret")).await;
    cluster.create(path, map("unknown", "NotServed")).await;
    let names = |maps: &[Arc<Value>]| -> Vec<String> {
        let own = maps.iter().filter(|map| meta(map, "namespace") == "default");
        own.map(|map| meta(map, "name").to_owned()).collect()
    };
    cluster.until("", "configmaps", |maps| names(maps) == ["kube-root-ca.crt", "unknown"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_one_pod_go_at_a_time() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.create(DEPLOYMENTS, deployment(2)).await;
    cluster.until("", "pods", |pods| bound(pods) == 2).await;
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    cluster.create(path, budget).await;
    cluster.run_pods().await;
    let allowed = |want: i64| {
        move |all: &[Arc<Value>]| {
            all[0]["status"]["disruptionsAllowed"] == want
                && all[0]["status"]["observedGeneration"] == 1
        }
    };
    cluster.until("policy", "poddisruptionbudgets", allowed(1)).await;
    let names: Vec<String> =
        cluster.list("", "pods").iter().map(|pod| meta(pod, "name").to_owned()).collect();
    let dry = format!("/api/v1/namespaces/default/pods/{}/eviction?dryRun=All", names[0]);
    let eviction = json!({"metadata": {"name": names[0]}});
    cluster.client.create(&dry, &eviction).await.expect("a dry run spends nothing");
    cluster.evict(&names[0]).await.expect("one may go");
    let refused = cluster.evict(&names[1]).await.expect_err("the other may not");
    assert_eq!(refused.code, 429);
    let cause = &refused.body["details"]["causes"][0]["message"];
    assert_eq!(cause, "The disruption budget web needs 1 healthy pods and has 2 currently");
    cluster.until("", "pods", |pods| bound(pods) == 3).await;
    assert_eq!(cluster.evict(&names[1]).await.expect_err("the new one is not ready").code, 429);
    cluster.run_pods().await;
    cluster.until("policy", "poddisruptionbudgets", allowed(1)).await;
    cluster.evict(&names[1]).await.expect("now it may");
}

#[tokio::test(start_paused = true)]
async fn every_node_has_its_daemon_and_takes_it_along() {
    let cluster = Cluster::start().await;
    let set = json!({
        "metadata": {"name": "cni"},
        "spec": {"selector": {"matchLabels": {"app": "cni"}}, "template": template("cni")},
    });
    cluster.create("/apis/apps/v1/namespaces/kube-system/daemonsets", set).await;
    for name in ["n1", "n2", "n3"] {
        cluster.node(name).await;
    }
    cluster.until("", "pods", |pods| bound(pods) == 3).await;
    cluster.run_pods().await;
    let ready = |all: &[Arc<Value>]| {
        all[0]["status"]["numberReady"] == 3 && all[0]["status"]["desiredNumberScheduled"] == 3
    };
    cluster.until("apps", "daemonsets", ready).await;

    let cordon = json!({"spec": {"unschedulable": true, "taints": [
        {"key": "k", "value": "v", "effect": "NoSchedule"},
    ]}});
    cluster.client.patch("/api/v1/nodes/n2", PatchKind::Merge, &cordon).await.expect("a patch");
    let wanted = |all: &[Arc<Value>]| all[0]["status"]["desiredNumberScheduled"] == 2;
    cluster.until("apps", "daemonsets", wanted).await;
    assert_eq!(cluster.list("", "pods").len(), 3, "what runs is not chased away");

    cluster.client.delete("/api/v1/nodes/n1", &Value::Null).await.expect("a delete");
    let gone = |pods: &[Arc<Value>]| pods.iter().all(|pod| node_of(pod) != "n1");
    cluster.until("", "pods", gone).await;
    assert_eq!(cluster.list("", "pods").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_node_takes_says_why_and_waits() {
    let cluster = Cluster::start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "registry.example/app:1"}],
        "nodeSelector": {"zone": "a"},
    }});
    cluster.create("/api/v1/namespaces/default/pods", pod).await;
    let says = |words: &'static str| {
        move |pods: &[Arc<Value>]| {
            let conditions = items(&pods[0]["status"]["conditions"]).iter();
            conditions.into_iter().any(|one| one["message"] == words)
        }
    };
    cluster.until("", "pods", says("no nodes available to schedule pods")).await;
    cluster.node("n1").await;
    let words = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    cluster.until("", "pods", says(words)).await;
    let label = json!({"metadata": {"labels": {"zone": "a"}}});
    cluster.client.patch("/api/v1/nodes/n1", PatchKind::Merge, &label).await.expect("a patch");
    cluster.until("", "pods", |pods| bound(pods) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_content_along() {
    let cluster = Cluster::start().await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "doomed"}})).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/wait"]}});
    cluster.create("/api/v1/namespaces/doomed/configmaps", held).await;
    cluster.create("/api/v1/namespaces/doomed/secrets", json!({"metadata": {"name": "s"}})).await;
    cluster.client.delete("/api/v1/namespaces/doomed", &Value::Null).await.expect("a delete");
    let tells = |all: &[Arc<Value>]| {
        let doomed = all.iter().find(|one| meta(one, "name") == "doomed");
        let told = |what: &str| {
            let found = doomed.and_then(|one| condition(one, what));
            found.map(|one| (one["status"] == "True", one["message"].clone()))
        };
        let left = "Some resources are remaining: configmaps. has 1 resource instances";
        let waits = "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances";
        told("NamespaceContentRemaining") == Some((true, left.into()))
            && told("NamespaceFinalizersRemaining") == Some((true, waits.into()))
            && told("NamespaceDeletionContentFailure").is_some_and(|(bad, _)| !bad)
    };
    cluster.until("", "namespaces", tells).await;
    assert!(cluster.list("", "secrets").is_empty());
    let free = json!({"metadata": {"finalizers": null}});
    let path = "/api/v1/namespaces/doomed/configmaps/held";
    cluster.client.patch(path, PatchKind::Merge, &free).await.expect("a patch");
    cluster.until("", "namespaces", |all| all.len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn pods_leave_a_namespace_before_anything_else() {
    let cluster = Cluster::start().await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "doomed"}})).await;
    let map = json!({"metadata": {"name": "map"}});
    cluster.create("/api/v1/namespaces/doomed/configmaps", map).await;
    let held = json!({
        "metadata": {"name": "held", "finalizers": ["example.com/wait"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let account = |all: &[Arc<Value>]| all.iter().any(|one| meta(one, "namespace") == "doomed");
    cluster.until("", "serviceaccounts", account).await;
    cluster.create("/api/v1/namespaces/doomed/pods", held).await;
    cluster.client.delete("/api/v1/namespaces/doomed", &Value::Null).await.expect("a delete");
    cluster.until("", "pods", |all| all.iter().all(|pod| is_deleting(pod))).await;
    let told = |all: &[Arc<Value>]| {
        all.iter().any(|one| condition(one, "NamespaceDeletionContentFailure").is_some())
    };
    cluster.until("", "namespaces", told).await;
    let named = |all: &[Arc<Value>]| all.iter().any(|one| meta(one, "name") == "map");
    assert!(named(&cluster.list("", "configmaps")), "what pods may need is there while they are");
    let free = json!({"metadata": {"finalizers": null}});
    let path = "/api/v1/namespaces/doomed/pods/held";
    cluster.client.patch(path, PatchKind::Merge, &free).await.expect("a patch");
    cluster.until("", "configmaps", |all| !named(all)).await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_request_is_signed() {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let cluster = Cluster::start().await;
    let (csr, _) = crate::pki::request("system:node:n1", &["system:nodes"], &[], &[]);
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"metadata": {"name": "csr-1"}, "spec": {
        "request": encode(&csr), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }});
    cluster.create(path, request).await;
    let own = format!("{path}/csr-1");
    let mut request = cluster.client.get(&own).await.expect("the request");
    assert!(request["status"]["certificate"].is_null(), "nothing is signed unasked");
    request["status"]["conditions"] = json!([
        {"type": "Approved", "status": "True", "reason": "Test", "message": "by test"},
    ]);
    cluster.client.replace(&format!("{own}/approval"), &request).await.expect("an approval");
    let signed = |all: &[Arc<Value>]| all[0]["status"]["certificate"].is_string();
    cluster.until("certificates.k8s.io", "certificatesigningrequests", signed).await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_bootstrap_token_goes() {
    let cluster = Cluster::start().await;
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "expiration": "2026-11-21T09:02:00Z"},
    });
    cluster.create("/api/v1/namespaces/kube-system/secrets", secret).await;
    assert_eq!(cluster.list("", "secrets").len(), 1);
    cluster.until("", "secrets", |all| all.is_empty()).await;
    let time = cluster.server.clock().now().to_string();
    assert!(time.starts_with("2026-11-21T09:02:00"), "not before its time: {time}");
}

#[tokio::test(start_paused = true)]
async fn a_role_with_the_right_label_adds_to_the_aggregated_one() {
    let cluster = Cluster::start().await;
    let group = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]});
    let role = json!({
        "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [rule],
    });
    cluster.create(&format!("/apis/{group}/v1/clusterroles"), role).await;
    let in_all = |roles: &[Arc<Value>]| {
        let mut grown = roles.iter().filter(|role| role["aggregationRule"].is_object());
        grown.all(|role| {
            items(&role["rules"])
                .iter()
                .any(|one| items(&one["apiGroups"]).contains(&json!("example.com")))
        })
    };
    cluster.until(group, "clusterroles", in_all).await;
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_collected_with_their_owners() {
    let cluster = Cluster::start().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object"},
            }}],
        },
    });
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let path = "/apis/example.com/v1/namespaces/default/things";
    let thing = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
    let owner = cluster.client.create(path, &thing("owner")).await.expect("a thing");
    let mut owned = thing("owned");
    owned["metadata"]["ownerReferences"] = json!([super::object::controlled_by(&owner)]);
    cluster.create(path, owned).await;
    cluster.client.delete(&format!("{path}/owner"), &Value::Null).await.expect("a delete");
    cluster.until("example.com", "things", |all| all.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_expels_each_pod_when_its_patience_is_over() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let pod = |name: &str, tolerations: Value| {
        json!({"metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
            "tolerations": tolerations,
        }})
    };
    let bears =
        |seconds: Value| json!([{"key": "k", "operator": "Exists", "tolerationSeconds": seconds}]);
    let path = "/api/v1/namespaces/default/pods";
    cluster.create(path, pod("never", json!([]))).await;
    cluster.create(path, pod("a-while", bears(60.into()))).await;
    cluster.create(path, pod("always", bears(Value::Null))).await;
    cluster.until("", "pods", |pods| bound(pods) == 3).await;
    let _kubelet = cluster.kubelet();
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    cluster.client.patch("/api/v1/nodes/n1", PatchKind::Merge, &taint).await.expect("a patch");
    let since = cluster.server.clock().now();
    let names = |pods: &[Arc<Value>]| -> Vec<String> {
        pods.iter().map(|pod| meta(pod, "name").to_owned()).collect()
    };
    cluster.until("", "pods", |pods| names(pods) == ["a-while", "always"]).await;
    cluster.until("", "pods", |pods| names(pods) == ["always"]).await;
    let lasted = since.duration_until(cluster.server.clock().now()).as_secs();
    assert_eq!(lasted, 60, "it stays as long as it said");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_goes_in_time_expels_nobody() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let bears = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "registry.example/app:1"}], "tolerations": bears,
    }});
    cluster.create("/api/v1/namespaces/default/pods", pod).await;
    cluster.until("", "pods", |pods| bound(pods) == 1).await;
    let set = |taints: Value| {
        let patch = json!({"spec": {"taints": taints}});
        let client = cluster.client.clone();
        async move { client.patch("/api/v1/nodes/n1", PatchKind::Merge, &patch).await }
    };
    set(json!([{"key": "k", "effect": "NoExecute"}])).await.expect("a taint");
    tokio::time::sleep(Duration::from_secs(59)).await;
    set(Value::Null).await.expect("no taint");
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!is_deleting(&cluster.list("", "pods")[0]));
    set(json!([{"key": "k", "effect": "NoExecute"}])).await.expect("the taint again");
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!is_deleting(&cluster.list("", "pods")[0]), "its time begins anew");
    cluster.until("", "pods", |pods| is_deleting(&pods[0])).await;
    let reason = cluster.list("", "pods")[0]["status"]["conditions"].clone();
    let told = items(&reason).iter().any(|one| one["reason"] == "DeletionByTaintManager");
    assert!(told, "{reason}");
}
