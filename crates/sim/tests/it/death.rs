//! The manager is killed after every single call that changes anything, and another takes its place.

use drover_sim::scenario::restart;
use drover_sim::stage::Stage;

#[tokio::test(start_paused = true)]
async fn no_death_while_creating_makes_two_servers_or_loses_anything() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let life = restart::while_creating(&stage, at).await?;
        if life.calls() < at {
            assert!(at > 20, "a creation is more than {at} calls");
            break;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_death_while_deleting_leaves_anything_behind() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let life = restart::while_deleting(&stage, at).await?;
        if life.calls() < at {
            assert!(at > 10, "a deletion is more than {at} calls");
            break;
        }
    }
    Ok(())
}
