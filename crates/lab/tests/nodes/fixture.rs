//! A world in which a test plays the owner of the machines: it makes servers and approves certificates.

use base64::Engine as _;
use drover_lab::client::{Client, Informer, PatchKind};
use drover_lab::dial::{self, Transport};
use drover_lab::world::{Config, World};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;
use tokio::time::Instant;
use tower::ServiceExt as _;

/// How long anything may take, in virtual time.
const PATIENCE: Duration = Duration::from_mins(20);

/// Encodes base64.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Decodes base64 to text.
pub fn decode(text: &str) -> String {
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
}

/// A cloud-config in MetaKube's manner.
pub fn ubuntu(lab: &Lab, name: &str) -> String {
    include_str!("../../src/kubelet/boot/fixtures/ubuntu.yaml")
        .replace("hostname: HOSTNAME", &format!("hostname: {name}"))
        .replace("CA_BASE64", &encode(lab.world.ca_pem()))
        .replace("SERVER", lab.world.api_url())
        .replace("TOKEN", "abcdef.0123456789abcdef")
}

/// An Ignition configuration in MetaKube's manner.
pub fn flatcar(lab: &Lab, name: &str) -> String {
    let kubeconfig = json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {
            "server": lab.world.api_url(),
            "certificate-authority-data": encode(lab.world.ca_pem()),
        }}],
        "users": [{"name": "a", "user": {"token": "abcdef.0123456789abcdef"}}],
    });
    let mut setup = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    setup.write_all(include_bytes!("../../src/kubelet/boot/fixtures/flatcar-setup.sh")).unwrap();
    include_str!("../../src/kubelet/boot/fixtures/flatcar.json")
        .replace("HOSTNAME", name)
        .replace("KUBECONFIG_BASE64", &encode(kubeconfig.to_string()))
        .replace("SETUP_GZIP_BASE64", &encode(setup.finish().unwrap()))
}

/// The world and what a test reaches it by.
pub struct Lab {
    pub world: World,
    pub admin: Client,
    cloud: Transport,
    token: String,
    began: Instant,
}

impl Lab {
    /// A fresh world without sockets and with one bootstrap token.
    pub async fn start() -> Self {
        Self::of(Config::in_process()).await
    }

    /// A world made like this, with one bootstrap token.
    pub async fn of(config: Config) -> Self {
        let in_process = config.in_process;
        let world = World::start(config).await.unwrap();
        let admin = world.admin();
        let token = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef"},
            "stringData": {
                "token-id": "abcdef", "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true",
            },
        });
        admin.create("/api/v1/namespaces/kube-system/secrets", &token).await.unwrap();
        let cloud = if in_process {
            dial::in_process(world.cloud().unwrap().router())
        } else {
            dial::plain()
        };
        let mut lab = Self { world, admin, cloud, token: String::new(), began: Instant::now() };
        let login = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": "drover", "domain": {"name": "Default"}, "password": "password",
            }}},
            "scope": {"project": {"name": "drover", "domain": {"name": "Default"}}},
        }});
        let (head, _) = lab.ask("POST", "/identity/v3/auth/tokens", Some(&login)).await;
        lab.token = head.headers["x-subject-token"].to_str().unwrap().to_owned();
        lab
    }

    /// Virtual seconds since the world began.
    pub fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (http::response::Parts, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.world.cloud_url()))
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", "compute 2.79")
            .header("content-type", "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .unwrap();
        let answer = self.cloud.clone().oneshot(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(head.status.is_success(), "{method} {path}: {} {body:?}", head.status);
        (head, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn id_of(&self, path: &str, list: &str, name: &str) -> String {
        let (_, all) = self.ask("GET", path, None).await;
        let found = all[list].as_array().unwrap().iter().find(|one| one["name"] == *name);
        found.unwrap_or_else(|| panic!("no {name} in {all}"))["id"].as_str().unwrap().to_owned()
    }

    /// Makes a server with this user-data; its id.
    pub async fn boot(&self, name: &str, user_data: &str) -> String {
        let network = self.id_of("/network/v2.0/networks", "networks", "metakube-mmxfcmgjkx").await;
        let flavor = self.id_of("/compute/v2.1/flavors", "flavors", "m1.small").await;
        let image = "Ubuntu Noble 24.04 (2024-08-01)";
        let image = self.id_of("/image/v2/images", "images", image).await;
        let mut server = json!({
            "name": name, "flavorRef": flavor, "imageRef": image,
            "networks": [{"uuid": network}], "availability_zone": "dbl1",
        });
        if !user_data.is_empty() {
            server["user_data"] = encode(user_data).into();
        }
        let body = json!({"server": server});
        let (_, made) = self.ask("POST", "/compute/v2.1/servers", Some(&body)).await;
        made["server"]["id"].as_str().unwrap().to_owned()
    }

    /// Does something to a server that takes no arguments.
    pub async fn act(&self, server: &str, action: &str) {
        let path = format!("/compute/v2.1/servers/{server}/action");
        self.ask("POST", &path, Some(&json!({action: null}))).await;
    }

    /// Deletes a server.
    pub async fn delete_server(&self, server: &str) {
        self.ask("DELETE", &format!("/compute/v2.1/servers/{server}"), None).await;
    }

    /// What a server printed.
    pub async fn console(&self, server: &str) -> String {
        let path = format!("/compute/v2.1/servers/{server}/action");
        let (_, said) = self.ask("POST", &path, Some(&json!({"os-getConsoleOutput": {}}))).await;
        said["output"].as_str().unwrap_or_default().to_owned()
    }

    /// Approves every certificate request from now on.
    pub fn approve_all(&self) {
        const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let client = self.admin.clone();
        tokio::spawn(async move {
            let mut requests = Informer::start(&client, PATH);
            loop {
                requests.changed().await;
                for request in requests.list() {
                    if request["status"]["conditions"].is_array() {
                        continue;
                    }
                    let name = request["metadata"]["name"].as_str().unwrap();
                    let yes = json!({"status": {"conditions": [{
                        "type": "Approved", "status": "True", "reason": "Test", "message": "by test",
                    }]}});
                    let path = format!("{PATH}/{name}/approval");
                    // Another pass may have been quicker.
                    let _ = client.patch(&path, PatchKind::Merge, &yes).await;
                }
            }
        });
    }

    /// The items of a list.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.admin.get(path).await.unwrap()["items"].as_array().unwrap().clone()
    }

    /// Waits for something to be there.
    pub async fn eventually<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(Instant::now() < until, "no {what} after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits for a Node to be as it should.
    pub async fn node(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/api/v1/nodes/{name}");
        let until = Instant::now() + PATIENCE;
        loop {
            let node = self.admin.get(&path).await;
            if let Ok(node) = &node
                && is(node)
            {
                return node.clone();
            }
            assert!(Instant::now() < until, "{name} is not {what}: {node:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
