//! Pods behind a budget are not hurried, and who waits says for what.

use super::at_work;
use crate::stage::{NAMESPACE, Stage};
use anyhow::Context;
use drover_plan::drain::is_ready;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

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
    let deadline = tokio::time::Instant::now() + stage.chapter;
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

/// A pod that its budget holds is neither evicted nor deleted, and goes as soon as the budget lets it.
///
/// # Errors
/// When the machine is not replaced in the end.
pub async fn a_pod_behind_a_budget_is_never_deleted_early(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(2).await?;
    let whole = stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    stage.create(&workload(1)).await?;
    stage.create(&budget(1)).await?;
    let pod = running(stage, 1).await?.remove(0);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let machine = whole.machines.iter().find(|it| it.name_any() == node).context("its machine")?;
    let machine = machine.name_any();

    stage.machines().delete(&machine, &DeleteParams::default()).await?;
    let words = [pod.name_any(), "web".to_owned()];
    let says_so = async |stage: &Stage| {
        let status = stage.machines().get(&machine).await?.status.unwrap_or_default();
        let drained = status.conditions.iter().find(|it| it.type_ == "Drained");
        Ok(drained.is_some_and(|it| {
            it.status.as_str() == "False" && words.iter().all(|word| it.message.contains(word))
        }))
    };
    stage.until("a condition that names pod and budget", says_so).await?;
    tokio::time::sleep(stage.a_while * 2).await;
    let now = web_pods(stage).await?;
    assert_eq!(now[0].uid(), pod.uid(), "the pod is the same one, a while later");
    assert!(now[0].metadata.deletion_timestamp.is_none());
    let waiting = stage.machines().get(&machine).await?;

    let relaxed = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    stage.api(&budget(0)).patch("web", &PatchParams::default(), &relaxed).await?;
    stage.whole(2, &waiting.uid().into_iter().collect(), stage.chapter).await?;
    let moved = running(stage, 1).await?;
    assert_ne!(moved[0].uid(), pod.uid(), "the pod was evicted and runs elsewhere");
    manager.end().await
}

/// A pod that is allowed an hour to stop is asked to leave with the ten minutes that its node's drain has left.
///
/// # Errors
/// When the machine is not replaced in the end.
pub async fn a_pod_is_asked_with_the_grace_that_is_left(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(2).await?;
    stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    let mut slow = workload(1);
    let template = &mut slow["spec"]["template"];
    template["metadata"]["annotations"] = json!({ "lab.drover.dev/stop-seconds": "600" });
    template["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    stage.create(&slow).await?;
    let pod = running(stage, 1).await?.remove(0);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let timeout = Patch::Merge(json!({ "spec": { "drainTimeout": "10m" } }));
    let machine = stage.machines().patch(&node, &PatchParams::default(), &timeout).await?;
    stage.machines().delete(&node, &DeleteParams::default()).await?;
    let pods = Api::<Pod>::namespaced(stage.admin.clone(), NAMESPACE);
    let asked = async |_: &Stage| {
        let now = pods.get(&pod.name_any()).await?;
        assert_eq!(now.uid(), pod.uid(), "it was gone before it could be seen to go");
        let grace = now.metadata.deletion_grace_period_seconds;
        assert!(grace.is_none_or(|grace| (1..=600).contains(&grace)), "{grace:?} s");
        Ok(grace.is_some())
    };
    stage.until("pod that is asked to leave", asked).await?;
    stage.whole(2, &machine.uid().into_iter().collect(), stage.chapter).await?;
    manager.end().await
}

/// A roll of the pool never takes more pods than the workload's budget allows; the fewest that were Ready.
///
/// # Errors
/// When the roll does not end.
pub async fn a_roll_keeps_the_workload_within_its_budget(stage: &Stage) -> anyhow::Result<usize> {
    let manager = at_work(stage)?;
    stage.apply_example(3).await?;
    let old = stage.whole(3, &BTreeSet::new(), stage.chapter).await?.uids();
    stage.create(&workload(6)).await?;
    stage.create(&budget(5)).await?;
    running(stage, 6).await?;
    stage.restart().await?;
    let mut fewest = usize::MAX;
    let deadline = tokio::time::Instant::now() + stage.chapter;
    while let Some(missing) = stage.census().await?.missing(3, &old) {
        let ready = web_pods(stage).await?.iter().filter(|pod| is_ready(pod)).count();
        fewest = fewest.min(ready);
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "the roll does not end: {missing}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(fewest >= 5, "{fewest} of 6 pods were Ready, and the budget wants 5");
    manager.end().await?;
    Ok(fewest)
}
