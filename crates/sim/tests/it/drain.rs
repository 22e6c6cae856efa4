//! Pods behind a budget are not hurried, and who waits says for what.

use drover_sim::scenario::drain;
use drover_sim::stage::Stage;

#[tokio::test(start_paused = true)]
async fn a_pod_behind_a_budget_is_never_deleted_early() -> anyhow::Result<()> {
    drain::a_pod_behind_a_budget_is_never_deleted_early(&Stage::start().await?).await
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_the_workload_within_its_budget() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let fewest = drain::a_roll_keeps_the_workload_within_its_budget(&stage).await?;
    assert_eq!(fewest, 5, "the roll used the budget and did not go beyond it");
    Ok(())
}
