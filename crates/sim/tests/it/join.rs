//! How servers become nodes, and what their nodes carry.

use crate::manifests::{good, with};
use crate::workload::{condition, node_of, pods, until, workload};
use drover_api::{Machine, Phase};
use drover_sim::faults::Life;
use drover_sim::stage::{NAMESPACE, Stage, Working};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

async fn start() -> anyhow::Result<(Stage, Working)> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    Ok((stage, manager))
}

/// A pool of two with this at one place of its spec, up and ready.
async fn pool(stage: &Stage, at: &str, value: Value) -> anyhow::Result<Value> {
    let pool = with(good("MachineDeployment", "nodes"), at, value);
    stage.create(&pool).await?;
    stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    Ok(pool)
}

async fn change(stage: &Stage, object: &Value, patch: Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    stage.api(object).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn nodes(stage: &Stage) -> anyhow::Result<Vec<Node>> {
    Ok(stage.nodes().list(&Default::default()).await?.items)
}

async fn machines(stage: &Stage) -> anyhow::Result<Vec<Machine>> {
    Ok(stage.machines().list(&Default::default()).await?.items)
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.into_iter().map(|it| format!("{}:{}", it.key, it.effect)).collect()
}

/// Gardener 10.3 scenario 40: a change of labels, taints and `drainTimeout` makes no new set; the machines
/// and nodes that are there get the values.
#[tokio::test(start_paused = true)]
async fn gardener_40_a_template_neutral_change_replaces_nothing() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let pool = pool(&stage, "/spec/strategy", json!({"inPlace": "WhenPossible"})).await?;
    let before = stage.census().await?.uids();
    let labels = |labels: Value, taints: Value| {
        json!({"spec": {"template": {"spec": {
            "metadata": {"labels": labels}, "taints": taints, "drainTimeout": "30m",
        }}}})
    };
    let taint = json!([{"key": "team", "value": "a", "effect": "PreferNoSchedule"}]);
    change(&stage, &pool, labels(json!({"tier": "gold", "a": "1"}), taint)).await?;
    stage
        .until("node with the new label and taint", async |stage| {
            Ok(nodes(stage).await?.iter().all(|node| {
                node.labels().get("tier").is_some_and(|tier| tier == "gold")
                    && taints(node) == ["team:PreferNoSchedule"]
            }))
        })
        .await?;
    for node in nodes(&stage).await? {
        let foreign = json!({"metadata": {"labels": {"x": "9"}}});
        let params = PatchParams::default();
        stage.nodes().patch(&node.name_any(), &params, &Patch::Merge(foreign)).await?;
    }
    change(&stage, &pool, labels(json!({"tier": "silver", "a": null}), json!(null))).await?;
    stage
        .until("node that followed", async |stage| {
            Ok(nodes(stage).await?.iter().all(|node| {
                node.labels().get("tier").is_some_and(|tier| tier == "silver")
                    && !node.labels().contains_key("a")
                    && taints(node).is_empty()
            }))
        })
        .await?;
    assert!(nodes(&stage).await?.iter().all(|node| node.labels()["x"] == "9"), "foreign keys stay");
    for machine in machines(&stage).await? {
        assert_eq!(machine.spec.drain_timeout.map(|it| it.to_string()).as_deref(), Some("30m"));
    }
    let census = stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    assert_eq!((census.uids(), census.cloud.servers_made), (before, 2));
    let sets = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"namespace": NAMESPACE}});
    assert_eq!(stage.api(&sets).list(&Default::default()).await?.items.len(), 1, "one set serves");
    manager.end().await
}

/// The secrets that the servers of now were given, by the servers' names.
fn tokens(stage: &Stage) -> anyhow::Result<BTreeMap<String, String>> {
    let cloud = stage.cloud()?;
    let guests = cloud.ledger().servers.into_iter().filter_map(|server| cloud.guest(&server.id));
    let token = |user_data: &[u8]| {
        let text = String::from_utf8_lossy(user_data).into_owned();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
        line.expect("each server has a token").to_owned()
    };
    Ok(guests.map(|guest| (guest.name.clone(), token(&guest.user_data))).collect())
}

/// Gardener 10.3 scenario 11: as many tokens as machines, whatever their names have in common, and every
/// machine joins.
#[tokio::test(start_paused = true)]
async fn gardener_11_a_thousand_machines_at_once_have_a_thousand_tokens_and_all_join()
-> anyhow::Result<()> {
    const MACHINES: usize = 1000;
    let (stage, manager) = start().await?;
    stage.apply_example(u32::try_from(MACHINES)?).await?;
    let census = stage.whole(MACHINES, &BTreeSet::new(), stage.chapter).await?;
    let tokens = tokens(&stage)?;
    let distinct: BTreeSet<&String> = tokens.values().collect();
    let ids: BTreeSet<&str> = tokens.values().filter_map(|token| token.split('.').next()).collect();
    assert_eq!((tokens.len(), distinct.len(), ids.len()), (MACHINES, MACHINES, MACHINES));
    assert_eq!((census.tokens, census.made_twice()), (0, None), "what was used is gone");
    manager.end().await
}

/// MetaKube 9.2 scenario 38: after two idle hours a new machine joins with a token of its own.
#[tokio::test(start_paused = true)]
async fn metakube_38_a_pool_that_was_idle_grows_with_fresh_tokens() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(1).await?;
    stage.whole(1, &BTreeSet::new(), stage.chapter).await?;
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    stage.scale(2).await?;
    stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    assert_eq!(tokens(&stage)?.values().collect::<BTreeSet<_>>().len(), 2);
    manager.end().await
}

/// No kubelet may ask for a certificate any more, so no server becomes a node.
async fn nobody_joins(stage: &Stage) -> anyhow::Result<()> {
    let binding =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"});
    // The cluster's own, and Drover's.
    for name in ["kubelet-bootstrap", "drover:node-bootstrapper"] {
        stage.api(&binding).delete(name, &Default::default()).await?;
    }
    Ok(())
}

/// MetaKube 9.2 scenario 17, Gardener 10.3 scenarios 4 and 5: at the deadline, counted from its birth, a machine
/// without a Node is Failed; its set makes another, a standalone one is kept and says so. Its token is gone.
#[tokio::test(start_paused = true)]
async fn gardener_5_metakube_17_a_server_that_never_joins_is_replaced_and_a_standalone_machine_kept()
-> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    nobody_joins(&stage).await?;
    let timeout = json!("19m");
    stage.create(&with(good("Machine", "alone"), "/spec/creationTimeout", timeout)).await?;
    stage.create(&with(good("MachineSet", "set"), "/spec/replicas", json!(1))).await?;
    stage.until("two tokens", async |stage| Ok(stage.census().await?.tokens == 2)).await?;
    let first: BTreeSet<String> = machines(&stage).await?.iter().map(|it| it.name_any()).collect();
    assert_eq!(first.len(), 2);
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    let alone = stage.machines().get("alone").await?.status.unwrap_or_default();
    assert_eq!(alone.phase, Some(Phase::Failed));
    let message = alone.failure_message.unwrap_or_default();
    assert!(message.contains("no set replaces it, so it stays"), "{message}");
    assert_eq!(stage.census().await?.tokens, 1, "the token of the other one");
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    let later: BTreeSet<String> = machines(&stage).await?.iter().map(|it| it.name_any()).collect();
    let kept: Vec<&String> = first.intersection(&later).collect();
    assert_eq!((kept, later.len()), (vec![&"alone".to_owned()], 2), "the set's was replaced");
    manager.end().await
}

/// A token lives as long as its machine may join, also when it was given more time.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_more_time_joins_with_the_token_it_has() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "drover:node-bootstrapper"}});
    let mut granted =
        serde_json::to_value(stage.api(&binding).get("drover:node-bootstrapper").await?)?;
    nobody_joins(&stage).await?;
    let alone = good("Machine", "alone");
    stage.create(&alone).await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    change(&stage, &alone, json!({"spec": {"creationTimeout": "6h"}})).await?;
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    for field in ["resourceVersion", "uid"] {
        granted["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    stage.create(&granted).await?;
    stage.until("node after five hours", async |stage| Ok(nodes(stage).await?.len() == 1)).await?;
    manager.end().await
}

/// A DaemonSet that the startup taint waits for, on all nodes.
fn critical(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "registry.example/cni:1"}],
                },
            },
        },
    })
}

/// MetaKube 9.2 scenario 34: before the critical pods of a node are Ready no ordinary pod lands there and its
/// machine is not available; then the taint goes, once.
#[tokio::test(start_paused = true)]
async fn metakube_34_ordinary_pods_wait_for_the_critical_ones() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.create(&critical("agent")).await?;
    stage.create(&workload("web", 2)).await?;
    stage.apply_example(1).await?;
    let landed = until("a pod of web has a node", async || {
        let tainted = nodes(&stage).await?.iter().any(|node| {
            taints(node).iter().any(|it| it.starts_with("node.syseleven.de/not-ready"))
        });
        let landed = pods(&stage, "web").await?.iter().any(|pod| !node_of(pod).is_empty());
        let available = stage.census().await?.available;
        let critical = pods(&stage, "agent").await?;
        let ready = !critical.is_empty() && critical.iter().all(drover_plan::drain::is_ready);
        anyhow::ensure!(
            ready || (!landed && available == 0),
            "landed {landed}, available {available}"
        );
        anyhow::ensure!(!tainted || !landed, "a pod landed beside the taint");
        Ok(landed.then_some(()))
    });
    landed.await?;
    let node = nodes(&stage).await?.remove(0);
    let again = json!({"spec": {"taints": [{"key": "node.syseleven.de/not-ready", "effect": "NoSchedule"}]}});
    let params = PatchParams::default();
    stage.nodes().patch(&node.name_any(), &params, &Patch::Merge(again)).await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let node = nodes(&stage).await?.remove(0);
    assert_eq!(taints(&node), ["node.syseleven.de/not-ready:NoSchedule"], "a user's taint stays");
    manager.end().await
}

/// A kubelet that does not go with the API server (the lab's is 1.33) gets no server, and is told the rule.
#[tokio::test(start_paused = true)]
async fn a_kubelet_outside_the_version_skew_gets_no_server() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    for (name, kubelet) in [("new", "1.34.0"), ("old", "1.29.9"), ("good", "1.33.1")] {
        let machine = with(good("Machine", name), "/spec/versions/kubelet", json!(kubelet));
        stage.create(&machine).await?;
    }
    stage.until("the good node", async |stage| Ok(nodes(stage).await?.len() == 1)).await?;
    tokio::time::sleep(stage.a_while).await;
    for (name, word) in [("new", "newer than the API server"), ("old", "too old")] {
        let machine = stage.machines().get(name).await?;
        let configured = condition(&machine, "Configured");
        assert_eq!(configured.reason, "VersionSkew");
        let rule = "Kubernetes allows a kubelet from 1.30 to 1.33";
        assert!(
            configured.message.contains(word) && configured.message.contains(rule),
            "{configured:?}"
        );
    }
    assert_eq!(stage.census().await?.cloud.servers_made, 1);
    manager.end().await
}

/// Mirantis: a label that the Cluster does not list keeps the server away until it does.
#[tokio::test(start_paused = true)]
async fn node_labels_are_checked_against_the_cluster() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let cluster = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "child", "namespace": NAMESPACE}, "spec": {}});
    stage.create(&cluster).await?;
    let allow = async |keys: Value| {
        let status = json!({"status": {"providerStatus": {"releaseRefs": {"current": {
            "allowedNodeLabels": keys}}}}});
        let clusters = stage.api(&cluster);
        clusters.patch_status("child", &PatchParams::default(), &Patch::Merge(status)).await
    };
    allow(json!([{"key": "other"}])).await?;
    let machine = with(
        good("Machine", "m1"),
        "/spec/providerSpec",
        json!({"value": {
            "apiVersion": "openstackproviderconfig.k8s.io/v1alpha1", "kind": "OpenstackMachineProviderSpec",
            "image": "Ubuntu Noble 24.04 (2024-08-01)", "flavor": "m1.small",
            "nodeLabels": [{"key": "stacklight", "value": "enabled"}],
        }}),
    );
    let labels = json!({"cluster.sigs.k8s.io/cluster-name": "child"});
    stage.create(&with(machine, "/metadata/labels", labels)).await?;
    stage
        .until("refusal", async |stage| {
            let machine = stage.machines().get("m1").await?;
            Ok(condition(&machine, "Configured").reason == "LabelNotAllowed")
        })
        .await?;
    assert_eq!(stage.census().await?.cloud.servers_made, 0);
    allow(json!([{"key": "stacklight"}])).await?;
    stage
        .until("node with the label", async |stage| {
            Ok(nodes(stage).await?.iter().any(|it| it.labels().contains_key("stacklight")))
        })
        .await?;
    manager.end().await
}

/// Who owns a label of a Node, by the names and operations of managers.
fn owners(node: &Node, label: &str) -> BTreeSet<String> {
    let field = format!("f:{label}");
    let entries = node.metadata.managed_fields.iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:metadata"]["f:labels"].get(&field).is_some())
    });
    entries
        .map(|entry| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {}", part(&entry.manager), part(&entry.operation))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_labels_of_the_template_are_drovers_by_server_side_apply() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    pool(&stage, "/spec/template/spec/metadata", json!({"labels": {"tier": "gold"}})).await?;
    for node in nodes(&stage).await? {
        assert!(owners(&node, "tier").contains("drover Apply"), "{:?}", owners(&node, "tier"));
        assert_eq!(node.labels()["tier"], "gold");
    }
    manager.end().await
}
