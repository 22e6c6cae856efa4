//! How pools end: amid their birth, with their namespace, or without their machines.

use super::at_work;
use crate::stage::Stage;
use drover_api::MachineDeployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// A pool that is deleted while it is made leaves nothing.
///
/// # Errors
/// When something is left.
pub async fn deleted_while_it_is_made(stage: &Stage, after: Duration) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(3).await?;
    tokio::time::sleep(after).await;
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), stage.chapter).await?;
    tokio::time::sleep(stage.a_while).await;
    assert!(stage.census().await?.cloud.is_empty(), "deleted after {after:?}");
    manager.end().await
}

/// A namespace that is deleted goes when its pools are gone.
///
/// # Errors
/// When it does not.
pub async fn a_namespace_goes_with_its_pools(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    stage.create(&namespace).await?;
    let mut pool: MachineDeployment = stage.example().await?;
    pool.metadata.namespace = Some("team".to_owned());
    let pools = Api::<MachineDeployment>::namespaced(stage.admin.clone(), "team");
    pools.create(&PostParams::default(), &pool).await?;
    pool.metadata.name = Some("others".to_owned());
    pools.create(&PostParams::default(), &pool).await?;
    stage.until("four nodes", async |stage| Ok(stage.census().await?.nodes.len() == 4)).await?;
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    namespaces.delete("team", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), stage.chapter).await?;
    let is_gone = async |_: &Stage| Ok(namespaces.get_opt("team").await?.is_none());
    stage.until("the end of the namespace", is_gone).await?;
    manager.end().await
}

/// A pool deleted as an orphan maker leaves its machines, and finds them again.
///
/// # Errors
/// When machines go, or are made anew.
pub async fn orphans_are_adopted_again(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(2).await?;
    let machines = stage.whole(2, &BTreeSet::new(), stage.chapter).await?.uids();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    stage.pools().delete("nodes", &orphan).await?;
    let is_gone = async |stage: &Stage| Ok(stage.pools().get_opt("nodes").await?.is_none());
    stage.until("the end of the pool", is_gone).await?;
    tokio::time::sleep(stage.a_while).await;
    assert_eq!(stage.census().await?.uids(), machines, "its machines are still there");
    stage.apply_example(2).await?;
    let adopted = stage.whole(2, &BTreeSet::new(), stage.chapter).await?;
    tokio::time::sleep(stage.a_while).await;
    assert_eq!(stage.census().await?.uids(), machines, "the same template needs no other machines");
    assert_eq!(adopted.cloud.servers_made, 2);
    manager.end().await
}
