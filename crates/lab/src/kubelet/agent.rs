//! One kubelet: it joins, says that it is alive, and runs what is bound to it.

use super::boot::Join;
use super::credentials::{self, Asked, Purpose};
use super::life::{Due, Life};
use super::node::Changed;
use super::wire::Word;
use super::{Hardware, World, node, pods};
use crate::client::{ApiError, Client, PatchKind};
use crate::dial::Credential;
use crate::pki;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

/// Kubernetes: a kubelet renews its Lease this often.
const LEASE_PERIOD: Duration = Duration::from_secs(10);
/// Kubernetes: a kubelet reports a status that did not change this often.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(300);
/// systemd starts a kubelet that failed again after this (RestartSec); doubled up to `RESTART_MAX`.
const RESTART_MIN: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to join.
const RESTART_MAX: Duration = Duration::from_secs(160);
/// Attempts to join before the machine gives up for good: with the pauses above, about nine hours. A real one
/// never does, but a simulated world is to come to rest.
const JOINS_MAX: u32 = 200;
/// Requests for a serving certificate that nobody answers before the kubelet goes on without.
const SERVING_MAX: u32 = 5;
/// How long a request for a serving certificate may stay unanswered.
const SERVING_WAIT: Duration = Duration::from_secs(900);

/// What the disk keeps over a reboot.
#[derive(Default)]
pub struct Memory {
    certificate: Option<pki::Pair>,
}

/// A kubelet.
pub struct Agent {
    world: World,
    join: Join,
    hardware: Hardware,
    memory: Arc<Mutex<Memory>>,
    dice: fastrand::Rng,
}

type Names = (Vec<String>, Vec<IpAddr>);

/// A kubelet whose Node is there.
struct Registered {
    client: Client,
    /// None when the Node was deleted: a kubelet does not bring it back.
    uid: Option<String>,
    lease: Option<Value>,
    life: Life,
    serving: Option<(Names, Option<Asked>)>,
    serving_tries: u32,
    pods_started: u32,
}

impl Agent {
    pub fn new(
        world: World,
        join: Join,
        hardware: Hardware,
        memory: Arc<Mutex<Memory>>,
        dice: fastrand::Rng,
    ) -> Self {
        Self { world, join, hardware, memory, dice }
    }

    fn say(&self, line: impl std::fmt::Display) {
        (self.world.console)(&self.hardware.server, &format!("kubelet: {line}"));
    }

    /// Runs until it is dropped, which is when the power goes.
    pub async fn run(mut self) {
        let name = self.join.node_name.clone();
        let mut pause = RESTART_MIN;
        for _ in 0..JOINS_MAX {
            let mut words = self.world.wire.listen(&name);
            match self.join(&mut words).await {
                Ok(registered) => {
                    // Anew, so that nothing is missed that was said before the Node was there.
                    let words = self.world.wire.listen(&name);
                    self.say(format!("node {name} registered"));
                    return self.serve(registered, words).await;
                }
                Err(why) => self.say(format!("failed to run Kubelet: {why}")),
            }
            tokio::time::sleep(pause.mul_f64(0.75 + self.dice.f64() / 2.0)).await;
            pause = (pause * 2).min(RESTART_MAX);
        }
        self.world.wire.hang_up(&name);
    }

    async fn join(&self, words: &mut UnboundedReceiver<Word>) -> Result<Registered, String> {
        let join = &self.join;
        let dial = |who: &Credential| {
            let client = self.world.dialer.dial(&join.server, &join.ca_pem, who);
            client.map(|client| client.named("kubelet")).map_err(|error| error.to_string())
        };
        let kept = self.lock().certificate.clone();
        let certificate = match kept {
            Some(certificate) => certificate,
            None => {
                let client = dial(&Credential::Bearer(join.token.clone()))?;
                let name = &join.node_name;
                let got = credentials::client_certificate(&self.world, &client, name, words).await;
                let certificate = got.map_err(|error| error.to_string())?;
                self.lock().certificate = Some(certificate.clone());
                certificate
            }
        };
        let pki::Pair { cert_pem, key_pem } = certificate;
        let client = dial(&Credential::Certificate { cert_pem, key_pem })?;
        let uid = self.register(&client).await;
        let uid =
            uid.map_err(|error| format!("unable to register node with API server: {error}"))?;
        Ok(Registered {
            client,
            uid: Some(uid),
            lease: None,
            life: Life::new(self.world.pace, self.hardware.network),
            serving: None,
            serving_tries: 0,
            pods_started: 0,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the Node, or brings the one that is there up to date; its uid.
    async fn register(&self, client: &Client) -> Result<String, ApiError> {
        let now = self.world.clock.now();
        let object = node::object(&self.join, &self.hardware, now);
        let path = format!("/api/v1/nodes/{}", self.join.node_name);
        let mut there = match client.create("/api/v1/nodes", &object).await {
            Ok(created) => created,
            Err(error) if error.reason == "AlreadyExists" => {
                let labels = json!({"metadata": {"labels": object["metadata"]["labels"]}});
                let mut there = client.patch(&path, PatchKind::Strategic, &labels).await?;
                there["status"] = Value::Null;
                there
            }
            Err(error) => return Err(error),
        };
        if there["status"]["conditions"].is_null() {
            let status = json!({"status": object["status"]});
            let path = format!("{path}/status");
            there = client.patch(&path, PatchKind::Strategic, &status).await?;
        }
        Ok(there["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    async fn serve(mut self, mut node: Registered, mut words: UnboundedReceiver<Word>) {
        let now = Instant::now();
        // Spread over the period: nodes that came together do not report together.
        let spread = HEARTBEAT_PERIOD.mul_f64(self.dice.f64());
        node.life.agenda.add(now, Due::Lease);
        node.life.agenda.add(now + HEARTBEAT_PERIOD + spread, Due::Heartbeat);
        loop {
            let next = node.life.agenda.next().unwrap_or_else(|| Instant::now() + LEASE_PERIOD);
            tokio::select! {
                biased;
                word = words.recv() => match word {
                    Some(word) => self.hear(&mut node, word).await,
                    // Another kubelet took the name over.
                    None => return,
                },
                () = tokio::time::sleep_until(next) => {
                    if let Some(due) = node.life.agenda.take(Instant::now()) {
                        self.act(&mut node, due).await;
                    }
                }
            }
        }
    }

    async fn hear(&mut self, node: &mut Registered, word: Word) {
        match word {
            Word::Pod(pod) => {
                let had_network = node.life.network;
                node.life.seen(pod, Instant::now(), &mut self.dice);
                if node.life.network && !had_network {
                    self.report(node, Changed::Ready).await;
                }
            }
            Word::PodGone(pod) => node.life.gone(&pod),
            Word::NodeGone => {
                self.say("node not found");
                node.uid = None;
            }
            Word::Node(object) => {
                if node::is_unknown(&object) {
                    self.report(node, Changed::All).await;
                }
                if self.join.serving_from_cluster && node.uid.is_some() {
                    self.want_serving(node, node::names(&object));
                }
            }
            Word::Request(request) => {
                let Some((_, asked)) = &mut node.serving else { return };
                match asked.as_ref().and_then(|asked| asked.hear(&request)) {
                    None => {}
                    Some(answer) => {
                        if let Some(asked) = asked.take() {
                            self.world.wire.forget_request(&asked.name);
                        }
                        node.serving_tries = 0;
                        if let Err(error) = answer {
                            self.say(error);
                        }
                    }
                }
            }
        }
    }

    /// A serving certificate is wanted as soon as there is an address, and again when the addresses change.
    fn want_serving(&self, node: &mut Registered, names: Names) {
        let known = node.serving.as_ref().is_some_and(|(known, _)| *known == names);
        if !known && !names.1.is_empty() {
            node.serving = Some((names, None));
            node.serving_tries = 0;
            node.life.agenda.add(Instant::now(), Due::Serving);
        }
    }

    async fn act(&mut self, node: &mut Registered, due: Due) {
        match due {
            Due::Lease => {
                node.life.agenda.add(Instant::now() + LEASE_PERIOD, Due::Lease);
                if let Some(uid) = node.uid.clone() {
                    self.renew(node, &uid).await;
                }
            }
            Due::Heartbeat => {
                node.life.agenda.add(Instant::now() + HEARTBEAT_PERIOD, Due::Heartbeat);
                self.report(node, Changed::Nothing).await;
            }
            Due::Serving => self.ask_serving(node).await,
            Due::Start(name) => {
                let Some(pod) = node.life.starting(&name) else { return };
                node.pods_started += 1;
                let host = self.hardware.addresses.first().copied();
                let own = Some(pods::address(number(host), node.pods_started));
                let status = pods::running(&pod, host, own, self.world.clock.now());
                let path = format!("{}/status", pod_path(&name));
                let written = node.client.patch(&path, PatchKind::Strategic, &status).await;
                match written {
                    Ok(_) => {
                        if node.life.started(&name, Instant::now(), &mut self.dice) {
                            self.report(node, Changed::Ready).await;
                        }
                    }
                    Err(error) if error.is_not_found() || error.is_conflict() => {}
                    Err(_) => node.life.failed(Due::Start(name), Instant::now()),
                }
            }
            Due::Stop(name) => {
                let Some(pod) = node.life.stopping(&name) else { return };
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                    "preconditions": {"uid": pod["metadata"]["uid"]},
                });
                match node.client.delete(&pod_path(&name), &options).await {
                    Ok(_) => node.life.gone(&pod),
                    Err(error) if error.is_not_found() || error.is_conflict() => {
                        node.life.gone(&pod);
                    }
                    Err(_) => node.life.failed(Due::Stop(name), Instant::now()),
                }
            }
        }
    }

    async fn report(&self, node: &Registered, changed: Changed) {
        let now = self.world.clock.now();
        self.patch_status(node, &node::report(node.life.network, changed, now)).await;
    }

    async fn patch_status(&self, node: &Registered, status: &Value) {
        if node.uid.is_none() {
            return;
        }
        let path = format!("/api/v1/nodes/{}/status", self.join.node_name);
        // Kubernetes: nodeStatusUpdateRetry is 5.
        for _ in 0..5 {
            match node.client.patch(&path, PatchKind::Strategic, status).await {
                Ok(_) => return,
                Err(error) if error.is_not_found() => return,
                Err(error) => self.say(format!("error updating node status, will retry: {error}")),
            }
        }
    }

    async fn renew(&self, node: &mut Registered, uid: &str) {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let name = &self.join.node_name;
        let now = self.world.clock.now();
        let path = format!("{LEASES}/{name}");
        let written = match node.lease.take() {
            Some(mut lease) => {
                node::renew(&mut lease, now);
                node.client.replace(&path, &lease).await
            }
            None => match node.client.create(LEASES, &node::lease(name, uid, now)).await {
                // Renewed with its version at the next turn.
                Err(error) if error.reason == "AlreadyExists" => node.client.get(&path).await,
                answer => answer,
            },
        };
        node.lease = written.ok();
    }

    async fn ask_serving(&self, node: &mut Registered) {
        let Some(((names, addresses), asked)) = &mut node.serving else { return };
        if node.serving_tries >= SERVING_MAX || node.uid.is_none() {
            return;
        }
        if node.serving_tries > 0 && asked.is_none() {
            return;
        }
        node.serving_tries += 1;
        if let Some(unanswered) = asked.take() {
            self.world.wire.forget_request(&unanswered.name);
        }
        let purpose = Purpose::Serving(names, addresses);
        match credentials::ask(&self.world, &node.client, &self.join.node_name, &purpose).await {
            Ok(sent) => *asked = Some(sent),
            Err(error) => self.say(error),
        }
        node.life.agenda.add(Instant::now() + SERVING_WAIT, Due::Serving);
    }
}

fn pod_path((namespace, name): &(String, String)) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// A number of the node that its neighbours do not have: the end of its address.
fn number(address: Option<IpAddr>) -> u32 {
    match address {
        Some(IpAddr::V4(address)) => {
            let [_, _, high, low] = address.octets();
            u32::from(high) << 8 | u32::from(low)
        }
        Some(IpAddr::V6(address)) => u32::from(address.segments()[7]),
        None => 0,
    }
}
