//! Pods behind a budget are not hurried, and who waits says for what.

use drover_plan::drain::is_ready;
use drover_sim::faults::Life;
use drover_sim::stage::{NAMESPACE, Stage};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(3600);

fn workload(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "registry.example/web:1" }] },
            },
        },
    })
}

fn budget(min_available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": "web" } } },
    })
}

async fn web_pods(stage: &Stage) -> anyhow::Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(stage.admin.clone(), NAMESPACE);
    Ok(pods.list(&ListParams::default().labels("app=web")).await?.items)
}

async fn running(stage: &Stage, count: usize) -> anyhow::Result<Vec<Pod>> {
    let deadline = tokio::time::Instant::now() + CHAPTER;
    loop {
        let pods = web_pods(stage).await?;
        if pods.iter().filter(|pod| is_ready(pod)).count() == count && pods.len() == count {
            return Ok(pods);
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "the workload never had exactly {count} Ready pods, but {pods:#?}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_behind_a_budget_is_never_deleted_early() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(2).await?;
    let whole = stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    stage.create(&workload(1)).await?;
    stage.create(&budget(1)).await?;
    let pod = running(&stage, 1).await?.remove(0);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let machine = whole.machines.iter().find(|it| it.name_any() == node).expect("its machine");

    stage.machines().delete(&machine.name_any(), &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let waiting = stage.machines().get(&machine.name_any()).await?;
    let status = waiting.status.clone().unwrap_or_default();
    let drained = status.conditions.iter().find(|it| it.type_ == "Drained").expect("a condition");
    assert_eq!(drained.status.as_str(), "False");
    for word in [pod.name_any().as_str(), "web"] {
        assert!(drained.message.contains(word), "{word} is not in {:?}", drained.message);
    }
    let now = web_pods(&stage).await?;
    assert_eq!(now[0].uid(), pod.uid(), "the pod is the same one, half an hour later");
    assert!(now[0].metadata.deletion_timestamp.is_none());

    let relaxed = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    stage.api(&budget(0)).patch("web", &PatchParams::default(), &relaxed).await?;
    stage.whole(2, &waiting.uid().into_iter().collect(), CHAPTER).await?;
    let moved = running(&stage, 1).await?;
    assert_ne!(moved[0].uid(), pod.uid(), "the pod was evicted and runs elsewhere");
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_the_workload_within_its_budget() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(3).await?;
    let old = stage.whole(3, &BTreeSet::new(), CHAPTER).await?.uids();
    stage.create(&workload(6)).await?;
    stage.create(&budget(5)).await?;
    running(&stage, 6).await?;
    stage.restart().await?;
    let mut fewest = usize::MAX;
    while stage.census().await?.missing(3, &old).is_some() {
        let ready = web_pods(&stage).await?.iter().filter(|pod| is_ready(pod)).count();
        fewest = fewest.min(ready);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(fewest, 5, "the roll used the budget and did not go beyond it");
    manager.end().await
}
