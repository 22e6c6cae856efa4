//! The scenarios in real time over TLS: on the lab's API server and on a real control plane, with the same assertions.

use drover_sim::real::Real;
use drover_sim::scenario::{drain, end, restart, story};
use drover_sim::stage::Stage;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use kube::api::DeleteParams;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

type Case = (&'static str, fn(&Stage) -> LocalBoxFuture<'_, anyhow::Result<()>>);

const CASES: &[Case] = &[
    ("comes, grows, rolls and heals", |it| story::comes_grows_rolls_and_heals(it).boxed_local()),
    ("a lost server is replaced", |it| story::a_lost_server_is_replaced(it).boxed_local()),
    ("a status of a user's is put right", |it| {
        story::a_status_of_a_users_is_put_right(it).boxed_local()
    }),
    ("a budget holds its pod", |it| {
        drain::a_pod_behind_a_budget_is_never_deleted_early(it).boxed_local()
    }),
    ("grace within the drain's deadline", |it| {
        drain::a_pod_is_asked_with_the_grace_that_is_left(it).boxed_local()
    }),
    ("a roll within the budget", |it| {
        drain::a_roll_keeps_the_workload_within_its_budget(it)
            .map(|told| told.map(drop))
            .boxed_local()
    }),
    ("deleted at once", |it| end::deleted_while_it_is_made(it, Duration::ZERO).boxed_local()),
    ("deleted while it is made", |it| {
        end::deleted_while_it_is_made(it, Duration::from_millis(700)).boxed_local()
    }),
    ("a namespace goes with its pools", |it| {
        end::a_namespace_goes_with_its_pools(it).boxed_local()
    }),
    ("orphans are adopted again", |it| end::orphans_are_adopted_again(it).boxed_local()),
    ("killed while creating, early", |it| killed_while_creating(it, 5).boxed_local()),
    ("killed while creating, late", |it| killed_while_creating(it, 16).boxed_local()),
    ("killed while deleting", |it| killed_while_deleting(it, 7).boxed_local()),
];

async fn killed_while_creating(stage: &Stage, at: u64) -> anyhow::Result<()> {
    restart::while_creating(stage, at).await.map(drop)
}

async fn killed_while_deleting(stage: &Stage, at: u64) -> anyhow::Result<()> {
    restart::while_deleting(stage, at).await.map(drop)
}

/// Leaves nothing of a case to the next one on the same control plane.
async fn tidy(stage: &Stage) -> anyhow::Result<()> {
    let manager = drover_sim::scenario::at_work(stage)?;
    let web = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": "kube-system"}});
    for object in [web("policy/v1", "PodDisruptionBudget"), web("apps/v1", "Deployment")] {
        // Most cases have none.
        let _ = stage.api(&object).delete("web", &DeleteParams::default()).await;
    }
    let _ = stage.pools().delete("nodes", &DeleteParams::default()).await;
    stage.whole(0, &BTreeSet::new(), stage.chapter).await?;
    manager.end().await
}

fn tell(world: &str, case: &str, began: Instant) {
    println!("{world}: {case}: {:.1} s", began.elapsed().as_secs_f64());
}

#[tokio::test]
async fn on_the_labs_api_server() -> anyhow::Result<()> {
    // Each has a world of its own, so that they need not wait for each other.
    let all = CASES.iter().map(async |(name, case)| {
        let began = Instant::now();
        let stage = Stage::over_tls(None).await?;
        case(&stage).await.map_err(|error| error.context(*name))?;
        stage.world.stop().await;
        tell("lab", name, began);
        Ok(())
    });
    futures::future::try_join_all(all).await.map(drop)
}

#[tokio::test]
async fn on_a_real_control_plane() -> anyhow::Result<()> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut real) = Real::start("worlds", CASES.len(), scratch).await? else { return Ok(()) };
    for (name, case) in CASES {
        let began = Instant::now();
        let stage = real.stage().await?;
        let ended = case(&stage).await;
        real.judge(name, ended)?;
        tidy(&stage).await?;
        stage.world.stop().await;
        tell("kube", name, began);
    }
    real.end()
}
