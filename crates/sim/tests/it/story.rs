//! The story of the README, without a socket and without waiting.

use drover_sim::faults::Life;
use drover_sim::stage::Stage;
use kube::ResourceExt;
use kube::api::DeleteParams;
use std::collections::BTreeSet;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_pool_comes_grows_rolls_and_heals() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let none = BTreeSet::new();

    stage.apply_example(2).await?;
    stage.whole(2, &none, CHAPTER).await?;
    stage.scale(5).await?;
    let old = stage.whole(5, &none, CHAPTER).await?.uids();
    stage.restart().await?;
    let rolled = stage.whole(5, &old, CHAPTER).await?;
    let victim = &rolled.machines[0];
    stage.machines().delete(&victim.name_any(), &DeleteParams::default()).await?;
    let healed = stage.whole(5, &victim.uid().into_iter().collect(), CHAPTER).await?;
    assert_eq!(healed.made_twice(), None);
    assert_eq!(healed.cloud.servers_made, 2 + 3 + 5 + 1, "each machine had one server");

    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &none, CHAPTER).await?;
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_server_deleted_behind_our_back_is_replaced() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(3).await?;
    let whole = stage.whole(3, &BTreeSet::new(), CHAPTER).await?;
    let lost = &whole.cloud.servers[0];
    assert!(stage.world.cloud().vanish(&lost.id));
    let machine = whole.machines.iter().find(|it| it.name_any() == lost.name);
    let old = machine.and_then(ResourceExt::uid).into_iter().collect();
    let healed = stage.whole(3, &old, CHAPTER).await?;
    assert_eq!(healed.cloud.servers_made, 4, "only the lost one was made anew");
    manager.end().await
}
