//! The manager is killed after every single call that changes anything, and another takes its place.

use crate::workload::{CHAPTER, attached, cordon, node_of, running, with_volume, workload};
use drover_sim::faults::Life;
use drover_sim::scenario::restart;
use drover_sim::stage::Stage;
use kube::ResourceExt;
use kube::api::DeleteParams;
use std::collections::BTreeSet;

/// The pool of these tests.
const REPLICAS: u32 = 2;

/// Gardener's scenario 2 and MetaKube's 13.
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

/// A node with two volumes to move and pods without any is deleted. Gardener's scenario 28.
#[tokio::test(start_paused = true)]
async fn no_death_while_draining_loses_a_volume_or_a_machine() -> anyhow::Result<()> {
    for at in 1.. {
        let stage = Stage::start().await?;
        let builder = stage.work(stage.wires(&Life::long()))?;
        stage.apply_example(REPLICAS).await?;
        let whole = stage.whole(REPLICAS as usize, &BTreeSet::new(), CHAPTER).await?;
        let machine = &whole.machines[0];
        let (here, there) = (machine.name_any(), whole.machines[1].name_any());
        cordon(&stage, &there, true).await?;
        for object in with_volume("db-a").iter().chain(&with_volume("db-b")) {
            stage.create(object).await?;
        }
        stage.create(&workload("web", 2)).await?;
        for (name, count) in [("db-a", 1), ("db-b", 1), ("web", 2)] {
            running(&stage, name, count).await?;
        }
        attached(&stage, "pv-db-a", &here).await?;
        attached(&stage, "pv-db-b", &here).await?;
        cordon(&stage, &there, false).await?;
        builder.end().await?;
        let old: BTreeSet<String> = machine.uid().into_iter().collect();
        let life = Life::until(at, restart::counts);
        let first = stage.work(stage.wires(&life))?;
        stage.machines().delete(&here, &DeleteParams::default()).await?;
        tokio::select! {
            biased;
            () = life.over() => {}
            whole = stage.whole(REPLICAS as usize, &old, CHAPTER) => { whole?; }
        }
        life.end();
        let second = stage.work(stage.wires(&Life::long()))?;
        let last = life.log().last().cloned().unwrap_or_default();
        let whole = stage.whole(REPLICAS as usize, &old, CHAPTER).await;
        let whole = whole.map_err(|error| error.context(format!("killed after {at}, {last}")))?;
        assert_eq!(whole.made_twice(), None, "killed after call {at}, {last}");
        assert_eq!(whole.cloud.servers_made, u64::from(REPLICAS) + 1, "after {at}, {last}");
        running(&stage, "web", 2).await?;
        for name in ["db-a", "db-b"] {
            let pod = running(&stage, name, 1).await?.remove(0);
            attached(&stage, &format!("pv-{name}"), &node_of(&pod)).await?;
        }
        second.end().await?;
        first.stop.cancel();
        // What comes after the machine's end, its replacement, has its own tests.
        let ends = |call: &String| {
            call.starts_with("PATCH ") && call.ends_with(&format!("/machines/{here}"))
        };
        if life.log().iter().any(ends) {
            assert!(at > 15, "a drain and a deletion are more than {at} calls");
            break;
        }
    }
    Ok(())
}
