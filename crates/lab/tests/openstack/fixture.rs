//! A cloud in process and a client of it.

use axum::body::Body;
use drover_lab::clock::Clock;
use drover_lab::cloud::{Cloud, Config, Power};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tower::ServiceExt as _;

/// The time at which every test's world begins.
const BEGIN: &str = "2026-11-20T22:38:12Z";

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// JSON, or the text as a string; null when empty, and when the connection broke.
    pub body: Value,
    pub broken: bool,
}

/// A cloud and somebody who is logged in.
pub struct Lab {
    pub cloud: Cloud,
    pub token: String,
    pub project: String,
    pub user: String,
}

impl Lab {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::demo(Clock::start(BEGIN.parse().unwrap()));
        change(&mut config);
        let mut lab = Self {
            cloud: Cloud::new(config),
            token: String::new(),
            project: String::new(),
            user: String::new(),
        };
        lab.log_in("drover").await;
        lab
    }

    /// Logs in as this user, for the project of the same name.
    pub async fn log_in(&mut self, name: &str) {
        let domain = json!({"name": "Default"});
        let user = json!({"name": name, "domain": domain, "password": "password"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": name, "domain": domain}},
        }});
        let answer = self.call("POST", "/identity/v3/auth/tokens", &[], Some(&body)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        self.token = answer.headers["x-subject-token"].to_str().unwrap().to_owned();
        self.project = text(&answer.body["token"]["project"]["id"]);
        self.user = text(&answer.body["token"]["user"]["id"]);
    }

    /// Sends a request with the token and microversion 2.90, unless headers say otherwise.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        let has = |name: &str| headers.iter().any(|(one, _)| *one == name);
        if !has("x-auth-token") && !self.token.is_empty() {
            request = request.header("x-auth-token", &self.token);
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let body = match body {
            // A string stands for text that is no JSON.
            Some(Value::String(text)) => Body::from(text.clone()),
            Some(body) => Body::from(body.to_string()),
            None => Body::empty(),
        };
        let response = self
            .cloud
            .router()
            .oneshot(request.body(body).unwrap())
            .await
            .expect("a router answers");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes());
        let broken = bytes.is_err();
        let bytes = bytes.unwrap_or_default();
        let body = match serde_json::from_slice(&bytes) {
            Ok(json) => json,
            Err(_) if bytes.is_empty() => Value::Null,
            Err(_) => Value::from(String::from_utf8_lossy(&bytes)),
        };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body, broken }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[("openstack-api-version", "compute 2.90")], None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[("openstack-api-version", "compute 2.90")], Some(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[("openstack-api-version", "compute 2.90")], None).await
    }

    /// The id of the thing of this name in a list.
    pub async fn id_of(&self, path: &str, name: &str) -> String {
        let list = self.get(path).await.body;
        let lists = list.as_object().unwrap().values();
        let mut things = lists.flat_map(|list| list.as_array().into_iter().flatten());
        let found = things.find(|thing| thing["name"] == name);
        text(&found.unwrap_or_else(|| panic!("{path} has {name}"))["id"])
    }

    /// Makes a port on the demo network.
    pub async fn port(&self, name: &str) -> String {
        let network = self.network().await;
        let body = json!({"port": {"network_id": network, "name": name}});
        let answer = self.post("/network/v2.0/ports", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        text(&answer.body["port"]["id"])
    }

    pub async fn network(&self) -> String {
        self.id_of("/network/v2.0/networks", "metakube-mmxfcmgjkx").await
    }

    /// The body of a request for a server with these fields beside the usual ones.
    pub async fn wish(&self, name: &str, fields: Value) -> Value {
        let flavor = self.id_of("/compute/v2.1/flavors", "m1.small").await;
        let image = self.id_of("/image/v2/images", "Ubuntu Noble 24.04 (2024-08-01)").await;
        let mut server = json!({
            "name": name,
            "flavorRef": flavor,
            "imageRef": image,
            "networks": [{"uuid": self.network().await}],
        });
        for (field, value) in fields.as_object().unwrap() {
            server[field] = value.clone();
        }
        json!({"server": server})
    }

    /// Asks for a server.
    pub async fn server(&self, name: &str, fields: Value) -> String {
        let answer = self.post("/compute/v2.1/servers", self.wish(name, fields).await).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        text(&answer.body["server"]["id"])
    }

    /// The server as it is now.
    pub async fn show(&self, id: &str) -> Value {
        self.get(&format!("/compute/v2.1/servers/{id}")).await.body["server"].take()
    }

    /// Waits until the server has this status; "404" is gone. Returns all that was seen on the way.
    pub async fn until(&self, id: &str, status: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        let path = format!("/compute/v2.1/servers/{id}");
        let wait = async {
            loop {
                let answer = self.get(&path).await;
                let server = &answer.body["server"];
                let now = if answer.status == 404 {
                    "404".to_owned()
                } else {
                    let task = server["OS-EXT-STS:task_state"].as_str().unwrap_or("-");
                    format!("{} {task}", text(&server["status"]))
                };
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
                if answer.status == 404 || server["status"] == status {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(300), wait).await;
        assert!(waited.is_ok(), "{id} did not become {status}: {seen:?}");
        seen
    }
}

/// A JSON string's text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the hypervisor side was told so far, in short.
pub fn told(power: &mut UnboundedReceiver<Power>) -> Vec<String> {
    let events = std::iter::from_fn(|| power.try_recv().ok());
    events
        .map(|event| match event {
            Power::On(guest) => format!("on {}", guest.name),
            Power::Off { .. } => "off".to_owned(),
            Power::Gone { .. } => "gone".to_owned(),
        })
        .collect()
}
