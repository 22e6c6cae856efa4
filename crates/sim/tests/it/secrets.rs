//! No secret of the world is found in anything that Drover logs or writes, whatever goes wrong.

use crate::manifests::{good, secret, with};
use crate::workload::{CHAPTER, gone, reason};
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use drover_lab::cloud::{Effect, Fault};
use drover_openstack::transport;
use drover_sim::faults::{Life, Wire};
use drover_sim::stage::{NAMESPACE, Stage};
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tower::ServiceExt;
use tracing_subscriber::EnvFilter;

/// Everything the manager and its libraries say; the lab may tell what it likes.
const SAID: &str = "debug,drover_controllers=trace,drover_openstack=trace,drover_lab=off";
/// What people hide in Secrets.
const APPLICATION_CREDENTIAL: &str = "appcred-7QzPw0Vd3mKx";
const WRONG_PASSWORD: &str = "wrong-hunter2-Zk81vQ";
const INLINE_PASSWORD: &str = "inline-hunter3-mB94tR";
const IN_USER_DATA: &str = "registry-hunter4-Yc27pW";

/// A text that many hands add to.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// All secrets of a world by what they are.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<BTreeMap<String, &'static str>>>);

impl Known {
    fn add(&self, what: &'static str, secret: &str) {
        assert!(secret.len() > 7, "{what}: too short to be told from a word");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(secret.to_owned(), what);
    }

    fn count(&self, what: &str) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|it| **it == what).count()
    }

    /// What of them is in a text, as it is or in base64 at any offset.
    fn found_in(&self, text: &str) -> BTreeSet<&'static str> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            all.iter().filter(|(secret, _)| forms(secret).iter().any(|it| text.contains(it)));
        found.map(|(_, what)| *what).collect()
    }
}

/// A secret as it is, and what base64 makes of it after none, one and two other bytes.
fn forms(secret: &str) -> Vec<String> {
    let coded = (0..3).map(|before| {
        let coded = STANDARD_NO_PAD.encode(["\0".repeat(before).as_str(), secret].concat());
        let (first, last) = ((before * 8).div_ceil(6), (before + secret.len()) * 8 / 6);
        coded[first..last].to_owned()
    });
    coded.chain([secret.to_owned()]).collect()
}

#[test]
fn a_secret_is_found_in_every_form() {
    let known = Known::default();
    known.add("password", WRONG_PASSWORD);
    for before in ["", "x", "xy", "xyz"] {
        let coded = STANDARD_NO_PAD.encode(format!("{before}{WRONG_PASSWORD} and more"));
        assert!(!known.found_in(&coded).is_empty(), "{before:?}");
    }
    assert!(!known.found_in(&format!("a {WRONG_PASSWORD} z")).is_empty());
    assert!(known.found_in("nothing of it").is_empty());
}

/// Keystone, asked by a person.
struct Person {
    router: axum::Router,
    token: String,
    user: String,
}

impl Person {
    async fn log_in(stage: &Stage) -> anyhow::Result<Self> {
        let router = stage.cloud()?.router();
        let user =
            json!({ "name": "drover", "domain": { "name": "Default" }, "password": "password" });
        let project = json!({ "name": "drover", "domain": { "name": "Default" } });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user } },
            "scope": { "project": project },
        }});
        let nobody = Self { router, token: String::new(), user: String::new() };
        let answer = nobody.post("/identity/v3/auth/tokens", &body).await?;
        let token = answer.headers()["x-subject-token"].to_str()?.to_owned();
        let body: Value =
            serde_json::from_slice(&axum::body::to_bytes(answer.into_body(), 1 << 20).await?)?;
        let user = body["token"]["user"]["id"].as_str().unwrap_or_default().to_owned();
        Ok(Self { token, user, ..nobody })
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("x-auth-token", &self.token)
            .body(Body::from(body.to_string()))?;
        let answer = self.router.clone().oneshot(request).await?;
        anyhow::ensure!(answer.status().is_success(), "POST {path}: {}", answer.status());
        Ok(answer)
    }

    /// Makes an application credential, and answers with its id.
    async fn application_credential(&self, secret: &str) -> anyhow::Result<String> {
        let path = format!("/identity/v3/users/{}/application_credentials", self.user);
        let body = json!({ "application_credential": { "name": "story", "secret": secret } });
        let answer = self.post(&path, &body).await?;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await?;
        let made: Value = serde_json::from_slice(&body)?;
        let id = made["application_credential"]["id"].as_str();
        Ok(id.unwrap_or_default().to_owned())
    }
}

/// The cloud, whose tokens become known.
fn tapped(router: axum::Router, known: Known) -> axum::Router {
    router.layer(axum::middleware::map_response(move |answer: Response| {
        if let Some(token) = answer.headers().get("x-subject-token") {
            known.add("Keystone token", token.to_str().unwrap_or_default());
        }
        std::future::ready(answer)
    }))
}

/// Learns of the bootstrap tokens as they come and go.
async fn learn_tokens(stage: &Stage, known: &Known) -> anyhow::Result<()> {
    let secrets = Api::<Secret>::namespaced(stage.admin.clone(), NAMESPACE);
    let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    loop {
        for secret in secrets.list(&tokens).await?.items {
            let half = secret.data.and_then(|mut data| data.remove("token-secret"));
            known.add("bootstrap token", &String::from_utf8(half.unwrap_or_default().0)?);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// A description with these credentials of its own.
pub fn own_credentials(object: Value, spec: &str, stage: &Stage, given: &Value) -> Value {
    let endpoint = json!(format!("{}/identity/v3", stage.world.cloud_url()));
    let at = |field: &str| format!("{spec}/providerSpec/value/cloudProviderSpec/{field}");
    let object = with(object, &at("identityEndpoint"), endpoint);
    let given = given.as_object().into_iter().flatten();
    given.fold(object, |object, (field, value)| with(object, &at(field), value.clone()))
}

/// A reference to a key of a Secret.
pub fn key(secret: &str, key: &str) -> Value {
    json!({ "secretKeyRef": { "namespace": NAMESPACE, "name": secret, "key": key } })
}

/// Two machines whose credentials are wrong: one has them in a Secret, one in its own description, which is
/// also broken.
async fn unlucky(stage: &Stage) -> anyhow::Result<()> {
    stage.create(&secret("wrong", json!({ "password": WRONG_PASSWORD }))).await?;
    let user = json!({ "username": "drover", "domainName": "Default", "projectName": "drover" });
    let wrong = own_credentials(good("Machine", "wrong"), "/spec", stage, &user);
    let place = "/spec/providerSpec/value/cloudProviderSpec/password";
    stage.create(&with(wrong.clone(), place, key("wrong", "password"))).await?;
    let inline = with(wrong, "/metadata/name", json!("inline"));
    let inline = with(inline, place, json!(INLINE_PASSWORD));
    stage.create(&inline).await?;
    let lost = with(with(inline, "/metadata/name", json!("lost")), place, key("wrong", "passwort"));
    stage.create(&lost).await?;
    let odd = with(lost, "/metadata/name", json!("odd"));
    stage.create(&with(odd, place, json!({ "value": [INLINE_PASSWORD] }))).await?;
    reason(stage, "wrong", "Ready", "CredentialsRefused").await?;
    reason(stage, "inline", "Ready", "CredentialsRefused").await?;
    reason(stage, "lost", "Ready", "CredentialsMissing").await?;
    reason(stage, "odd", "Ready", "DescriptionInvalid").await?;
    Ok(())
}

/// A machine of a class, whose user-data hides something and makes no node: it fails, and is forced away from a cloud
/// that is stuck.
async fn forced(stage: &Stage) -> anyhow::Result<()> {
    let texts = json!({
        "authURL": format!("{}/identity/v3", stage.world.cloud_url()),
        "username": "drover", "password": "password", "domainName": "Default",
        "tenantName": "drover",
        "userData": format!("#cloud-config\nwrite_files: [] # {IN_USER_DATA} <<BOOTSTRAP_TOKEN>>\n"),
    });
    stage.create(&secret("class", texts)).await?;
    let class = with(good("MachineClass", "small"), "/providerSpec/region", json!("dbl"));
    let class = with(class, "/secretRef", json!({ "name": "class", "namespace": NAMESPACE }));
    stage.create(&class).await?;
    let from = json!({ "valueFrom": { "machineClass": { "name": "small" } } });
    let machine = with(good("Machine", "classed"), "/spec/providerSpec", from);
    let machine = with(machine, "/spec/creationTimeout", json!("20m"));
    stage.create(&with(machine, "/spec/deletionPolicy", json!("forced"))).await?;
    reason(stage, "classed", "Ready", "JoinDeadlineExceeded").await?;
    let machine = stage.machines().get("classed").await?;
    let cloud = stage.cloud()?;
    cloud.add_fault(Fault::on("compute DELETE /servers/{id}", Effect::status(503)));
    stage.machines().delete("classed", &DeleteParams::default()).await?;
    gone(stage, &machine).await
}

/// All that Drover wrote where people read: everything but what users wrote themselves.
async fn written(stage: &Stage) -> anyhow::Result<String> {
    let mut all = String::new();
    for (version, kind) in [
        ("cluster.k8s.io/v1alpha1", "MachineDeployment"),
        ("cluster.k8s.io/v1alpha1", "MachineSet"),
        ("cluster.k8s.io/v1alpha1", "Machine"),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"),
        ("events.k8s.io/v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
        ("v1", "Node"),
        ("v1", "ConfigMap"),
    ] {
        let api = stage.api(&json!({ "apiVersion": version, "kind": kind }));
        for mut object in api.list(&ListParams::default()).await?.items {
            let ours = version.starts_with("cluster");
            if let Some(data) = object.data.as_object_mut().filter(|_| ours) {
                data.remove("spec");
            }
            object.metadata.managed_fields = None;
            all.push_str(&serde_json::to_string(&object)?);
        }
    }
    Ok(all)
}

/// A pool with an application credential comes, is refused this and that, rolls and goes.
async fn story(stage: &Stage, heard: &Heard, known: &Known) -> anyhow::Result<()> {
    let id = Person::log_in(stage).await?.application_credential(APPLICATION_CREDENTIAL).await?;
    stage.create(&secret("app", json!({ "secret": APPLICATION_CREDENTIAL }))).await?;
    let given = json!({
        "applicationCredentialID": id, "applicationCredentialSecret": key("app", "secret"),
    });
    let pool = good("MachineDeployment", "nodes");
    let pool = own_credentials(pool, "/spec/template/spec", stage, &given);
    let cloud = stage.cloud()?;
    for code in [503, 429] {
        cloud.add_fault(Fault::on("compute POST /servers", Effect::status(code)).times(1));
        cloud.add_fault(Fault::on("network POST /ports", Effect::status(code)).times(1));
    }
    let message = "no such device".to_owned();
    cloud.add_fault(
        Fault::on("compute POST /servers", Effect::BootFailure { message }).skip(1).times(1),
    );
    stage.create(&pool).await?;
    let old = stage.whole(2, &BTreeSet::new(), CHAPTER).await?.uids();
    unlucky(stage).await?;
    let mut heard_of = heard.clone();
    heard_of.write_all(written(stage).await?.as_bytes())?;
    for name in ["wrong", "inline", "lost", "odd"] {
        stage.machines().delete(name, &DeleteParams::default()).await?;
    }
    cloud.expire_tokens();
    stage.restart().await?;
    stage.whole(2, &old, CHAPTER).await?;
    heard_of.write_all(written(stage).await?.as_bytes())?;
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    forced(stage).await?;
    heard_of.write_all(written(stage).await?.as_bytes())?;
    known.add("in user-data", IN_USER_DATA);
    known.add("application credential", APPLICATION_CREDENTIAL);
    known.add("password", WRONG_PASSWORD);
    known.add("password", INLINE_PASSWORD);
    known.add("private key", "PRIVATE KEY-----");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_in_a_log_an_event_or_a_status() -> anyhow::Result<()> {
    let (heard, known) = (Heard::default(), Known::default());
    let sink = heard.clone();
    let said = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(SAID))
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(said);
    tracing::debug!("the ear hears");
    let stage = Stage::start().await?;
    let life = Life::long();
    let mut wires = stage.wires(&life);
    wires.openstack =
        Wire::new(transport::of(tapped(stage.cloud()?.router(), known.clone())), life);
    let manager = stage.work(wires)?;
    tokio::select! {
        told = story(&stage, &heard, &known) => told?,
        learnt = learn_tokens(&stage, &known) => learnt?,
    }
    heard.clone().write_all(manager.metrics.text().as_bytes())?;
    manager.end().await?;

    let text = heard.text();
    for word in ["the ear hears", "CredentialsRefused", "NodeReady", "LeftBehind"] {
        assert!(text.contains(word), "the ear is deaf: nothing was heard of {word}");
    }
    assert!(known.count("bootstrap token") >= 4, "each machine had a token of its own");
    assert!(known.count("Keystone token") >= 2, "the tokens expired once");
    assert_eq!(known.found_in(&text), BTreeSet::new(), "of {} bytes", text.len());
    Ok(())
}
