//! `drover dev`: a whole world on this machine, and Drover at work in it.

use super::manager::{Tuning, cluster_id, connect, node_settings, stop_on_signal};
use super::{demo, narrate};
use anyhow::{Context, bail};
use drover_controllers::manager::{Manager, Settings};
use drover_controllers::rbac;
use drover_lab::clock::Pace;
use drover_lab::world::{Config, World};
use drover_openstack::{OpenStack, Setup};
use drover_provider::Clock;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use std::fs::{File, TryLockError};
use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the parts may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long a new kind may take to be served.
const ESTABLISH_MAX: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub struct Args {
    /// Where kubeconfig and clouds.yaml are written
    #[arg(long, default_value = ".drover", value_name = "DIR")]
    data: PathBuf,
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

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed.is_finite() => Ok(speed),
        _ => Err("give a number greater than 0, such as 10".to_owned()),
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let data = Data::claim(&args.data)?;
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let world = World::start(Config {
        api_addr: loopback(args.api_port),
        cloud_addr: loopback(args.cloud_port),
        pace: Pace(args.speed),
        ..Config::loopback(Timestamp::now())
    })
    .await
    .context("starting the world; --api-port 0 takes a free port")?;

    let files = Files::write(&data.folder, &world)?;
    let admin = connect(Some(&files.kubeconfig)).await?;
    install(&admin).await?;
    let manager = manager(&args, &files, &admin).await?;
    let working = tokio::spawn(manager.run(stop.clone()));
    say_hello(&files, &world)?;
    if !args.demo {
        narrate::say("kubectl apply -f examples/metakube/machinedeployment.yaml\n")?;
    }
    if std::io::stdout().is_terminal() {
        tokio::spawn(narrate::events(admin.clone(), stop.clone()));
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

/// The folder of one running world. The lock goes with the process, however that ends.
struct Data {
    folder: PathBuf,
    _lock: File,
}

impl Data {
    fn claim(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
        let folder =
            folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
        let path = folder.join("lock");
        let lock = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("{} is in use by another drover dev; give another --data", folder.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", path.display()))
            }
        }
    }
}

/// What a user needs to look into the world. Secret: the files let anyone do anything in it.
struct Files {
    kubeconfig: PathBuf,
    manager_kubeconfig: PathBuf,
    clouds_yaml: PathBuf,
}

impl Files {
    fn write(data: &Path, world: &World) -> anyhow::Result<Self> {
        let files = Self {
            kubeconfig: data.join("kubeconfig"),
            manager_kubeconfig: data.join("manager.kubeconfig"),
            clouds_yaml: data.join("clouds.yaml"),
        };
        let account =
            format!("system:serviceaccount:{}:{}", rbac::NAMESPACE, rbac::SERVICE_ACCOUNT);
        let of_namespace = format!("system:serviceaccounts:{}", rbac::NAMESPACE);
        let groups = ["system:serviceaccounts", of_namespace.as_str()];
        write_secret(&files.kubeconfig, &world.admin_kubeconfig())?;
        write_secret(&files.manager_kubeconfig, &world.kubeconfig(&account, &groups))?;
        write_secret(&files.clouds_yaml, &world.clouds_yaml())?;
        Ok(files)
    }
}

fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Installs the kinds and the rights, as a user would with `drover manifests`.
async fn install(admin: &Client) -> anyhow::Result<()> {
    let apply = PatchParams::apply("drover-dev").force();
    let mut kinds = Vec::new();
    for crd in drover_api::crds() {
        kinds.push(crd.metadata.name.clone().unwrap_or_default());
        apply_object(admin, &serde_json::to_value(&crd)?, &apply).await?;
    }
    for object in rbac::objects(&[]) {
        apply_object(admin, &object, &apply).await?;
    }
    let crds = Api::all(admin.clone());
    for name in kinds {
        let established = kube::runtime::conditions::is_crd_established();
        let served = kube::runtime::wait::await_condition(crds.clone(), &name, established);
        tokio::time::timeout(ESTABLISH_MAX, served)
            .await
            .with_context(|| format!("the API server does not serve {name}"))??;
    }
    Ok(())
}

async fn apply_object(admin: &Client, object: &Value, apply: &PatchParams) -> anyhow::Result<()> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let kind = GroupVersionKind::gvk(group, version, text("/kind"));
    let resource = ApiResource::from_gvk(&kind);
    let api = match text("/metadata/namespace") {
        "" => Api::<DynamicObject>::all_with(admin.clone(), &resource),
        namespace => Api::namespaced_with(admin.clone(), namespace, &resource),
    };
    let name = text("/metadata/name");
    let applied = api.patch(name, apply, &Patch::Apply(object)).await;
    applied.map(drop).with_context(|| format!("applying {} {name}", text("/kind")))
}

/// The manager as in production: with the rights of its ServiceAccount and the cloud's own file.
async fn manager(args: &Args, files: &Files, admin: &Client) -> anyhow::Result<Manager> {
    let client = connect(Some(&files.manager_kubeconfig)).await?;
    let clouds = std::fs::read_to_string(&files.clouds_yaml).context("reading clouds.yaml")?;
    let credentials = OpenStack::credentials_of(&clouds, "drover")?;
    let provider = OpenStack::new(Setup::new(Some(credentials)));
    let nodes = node_settings(admin, None).await?;
    let mut settings = Settings::new(cluster_id(admin).await?, nodes);
    args.tuning.apply(&mut settings);
    Ok(Manager::new(client, Arc::new(provider), settings, Clock::system(), "dev"))
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
