//! The story of the README, and what a pool survives in quiet times.

use super::at_work;
use crate::stage::Stage;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;

/// A pool comes, grows, rolls, loses a machine, is whole again, and goes.
///
/// # Errors
/// When a chapter does not end well.
pub async fn comes_grows_rolls_and_heals(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    let none = BTreeSet::new();

    stage.apply_example(2).await?;
    stage.whole(2, &none, stage.chapter).await?;
    stage.scale(5).await?;
    let old = stage.whole(5, &none, stage.chapter).await?.uids();
    stage.restart().await?;
    let rolled = stage.whole(5, &old, stage.chapter).await?;
    let victim = &rolled.machines[0];
    stage.machines().delete(&victim.name_any(), &DeleteParams::default()).await?;
    let healed = stage.whole(5, &victim.uid().into_iter().collect(), stage.chapter).await?;
    assert_eq!(healed.made_twice(), None);
    assert_eq!(healed.cloud.servers_made, 2 + 3 + 5 + 1, "each machine had one server");

    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &none, stage.chapter).await?;
    manager.end().await
}

/// A server that somebody deleted in the cloud is replaced, and no other.
///
/// # Errors
/// When it is not.
pub async fn a_lost_server_is_replaced(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(3).await?;
    let whole = stage.whole(3, &BTreeSet::new(), stage.chapter).await?;
    let lost = &whole.cloud.servers[0];
    assert!(stage.cloud()?.vanish(&lost.id));
    let machine = whole.machines.iter().find(|it| it.name_any() == lost.name);
    let old = machine.and_then(ResourceExt::uid).into_iter().collect();
    let healed = stage.whole(3, &old, stage.chapter).await?;
    assert_eq!(healed.cloud.servers_made, 4, "only the lost one was made anew");
    manager.end().await
}

/// A status that a user wrote over is put right, and nothing is made anew for it.
///
/// # Errors
/// When it is not.
pub async fn a_status_of_a_users_is_put_right(stage: &Stage) -> anyhow::Result<()> {
    let manager = at_work(stage)?;
    stage.apply_example(1).await?;
    let whole = stage.whole(1, &BTreeSet::new(), stage.chapter).await?;
    let name = whole.machines[0].name_any();
    let garbage = json!({"status": {"phase": "Failed", "errorMessage": "no", "conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Mood", "message": "?"},
    ], "providerStatus": null, "nodeRef": null}});
    let merge = PatchParams::default();
    stage.machines().patch_status(&name, &merge, &Patch::Merge(&garbage)).await?;
    let counts = json!({"status": {"replicas": 77, "availableReplicas": 99}});
    stage.pools().patch_status("nodes", &merge, &Patch::Merge(&counts)).await?;
    tokio::time::sleep(stage.a_while).await;
    let healed = stage.whole(1, &BTreeSet::new(), stage.chapter).await?;
    assert_eq!((healed.made_twice(), healed.cloud.servers_made), (None, 1));
    manager.end().await
}
