//! `drover dev`: a whole world on this machine, and Drover at work in it.

use super::folder::Folder;
use super::manager::{Tuning, cluster_id, connect, node_settings, stop_on_signal};
use super::{account, demo, install, narrate, speed};
use anyhow::Context;
use drover_controllers::manager::{Manager, Settings};
use drover_lab::clock::Pace;
use drover_lab::kubeconfig::Access;
use drover_lab::world::{Config, World};
use drover_openstack::{OpenStack, Setup};
use drover_provider::Clock;
use jiff::Timestamp;
use kube::Client;
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
    tuning: Tuning,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let began = Timestamp::now();
    let folder = Arc::new(Folder::claim(&args.data)?);
    let world = start_world(&args, began).await?;
    let files = Files::write(&folder, &world)?;
    let admin = connect(Some(&files.kubeconfig)).await?;
    install::kinds_and_rights(&admin).await?;
    let account = account::Account::new(admin.clone(), folder.clone());
    let expires = account.renew().await?;
    tokio::spawn(account.keep(expires, stop.clone()));
    let (client, settings) = begin(&args, &files).await?;
    let working =
        tokio::spawn(keep_working(client, settings, files.provider(&args.tuning)?, stop.clone()));
    say_hello(&files, &world)?;
    if !args.demo {
        narrate::say("kubectl apply -f examples/metakube/machinedeployment.yaml\n")?;
    }
    if std::io::stdout().is_terminal() {
        tokio::spawn(narrate::events(admin.clone(), began, stop.clone()));
    }
    let ended = if args.demo {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the story was told")),
            told = demo::tell(admin) => told,
        }
    } else {
        stop.cancelled().await;
        Ok(())
    };
    stop.cancel();
    // A part that hangs must not keep the terminal; the world is in memory and dies with us.
    let _ = tokio::time::timeout(STOP_MAX, working).await;
    let _ = tokio::time::timeout(STOP_MAX, world.stop()).await;
    ended
}

async fn start_world(args: &Args, began: Timestamp) -> anyhow::Result<World> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let config = Config {
        api: args.kubeconfig.as_deref().map(Access::read).transpose()?,
        api_addr: loopback(args.api_port),
        cloud_addr: loopback(args.cloud_port),
        pace: Pace(args.speed),
        ..Config::loopback(began)
    };
    let hint = match &args.kubeconfig {
        Some(file) => format!("starting the world at the API server of {}", file.display()),
        None => "starting the world; --api-port 0 takes a free port".to_owned(),
    };
    World::start(config).await.context(hint)
}

/// What a user needs to look into the world. Secret: the files let anyone do anything in it.
struct Files {
    kubeconfig: PathBuf,
    manager_kubeconfig: PathBuf,
    clouds_yaml: PathBuf,
}

impl Files {
    fn write(folder: &Folder, world: &World) -> anyhow::Result<Self> {
        let access = world.plane().access();
        let manager = account::kubeconfig(folder, &access);
        Ok(Self {
            kubeconfig: folder.secret("kubeconfig", &access.kubeconfig())?,
            manager_kubeconfig: folder.secret("manager.kubeconfig", &manager)?,
            clouds_yaml: folder.secret("clouds.yaml", &world.clouds_yaml())?,
        })
    }

    fn provider(&self, tuning: &Tuning) -> anyhow::Result<Arc<OpenStack>> {
        let clouds = std::fs::read_to_string(&self.clouds_yaml).context("reading clouds.yaml")?;
        let credentials = OpenStack::credentials_of(&clouds, "drover")?;
        let setup = Setup::new(Some(credentials)).local_storage(&tuning.local_storage_flavors);
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

fn say_hello(files: &Files, world: &World) -> anyhow::Result<()> {
    let lines = [
        format!("API server  {}", world.api_url()),
        format!("cloud       {}", world.cloud_url()),
        String::new(),
        format!("export KUBECONFIG={}", files.kubeconfig.display()),
        format!("export OS_CLIENT_CONFIG_FILE={} OS_CLOUD=drover", files.clouds_yaml.display()),
    ];
    lines.iter().try_for_each(|line| narrate::say(line))
}
