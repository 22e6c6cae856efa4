//! A cloud, providers of it that can die at any call, and a caller that remembers as the contract asks.

use bytes::Bytes;
use drover_lab::clock::Clock as LabClock;
use drover_lab::cloud::{Cloud, Config, Ledger};
use drover_openstack::{OpenStack, Setup, transport};
use drover_provider::Clock;
use drover_provider::{
    Claim, Created, Credentials, Deleted, Error, Instance, Memory, Order, Owner, Provider, Retry,
    UserData,
};
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tower::ServiceExt;

pub const SUBNET: &str = "2969ae04-a429-4c1b-83e3-2f76fc3a342a";
pub const GROUP: &str = "metakube-mmxfcmgjkx";
pub const CLUSTER: &str = "3f6d5b1c-0000-4000-8000-00000000000c";

/// Calls of one drive at most.
const STEPS: usize = 400;

/// When a process dies relative to the call it dies at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The call never leaves.
    Before,
    /// The cloud acts, nobody hears of it.
    After,
    /// The cloud gets the call so much later, as through a queue of a proxy.
    Late(Duration),
}

/// Lets calls through to the cloud until the process dies.
#[derive(Default)]
pub struct Fuse {
    calls: AtomicUsize,
    /// The number of the last call, counted from 1, and how it ends; never for `None`.
    burns: Option<(usize, Death)>,
    died: Notify,
}

impl Fuse {
    pub fn at(call: usize, death: Death) -> Arc<Self> {
        Arc::new(Self { burns: Some((call, death)), ..Self::default() })
    }

    async fn pass(&self, router: axum::Router, request: Request<Full<Bytes>>) -> Answer {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.burns {
            Some((at, _)) if number > at => std::future::pending().await,
            Some((at, death)) if number == at => {
                match death {
                    Death::Before => {}
                    Death::After => drop(router.oneshot(request).await),
                    Death::Late(by) => {
                        tokio::spawn(async move {
                            tokio::time::sleep(by).await;
                            drop(router.oneshot(request).await);
                        });
                    }
                }
                self.died.notify_one();
                std::future::pending().await
            }
            _ => router.oneshot(request).await.expect("a router does not fail"),
        }
    }
}

type Answer = Response<axum::body::Body>;

/// The caller met the end of its process.
#[derive(Debug, PartialEq, Eq)]
pub struct Died;

pub struct World {
    pub cloud: Cloud,
    clock: LabClock,
    /// What was sent to make or change something: method, path, body.
    pub sent: Arc<Mutex<Vec<String>>>,
    pub credentials: Credentials,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let clock = LabClock::start("2026-11-21T09:00:00Z".parse().unwrap());
        let mut config = Config::demo(clock);
        change(&mut config);
        let cloud = Cloud::new(config);
        let credentials = OpenStack::credentials_of(&cloud.clouds_yaml(), "drover").unwrap();
        Self { cloud, clock, sent: Arc::default(), credentials }
    }

    pub fn provider(&self) -> OpenStack {
        self.mortal(&Arc::new(Fuse::default()))
    }

    /// A provider with another setup.
    pub fn provider_where(&self, change: impl FnOnce(Setup) -> Setup) -> OpenStack {
        OpenStack::new(change(self.setup(&Arc::new(Fuse::default()))))
    }

    /// A provider whose process dies when the fuse burns.
    pub fn mortal(&self, fuse: &Arc<Fuse>) -> OpenStack {
        OpenStack::new(self.setup(fuse))
    }

    fn setup(&self, fuse: &Arc<Fuse>) -> Setup {
        let (router, fuse, clock) = (self.cloud.router(), fuse.clone(), self.clock);
        let sent = self.sent.clone();
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (router, fuse) = (router.clone(), fuse.clone());
            let body = request.body().clone().collect().now_or_never();
            let body = body.and_then(Result::ok).map(|it| it.to_bytes()).unwrap_or_default();
            if !body.is_empty() && !request.uri().path().ends_with("/auth/tokens") {
                let line = format!("{} {}", request.method(), request.uri().path());
                let body = serde_json::from_slice::<Value>(&body).unwrap_or_default();
                let body = serde_json::to_string_pretty(&body).unwrap_or_default();
                sent.lock().unwrap().push(format!("{line} {body}"));
            }
            async move { Ok::<_, Infallible>(fuse.pass(router, request).await) }
        });
        Setup::new(Some(self.credentials.clone()))
            .over(transport::of(service))
            .clock(Clock::of(move || clock.now()))
            .seed(7)
    }

    pub fn ledger(&self) -> Ledger {
        self.cloud.ledger()
    }

    /// Has the project's user make something by hand.
    pub async fn make(&self, path: &str, what: Value) {
        let login = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": "drover", "domain": {"name": "Default"}, "password": "password",
            }}},
            "scope": {"project": {"name": "drover", "domain": {"name": "Default"}}},
        }});
        let answer = self.post("", "/identity/v3/auth/tokens", &login).await;
        let token = answer.headers()["x-subject-token"].to_str().unwrap().to_owned();
        let answer = self.post(&token, path, &what).await;
        let (status, body) = (answer.status(), answer.into_body().collect().await.unwrap());
        assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body.to_bytes()));
    }

    async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        let request = Request::post(format!("http://cloud.lab{path}"))
            .header("content-type", "application/json")
            .header("x-auth-token", token)
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        self.cloud.router().oneshot(request).await.expect("a router does not fail")
    }
}

/// The parameters of the documentation's manifest.
pub fn parameters() -> Value {
    json!({
        "image": "Ubuntu Noble 24.04 (2024-08-01)",
        "flavor": "m1.small",
        "availabilityZone": "dbl1",
        "region": "dbl",
        "networks": [{"network": GROUP, "subnet": SUBNET}],
        "securityGroups": [GROUP],
        "floatingIpPool": "ext-net",
        "serverGroup": "fe9dcd44-f08a-492a-9e64-4e38e1d51573",
        "tags": ["kube"],
        "metadata": {"pool": "nodes"},
    })
}

pub fn with(mut parameters: Value, field: &str, value: Value) -> Value {
    parameters[field] = value;
    parameters
}

/// An order for the machine of this number; every name is the same.
pub fn order(number: usize, parameters: Value) -> Order {
    let owner = Owner {
        cluster: CLUSTER.into(),
        machine: format!("3f6d5b1c-0000-4000-8000-{number:012}"),
        name: "nodes-1".into(),
    };
    let claim = Claim { owner, credentials: Credentials::default(), parameters, place: None };
    Order { claim, user_data: UserData(b"#cloud-config\n".to_vec()) }
}

async fn pause(error: &Error) -> Result<(), Error> {
    let wait = match error.retry() {
        Retry::OnChange => return Err(error.clone()),
        Retry::After(wait) => wait,
        Retry::Backoff => Duration::from_secs(1),
    };
    if matches!(error, Error::ServerFailed(_)) {
        return Err(error.clone());
    }
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Creates until done, writing every memory down in `memory` before the next call.
pub async fn create(
    provider: &OpenStack,
    order: &Order,
    memory: &mut Memory,
) -> Result<Instance, Error> {
    for _ in 0..STEPS {
        match Provider::create(provider, order, memory).await {
            Ok(Created::Record(next)) => *memory = next,
            Ok(Created::Waiting { memory: next, after, .. }) => {
                *memory = next;
                tokio::time::sleep(after).await;
            }
            Ok(Created::Done { memory: next, instance }) => {
                *memory = next;
                return Ok(instance);
            }
            Err(error) => pause(&error).await?,
        }
    }
    panic!("no end of the creation after {STEPS} calls");
}

/// Deletes until gone.
pub async fn delete(provider: &OpenStack, claim: &Claim, memory: &Memory) -> Result<(), Error> {
    for _ in 0..STEPS {
        match Provider::delete(provider, claim, memory).await {
            Ok(Deleted::Gone) => return Ok(()),
            Ok(Deleted::Waiting { after, .. }) => tokio::time::sleep(after).await,
            Err(error) => pause(&error).await?,
        }
    }
    panic!("no end of the deletion after {STEPS} calls");
}

/// Runs until the end or until the fuse burns.
pub async fn until_death<T>(fuse: &Fuse, work: impl Future<Output = T>) -> Result<T, Died> {
    tokio::select! {
        biased;
        () = fuse.died.notified() => Err(Died),
        done = work => Ok(done),
    }
}
