//! `drover lab`: one part of the try-out world alone, for clients and suites from outside.

use super::folder::Folder;
use super::manager::stop_on_signal;
use super::narrate::say;
use super::speed;
use anyhow::{Context, bail};
use drover_lab::clock::{Clock, Pace};
use drover_lab::cloud::{self, Cloud, Fault};
use drover_lab::kube::{Assets, ControlPlane, Options};
use drover_lab::kubeconfig::Access;
use drover_lab::kubelet::idle::{self, Nodes};
use drover_lab::world::{Own, Plane};
use jiff::Timestamp;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How often it is asked whether all programs of a real control plane still run.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// What nodes are called unless they are given a name.
const NODE_NAME: &str = "lab";

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(clap::Subcommand)]
enum Part {
    /// An API server with the controllers of its cluster; writes DIR/kubeconfig of an administrator
    Apiserver(ApiServer),
    /// An OpenStack cloud; writes DIR/clouds.yaml
    Cloud(CloudArgs),
    /// Ready Nodes without a cloud behind them, at any API server; deleted again at the end
    Kubelets(Kubelets),
}

#[derive(clap::Args)]
struct ApiServer {
    /// Where the kubeconfig is written
    #[arg(long, default_value = ".drover/apiserver", value_name = "DIR")]
    data: PathBuf,
    /// The port on loopback; 0 takes a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// Run the real etcd, kube-apiserver, kube-controller-manager and kube-scheduler in this folder instead; without
    /// a folder those of KUBEBUILDER_ASSETS or of `make kube-assets`
    #[arg(long, value_name = "DIR")]
    assets: Option<Option<PathBuf>>,
    /// So many Ready Nodes besides
    #[arg(long, default_value_t = 0, value_name = "N")]
    kubelets: usize,
    /// How many times faster than life pods start
    #[arg(long, default_value_t = 5.0, value_name = "N", value_parser = speed)]
    #[arg(allow_negative_numbers = true)]
    speed: f64,
}

#[derive(clap::Args)]
struct CloudArgs {
    /// Where clouds.yaml is written
    #[arg(long, default_value = ".drover/cloud", value_name = "DIR")]
    data: PathBuf,
    /// The port on loopback; 0 takes a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// How many times faster than life servers start
    #[arg(long, default_value_t = 5.0, value_name = "N", value_parser = speed)]
    #[arg(allow_negative_numbers = true)]
    speed: f64,
    /// What goes wrong, again and again for several; the first rule that strikes a call decides:
    /// '{"call": "compute POST /servers", "rate": 0.1, "effect": {"status": {"code": 503}}}'. Or a file with a list of
    /// rules, as @FILE. Also changed by PUT to the inspection page
    #[arg(long = "fault", value_name = "RULE", value_parser = faults)]
    faults: Vec<Vec<Fault>>,
    /// Decides which calls faults strike, and every id and jitter
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// A rule as JSON, or a file of them.
fn faults(text: &str) -> Result<Vec<Fault>, String> {
    let wrong = |error: serde_json::Error| {
        format!("{error}; the effects are status, cut, slow, lag, stuckBuild, ...")
    };
    match text.strip_prefix('@') {
        Some(file) => {
            let rules =
                std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            serde_json::from_str(&rules).map_err(wrong)
        }
        None => serde_json::from_str(text).map(|rule| vec![rule]).map_err(wrong),
    }
}

#[derive(clap::Args)]
struct Kubelets {
    /// How the API server is reached by somebody who may do everything
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: PathBuf,
    /// How many
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: usize,
    /// They are called NAME-1, NAME-2 and so on
    #[arg(long, default_value = NODE_NAME, value_name = "NAME")]
    name: String,
    /// How many times faster than life pods start
    #[arg(long, default_value_t = 5.0, value_name = "N", value_parser = speed)]
    #[arg(allow_negative_numbers = true)]
    speed: f64,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    match args.part {
        Part::Apiserver(args) => api_server(args, stop).await,
        Part::Cloud(args) => serve_cloud(args, stop).await,
        Part::Kubelets(args) => {
            let access = Access::read(&args.kubeconfig)?;
            let started = start_nodes(&access, args.count, args.name, args.speed);
            let Some(nodes) = unless_stopped(&stop, started).await? else { return Ok(()) };
            say(&format!("{} nodes are Ready at {}", nodes.names().len(), access.server))?;
            stop.cancelled().await;
            nodes.stop().await;
            Ok(())
        }
    }
}

async fn api_server(args: ApiServer, stop: CancellationToken) -> anyhow::Result<()> {
    let folder = Folder::claim(&args.data)?;
    let Some(assets) = &args.assets else {
        let own = Own {
            address: Some(loopback(args.port)),
            clock: Clock::start(Timestamp::now()),
            pace: Pace(args.speed),
            seed: 1,
            watch_history: None,
        };
        let plane = Plane::own(own).await.context("starting the API server")?;
        show(&folder, &plane.access(), &args, &stop, stop.cancelled()).await?;
        plane.stop().await;
        return Ok(());
    };
    let assets = find(assets.as_deref())?;
    let files = folder.file("control-plane");
    // Of an earlier run, which was not ended in order: its keys are not ours.
    let _ = std::fs::remove_dir_all(&files);
    let options = Options { api_port: args.port, ..Options::default() };
    let starting = async { Ok(ControlPlane::start(&assets, &files, &options).await?) };
    let Some(mut real) = unless_stopped(&stop, starting).await? else { return Ok(()) };
    let access = real.admin_access();
    // What every cluster of the lab has when its first node comes.
    Plane::foreign(access.clone()).await.context("preparing the API server")?;
    show(&folder, &access, &args, &stop, watch_over(&mut real, &stop)).await??;
    drop(real);
    std::fs::remove_dir_all(&files).with_context(|| format!("removing {}", files.display()))
}

/// Tells where the API server is, lets nodes join, and waits.
async fn show<T>(
    folder: &Folder,
    access: &Access,
    args: &ApiServer,
    stop: &CancellationToken,
    end: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let kubeconfig = folder.secret("kubeconfig", &access.kubeconfig())?;
    let mut nodes = None;
    if args.kubelets > 0 {
        let started = start_nodes(access, args.kubelets, NODE_NAME.to_owned(), args.speed);
        nodes = unless_stopped(stop, started).await?;
    }
    say(&format!("API server  {}\n", access.server))?;
    say(&format!("export KUBECONFIG={}", kubeconfig.display()))?;
    let ended = end.await;
    // The server goes with them: nothing is to be tidied up.
    drop(nodes);
    Ok(ended)
}

async fn watch_over(real: &mut ControlPlane, stop: &CancellationToken) -> anyhow::Result<()> {
    while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
        real.check()?;
    }
    Ok(())
}

fn find(folder: Option<&Path>) -> anyhow::Result<Assets> {
    let Some(folder) = folder else {
        return Assets::find()
            .context("no real control plane is built; `make kube-assets` does it");
    };
    match Assets::at(folder) {
        Ok(assets) => Ok(assets),
        Err(missing) => bail!("--assets {}: {missing} is not there", folder.display()),
    }
}

async fn start_nodes(
    access: &Access,
    count: usize,
    name: String,
    speed: f64,
) -> anyhow::Result<Nodes> {
    let seed = fastrand::u64(..);
    let config = idle::Config { count, name, pace: Pace(speed), seed };
    Nodes::start(access, config).await.context("starting nodes")
}

async fn serve_cloud(args: CloudArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let folder = Folder::claim(&args.data)?;
    let address = loopback(args.port);
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let mut config = cloud::Config::demo(Clock::start(Timestamp::now()));
    config.pace = Pace(args.speed);
    config.seed = args.seed;
    config.faults = args.faults.concat();
    config.base_url = format!("http://{}", listener.local_addr()?);
    let url = config.base_url.clone();
    let cloud = Cloud::new(config);
    let clouds_yaml = folder.secret("clouds.yaml", &cloud.clouds_yaml())?;
    say(&format!("cloud       {url}\ninspection  {url}/lab/state, {url}/lab/faults\n"))?;
    say(&format!("export OS_CLIENT_CONFIG_FILE={} OS_CLOUD=drover", clouds_yaml.display()))?;
    cloud.serve(listener, stop).await.context("serving the cloud")
}

/// None when it was to stop before the work was done.
async fn unless_stopped<T>(
    stop: &CancellationToken,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    stop.run_until_cancelled(work).await.transpose()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_lab::cloud::Effect;

    #[test]
    fn a_fault_is_a_rule_or_a_file_of_rules_and_a_wrong_one_says_why() {
        let rule = r#"{"call": "compute POST /servers", "rate": 0.5, "effect": {"status": {"code": 503}}}"#;
        let rules = faults(rule).unwrap();
        assert_eq!((rules.len(), rules[0].rate), (1, 0.5));
        assert_eq!(rules[0].effect, Effect::status(503));
        let file = std::env::temp_dir().join(format!("drover-faults-{}", std::process::id()));
        std::fs::write(&file, format!("[{rule}, {rule}]")).unwrap();
        assert_eq!(faults(&format!("@{}", file.display())).unwrap().len(), 2);
        std::fs::remove_file(&file).unwrap();
        assert!(faults(r#"{"effect": "explode"}"#).unwrap_err().contains("explode"));
        assert!(faults("@/no/such/file").unwrap_err().starts_with("/no/such/file: "));
    }
}
