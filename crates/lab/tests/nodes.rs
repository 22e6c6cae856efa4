//! Servers become Nodes from their user-data alone, and Nodes follow their servers, in a world without sockets.

#[path = "nodes/fixture.rs"]
mod fixture;

use drover_lab::client::PatchKind;
use drover_lab::clock::Pace;
use drover_lab::dial::{DialError, Dialer};
use drover_lab::kubelet::STOP_SECONDS;
use drover_lab::world;
use fixture::{Lab, flatcar, ubuntu};
use serde_json::{Value, json};
use std::time::Duration;

fn condition<'a>(node: &'a Value, kind: &str) -> &'a str {
    let conditions = node["status"]["conditions"].as_array();
    let all = conditions.map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == *kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("")
}

fn taints(node: &Value) -> Vec<&str> {
    let all = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|taint| taint["key"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_with_good_user_data_becomes_a_ready_node() {
    for (name, user_data) in
        [("ubuntu-1", ubuntu as fn(&Lab, &str) -> String), ("flatcar-1", flatcar)]
    {
        let lab = Lab::start().await;
        lab.approve_all();
        let id = lab.boot(name, &user_data(&lab, name)).await;
        let node = lab
            .node(name, "Ready and initialised", |node| {
                condition(node, "Ready") == "True" && !node["spec"]["providerID"].is_null()
            })
            .await;
        assert_eq!(node["spec"]["providerID"], format!("openstack:///{id}"));
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["topology.kubernetes.io/zone"], "dbl1");
        assert_eq!(labels["topology.kubernetes.io/region"], "dbl");
        assert_eq!(labels["node.kubernetes.io/instance-type"], "m1.small");
        assert_eq!(labels["kubernetes.io/hostname"], *name);
        let kinds: Vec<_> = node["status"]["addresses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|address| address["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["InternalIP", "Hostname"]);
        let node = lab.node(name, "without the taints of its start", |node| {
            taints(node).iter().all(|key| *key == "node.syseleven.de/not-ready")
        });
        let kept = node.await;
        let told = if name == "ubuntu-1" { &["node.syseleven.de/not-ready"][..] } else { &[] };
        assert_eq!(taints(&kept), told, "only what the kubelet was told stays for others to lift");
        assert!(lab.seconds() < 300, "minutes, not hours: {} s", lab.seconds());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_asks_for_both_certificates_in_its_own_name() {
    let lab = Lab::start().await;
    lab.approve_all();
    lab.boot("n", &ubuntu(&lab, "n")).await;
    let requests = lab
        .eventually("two certificates", async || {
            let all = lab.list("/apis/certificates.k8s.io/v1/certificatesigningrequests").await;
            let issued = all.iter().filter(|one| one["status"]["certificate"].is_string()).count();
            (issued == 2).then_some(all)
        })
        .await;
    let of = |signer: &str| requests.iter().find(|one| one["spec"]["signerName"] == *signer);
    let client = of("kubernetes.io/kube-apiserver-client-kubelet").unwrap();
    assert_eq!(client["spec"]["username"], "system:bootstrap:abcdef");
    let serving = of("kubernetes.io/kubelet-serving").unwrap();
    assert_eq!(serving["spec"]["username"], "system:node:n");
    let csr = fixture::decode(serving["spec"]["request"].as_str().unwrap());
    let asked = drover_lab::pki::parse(&csr).unwrap();
    assert_eq!(
        (asked.common_name.as_str(), &asked.organizations[..]),
        ("system:node:n", &["system:nodes".to_owned()][..])
    );
    assert_eq!(asked.dns_names, ["n"]);
    let node = lab.admin.get("/api/v1/nodes/n").await.unwrap();
    assert_eq!(node["status"]["addresses"][0]["address"], asked.addresses[0].to_string());
}

#[tokio::test(start_paused = true)]
async fn broken_user_data_never_makes_a_node_and_the_console_says_why() {
    let lab = Lab::start().await;
    lab.approve_all();
    let good = ubuntu(&lab, "x");
    let other = world::World::start(world::Config::in_process()).await.unwrap();
    let own_ca = fixture::encode(lab.world.ca_pem());
    let cases = [
        ("no-token", good.replace("abcdef.0123456789abcdef", ""), "the user has no token"),
        ("wrong-token", good.replace("0123456789abcdef", "0123456789abcdee"), "Unauthorized"),
        (
            "bad-ca",
            good.replace(&own_ca, &fixture::encode(other.ca_pem())),
            "certificate signed by unknown authority",
        ),
        ("no-host", good.replace("api.lab", "api.elsewhere"), "no such host"),
        (
            "not-enabled",
            good.replace("systemctl enable --now kubelet", "true"),
            "kubelet.service is neither enabled nor started",
        ),
        (
            "not-installed",
            good.replace("for bin in kubelet kubectl", "for bin in kubectl"),
            "Unable to locate executable '/opt/bin/kubelet'",
        ),
        ("no-yaml", good.replace("runcmd:", "runcmd: }"), "Failed loading yaml blob"),
        ("empty", String::new(), "no user-data"),
    ];
    let mut servers = Vec::new();
    for (name, user_data, why) in &cases {
        let user_data = user_data.replace("hostname: x", &format!("hostname: {name}"));
        servers.push((lab.boot(name, &user_data).await, why));
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(lab.list("/api/v1/nodes").await, [] as [Value; 0]);
    for (server, why) in servers {
        let console = lab.console(&server).await;
        assert!(console.contains(why), "expected {why:?} in:\n{console}");
    }
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_without_an_approval_waits() {
    let lab = Lab::start().await;
    lab.boot("n", &ubuntu(&lab, "n")).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(lab.list("/api/v1/nodes").await, [] as [Value; 0]);
    lab.approve_all();
    lab.node("n", "Ready", |node| condition(node, "Ready") == "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_its_grace_and_no_more() {
    let lab = Lab::start().await;
    lab.approve_all();
    lab.boot("n", &ubuntu(&lab, "n")).await;
    lab.node("n", "Ready", |node| condition(node, "Ready") == "True").await;
    for (name, stop, grace, expect) in [
        ("quick", "2", &[30][..], 2),
        ("stubborn", "3600", &[30], 30),
        ("hurried", "3600", &[30, 7], 7),
        ("killed", "3600", &[0], 0),
    ] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {STOP_SECONDS: stop}},
            "spec": {
                "nodeName": "n", "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "c", "image": "registry.example/app:1"}],
            },
        });
        lab.admin.create("/api/v1/namespaces/default/pods", &pod).await.unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let running = lab
            .eventually("a pod that runs", async || {
                let pod = lab.admin.get(&path).await.unwrap();
                (condition(&pod, "Ready") == "True").then_some(pod)
            })
            .await;
        assert_eq!(running["status"]["phase"], "Running");
        assert!(running["status"]["podIP"].is_string());
        for grace in grace {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace,
            });
            lab.admin.delete(&path, &options).await.unwrap();
        }
        let before = lab.seconds();
        lab.eventually("a pod that is gone", async || {
            lab.admin.get(&path).await.err().filter(|error| error.is_not_found())
        })
        .await;
        let took = lab.seconds() - before;
        assert!((expect..=expect + 2).contains(&took), "{name}: {took} s instead of {expect} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_follows_its_server() {
    let lab = Lab::start().await;
    lab.approve_all();
    let first = lab.boot("first", &ubuntu(&lab, "first")).await;
    let second = lab.boot("second", &ubuntu(&lab, "second")).await;
    for name in ["first", "second"] {
        lab.node(name, "Ready", |node| {
            condition(node, "Ready") == "True" && !node["spec"]["providerID"].is_null()
        })
        .await;
    }
    lab.delete_server(&first).await;
    lab.eventually("a Node that is gone", async || {
        lab.admin.get("/api/v1/nodes/first").await.err().filter(|error| error.is_not_found())
    })
    .await;

    lab.act(&second, "os-stop").await;
    let off = lab.node("second", "Unknown", |node| condition(node, "Ready") == "Unknown").await;
    let off = if taints(&off).contains(&"node.cloudprovider.kubernetes.io/shutdown") {
        off
    } else {
        lab.node("second", "marked as shut down", |node| {
            taints(node).contains(&"node.cloudprovider.kubernetes.io/shutdown")
        })
        .await
    };
    lab.act(&second, "os-start").await;
    let on = lab
        .node("second", "back", |node| {
            condition(node, "Ready") == "True" && taints(node).len() == 1
        })
        .await;
    assert_eq!(on["metadata"]["uid"], off["metadata"]["uid"], "the same Node came back");
    assert_ne!(
        on["status"]["nodeInfo"]["bootID"], off["status"]["nodeInfo"]["bootID"],
        "after another boot"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_deleted_is_not_brought_back() {
    let lab = Lab::start().await;
    lab.approve_all();
    lab.boot("n", &ubuntu(&lab, "n")).await;
    lab.node("n", "Ready", |node| condition(node, "Ready") == "True").await;
    lab.admin.delete("/api/v1/nodes/n", &Value::Null).await.unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(lab.list("/api/v1/nodes").await, [] as [Value; 0]);
}

#[tokio::test]
async fn over_tls_a_client_is_who_its_certificate_says_and_trusts_one_authority() {
    // Certificates are checked against the real clock on the network.
    let mut config = world::Config::loopback(jiff::Timestamp::now());
    config.pace = Pace(500.0);
    let lab = Lab::of(config).await;
    lab.approve_all();
    lab.boot("n", &ubuntu(&lab, "n")).await;
    let world = &lab.world;
    let access = world.plane().access();
    let jane = access.client().unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    jane.create(maps, &map).await.unwrap();
    let data = json!({"data": {"k": "v"}});
    let patched = jane.patch(&format!("{maps}/a"), PatchKind::Merge, &data).await.unwrap();
    assert_eq!(patched["data"]["k"], "v");

    let other = drover_lab::pki::Authority::new(&world.clock());
    let stranger = Dialer::Tls.dial(world.api_url(), other.ca_pem(), &access.who).unwrap();
    let error = stranger.get("/api").await.unwrap_err();
    assert_eq!(error.code, 0);
    assert!(error.message.contains("invalid peer certificate"), "{error}");
    let nonsense = Dialer::Tls.dial("http://a", other.ca_pem(), &access.who);
    assert!(matches!(nonsense.err(), Some(DialError::Server(_))));
    lab.node("n", "Ready", |node| condition(node, "Ready") == "True").await;
    lab.world.stop().await;
}
