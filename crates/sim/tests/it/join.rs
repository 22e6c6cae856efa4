//! How servers become nodes, and what their nodes carry.

use crate::manifests::{good, with};
use drover_api::Machine;
use drover_sim::faults::Life;
use drover_sim::stage::{NAMESPACE, Stage, Working};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
