//! The provider: one cloud for each set of credentials, and the trait's verbs.

use crate::{
    account::Account,
    cloud::Cloud,
    clouds_yaml, complete,
    create::Creation,
    delete::Deletion,
    gate::Gates,
    holdings, instance,
    lookup::Lookups,
    marks::Marks,
    parameters::Parameters,
    place,
    promise::Deeds,
    recall::Recall,
    session::Session,
    transport::{self, Dial},
};
use drover_provider::{
    Claim, Clock, Created, Credentials, Deleted, Error, Holding, Instance, Memory, Order, Owner,
    Provider,
};
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Sessions kept at most; beyond it all log in anew. Rotated credentials leave dead ones behind.
const SESSIONS: usize = 200;

/// What a provider is started with.
pub struct Setup {
    /// The cloud of machines without credentials of their own.
    pub default: Option<Credentials>,
    pub dial: Dial,
    pub clock: Clock,
    /// Of the jitter between repetitions.
    pub seed: u64,
    /// Flavors with their disk on the host, which cannot boot from a volume: names in which `*` stands for anything.
    pub local_storage: Arc<[String]>,
}

/// MetaKube: flavors of this family have local storage.
pub const LOCAL_STORAGE: &str = "l1.*";

impl Setup {
    /// The real network and time.
    #[must_use]
    pub fn new(default: Option<Credentials>) -> Self {
        Self {
            default,
            dial: transport::network(),
            clock: Clock::system(),
            seed: fastrand::u64(..),
            local_storage: Arc::new([LOCAL_STORAGE.to_owned()]),
        }
    }

    /// All credentials lead to this transport, such as a simulated cloud in process.
    #[must_use]
    pub fn over(mut self, transport: transport::Transport) -> Self {
        self.dial = Arc::new(move |_| Ok(transport.clone()));
        self
    }

    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    #[must_use]
    pub fn local_storage(mut self, patterns: &[String]) -> Self {
        self.local_storage = patterns.into();
        self
    }
}

/// Servers of OpenStack clouds.
pub struct OpenStack {
    setup: Setup,
    gates: Arc<Gates>,
    /// By a digest of the credentials and the region.
    clouds: Mutex<BTreeMap<[u8; 32], Arc<Cloud>>>,
    deeds: Deeds,
}

impl OpenStack {
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup, gates: Arc::default(), clouds: Mutex::default(), deeds: Deeds::default() }
    }

    /// With the default cloud of this process: `cloud`, or `OS_CLOUD`, of the first `clouds.yaml` on
    /// the search path, or the `OS_*` variables. Without any of these, machines must bring their own.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the named cloud is not there or is incomplete.
    pub fn from_environment(cloud: Option<&str>, local_storage: &[String]) -> Result<Self, Error> {
        let default = Self::credentials_from_environment(cloud)?;
        Ok(Self::new(Setup::new(default).local_storage(local_storage)))
    }

    /// The credentials of the default cloud of this process, as [`OpenStack::from_environment`] finds them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the named cloud is not there or is incomplete.
    pub fn credentials_from_environment(cloud: Option<&str>) -> Result<Option<Credentials>, Error> {
        let found = clouds_yaml::from_environment(cloud, &|name| std::env::var(name).ok())?;
        if let Some(credentials) = &found {
            Account::read(credentials)?;
        }
        Ok(found)
    }

    /// The default cloud out of the text of a `clouds.yaml`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no such cloud.
    pub fn credentials_of(clouds_yaml: &str, cloud: &str) -> Result<Credentials, Error> {
        let pairs = [("clouds.yaml", clouds_yaml), ("cloud", cloud)];
        clouds_yaml::unfold(&pairs.into_iter().collect())
    }

    fn cloud(&self, credentials: &Credentials, region: Option<&str>) -> Result<Arc<Cloud>, Error> {
        let given = match &self.setup.default {
            _ if !credentials.is_empty() => credentials,
            Some(default) => default,
            None => {
                return Err(Error::Invalid(
                    "neither the machine nor the manager names a cloud; give the machine \
                     credentials, or start the manager with OS_CLOUD or OS_AUTH_URL"
                        .into(),
                ));
            }
        };
        let manager = self.setup.default.as_ref().filter(|_| credentials.are_completed());
        let (given, mut account) = complete::read(given, manager)?;
        account.region = region.map(str::to_owned).or(account.region);
        let key = fingerprint(&given, account.region.as_deref());
        let mut clouds = self.clouds.lock().expect("nobody panics with this lock");
        if let Some(cloud) = clouds.get(&key) {
            return Ok(cloud.clone());
        }
        let transport = (self.setup.dial)(&account.tls)?;
        let clock = self.setup.clock.clone();
        let session = Session::new(account, transport, clock, self.gates.clone(), self.setup.seed);
        let lookups = Lookups::new(self.setup.local_storage.clone());
        let cloud = Arc::new(Cloud::new(session, lookups));
        if clouds.len() >= SESSIONS {
            clouds.clear();
        }
        clouds.insert(key, cloud.clone());
        Ok(cloud)
    }

    /// The cloud in which a machine is, or is to be.
    async fn home(&self, claim: &Claim) -> Result<Arc<Cloud>, Error> {
        let Some(place) = &claim.place else {
            return self.cloud(&claim.credentials, region(&claim.parameters));
        };
        let cloud = self.cloud(&claim.credentials, place::region(place))?;
        place::check(place, &cloud.session).await?;
        Ok(cloud)
    }

    async fn create(&self, order: &Order, memory: &Memory) -> Result<Created, Error> {
        let parameters = Parameters::parse(&order.claim.parameters)?;
        let cloud = self.home(&order.claim).await?;
        let creation = Creation {
            cloud: &cloud,
            deeds: &self.deeds,
            order,
            marks: Marks::of(&order.claim.owner)?,
            recall: Recall::read(memory, self.setup.clock.now()),
            machine: key(&order.claim.owner),
            parameters,
        };
        creation.run().await
    }

    async fn delete(&self, claim: &Claim, memory: &Memory) -> Result<Deleted, Error> {
        let cloud = self.home(claim).await?;
        let deletion = Deletion {
            cloud: &cloud,
            deeds: &self.deeds,
            marks: Marks::of(&claim.owner)?,
            parameters: Parameters::parse(&claim.parameters).ok(),
            recall: Recall::read(memory, self.setup.clock.now()),
            machine: key(&claim.owner),
        };
        deletion.run().await
    }

    async fn look(&self, claim: &Claim) -> Result<Option<Instance>, Error> {
        let cloud = self.home(claim).await?;
        let marks = Marks::of(&claim.owner)?;
        let servers = cloud.servers_of(&marks).await?;
        if let Some(odd) = servers.iter().find(|it| !marks.on_server(it)) {
            return Err(instance::unclear(odd));
        }
        let parameters = Parameters::parse(&claim.parameters).ok();
        let there = servers.iter().find(|it| !it.is_gone());
        Ok(there.map(|server| instance::of(server, parameters.as_ref())))
    }
}

impl Provider for OpenStack {
    fn check(&self, parameters: &Value) -> Result<(), Error> {
        Parameters::parse(parameters).map(drop)
    }

    fn create<'a>(
        &'a self,
        order: &'a Order,
        memory: &'a Memory,
    ) -> BoxFuture<'a, Result<Created, Error>> {
        self.create(order, memory).boxed()
    }

    fn delete<'a>(
        &'a self,
        claim: &'a Claim,
        memory: &'a Memory,
    ) -> BoxFuture<'a, Result<Deleted, Error>> {
        self.delete(claim, memory).boxed()
    }

    fn look<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Option<Instance>, Error>> {
        self.look(claim).boxed()
    }

    fn holdings<'a>(
        &'a self,
        credentials: &'a Credentials,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Holding>, Error>> {
        async move {
            let cloud = self.cloud(credentials, None)?;
            Ok(holdings::list(&cloud, cluster).await?)
        }
        .boxed()
    }
}

/// The region out of parameters that may not parse as a whole any more.
fn region(parameters: &Value) -> Option<&str> {
    parameters.get("region").and_then(Value::as_str)
}

fn key(owner: &Owner) -> String {
    format!("{}/{}", owner.cluster, owner.machine)
}

fn fingerprint(credentials: &Credentials, region: Option<&str>) -> [u8; 32] {
    let mut digest = Sha256::new();
    let pairs = credentials.iter().chain(region.map(|region| ("\u{0}region", region)));
    for (name, value) in pairs {
        for text in [name, value] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
    }
    digest.finalize().into()
}
