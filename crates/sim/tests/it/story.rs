//! The story of the README, without a socket and without waiting.

use drover_sim::scenario::story;
use drover_sim::stage::Stage;

#[tokio::test(start_paused = true)]
async fn a_pool_comes_grows_rolls_and_heals() -> anyhow::Result<()> {
    story::comes_grows_rolls_and_heals(&Stage::start().await?).await
}

#[tokio::test(start_paused = true)]
async fn a_server_deleted_behind_our_back_is_replaced() -> anyhow::Result<()> {
    story::a_lost_server_is_replaced(&Stage::start().await?).await
}
