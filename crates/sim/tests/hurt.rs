//! A real control plane is hurt while a pool is at work: the pool ends right, and nothing was made twice.

use drover_lab::client::{Client, PatchKind};
use drover_sim::faults::{Call, Fate, Life};
use drover_sim::real::Real;
use drover_sim::stage::{Census, Stage};
use futures::StreamExt as _;
use http::StatusCode;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The pool that rolls.
const REPLICAS: usize = 3;
/// How long the API server is halted: longer than a leader renews (10 s), a Lease holds (15 s), a connection may take
/// (30 s), a node's Lease is good (40 s) and a request may last (60 s).
const HALT: Duration = Duration::from_secs(120);
/// How long Drover's token is refused once it was: longer than a leader may go without renewing (10 s).
const REFUSAL: Duration = Duration::from_secs(12);
/// How often history is forgotten until Drover was in the middle of it.
const FORGETTING_MAX: usize = 3;
/// How many cases, for the line that says that they are not run.
const CASES: usize = 4;

/// What the managers of a case heard on their wires to Kubernetes.
#[derive(Default)]
struct Heard {
    /// That a watch of machines cannot go on from where it was.
    expired: AtomicU64,
    /// That nobody is known by this token.
    unknown: AtomicU64,
}

impl Heard {
    fn hear(&self, call: &Call, code: StatusCode, part: &[u8]) {
        const EXPIRED: &[u8] = br#""code":410"#;
        let is_watch = call.query.contains("watch=") && call.path.ends_with("/machines");
        if is_watch && part.windows(EXPIRED.len()).any(|it| it == EXPIRED) {
            self.expired.fetch_add(1, Ordering::SeqCst);
        }
        if code == StatusCode::UNAUTHORIZED {
            self.unknown.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A manager in a Pod: whenever it ends, the next one begins. Each takes the lead by the Lease.
async fn supervise(
    stage: &Stage,
    heard: &Arc<Heard>,
    stop: &CancellationToken,
) -> anyhow::Result<u64> {
    for start in 1.. {
        let mut wires = stage.wires(&Life::long());
        let ear = heard.clone();
        let hear = move |call: &Call, code, part: &[u8]| ear.hear(call, code, part);
        wires.kubernetes = wires.kubernetes.with_ear(hear);
        let mut working =
            stage.work_as(wires, &format!("hurt-{start}"), |it| it.elect_leader = true)?;
        tokio::select! {
            ended = &mut working.task => {
                anyhow::ensure!(!ended?, "nobody stopped the manager");
            }
            () = stop.cancelled() => {
                working.end().await?;
                return Ok(start);
            }
        }
    }
    unreachable!("the test is over before so many managers have ended")
}

/// Rolls a pool, hurts the control plane as soon as the first new machine has its server, and waits for the end.
async fn roll<F>(real: &mut Real, hurt: F) -> anyhow::Result<()>
where
    F: AsyncFnOnce(&mut Real, &Stage, &Heard) -> anyhow::Result<()>,
{
    let stage = real.stage().await?;
    let (stop, heard) = (CancellationToken::new(), Arc::new(Heard::default()));
    let story = async {
        let _end = stop.clone().drop_guard();
        stage.apply_example(REPLICAS as u32).await?;
        let old = stage.whole(REPLICAS, &BTreeSet::new(), stage.chapter).await?.uids();
        stage.restart().await?;
        let has_begun =
            async |stage: &Stage| Ok(stage.cloud()?.ledger().servers_made > REPLICAS as u64);
        stage.until("new server", has_begun).await?;
        hurt(real, &stage, &heard).await?;
        let rolled = stage.whole(REPLICAS, &old, stage.chapter).await?;
        made_once(&rolled, 2 * REPLICAS as u64);
        gone(&stage).await
    };
    let (told, managers) = tokio::join!(story, supervise(&stage, &heard, &stop));
    told?;
    println!("managers that were needed: {}", managers?);
    stage.world.stop().await;
    Ok(())
}

fn made_once(census: &Census, servers: u64) {
    assert_eq!(census.made_twice(), None);
    assert_eq!(census.cloud.servers_made, servers, "a server for each machine: {census}");
}

async fn gone(stage: &Stage) -> anyhow::Result<()> {
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), stage.chapter).await?;
    assert!(stage.census().await?.cloud.is_empty(), "no server, port or address is left");
    Ok(())
}

/// The API server that is back refuses what Drover shows with 401; restarted once more, it takes it again.
async fn api_server_restarts_and_refuses_drovers_token_for_a_while(
    real: &mut Real,
) -> anyhow::Result<()> {
    let hurt = async |real: &mut Real, stage: &Stage, heard: &Heard| {
        real.plane.forget_tokens().await?;
        let is_refused = async |_: &Stage| Ok(heard.unknown.load(Ordering::SeqCst) > 0);
        stage.until("call that is refused with 401", is_refused).await?;
        tokio::time::sleep(REFUSAL).await;
        Ok(real.plane.know_tokens().await?)
    };
    roll(real, hurt).await
}

/// Whoever goes on from what it knew hears 410, Drover's own watches too, and begins anew.
async fn history_is_forgotten(real: &mut Real) -> anyhow::Result<()> {
    let admin = real.plane.admin()?;
    let hurt = async |real: &mut Real, stage: &Stage, heard: &Heard| {
        let before = admin.get(MACHINES).await?["metadata"]["resourceVersion"].clone();
        let before: u64 = before.as_str().unwrap_or_default().parse()?;
        let earlier = heard.expired.load(Ordering::SeqCst);
        let is_told = async |_: &Stage| Ok(heard.expired.load(Ordering::SeqCst) > earlier);
        // A watch that has heard of the very last change may go on from there.
        for _ in 0..FORGETTING_MAX {
            real.plane.compact().await?;
            real.plane.restart_api().await?;
            let told = stage.until("watch of Drover's that is told 410", &is_told);
            if tokio::time::timeout(HALT, told).await.is_ok_and(|told| told.is_ok()) {
                break;
            }
        }
        assert!(is_told(stage).await?, "Drover was told that it is late");
        the_past_is_gone(&admin, before - 1).await
    };
    roll(real, hurt).await
}

const MACHINES: &str = "/apis/cluster.k8s.io/v1alpha1/machines";

/// Neither a list nor a watch of machines gets what was at this version.
async fn the_past_is_gone(admin: &Client, version: u64) -> anyhow::Result<()> {
    let list = format!("{MACHINES}?resourceVersionMatch=Exact&resourceVersion={version}");
    let error = admin.get(&list).await.err().map(|error| (error.code, error.reason));
    assert_eq!(error, Some((410, "Expired".to_owned())), "a list");
    let watch = format!("{MACHINES}?resourceVersion={version}");
    let mut events = pin!(admin.watch(&watch).await?);
    let first = tokio::time::timeout(HALT, events.next()).await?;
    let error = first.and_then(Result::err).map(|error| (error.code, error.reason));
    assert_eq!(error, Some((410, "Expired".to_owned())), "a watch");
    Ok(())
}

async fn api_server_halts(real: &mut Real) -> anyhow::Result<()> {
    let hurt = async |real: &mut Real, _: &Stage, _: &Heard| {
        real.plane.pause_api();
        tokio::time::sleep(HALT).await;
        real.plane.resume_api();
        Ok(())
    };
    roll(real, hurt).await
}

/// Somebody denies the first request of a node before Drover approves it: the kubelet asks again.
async fn a_client_certificate_is_refused_once(real: &mut Real) -> anyhow::Result<()> {
    let stage = real.stage().await?;
    let denied = Arc::new(AtomicBool::new(false));
    let mut wires = stage.wires(&Life::long());
    let hold = denied.clone();
    wires.kubernetes = wires.kubernetes.with_rule(move |call: &Call| {
        let is_early = call.path.ends_with("/approval") && !hold.load(Ordering::SeqCst);
        if is_early { Fate::Refuse(StatusCode::SERVICE_UNAVAILABLE) } else { Fate::Pass }
    });
    let manager = stage.work(wires)?;
    stage.apply_example(1).await?;
    let name = deny_first(&stage, &real.plane.admin()?).await?;
    denied.store(true, Ordering::SeqCst);
    let whole = stage.whole(1, &BTreeSet::new(), stage.chapter).await?;
    made_once(&whole, 1);
    let asked = real.plane.admin()?.get(&format!("{REQUESTS}/{name}")).await?;
    assert!(asked["status"]["certificate"].is_null(), "what was denied stays denied: {asked}");
    gone(&stage).await?;
    manager.end().await?;
    stage.world.stop().await;
    Ok(())
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn deny_first(stage: &Stage, admin: &Client) -> anyhow::Result<String> {
    let deadline = tokio::time::Instant::now() + stage.chapter;
    loop {
        let all = admin.get(REQUESTS).await?;
        let open = |one: &&Value| one["status"]["conditions"].is_null();
        if let Some(first) = all["items"].as_array().into_iter().flatten().find(open) {
            let name = first["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let no = json!({"status": {"conditions": [{
                "type": "Denied", "status": "True", "reason": "Mood", "message": "not today",
            }]}});
            admin.patch(&format!("{REQUESTS}/{name}/approval"), PatchKind::Merge, &no).await?;
            return Ok(name);
        }
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "no node asked for a certificate");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_pool_ends_right_whatever_happens_to_the_control_plane() -> anyhow::Result<()> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut real) = Real::start("hurt", CASES, scratch).await? else { return Ok(()) };
    macro_rules! cases {
        ($($case:ident),*) => {$(
            let began = Instant::now();
            let ended = $case(&mut real).await;
            real.judge(stringify!($case), ended)?;
            println!("{}: {:.1} s", stringify!($case), began.elapsed().as_secs_f64());
        )*};
    }
    cases!(
        a_client_certificate_is_refused_once,
        api_server_restarts_and_refuses_drovers_token_for_a_while,
        history_is_forgotten,
        api_server_halts
    );
    real.end()
}
