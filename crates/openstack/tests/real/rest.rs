//! OpenStack's REST as somebody by the name of a test calls it: no retries, no reading of errors.

use bytes::Bytes;
use drover_openstack::transport::{self, Transport};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tower::ServiceExt as _;

/// An answer; the body is null when empty, and a string when it is no JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The body's value under this name, of an answer that must be a success.
    pub fn ok(mut self, name: &str) -> Value {
        assert!(self.status < 300, "{name}: {} {}", self.status, self.body);
        self.body[name].take()
    }
}

/// Somebody who is logged in.
pub struct Rest {
    transport: Transport,
    token: String,
    endpoints: BTreeMap<String, String>,
}

pub fn network() -> Transport {
    transport::of(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>())
}

pub async fn ask(transport: &Transport, request: Request<Full<Bytes>>) -> Answer {
    let answered = tokio::time::timeout(Duration::from_secs(120), async {
        transport.clone().oneshot(request).await
    });
    let (head, body) = answered.await.expect("a slow answer").expect("no answer").into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    let body = match serde_json::from_slice(&bytes) {
        Ok(json) => json,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::from(String::from_utf8_lossy(&bytes)),
    };
    Answer { status: head.status.as_u16(), headers: head.headers, body }
}

impl Rest {
    /// With a password, for the project of the same name as the user, or the one given.
    pub async fn log_in(auth_url: &str, user: &str, password: &str, project: &str) -> Self {
        let domain = json!({"name": "Default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {
                "user": {"name": user, "domain": domain, "password": password}}},
            "scope": {"project": {"name": project, "domain": domain}},
        }});
        let transport = network();
        let request = Request::post(format!("{auth_url}/auth/tokens"))
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))
            .unwrap();
        let answer = ask(&transport, request).await;
        let token = answer.headers.get("x-subject-token").expect("a token").to_str().unwrap();
        let token = token.to_owned();
        let mut endpoints = BTreeMap::new();
        for entry in answer.ok("token")["catalog"].as_array().unwrap() {
            let url = entry["endpoints"][0]["url"].as_str().unwrap();
            let kind = entry["type"].as_str().unwrap();
            let version = match kind {
                "network" => "/v2.0",
                "image" => "/v2",
                _ => "",
            };
            endpoints.insert(kind.to_owned(), format!("{url}{version}"));
        }
        Self { transport, token, endpoints }
    }

    pub async fn call(&self, method: &str, to: &str, body: Option<Value>) -> Answer {
        let (service, path) = to.split_once(' ').expect("a service and a path");
        // Cinder refuses the version of another service.
        let version = if service == "block-storage" { "volume 3.60" } else { "compute 2.90" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.endpoints[service]))
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", version);
        if body.is_some() {
            // Cinder: a body that is announced as JSON and empty is malformed.
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        ask(&self.transport, request.body(Full::from(body)).unwrap()).await
    }

    /// Fills an image, which is of no use before.
    pub async fn upload(&self, to: &str, bytes: &'static str) {
        let (service, path) = to.split_once(' ').expect("a service and a path");
        let request = Request::put(format!("{}{path}", self.endpoints[service]))
            .header("x-auth-token", &self.token)
            .header("content-type", "application/octet-stream")
            .body(Full::from(bytes));
        assert_eq!(ask(&self.transport, request.unwrap()).await.status, 204, "{to}");
    }

    pub async fn get(&self, to: &str, name: &str) -> Value {
        self.call("GET", to, None).await.ok(name)
    }

    pub async fn post(&self, to: &str, name: &str, body: Value) -> Value {
        self.call("POST", to, Some(json!({name: body}))).await.ok(name)
    }

    pub async fn delete(&self, to: &str) {
        let answer = self.call("DELETE", to, None).await;
        assert!(answer.status < 300 || answer.status == 404, "DELETE {to}: {answer:?}");
    }
}

/// The `id` of a thing.
pub fn id(thing: &Value) -> String {
    thing["id"].as_str().expect("an id").to_owned()
}
