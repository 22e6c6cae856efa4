//! What the lab asks of an OpenStack, its own or any other: a login, the catalogue, and JSON.

mod access;
pub mod nova;
pub mod project;

pub use access::Access;

use crate::dial::DialError;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tower::ServiceExt as _;

/// How long an answer may take: services that share a small machine take their time.
const CALL_MAX: Duration = Duration::from_secs(120);
/// Most pages of one list.
const PAGES_MAX: usize = 100;
/// Characters of an answer that an error quotes.
const QUOTED: usize = 300;

/// Why a cloud did not do as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description of the cloud lacks something.
    #[error("the cloud's entry in clouds.yaml has no {0}")]
    Missing(String),
    /// The description of the cloud asks for something that the lab has not.
    #[error("the cloud's entry in clouds.yaml: {0}")]
    Unfit(&'static str),
    /// The certificate authority of the description cannot be used.
    #[error("the cloud's cacert cannot be used")]
    Dial(#[from] DialError),
    /// No answer at all.
    #[error("{url} cannot be reached: {why}")]
    Transport {
        /// What was asked.
        url: String,
        /// What the connection says.
        why: String,
    },
    /// An answer that is none.
    #[error("{method} {url} answered {status}: {text}")]
    Status {
        /// What was asked.
        method: Method,
        /// Of whom.
        url: String,
        /// What was answered.
        status: StatusCode,
        /// The beginning of what was said.
        text: String,
    },
    /// The catalogue lacks a service.
    #[error("the catalogue has no {interface} {service} endpoint{}", .region.as_ref().map(|name| format!(" in region {name}")).unwrap_or_default())]
    Catalogue {
        /// The service.
        service: &'static str,
        /// The interface that was looked for.
        interface: String,
        /// The region that was looked for; None for any.
        region: Option<String>,
    },
    /// What a project should be or hold at the end, and is or does not.
    #[error("project {project}: {why}")]
    Project {
        /// Its name.
        project: String,
        /// What is wrong.
        why: String,
    },
}

impl Error {
    /// The answer's status, when there was one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The services of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Glance.
    Image,
    /// Cinder.
    Volume,
}

impl Service {
    /// The names that catalogues use, best first.
    fn types(self) -> &'static [&'static str] {
        match self {
            Self::Identity => &["identity"],
            Self::Compute => &["compute"],
            Self::Network => &["network"],
            Self::Image => &["image"],
            Self::Volume => &["block-storage", "volumev3", "block-store", "volume"],
        }
    }

    /// What an endpoint's address ends in.
    fn version(self) -> &'static str {
        match self {
            Self::Network => "/v2.0",
            Self::Image => "/v2",
            Self::Identity | Self::Compute | Self::Volume => "",
        }
    }

    /// Nova: from 2.3 on administrators see the user-data, from 2.47 on everybody the name and size of the flavor.
    fn microversion(self) -> Option<&'static str> {
        (self == Self::Compute).then_some("compute 2.79")
    }
}

struct Token {
    secret: String,
    project: String,
    catalog: Value,
}

/// Somebody who is logged in, or will be with the first call. Clones share the token.
#[derive(Clone)]
pub struct Client {
    access: Arc<Access>,
    token: Arc<Mutex<Option<Arc<Token>>>>,
}

impl Client {
    /// Somebody who has not logged in yet.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access: Arc::new(access), token: Arc::default() }
    }

    /// Keystone's URL.
    #[must_use]
    pub fn auth_url(&self) -> &str {
        &self.access.auth_url
    }

    /// The id of the project that the token is for; empty for none.
    ///
    /// # Errors
    /// What a login can fail with.
    pub async fn project(&self) -> Result<String, Error> {
        Ok(self.login().await?.project.clone())
    }

    /// The region of the servers.
    ///
    /// # Errors
    /// What a login can fail with.
    pub async fn region(&self) -> Result<String, Error> {
        let token = self.login().await?;
        let endpoint = self.endpoint(&token, Service::Compute)?;
        Ok(endpoint["region"].as_str().unwrap_or_default().to_owned())
    }

    /// The answer to GET; None for 404.
    ///
    /// # Errors
    /// When there is no answer, or one that is no success.
    pub async fn get(&self, service: Service, path: &str) -> Result<Option<Value>, Error> {
        match self.call(Method::GET, service, path, None).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// All of a collection, whose items are under `name` in the answer.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn list(
        &self,
        service: Service,
        path: &str,
        name: &str,
    ) -> Result<Vec<Value>, Error> {
        let (mut all, mut path) = (Vec::new(), path.to_owned());
        for _ in 0..PAGES_MAX {
            let mut page = self.call(Method::GET, service, &path, None).await?;
            let next = next(&page, name);
            let Value::Array(items) = page[name].take() else { break };
            let is_last = items.is_empty();
            all.extend(items);
            match (next, path.split('?').next()) {
                (Some(query), Some(bare)) if !is_last => path = format!("{bare}?{query}"),
                _ => break,
            }
        }
        Ok(all)
    }

    /// Makes a thing of what is under `name`, in the request and in the answer.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post(
        &self,
        service: Service,
        path: &str,
        name: &str,
        thing: Value,
    ) -> Result<Value, Error> {
        let body = Value::from(serde_json::Map::from_iter([(name.to_owned(), thing)]));
        Ok(self.call(Method::POST, service, path, Some(&body)).await?[name].take())
    }

    /// Deletes a thing; one that is not there is as good.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn delete(&self, service: Service, path: &str) -> Result<(), Error> {
        match self.call(Method::DELETE, service, path, None).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// One call; null for an empty body. A token that has run out is replaced once.
    ///
    /// # Errors
    /// When there is no answer, or one that is no success.
    pub async fn call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        for is_last in [false, true] {
            let token = self.login().await?;
            let base = match service {
                // Some catalogues name an address of Keystone's that only insiders reach.
                Service::Identity => self.access.auth_url.clone(),
                _ => base(&self.endpoint(&token, service)?, service),
            };
            let url = format!("{base}{path}");
            let mut request = Request::builder().method(&method).uri(&url);
            request = request.header("x-auth-token", &token.secret);
            if let Some(version) = service.microversion() {
                request = request.header("openstack-api-version", version);
            }
            let (status, _, answer) = self.send(&url, request, body).await?;
            if status == StatusCode::UNAUTHORIZED && !is_last {
                *self.token.lock().await = None;
                continue;
            }
            return accept(method, url, status, answer);
        }
        unreachable!("the second answer is returned")
    }

    async fn login(&self) -> Result<Arc<Token>, Error> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token {
            return Ok(Arc::clone(token));
        }
        let url = format!("{}/auth/tokens", self.access.auth_url);
        let request = Request::builder().method(Method::POST).uri(&url);
        let (status, secret, body) = self.send(&url, request, Some(&self.access.login)).await?;
        let mut body = accept(Method::POST, url, status, body)?;
        let new = Arc::new(Token {
            secret: secret.unwrap_or_default(),
            project: body["token"]["project"]["id"].as_str().unwrap_or_default().to_owned(),
            catalog: body["token"]["catalog"].take(),
        });
        *token = Some(Arc::clone(&new));
        Ok(new)
    }

    fn endpoint(&self, token: &Token, service: Service) -> Result<Value, Error> {
        let Access { region, interface, .. } = &*self.access;
        let of_type = |kind: &&str| {
            let entries = token.catalog.as_array().into_iter().flatten();
            entries
                .filter(|entry| entry["type"] == **kind)
                .flat_map(|entry| entry["endpoints"].as_array().into_iter().flatten())
                .find(|point| {
                    let is_there = region.as_ref().is_none_or(|region| point["region"] == **region);
                    point["interface"] == **interface && is_there
                })
                .cloned()
        };
        service.types().iter().find_map(of_type).ok_or_else(|| Error::Catalogue {
            service: service.types()[0],
            interface: interface.clone(),
            region: region.clone(),
        })
    }

    async fn send(
        &self,
        url: &str,
        request: http::request::Builder,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Option<String>, Bytes), Error> {
        let lost = |why: String| Error::Transport { url: url.to_owned(), why };
        let mut request = request.header("accept", "application/json");
        if body.is_some() {
            // Cinder: a body that is announced as JSON and empty is malformed.
            request = request.header("content-type", "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| lost(error.to_string()))?;
        let exchange = async {
            let answer = self.access.transport.clone().oneshot(request).await;
            let answer = answer.map_err(|error| lost(chain(&*error)))?;
            let status = answer.status();
            let token = answer.headers().get("x-subject-token");
            let token = token.and_then(|token| token.to_str().ok()).map(str::to_owned);
            let body = answer.into_body().collect().await;
            let body = body.map_err(|error| lost(chain(&*error)))?;
            Ok((status, token, body.to_bytes()))
        };
        let answer = tokio::time::timeout(CALL_MAX, exchange).await;
        answer.map_err(|_| lost(format!("no answer in {CALL_MAX:?}")))?
    }
}

/// The address that paths go on from.
fn base(endpoint: &Value, service: Service) -> String {
    let url = endpoint["url"].as_str().unwrap_or_default().trim_end_matches('/');
    let version = service.version();
    if url.ends_with(version) { url.to_owned() } else { format!("{url}{version}") }
}

fn accept(method: Method, url: String, status: StatusCode, body: Bytes) -> Result<Value, Error> {
    if status.is_success() {
        return Ok(serde_json::from_slice(&body).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&body).chars().take(QUOTED).collect();
    Err(Error::Status { method, url, status, text })
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The query of the next page: of the link alone, for behind a proxy its address may lead elsewhere.
fn next(page: &Value, name: &str) -> Option<String> {
    let links = page[format!("{name}_links")].as_array().into_iter().flatten();
    let link = links.filter(|link| link["rel"] == "next").find_map(|link| link["href"].as_str());
    // Glance has one field.
    let link = link.or_else(|| page["next"].as_str())?;
    link.split_once('?').map(|(_, query)| query.to_owned())
}
