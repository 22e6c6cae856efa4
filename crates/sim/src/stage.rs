//! A world in process with Drover at work in it, and the questions its users ask of it.

use crate::door::{self, Door};
use crate::faults::{Life, Wire};
use anyhow::{Context, bail};
use drover_api::{Machine, MachineDeployment, MachineSet};
use drover_controllers::manager::{Manager, Settings};
use drover_controllers::metrics::Metrics;
use drover_controllers::rbac;
use drover_lab::clock::Pace;
use drover_lab::cloud::{Cloud, Ledger};
use drover_lab::dial;
use drover_lab::kubeconfig::Access;
use drover_lab::openstack::project::Project;
use drover_lab::world::{Config, Foreign, World};
use drover_openstack::transport::{self, Transport};
use drover_openstack::{OpenStack, Setup};
use drover_plan::bootstrap::{Downloads, KubeletSettings, Outside};
use drover_plan::machine::Cluster;
use drover_plan::skew::misfit;
use drover_provider::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The manifest of the documentation.
pub const EXAMPLE: &str = include_str!("../../../examples/metakube/machinedeployment.yaml");
/// Where the example lives.
pub const NAMESPACE: &str = "kube-system";
/// The mark of this cluster in the cloud.
const CLUSTER: &str = "sim";
/// How often a wait looks, in the time of the world.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a new kind may take to be served.
const SERVED_MAX: Duration = Duration::from_secs(240);
/// How much faster than life servers and pods start where nobody can wait for them.
const REAL_TIME_PACE: Pace = Pace(50.0);

/// A world with our kinds and rights installed, and nobody at work yet.
pub struct Stage {
    pub world: World,
    pub admin: Client,
    /// How long each chapter of a scenario may take, in the time of the world.
    pub chapter: Duration,
    /// Long enough for what is wrong to show, in the time of the world.
    pub a_while: Duration,
    manager: Door,
    /// Of a cloud that is not the lab's own.
    project: Option<Project>,
}

/// A manager at work.
pub struct Working {
    pub stop: CancellationToken,
    pub task: JoinHandle<bool>,
    pub metrics: Metrics,
}

/// The wires of one manager.
pub struct Wires {
    pub kubernetes: Wire<Door>,
    pub openstack: Wire<Transport>,
}

impl Stage {
    /// A world of this configuration.
    ///
    /// # Errors
    /// When the world or the installation is refused.
    pub async fn of(config: Config) -> anyhow::Result<Self> {
        let seconds = Duration::from_secs;
        let (chapter, a_while) = match config.in_process {
            true => (seconds(3600), seconds(900)),
            // A chapter takes half a minute on two quiet cores.
            false => (seconds(900), seconds(8)),
        };
        let world = World::start(config).await?;
        let admin = door::admin(world.plane()).await?;
        let mut objects = rbac::objects(&[]);
        for crd in drover_api::crds() {
            objects.push(serde_json::to_value(&crd)?);
        }
        for object in &objects {
            apply(&admin, object).await?;
        }
        until_served(&admin).await?;
        let manager = door::manager(world.plane(), &admin).await?;
        Ok(Self { world, admin, chapter, a_while, manager, project: None })
    }

    /// A world in real time with an API server of the lab's, in this project of an OpenStack that is there.
    ///
    /// # Errors
    /// When the world or the installation is refused.
    pub async fn in_project(project: Project) -> anyhow::Result<Self> {
        let (account, admin) = project.access();
        let now = Timestamp::now();
        let openstack = Some(Foreign { account, admin: Some(admin) });
        let config = Config { openstack, pace: REAL_TIME_PACE, ..Config::loopback(now) };
        // Services on a busy machine take minutes for what a quiet one does in seconds.
        let chapter = Duration::from_mins(10);
        Ok(Self { project: Some(project), chapter, ..Self::of(config).await? })
    }

    /// Ends the world, and the project that it was in: nothing is left there.
    ///
    /// # Errors
    /// When something is left in the project, or what was not Drover's is not as it was.
    pub async fn end(self) -> anyhow::Result<()> {
        self.world.stop().await;
        match self.project {
            Some(project) => Ok(project.end().await?),
            None => Ok(()),
        }
    }

    /// The simulated cloud, to which anything can happen.
    ///
    /// # Errors
    /// When the cloud is a real one.
    pub fn cloud(&self) -> anyhow::Result<&Cloud> {
        self.world.cloud().context("nothing can be made to happen to a real cloud")
    }

    /// A world in real time over TLS, at this API server or, without one, at the lab's own.
    ///
    /// # Errors
    /// When the world or the installation is refused.
    pub async fn over_tls(api: Option<Access>) -> anyhow::Result<Self> {
        let now = Timestamp::now();
        Self::of(Config { api, pace: REAL_TIME_PACE, ..Config::loopback(now) }).await
    }

    /// A world without sockets.
    ///
    /// # Errors
    /// When the world or the installation is refused.
    pub async fn start() -> anyhow::Result<Self> {
        Self::of(Config::in_process()).await
    }

    /// Creates any object as an administrator.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn create(&self, object: &Value) -> Result<DynamicObject, kube::Error> {
        let typed: DynamicObject =
            serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        api(&self.admin, object).create(&PostParams::default(), &typed).await
    }

    /// The place where an object of this kind and namespace lives.
    #[must_use]
    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        api(&self.admin, object)
    }

    /// Wires that last as long as `life`, with the rights of Drover's ServiceAccount.
    #[must_use]
    pub fn wires(&self, life: &Arc<Life>) -> Wires {
        Wires {
            kubernetes: Wire::new(self.manager.clone(), life.clone()),
            openstack: Wire::new(self.transport(), life.clone()),
        }
    }

    fn transport(&self) -> Transport {
        match self.world.cloud() {
            Some(cloud) => transport::of(cloud.router()),
            None => transport::of(dial::plain()),
        }
    }

    fn clouds_yaml(&self) -> anyhow::Result<String> {
        match &self.project {
            Some(project) => Ok(project.clouds_yaml().to_owned()),
            None => self.world.clouds_yaml().context("a stage has a cloud"),
        }
    }

    async fn ledger(&self) -> anyhow::Result<Ledger> {
        match &self.project {
            Some(project) => Ok(project.ledger().await?),
            None => Ok(self.cloud()?.ledger()),
        }
    }

    /// A manager at work over these wires.
    ///
    /// # Errors
    /// When the cloud's file cannot be read.
    pub fn work(&self, wires: Wires) -> anyhow::Result<Working> {
        self.work_as(wires, "sim", |_| {})
    }

    /// A manager of this name at work over these wires, with other settings.
    ///
    /// # Errors
    /// When the cloud's file cannot be read.
    pub fn work_as(
        &self,
        wires: Wires,
        identity: &str,
        change: impl FnOnce(&mut Settings),
    ) -> anyhow::Result<Working> {
        let clock = self.world.clock();
        let credentials = OpenStack::credentials_of(&self.clouds_yaml()?, "drover")?;
        let setup = Setup::new(Some(credentials))
            .over(transport::of(wires.openstack))
            .clock(Clock::of(move || clock.now()))
            .seed(1);
        let provider = Arc::new(OpenStack::new(setup));
        let client = Client::new(wires.kubernetes, NAMESPACE);
        let mut settings = Settings::new(CLUSTER.to_owned(), self.cluster());
        settings.elect_leader = false;
        settings.machine.look_interval = settings.machine.look_interval.min(self.a_while);
        change(&mut settings);
        let manager =
            Manager::new(client, provider, settings, Clock::of(move || clock.now()), identity);
        let stop = CancellationToken::new();
        let metrics = manager.metrics();
        let task = tokio::spawn(manager.run(stop.clone()));
        Ok(Working { stop, task, metrics })
    }

    /// What the machines of this world boot with.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        Cluster {
            api_server_url: self.world.api_url().to_owned(),
            ca_pem: self.world.ca_pem().to_owned(),
            dns: vec![],
            domain: "cluster.local".to_owned(),
            kubelet: KubeletSettings::default(),
            downloads: Downloads::default(),
            outside: Outside::default(),
        }
    }

    pub fn pools(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    /// The example; with a kubelet of the API server's version where its own does not go with it.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn example(&self) -> anyhow::Result<MachineDeployment> {
        let mut example: MachineDeployment = serde_saphyr::from_str(EXAMPLE)?;
        let server = self.admin.apiserver_version().await?.git_version;
        let kubelet = &mut example.spec.template.spec.versions.kubelet;
        if let Some(misfit) = misfit(kubelet, &server) {
            *kubelet = misfit.instead;
        }
        Ok(example)
    }

    /// The example with so many replicas.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn apply_example(&self, replicas: u32) -> anyhow::Result<()> {
        let mut example = self.example().await?;
        example.spec.replicas = replicas;
        if let Some(project) = &self.project {
            let spec = &mut example.spec.template.spec.provider_spec.value;
            let spec = spec.as_mut().context("the example describes a server")?;
            spec["cloudProviderSpec"] = project.description();
        }
        self.pools().create(&PostParams::default(), &example).await?;
        Ok(())
    }

    /// # Errors
    /// What the API server answers.
    pub async fn scale(&self, replicas: u32) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.pools().patch_scale("nodes", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Lets so many machines be there beyond the wanted ones.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn surge(&self, machines: u32) -> anyhow::Result<()> {
        let bounds = json!({ "rollingUpdate": { "maxSurge": machines } });
        let patch = Patch::Merge(json!({ "spec": { "strategy": bounds } }));
        self.pools().patch("nodes", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Has every machine of the example replaced.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn restart(&self) -> anyhow::Result<()> {
        let now = self.world.clock().now().to_string();
        let patch = Patch::Merge(json!({ "spec": { "template": { "metadata": { "annotations": {
            "kubectl.kubernetes.io/restartedAt": now,
        }}}}}));
        self.pools().patch("nodes", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The time of the world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.clock().now()
    }

    /// What is there now.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn census(&self) -> anyhow::Result<Census> {
        let everything = ListParams::default();
        let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
        let secrets = Api::<Secret>::namespaced(self.admin.clone(), NAMESPACE);
        let pool = self.pools().get_opt("nodes").await?;
        Ok(Census {
            machines: self.machines().list(&everything).await?.items,
            nodes: self.nodes().list(&everything).await?.items,
            tokens: secrets.list(&tokens).await?.items.len(),
            available: pool.and_then(|pool| pool.status).map_or(0, |it| it.available_replicas),
            cloud: self.ledger().await?,
        })
    }

    /// Waits until the pool is exactly so many machines, each with one server and one Ready Node, none
    /// of `old`, and nothing is left of anything else.
    ///
    /// # Errors
    /// When `limit` has passed in the world, with what is there then.
    pub async fn whole(
        &self,
        replicas: usize,
        old: &BTreeSet<String>,
        limit: Duration,
    ) -> anyhow::Result<Census> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let is_over = tokio::time::Instant::now() >= deadline;
            let looked = match self.may_be_whole(replicas).await {
                Ok(false) if !is_over => None,
                Ok(_) => Some(self.census().await),
                Err(error) => Some(Err(error)),
            };
            match looked.map(|it| it.map(|census| (census.missing(replicas, old), census))) {
                Some(Ok((None, census))) => return Ok(census),
                Some(Ok((Some(missing), census))) if is_over => {
                    bail!("after {limit:?} the pool is not whole: {missing}; {census}")
                }
                // An API server that restarts says so for a while.
                Some(Err(error)) if is_over => return Err(error),
                _ => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until something is so.
    ///
    /// # Errors
    /// When a chapter's time has passed.
    pub async fn until(
        &self,
        what: &str,
        is_so: impl AsyncFn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + self.chapter;
        while !is_so(self).await? {
            if tokio::time::Instant::now() > deadline {
                bail!("no {what} after {:?}; {}", self.chapter, self.census().await?);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// A glance that costs little, for a census of a large pool is dear.
    async fn may_be_whole(&self, replicas: usize) -> anyhow::Result<bool> {
        let status = self.pools().get_opt("nodes").await?.and_then(|pool| pool.status);
        let available = status.map_or(0, |status| status.available_replicas as usize);
        let servers = self.world.cloud().map(|cloud| cloud.ledger().servers.len());
        Ok(available == replicas && servers.is_none_or(|servers| servers == replicas))
    }
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Kubernetes: a new kind is established, and then refuses with 429 until its cache is filled.
async fn until_served(client: &Client) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + SERVED_MAX;
    loop {
        let one = ListParams::default().limit(1);
        let pools = Api::<MachineDeployment>::all(client.clone());
        let sets = Api::<MachineSet>::all(client.clone());
        let machines = Api::<Machine>::all(client.clone());
        let asked = async {
            pools.list(&one).await?;
            sets.list(&one).await?;
            machines.list(&one).await
        };
        match asked.await {
            Ok(_) => return Ok(()),
            Err(error) if tokio::time::Instant::now() > deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// Installs an object, whether it is there or not.
async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply("stage").force();
    let applied = api(client, object).patch(name, &params, &Patch::Apply(object)).await;
    applied.map(drop).with_context(|| format!("applying {} {name}", object["kind"]))
}

impl Working {
    /// Ends it in order.
    ///
    /// # Errors
    /// When a task of it panicked.
    pub async fn end(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await.context("the manager panicked").map(drop)
    }
}

/// All that Drover has to answer for.
pub struct Census {
    pub machines: Vec<Machine>,
    pub nodes: Vec<Node>,
    pub tokens: usize,
    pub available: u32,
    pub cloud: Ledger,
}

impl Census {
    /// The UIDs of the machines.
    #[must_use]
    pub fn uids(&self) -> BTreeSet<String> {
        self.machines.iter().filter_map(ResourceExt::uid).collect()
    }

    /// What keeps the pool from being whole, if anything does.
    #[must_use]
    pub fn missing(&self, replicas: usize, old: &BTreeSet<String>) -> Option<String> {
        let ready = self.nodes.iter().filter(|node| drover_plan::node::is_ready(node)).count();
        let counts: BTreeMap<&str, usize> = [
            ("machines", self.machines.len()),
            ("nodes", self.nodes.len()),
            ("ready nodes", ready),
            ("available", self.available as usize),
            ("servers", self.cloud.servers.len()),
            ("ports", self.cloud.ports.len()),
            ("floating IPs", self.cloud.floating_ips.len()),
        ]
        .into();
        if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count != replicas) {
            return Some(format!("{count} {what} instead of {replicas}"));
        }
        if self.tokens > 0 {
            return Some(format!("{} bootstrap tokens are left", self.tokens));
        }
        let left = self.uids().intersection(old).count();
        (left > 0).then(|| format!("{left} machines are to be replaced"))
    }

    /// The machine for which more than one server was ever made, if there is one.
    #[must_use]
    pub fn made_twice(&self) -> Option<(&String, &u64)> {
        let of_machines = |tag: &&String| tag.starts_with("drover.machine.");
        self.cloud.made.iter().find(|(tag, count)| of_machines(tag) && **count > 1)
    }
}

impl std::fmt::Display for Census {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for machine in &self.machines {
            let status = machine.status.clone().unwrap_or_default();
            let phase = status.phase.map_or("new", drover_api::Phase::as_str);
            let deleting = machine.metadata.deletion_timestamp.is_some();
            write!(f, "\n  {} {phase} deleting={deleting}", machine.name_any())?;
            for condition in &status.conditions {
                let (type_, status) = (&condition.type_, condition.status.as_str());
                write!(f, "\n    {type_}={status} {}: {}", condition.reason, condition.message)?;
            }
            if let Some(error) = &status.error_message {
                write!(f, "\n    error: {error}")?;
            }
        }
        let names: Vec<String> = self.nodes.iter().map(ResourceExt::name_any).collect();
        write!(f, "\n  nodes {names:?}, {} tokens", self.tokens)?;
        for (what, entries) in [
            ("server", &self.cloud.servers),
            ("port", &self.cloud.ports),
            ("volume", &self.cloud.volumes),
            ("floating IP", &self.cloud.floating_ips),
        ] {
            for entry in entries {
                write!(
                    f,
                    "\n  {what} {} {} {} {:?}",
                    entry.name, entry.id, entry.status, entry.owner
                )?;
            }
        }
        Ok(())
    }
}
