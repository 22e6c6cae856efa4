//! The two clouds that a case can be asked of: the lab's in process, and real services.

use drover_lab::clock::Clock;
use drover_lab::cloud::{Cloud, Config, Effect, Fault, Quotas};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tower::ServiceExt as _;

/// The time at which the simulated world begins.
const BEGIN: &str = "2026-11-20T22:38:12Z";

/// An answer; the body is null when empty and a string when it is no JSON.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A cloud and how to log in.
pub struct Side {
    lab: Option<Cloud>,
    /// The roots of the services, without a version, as clients see them.
    pub roots: BTreeMap<&'static str, String>,
    /// Credentials by the names of `clouds.yaml`.
    pub clouds: Value,
}

impl Side {
    pub fn lab() -> Self {
        let mut config = Config::demo(Clock::start(BEGIN.parse().unwrap()));
        config.zones = ["nova", "az-1", "az-2"].map(str::to_owned).into();
        // As tools/openstack has them.
        config.quotas = Quotas {
            instances: 1_000,
            cores: 4_000,
            ram: 8_000_000,
            server_groups: 100,
            server_group_members: 1_000,
            key_pairs: 1_000,
            security_group_rule: 100,
            port: 2_000,
            floatingip: 200,
            volumes: 1_000,
            gigabytes: 100_000,
            ..Quotas::default()
        };
        let cloud = Cloud::new(config);
        let clouds = cloud.clouds_yaml();
        let names = ["identity", "compute", "network", "image", "volume", "placement"];
        let roots = names.map(|name| (name, format!("http://cloud.lab/{name}"))).into();
        Self { lab: Some(cloud), roots, clouds: parse(&clouds) }
    }

    /// The services whose `clouds.yaml` this is the text of.
    pub fn real(clouds_yaml: &str) -> Self {
        let clouds = parse(clouds_yaml);
        let url = clouds["drover"]["auth"]["auth_url"].as_str().expect("an auth_url");
        let root = url.trim_end_matches("/v3").to_owned();
        let (host, port) = root.rsplit_once(':').expect("a port");
        // All services keep their distance when they are moved together.
        let base = port.parse::<u16>().expect("a number") - 5000;
        let ports = [
            ("identity", 5000),
            ("compute", 8774),
            ("network", 9696),
            ("image", 9292),
            ("volume", 8776),
            ("placement", 8778),
        ];
        let roots = ports.map(|(name, port)| (name, format!("{host}:{}", port + base))).into();
        Self { lab: None, roots, clouds }
    }

    pub fn is_real(&self) -> bool {
        self.lab.is_none()
    }

    pub fn setting(&self, cloud: &str, name: &str) -> String {
        self.clouds[cloud]["auth"][name].as_str().unwrap_or_default().to_owned()
    }

    pub fn region(&self) -> String {
        self.clouds["drover"]["region_name"].as_str().unwrap_or_default().to_owned()
    }

    /// The lab's hypervisor fails when real ones would: they read it in the server's metadata.
    pub fn prepare(&self, body: &Value) {
        let wish = &body["server"]["metadata"]["oslab_boot_error"];
        if let (Some(cloud), Some(message)) = (&self.lab, wish.as_str()) {
            let effect = Effect::BootFailure { message: message.to_owned() };
            cloud.add_fault(Fault::on("compute POST /servers", effect).times(1));
        }
    }

    /// A new token, and the project and user it is for.
    pub async fn log_in(&self, cloud: &str) -> (String, String, String) {
        let body = match self.setting(cloud, "application_credential_id") {
            id if id.is_empty() => {
                let domain = json!({"name": "Default"});
                let name = self.setting(cloud, "username");
                let password = self.setting(cloud, "password");
                let project = self.setting(cloud, "project_name");
                let user = json!({"name": name, "domain": domain, "password": password});
                json!({"auth": {
                    "identity": {"methods": ["password"], "password": {"user": user}},
                    "scope": {"project": {"name": project, "domain": domain}}}})
            }
            id => {
                let secret = self.setting(cloud, "application_credential_secret");
                json!({"auth": {"identity": {"methods": ["application_credential"],
                    "application_credential": {"id": id, "secret": secret}}}})
            }
        };
        let request = Request::post("/v3/auth/tokens").header("content-type", "application/json");
        let answer = self.send("identity", request.body(body.to_string()).unwrap()).await;
        assert_eq!(answer.status, 201, "{cloud}: {}", answer.body);
        let id =
            |what: &str| answer.body["token"][what]["id"].as_str().unwrap_or_default().to_owned();
        let token = answer.headers["x-subject-token"].to_str().unwrap().to_owned();
        (token, id("project"), id("user"))
    }

    /// Sends a request whose address begins after the root of the service.
    pub async fn send(&self, service: &str, request: Request<String>) -> Answer {
        let (mut head, body) = request.into_parts();
        let root = &self.roots[service];
        let (host, prefix) =
            root.trim_start_matches("http://").split_once('/').unwrap_or((&root[7..], ""));
        let path = head.uri.to_string();
        head.headers.insert("host", host.parse().unwrap());
        let (head, bytes) = if let Some(cloud) = &self.lab {
            head.uri = format!("/{prefix}{path}").parse().unwrap();
            let request = Request::from_parts(head, axum::body::Body::from(body));
            let (head, body) = cloud.router().oneshot(request).await.unwrap().into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        } else {
            let stream = tokio::net::TcpStream::connect(host).await.expect("the services run");
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            let request = Request::from_parts(head, Full::new(bytes::Bytes::from(body)));
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        };
        let body = match serde_json::from_slice(&bytes) {
            Ok(json) => json,
            Err(_) if bytes.is_empty() => Value::Null,
            Err(_) => Value::from(String::from_utf8_lossy(&bytes)),
        };
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }
}

fn parse(clouds_yaml: &str) -> Value {
    let mut all: Value = serde_saphyr::from_str(clouds_yaml).expect("a clouds.yaml");
    all["clouds"].take()
}
