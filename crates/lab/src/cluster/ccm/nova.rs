//! The little of OpenStack that a cloud controller manager reads: a token and the servers.

use crate::dial::Transport;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tower::ServiceExt as _;

/// Nova: from 2.47 on a server shows the name of its flavor.
const MICROVERSION: &str = "compute 2.79";
/// Servers of one page; Nova's own limit is as high.
const PAGE: usize = 1000;
/// Most pages of one list.
const PAGES_MAX: usize = 100;

/// Where the cloud is and who asks.
#[derive(Clone)]
pub struct Access {
    /// How requests get there.
    pub transport: Transport,
    /// Keystone's URL, ending in `/v3`.
    pub auth_url: String,
    /// The user, of the domain Default.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The project, of the domain Default.
    pub project: String,
    /// The region whose endpoints are used.
    pub region: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("auth_url", &self.auth_url).finish_non_exhaustive()
    }
}

/// Why the cloud did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer at all.
    #[error("{0} cannot be reached: {1}")]
    Transport(String, String),
    /// An answer that is none.
    #[error("{0} answered {1}")]
    Status(String, StatusCode),
    /// The catalogue lacks the compute service.
    #[error("the catalogue has no public compute endpoint in region {0}")]
    Catalogue(String),
}

/// A server, as far as a Node shows it.
#[derive(Clone, Debug)]
pub struct Server {
    pub id: String,
    pub name: String,
    pub status: String,
    pub zone: String,
    pub flavor: String,
    pub internal: Vec<IpAddr>,
    pub external: Vec<IpAddr>,
}

/// A client with a token.
pub struct Nova {
    access: Access,
    token: Option<(String, String)>,
}

impl Nova {
    /// A client that has not logged in yet.
    pub fn new(access: Access) -> Self {
        Self { access, token: None }
    }

    /// All servers of the project by id.
    pub async fn servers(&mut self) -> Result<BTreeMap<String, Server>, Error> {
        let mut all = BTreeMap::new();
        let mut marker = String::new();
        for _ in 0..PAGES_MAX {
            let page = self.get(&format!("/servers/detail?limit={PAGE}{marker}")).await?;
            let Some(page) = page else { break };
            let servers = page["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
            for server in servers.iter().map(read) {
                marker = format!("&marker={}", server.id);
                all.insert(server.id.clone(), server);
            }
            let next = page["servers_links"].as_array().into_iter().flatten();
            if servers.is_empty() || !next.clone().any(|link| link["rel"] == "next") {
                break;
            }
        }
        Ok(all)
    }

    /// Whether there is a server of this id.
    pub async fn exists(&mut self, id: &str) -> Result<bool, Error> {
        let server = self.get(&format!("/servers/{id}")).await?;
        Ok(server.is_some_and(|server| {
            !matches!(server["server"]["status"].as_str(), Some("DELETED" | "SOFT_DELETED"))
        }))
    }

    /// Reads below the compute endpoint; None for 404. A token that has run out is replaced once.
    async fn get(&mut self, path: &str) -> Result<Option<Value>, Error> {
        for fresh in [false, true] {
            if fresh {
                self.token = None;
            }
            let (token, compute) = self.login().await?;
            let url = format!("{compute}{path}");
            let (status, _, body) = self.send(Method::GET, &url, Some(&token), None).await?;
            match status {
                StatusCode::UNAUTHORIZED if !fresh => {}
                StatusCode::NOT_FOUND => return Ok(None),
                status if status.is_success() => return Ok(Some(body)),
                status => return Err(Error::Status(url, status)),
            }
        }
        Err(Error::Status(self.access.auth_url.clone(), StatusCode::UNAUTHORIZED))
    }

    /// The token and the compute endpoint.
    async fn login(&mut self) -> Result<(String, String), Error> {
        if let Some(token) = &self.token {
            return Ok(token.clone());
        }
        let Access { auth_url, user, password, project, region, .. } = self.access.clone();
        let domain = json!({"name": "Default"});
        let ask = json!({"auth": {
            "identity": {"methods": ["password"], "password": {
                "user": {"name": user, "domain": domain, "password": password},
            }},
            "scope": {"project": {"name": project, "domain": domain}},
        }});
        let url = format!("{auth_url}/auth/tokens");
        let (status, token, body) = self.send(Method::POST, &url, None, Some(&ask)).await?;
        if status != StatusCode::CREATED {
            return Err(Error::Status(url, status));
        }
        let services = body["token"]["catalog"].as_array().into_iter().flatten();
        let mut endpoints = services
            .filter(|service| service["type"] == "compute")
            .flat_map(|service| service["endpoints"].as_array().into_iter().flatten())
            .filter(|point| point["interface"] == "public" && point["region"] == *region);
        let compute = endpoints.next().and_then(|point| point["url"].as_str());
        let compute = compute.ok_or(Error::Catalogue(region))?.trim_end_matches('/').to_owned();
        let both = (token.unwrap_or_default(), compute);
        self.token = Some(both.clone());
        Ok(both)
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Option<String>, Value), Error> {
        let lost = |why: String| Error::Transport(url.to_owned(), why);
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .header("openstack-api-version", MICROVERSION);
        if let Some(token) = token {
            request = request.header("x-auth-token", token);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| lost(error.to_string()))?;
        let answer = self.access.transport.clone().oneshot(request).await;
        let answer = answer.map_err(|error| lost(error.to_string()))?;
        let status = answer.status();
        let token = answer.headers().get("x-subject-token");
        let token = token.and_then(|token| token.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect().await.map_err(|error| lost(error.to_string()))?;
        Ok((status, token, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
    }
}

fn read(server: &Value) -> Server {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut internal, mut external) = (Vec::new(), Vec::new());
    for entry in server["addresses"]
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
        .flat_map(|entries| entries.as_array().into_iter().flatten())
    {
        let Some(address) = entry["addr"].as_str().and_then(|addr| addr.parse().ok()) else {
            continue;
        };
        let is_floating = entry["OS-EXT-IPS:type"] == "floating";
        if is_floating { &mut external } else { &mut internal }.push(address);
    }
    Server {
        id: text(&server["id"]),
        name: text(&server["name"]),
        status: text(&server["status"]),
        zone: text(&server["OS-EXT-AZ:availability_zone"]),
        flavor: text(&server["flavor"]["original_name"]),
        internal,
        external,
    }
}
