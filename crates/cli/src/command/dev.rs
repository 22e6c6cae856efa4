//! `drover dev`: a whole world on this machine, and Drover at work in it.

use super::folder::Folder;
use super::manager::{Tuning, cluster_id, connect, node_settings, stop_on_signal};
use super::os_cloud::{self, OsCloud};
use super::{account, demo, farewell, install, narrate, speed};
use anyhow::Context;
use drover_controllers::manager::{Manager, Settings};
use drover_lab::clock::Pace;
use drover_lab::kubeconfig::Access;
use drover_lab::world::{Config, World};
use drover_openstack::{OpenStack, Setup};
use drover_provider::Clock;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the parts may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Before a manager that could not begin or lost its lead is followed by the next.
const RESTART_AFTER: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Args {
    /// Where kubeconfig and clouds.yaml are written
    #[arg(long, default_value = ".drover", value_name = "DIR")]
    data: PathBuf,
    /// Use this API server in place of the embedded one, as a user who may do everything. It should be of a cluster
    /// without nodes of its own: the simulated ones join it, and Drover's kinds and rights are installed
    #[arg(long, value_name = "FILE", conflicts_with = "api_port")]
    kubeconfig: Option<PathBuf>,
    /// The API server's port on loopback; 0 takes a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    api_port: u16,
    /// The cloud's port on loopback; 0 takes a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    cloud_port: u16,
    /// How many times faster than life servers and pods start
    #[arg(long, default_value_t = 5.0, value_name = "N", value_parser = speed)]
    #[arg(allow_negative_numbers = true)]
    speed: f64,
    /// Tell the story of a pool, step by step, and end
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    openstack: os_cloud::Choice,
    #[command(flatten)]
    tuning: Tuning,
}

/// The pool of the documentation, where a clone has it.
const EXAMPLE_FILE: &str = "examples/metakube/machinedeployment.yaml";

pub async fn run(args: Args) -> anyhow::Result<()> {
    let asked = CancellationToken::new();
    tokio::spawn(stop_on_signal(asked.clone()));
    let stop = CancellationToken::new();
    let began = Timestamp::now();
    let folder = Arc::new(Folder::claim(&args.data)?);
    let cloud = args.openstack.find().await?;
    let world = start_world(&args, cloud.as_ref(), began).await?;
    let files = Files::write(&folder, &world, cloud.as_ref())?;
    let admin = connect(Some(&files.kubeconfig)).await?;
    install::kinds_and_rights(&admin).await?;
    let account = account::Account::new(admin.clone(), folder.clone());
    let expires = account.renew().await?;
    tokio::spawn(account.keep(expires, stop.clone()));
    let (client, settings) = begin(&args, &files).await?;
    let provider = files.provider(cloud.as_ref(), &args.tuning)?;
    let working = tokio::spawn(keep_working(client, settings, provider, stop.clone()));
    say_hello(&files, &world, cloud.as_ref())?;
    if !args.demo {
        narrate::say(&format!("kubectl apply -f {}\n", files.pool))?;
    }
    if std::io::stdout().is_terminal() {
        tokio::spawn(narrate::events(admin.clone(), began, stop.clone()));
    }
    let ended = if args.demo {
        tokio::select! {
            biased;
            () = asked.cancelled() => Err(anyhow::anyhow!("stopped before the story was told")),
            told = demo::tell(admin.clone(), pool(cloud.as_ref())?, &files.pool) => told,
        }
    } else {
        asked.cancelled().await;
        Ok(())
    };
    let left = match &cloud {
        Some(cloud) if args.kubeconfig.is_none() => {
            farewell::take_servers_along(&admin, &cloud.name).await
        }
        _ => Ok(()),
    };
    stop.cancel();
    // A part that hangs must not keep the terminal; the world is in memory and dies with us.
    let _ = tokio::time::timeout(STOP_MAX, working).await;
    let _ = tokio::time::timeout(STOP_MAX, world.stop()).await;
    ended.and(left)
}

async fn start_world(
    args: &Args,
    cloud: Option<&OsCloud>,
    began: Timestamp,
) -> anyhow::Result<World> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let plain = Config::loopback(began);
    let config = Config {
        api: args.kubeconfig.as_deref().map(Access::read).transpose()?,
        openstack: cloud.map(OsCloud::foreign),
        // In a cloud that others use, and that outlives this world, nothing may be taken for another world's.
        seed: if cloud.is_some() { fastrand::u64(..) } else { plain.seed },
        api_addr: loopback(args.api_port),
        cloud_addr: loopback(args.cloud_port),
        pace: Pace(args.speed),
        ..plain
    };
    let hint = match (&args.kubeconfig, cloud) {
        (Some(file), _) => format!("starting the world at the API server of {}", file.display()),
        (None, Some(cloud)) => format!("starting the world at the cloud {}", cloud.name),
        (None, None) => "starting the world; --api-port 0 takes a free port".to_owned(),
    };
    World::start(config).await.context(hint)
}

/// The pool to begin with.
fn pool(cloud: Option<&OsCloud>) -> anyhow::Result<Value> {
    match cloud {
        Some(cloud) => Ok(cloud.pool.clone()),
        None => serde_saphyr::from_str(demo::EXAMPLE).context("reading the example"),
    }
}

/// What a user needs to look into the world. Secret: the files let anyone do anything in it.
struct Files {
    kubeconfig: PathBuf,
    manager_kubeconfig: PathBuf,
    /// Of the embedded cloud; another has its own.
    clouds_yaml: Option<PathBuf>,
    /// A pool that fits the cloud, as a user would type it.
    pool: String,
}

impl Files {
    fn write(folder: &Folder, world: &World, cloud: Option<&OsCloud>) -> anyhow::Result<Self> {
        let access = world.plane().access();
        let manager = account::kubeconfig(folder, &access);
        let clouds_yaml = world.clouds_yaml().map(|text| folder.secret("clouds.yaml", &text));
        let pool = match cloud {
            None => EXAMPLE_FILE.to_owned(),
            Some(cloud) => {
                let text = serde_saphyr::to_string(&cloud.pool).context("writing the pool")?;
                folder.secret("pool.yaml", &text)?.display().to_string()
            }
        };
        Ok(Self {
            kubeconfig: folder.secret("kubeconfig", &access.kubeconfig())?,
            manager_kubeconfig: folder.secret("manager.kubeconfig", &manager)?,
            clouds_yaml: clouds_yaml.transpose()?,
            pool,
        })
    }

    fn provider(&self, cloud: Option<&OsCloud>, tuning: &Tuning) -> anyhow::Result<Arc<OpenStack>> {
        let credentials = match (cloud, &self.clouds_yaml) {
            (Some(cloud), _) => Some(cloud.credentials.clone()),
            (None, Some(file)) => {
                let clouds = std::fs::read_to_string(file).context("reading clouds.yaml")?;
                Some(OpenStack::credentials_of(&clouds, "drover")?)
            }
            (None, None) => None,
        };
        let setup = Setup::new(credentials).local_storage(&tuning.local_storage_flavors);
        Ok(Arc::new(OpenStack::new(setup)))
    }
}

/// The manager begins as in production: it reads all it needs with the rights of its ServiceAccount.
async fn begin(args: &Args, files: &Files) -> anyhow::Result<(Client, Settings)> {
    let client = connect(Some(&files.manager_kubeconfig)).await?;
    install::until_granted(&client).await?;
    let nodes = node_settings(&client, None).await?;
    let mut settings = Settings::new(cluster_id(&client).await?, nodes);
    args.tuning.apply(&mut settings);
    Ok((client, settings))
}

/// A manager that loses its lead ends; as in a Pod, the next one takes its place.
async fn keep_working(
    client: Client,
    settings: Settings,
    provider: Arc<OpenStack>,
    stop: CancellationToken,
) {
    let identity = format!("dev-{}", std::process::id());
    loop {
        let manager = Manager::new(
            client.clone(),
            provider.clone(),
            settings.clone(),
            Clock::system(),
            &identity,
        );
        if manager.run(stop.clone()).await {
            return;
        }
        tracing::warn!("the manager lost its lead; the next one begins");
        tokio::time::sleep(RESTART_AFTER).await;
    }
}

fn say_hello(files: &Files, world: &World, cloud: Option<&OsCloud>) -> anyhow::Result<()> {
    let mut lines = vec![
        format!("API server  {}", world.api_url()),
        format!("cloud       {}", world.cloud_url()),
    ];
    lines.extend(cloud.map(|cloud| format!("nodes       {}", cloud.nodes(world.api_url()))));
    lines.push(String::new());
    lines.push(format!("export KUBECONFIG={}", files.kubeconfig.display()));
    lines.push(match (cloud, &files.clouds_yaml) {
        (Some(cloud), _) => format!("export OS_CLOUD={}", cloud.name),
        (None, Some(file)) => {
            format!("export OS_CLIENT_CONFIG_FILE={} OS_CLOUD=drover", file.display())
        }
        (None, None) => String::new(),
    });
    lines.iter().try_for_each(|line| narrate::say(line))
}
