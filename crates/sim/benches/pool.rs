//! What a pool costs: machines to Ready, doing nothing, a restart of Drover, back to nothing, and a
//! rollout. Prints; asserts no times.
//!
//! Everything is in one process without latency, so the wall time is that of the API server, the
//! cloud, the nodes and Drover together; the calls are Drover's alone.

use drover_lab::clock::Pace;
use drover_lab::cloud::Delays;
use drover_lab::world::Config;
use drover_sim::faults::Life;
use drover_sim::stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const MACHINES: u32 = 1000;
const ROLLED: u32 = 100;
/// As many machines of a rollout may be there beyond the wanted ones.
const SURGE: u32 = 10;
/// Doing nothing, in the time of the world.
const IDLE: Duration = Duration::from_secs(300);
/// What a restart costs shows in this time.
const RESTART: Duration = Duration::from_secs(60);
/// For the last statuses and Events of a chapter.
const SETTLED: Duration = Duration::from_secs(30);
const CHAPTER: Duration = Duration::from_secs(1800);
/// Boots that take no time to speak of.
const PACE: f64 = 1000.0;

fn main() -> anyhow::Result<()> {
    let machines = std::env::var("MACHINES").ok().and_then(|text| text.parse().ok());
    let machines = machines.unwrap_or(MACHINES);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build()?;
    runtime.block_on(story(machines, ROLLED.min(machines)))
}

async fn story(machines: u32, rolled: u32) -> anyhow::Result<()> {
    let stage = stage().await?;
    let life = Life::until(u64::MAX, |_| true);
    let manager = stage.work(stage.wires(&life))?;
    let mut meter = Meter::of(&life);
    let none = BTreeSet::new();

    stage.apply_example(machines).await?;
    stage.whole(machines as usize, &none, CHAPTER).await?;
    meter.print(&format!("0 to {machines} machines Ready"), machines);
    tokio::time::sleep(SETTLED).await;
    meter.reset();
    tokio::time::sleep(IDLE).await;
    meter.print(&format!("{IDLE:?} idle, all machines together"), 1);
    manager.end().await?;
    meter.reset();
    let manager = stage.work(stage.wires(&life))?;
    tokio::time::sleep(RESTART).await;
    meter.print(&format!("{RESTART:?} after a restart, all machines together"), 1);
    stage.scale(0).await?;
    stage.whole(0, &none, CHAPTER).await?;
    meter.print(&format!("{machines} to 0"), machines);

    stage.scale(rolled).await?;
    stage.surge(SURGE).await?;
    let old = stage.whole(rolled as usize, &none, CHAPTER).await?.uids();
    meter.reset();
    stage.restart().await?;
    stage.whole(rolled as usize, &old, CHAPTER).await?;
    meter.print(&format!("rollout of {rolled}, {SURGE} at a time"), rolled);
    manager.end().await
}

async fn stage() -> anyhow::Result<Stage> {
    Stage::of(Config {
        pace: Pace(PACE),
        cloud: Box::new(|cloud| {
            cloud.delays = Delays::instant();
            let quotas = &mut cloud.quotas;
            for quota in [&mut quotas.instances, &mut quotas.cores, &mut quotas.ram] {
                *quota = -1;
            }
        }),
        ..Config::in_process()
    })
    .await
}

/// Reads the time, the memory and the calls since it was last asked.
struct Meter<'a> {
    life: &'a Life,
    began: Instant,
    calls: usize,
}

impl<'a> Meter<'a> {
    fn of(life: &'a Life) -> Self {
        Self { life, began: Instant::now(), calls: 0 }
    }

    fn reset(&mut self) {
        self.began = Instant::now();
        self.calls = self.life.log().len();
    }

    fn print(&mut self, what: &str, machines: u32) {
        let took = self.began.elapsed().as_secs_f64();
        let mut to_kubernetes = BTreeMap::new();
        let mut to_cloud = BTreeMap::new();
        for call in self.life.log().iter().skip(self.calls) {
            let (name, is_kubernetes) = name(call);
            let book = if is_kubernetes { &mut to_kubernetes } else { &mut to_cloud };
            *book.entry(name).or_insert(0_u32) += 1;
        }
        println!("{what}: {took:.1} s, process peak {} MiB", peak_mib());
        for (book, title) in [(to_kubernetes, "API calls"), (to_cloud, "cloud calls")] {
            let all: u32 = book.values().sum();
            let each = f64::from(all) / f64::from(machines);
            println!("  {title}: {all}, {each:.2} a machine");
            for (name, count) in &book {
                println!("    {:7.2}  {name}", f64::from(*count) / f64::from(machines));
            }
            if title == "cloud calls" {
                by_service(&book, machines);
            }
        }
        self.reset();
    }
}

/// What each service was asked; the lists of all servers, which all machines share, apart.
fn by_service(book: &BTreeMap<String, u32>, machines: u32) {
    let (mut services, mut lists, mut logins) = (BTreeMap::new(), 0_u32, 0_u32);
    for (name, count) in book {
        match name.as_str() {
            "GET compute servers/detail" => lists += count,
            "POST identity auth/tokens" => logins += count,
            _ => {
                let service = name.split(' ').nth(1).unwrap_or_default();
                *services.entry(service).or_insert(0_u32) += count;
            }
        }
    }
    let each = |(service, count): (&str, u32)| {
        format!("{service} {:.2}", f64::from(count) / f64::from(machines))
    };
    let services: Vec<String> = services.into_iter().map(each).collect();
    println!("  by service: {}; {lists} shared lists, {logins} logins in all", services.join(", "));
}

/// `PATCH machines/status` of a call's method and path, and whether it went to Kubernetes.
fn name(call: &str) -> (String, bool) {
    let (method, path) = call.split_once(' ').unwrap_or((call, ""));
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        [service, rest @ ..] => {
            let ids = |part: &&&str| part.len() < 32 && !part.starts_with('v');
            let kept: Vec<&str> = rest.iter().filter(ids).copied().collect();
            return (format!("{method} {service} {}", kept.join("/")), false);
        }
        [] => return (method.to_owned(), false),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let name = match rest {
        [resource, _, subresource] => format!("{method} {resource}/{subresource}"),
        [resource, ..] => format!("{method} {resource}"),
        [] => method.to_owned(),
    };
    (name, true)
}

/// Linux: the highest resident size of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
