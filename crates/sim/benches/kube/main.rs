//! What Drover costs on a real control plane: `make bench-kube` prints it, and asserts nothing.
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler run beside it, `drover manager` with its default
//! flags as a program of its own, the lab's cloud and nodes in this process without latency. Calls are those of
//! Drover's own user in the audit log. `MACHINES=200 IDLE=30` makes it shorter.

mod audit;
mod herd;
mod program;

use anyhow::Context;
use audit::{Audit, Calls};
use drover_controllers::rbac;
use drover_lab::clock::Pace;
use drover_lab::cloud::Delays;
use drover_lab::kube::{Assets, ControlPlane, Options};
use drover_lab::world::Config;
use drover_sim::stage::{NAMESPACE, Stage};
use herd::Herd;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use program::{Program, processor_seconds, resident_mib};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The pool at its largest.
const MACHINES: u32 = 1000;
/// The first step on the way there.
const FEW: u32 = 200;
const ROLLED: u32 = 100;
const SURGE: u32 = 10;
/// Seconds of doing nothing.
const IDLE: u64 = 300;
/// What a restart costs shows in this time.
const RESTART: Duration = Duration::from_secs(60);
/// For the last statuses and Events of a chapter.
const SETTLED: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(assets) = Assets::for_suite("bench-kube", 12) else { return Ok(()) };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let machines = u32::try_from(number("MACHINES", MACHINES.into()))?;
    let idle = Duration::from_secs(number("IDLE", IDLE));
    let mut bench = Bench::start(&assets).await?;
    bench.grow(machines).await?;
    bench.idle(machines, idle).await?;
    bench.restart(machines).await?;
    bench.shrink(machines).await?;
    bench.roll(ROLLED.min(machines)).await?;
    bench.die(FEW.min(machines)).await
}

struct Bench {
    manager: Option<Program>,
    herd: Herd,
    audit: Audit,
    stage: Stage,
    plane: ControlPlane,
    binary: PathBuf,
    folder: Folder,
    /// The manager's and the API server's processor time at the last look.
    processor: (f64, f64),
}

/// Removed at the end, however that comes.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Bench {
    async fn start(assets: &Assets) -> anyhow::Result<Self> {
        let folder =
            Folder(std::env::temp_dir().join(format!("drover-bench-{}", std::process::id())));
        let options = Options { audit: true, ..Options::default() };
        let plane = ControlPlane::start(assets, &folder.0, &options).await?;
        let stage = Stage::of(Config {
            api: Some(plane.admin_access()),
            pace: Pace(1000.0),
            cloud: Box::new(|cloud| {
                cloud.delays = Delays::instant();
                let quotas = &mut cloud.quotas;
                for quota in [&mut quotas.instances, &mut quotas.cores, &mut quotas.ram] {
                    *quota = -1;
                }
            }),
            ..Config::loopback(Timestamp::now())
        })
        .await?;
        let account =
            format!("system:serviceaccount:{}:{}", rbac::NAMESPACE, rbac::SERVICE_ACCOUNT);
        let of_namespace = format!("system:serviceaccounts:{}", rbac::NAMESPACE);
        let groups = ["system:serviceaccounts", of_namespace.as_str()];
        std::fs::write(folder.0.join("manager.kubeconfig"), plane.kubeconfig(&account, &groups))?;
        std::fs::write(folder.0.join("clouds.yaml"), stage.cloud()?.clouds_yaml())?;
        let binary = std::env::var_os("DROVER").context("DROVER names the binary to measure")?;
        let mut bench = Self {
            manager: None,
            herd: Herd::follow(&stage.admin, NAMESPACE),
            audit: Audit::new(plane.audit_log(), &account),
            stage,
            plane,
            binary: binary.into(),
            folder,
            processor: (0.0, 0.0),
        };
        bench.run_manager()?;
        tokio::time::sleep(SETTLED).await;
        bench.say("RSS with nothing to do, MiB", bench.memory());
        Ok(bench)
    }

    fn run_manager(&mut self) -> anyhow::Result<()> {
        let file = |name| self.folder.0.join(name);
        let (kubeconfig, clouds) = (file("manager.kubeconfig"), file("clouds.yaml"));
        self.manager = Some(Program::manager(&self.binary, &kubeconfig, &clouds)?);
        self.processor.0 = 0.0;
        Ok(())
    }

    /// 0 to 200 to all.
    async fn grow(&mut self, machines: u32) -> anyhow::Result<()> {
        let few = FEW.min(machines);
        self.look()?;
        self.stage.apply_example(few).await?;
        let took = self.joined(few).await?;
        self.say(&format!("0 to {few} joined, s"), took);
        let lag = self.told(few).await?;
        self.say(&format!("status right after the last of {few}, s"), lag);
        tokio::time::sleep(SETTLED).await;
        self.say(&format!("RSS at {few}, MiB"), self.memory());
        if machines > few {
            let began = Instant::now();
            self.stage.scale(machines).await?;
            let first = self.joined(few + 1).await?;
            self.say(&format!("first joined of {} more, s", machines - few), first);
            self.joined(machines).await?;
            self.say(&format!("{few} to {machines} joined, s"), began.elapsed().as_secs_f64());
            self.say(&format!("0 to {machines} joined, s"), took + began.elapsed().as_secs_f64());
            let lag = self.told(machines).await?;
            self.say(&format!("status right after the last of {machines}, s"), lag);
            tokio::time::sleep(SETTLED).await;
        }
        self.say(&format!("RSS at {machines}, MiB"), self.memory());
        self.chapter("create to joined", machines, true)
    }

    async fn idle(&mut self, machines: u32, idle: Duration) -> anyhow::Result<()> {
        self.look()?;
        tokio::time::sleep(idle).await;
        self.chapter(&format!("idle {idle:?} at {machines}"), 1, false)
    }

    async fn restart(&mut self, machines: u32) -> anyhow::Result<()> {
        if let Some(manager) = self.manager.take() {
            manager.kill()?;
        }
        self.look()?;
        self.run_manager()?;
        tokio::time::sleep(RESTART).await;
        self.chapter(&format!("restart at {machines}, the first {RESTART:?}"), 1, false)
    }

    async fn shrink(&mut self, machines: u32) -> anyhow::Result<()> {
        self.look()?;
        self.stage.scale(0).await?;
        let took = self.herd.until("deleting", |seen| seen.live.is_empty()).await?;
        self.say(&format!("{machines} to 0, s"), took);
        tokio::time::sleep(SETTLED).await;
        self.empty()?;
        self.chapter("delete", machines, true)
    }

    async fn roll(&mut self, machines: u32) -> anyhow::Result<()> {
        self.stage.scale(machines).await?;
        self.joined(machines).await?;
        self.told(machines).await?;
        tokio::time::sleep(SETTLED).await;
        self.look()?;
        self.herd.forget_most();
        let old = self.herd.seen().live;
        let bounds = json!({ "rollingUpdate": { "maxSurge": SURGE, "maxUnavailable": 0 } });
        let touched = json!({ "metadata": { "annotations": {
            "kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string(),
        }}});
        let patch = json!({ "spec": { "strategy": bounds, "template": touched } });
        self.stage.pools().patch("nodes", &PatchParams::default(), &Patch::Merge(patch)).await?;
        let all = machines as usize;
        let over = |seen: &herd::Seen| {
            seen.live.len() == all && seen.herd() == all && seen.live.is_disjoint(&old)
        };
        let took = self.herd.until("rolling", over).await?;
        self.say(&format!("rollout of {machines} with surge {SURGE}, s"), took);
        let (live, objects) = self.herd.seen().most;
        self.say("most live machines in it", live);
        self.say("most machine objects in it", objects);
        tokio::time::sleep(SETTLED).await;
        self.chapter("rollout", machines, true)?;
        self.stage.scale(0).await?;
        self.herd.until("deleting", |seen| seen.live.is_empty()).await?;
        self.empty()
    }

    /// Killed in the middle of making machines.
    async fn die(&mut self, machines: u32) -> anyhow::Result<()> {
        let before = self.herd.seen().ever.len();
        let servers = self.stage.cloud()?.ledger().count("compute POST /servers");
        self.stage.scale(machines).await?;
        self.joined(machines / 4).await?;
        if let Some(manager) = self.manager.take() {
            manager.kill()?;
        }
        let joined = self.herd.seen().herd();
        let began = Instant::now();
        self.run_manager()?;
        self.herd.until("working again", |seen| seen.herd() > joined).await?;
        self.say("kill -9: working again after, s", began.elapsed().as_secs_f64());
        self.joined(machines).await?;
        tokio::time::sleep(SETTLED).await;
        let ever = self.herd.seen().ever.len() - before;
        self.say(&format!("kill -9: machines ever made for {machines}"), ever);
        let made = self.stage.cloud()?.ledger().count("compute POST /servers") - servers;
        self.say(&format!("kill -9: servers ever made for {machines}"), made);
        self.stage.scale(0).await?;
        self.herd.until("deleting", |seen| seen.live.is_empty()).await?;
        self.empty()
    }

    async fn joined(&self, machines: u32) -> anyhow::Result<f64> {
        self.herd.until("joining", |seen| seen.herd() >= machines as usize).await
    }

    async fn told(&self, machines: u32) -> anyhow::Result<f64> {
        self.herd.until("the pool's status", |seen| seen.ready == machines).await
    }

    /// Nothing is left in the cloud of what was made.
    fn empty(&self) -> anyhow::Result<()> {
        let ledger = self.stage.cloud()?.ledger();
        anyhow::ensure!(ledger.is_empty(), "left in the cloud: {ledger:?}");
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.manager.as_ref().map_or(0, |manager| resident_mib(manager.id()))
    }

    /// Begins to count anew.
    fn look(&mut self) -> anyhow::Result<(Calls, f64, f64)> {
        let manager = self.manager.as_ref().map_or(0.0, |one| processor_seconds(one.id()));
        let api = processor_seconds(self.plane.process_ids()[1]);
        let (since_manager, since_api) = (manager - self.processor.0, api - self.processor.1);
        self.processor = (manager, api);
        Ok((self.audit.take()?, since_manager, since_api))
    }

    /// What the calls since the last look came to.
    fn chapter(&mut self, what: &str, machines: u32, of_each: bool) -> anyhow::Result<()> {
        let (calls, manager, api) = self.look()?;
        let each = f64::from(machines);
        if of_each {
            let count = f64::from(calls.without_joining()) / each;
            self.say(&format!("{what}: calls a machine"), count);
            let refused = f64::from(calls.conflicts) / each;
            self.say(&format!("{what}: refused with 409 a machine"), refused);
            let (own, theirs) = (manager / each * 1e3, api / each * 1e3);
            self.say(&format!("{what}: CPU of Drover a machine, ms"), own);
            self.say(&format!("{what}: CPU of the API server a machine, ms"), theirs);
        } else {
            self.say(&format!("{what}: calls"), calls.all());
            self.say(&format!("{what}: CPU of Drover, s"), manager);
        }
        for (name, count) in &calls.by_name {
            println!("      {:8.2}  {name}", f64::from(*count) / each);
        }
        Ok(())
    }

    fn say(&self, what: &str, figure: impl std::fmt::Display) {
        println!("{what:<58} {figure:>8.2}");
    }
}
