//! A logged-in connection to one cloud: one token for all, calls with limits, retries where safe.

use crate::{
    account::Account,
    fault::{Fault, Refusal},
    flight::Flight,
    gate::{Gates, LONGEST_PAUSE},
    keystone::{self, Service, Token},
    transport::Transport,
};
use bytes::Bytes;
use drover_provider::{Clock, Error};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tower::ServiceExt;

/// How long a call may take, its answer's body included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a call that is safe to repeat is sent at most.
const ATTEMPTS: u32 = 4;
/// The pause before the first repetition; it doubles, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest answer that is read, in bytes: a thousand servers are 1.5 MB.
const ANSWER_BYTES: usize = 32 << 20;
/// Tokens are renewed so long before they expire, or in the last tenth of their life when that is shorter: that of an
/// application credential which is about to end lives no longer than the credential.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// After a login that a 401 forced, another 401 within this time forces none: the token is not the
/// reason, an access rule may be.
const FORCED_LOGIN_PAUSE: Duration = Duration::from_secs(5);
/// How long refused credentials are not tried again.
const REFUSAL_KEPT: Duration = Duration::from_secs(30);
/// The highest microversion of Nova that is asked for.
const COMPUTE_VERSION: (u32, u32) = (2, 90);
/// The lowest that will do: tags in the create.
const COMPUTE_VERSION_MIN: (u32, u32) = (2, 52);
/// Cinder's version: metadata filters and attachments as we read them.
const VOLUME_VERSION: &str = "volume 3.60";

/// One request, without the endpoint's address.
#[derive(Clone, Debug)]
pub struct Call {
    pub service: Service,
    pub method: Method,
    /// From the version on, with the query.
    pub path: String,
    pub body: Option<Value>,
    /// After this moment it is not sent any more.
    pub not_after: Option<Timestamp>,
    /// Refused with 412 when the object has another revision (Neutron).
    pub revision: Option<u64>,
}

impl Call {
    #[must_use]
    pub fn new(service: Service, method: Method, path: impl Into<String>) -> Self {
        Self { service, method, path: path.into(), body: None, not_after: None, revision: None }
    }

    #[must_use]
    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    #[must_use]
    pub fn not_after(mut self, moment: Timestamp) -> Self {
        self.not_after = Some(moment);
        self
    }

    #[must_use]
    pub fn if_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// For errors: method and path without the query.
    fn title(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path} of {}", self.method, self.service.word())
    }
}

/// The shared state of one account in one region.
pub struct Session {
    account: Account,
    transport: Transport,
    clock: Clock,
    gates: Arc<Gates>,
    dice: Mutex<fastrand::Rng>,
    logins: tokio::sync::Mutex<Logins>,
    /// Orders those who want a token and the logins that failed.
    tickets: AtomicU64,
    compute_version: Flight<String>,
}

#[derive(Default)]
struct Logins {
    token: Option<Arc<Token>>,
    renew_at: Timestamp,
    forced_at: Option<Instant>,
    refused: Option<(Instant, Error)>,
    /// The last failure and its ticket: who waited for that login shares it.
    failed: Option<(u64, Fault)>,
}

impl Session {
    pub fn new(
        account: Account,
        transport: Transport,
        clock: Clock,
        gates: Arc<Gates>,
        seed: u64,
    ) -> Self {
        Self {
            account,
            transport,
            clock,
            gates,
            dice: Mutex::new(fastrand::Rng::with_seed(seed)),
            logins: tokio::sync::Mutex::default(),
            tickets: AtomicU64::new(0),
            compute_version: Flight::default(),
        }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the catalogue has this service.
    ///
    /// # Errors
    /// What a login can fail with.
    pub async fn has(&self, service: Service) -> Result<bool, Fault> {
        Ok(self.token(None).await?.endpoints.contains_key(&service))
    }

    /// Sends a call and reads its JSON; `Null` for an empty body. Repeats by itself what is safe to
    /// repeat: everything but POST.
    ///
    /// # Errors
    /// [`Fault`], also for every answer that is no success.
    pub async fn send(&self, call: &Call) -> Result<Value, Fault> {
        // A login that failed was repeated already.
        self.token(None).await?;
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            let fault = match self.send_known(call).await {
                Err(fault) if call.method != Method::POST && fault.is_passing() => fault,
                outcome => return outcome,
            };
            let wait = fault.retry_after().unwrap_or_else(|| self.jitter(pause));
            if wait > LONGEST_PAUSE {
                return Err(fault);
            }
            tracing::debug!(call = call.title(), ?wait, "repeating a call");
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
        self.send_known(call).await
    }

    /// The ID of the project that the credentials lead to.
    pub async fn project(&self) -> Result<String, Fault> {
        Ok(self.token(None).await?.project.clone())
    }

    /// The region that was asked for; empty for the only one.
    pub fn region(&self) -> &str {
        self.account.region.as_deref().unwrap_or_default()
    }

    /// With a token; a new one when this is refused.
    async fn send_known(&self, call: &Call) -> Result<Value, Fault> {
        let token = self.token(None).await?;
        match self.send_once(call, &token).await {
            Err(fault) if fault.status() == Some(StatusCode::UNAUTHORIZED) => {
                match self.token(Some(&token)).await? {
                    newer if Arc::ptr_eq(&newer, &token) => Err(fault),
                    newer => self.send_once(call, &newer).await,
                }
            }
            outcome => outcome,
        }
    }

    async fn send_once(&self, call: &Call, token: &Token) -> Result<Value, Fault> {
        let Some(endpoint) = token.endpoints.get(&call.service) else {
            return Err(Fault::Setup(Error::Invalid(format!(
                "the cloud's catalogue has no {} service",
                call.service.word()
            ))));
        };
        let mut head = HeaderMap::new();
        head.insert("x-auth-token", secret_header(token.secret.expose_secret())?);
        let version = match call.service {
            Service::Compute => Some(self.compute_version(endpoint, token).await?),
            Service::Volume => Some(VOLUME_VERSION.to_owned()),
            Service::Network | Service::Image => None,
        };
        if let Some(version) = version.and_then(|it| HeaderValue::try_from(it).ok()) {
            head.insert("openstack-api-version", version);
        }
        if let Some(revision) = call.revision {
            let value = HeaderValue::try_from(format!("revision_number={revision}"));
            head.extend(value.map(|value| (header::IF_MATCH, value)));
        }
        let title = call.title();
        let (_, body) = self.exchange(endpoint, call, &title, head).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| Fault::Lost {
            call: title,
            why: format!("the answer is no JSON ({error})"),
        })
    }

    /// The token in use, or a new one: when there is none, when it is about to expire, or when it is
    /// the one a service just refused. One login at a time.
    async fn token(&self, refused: Option<&Arc<Token>>) -> Result<Arc<Token>, Fault> {
        let asked = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut logins = self.logins.lock().await;
        if let Some(token) = &logins.token {
            let is_refused = refused.is_some_and(|it| Arc::ptr_eq(it, token));
            let just_forced = logins.forced_at.is_some_and(|at| at.elapsed() < FORCED_LOGIN_PAUSE);
            let lives = self.clock.now() < logins.renew_at;
            if (lives && !is_refused) || (is_refused && just_forced) {
                return Ok(token.clone());
            }
        }
        match (&logins.refused, &logins.failed) {
            (Some((at, error)), _) if at.elapsed() < REFUSAL_KEPT => {
                return Err(Fault::Setup(error.clone()));
            }
            (_, Some((ended, fault))) if *ended > asked => return Err(fault.clone()),
            _ => {}
        }
        match self.login().await {
            Ok(token) => {
                let token = Arc::new(token);
                let life = token.expires.duration_since(self.clock.now());
                logins.renew_at = token.expires - RENEW_BEFORE.min(life / 10);
                logins.refused = None;
                logins.forced_at = refused.map(|_| Instant::now()).or(logins.forced_at);
                logins.token = Some(token.clone());
                Ok(token)
            }
            Err(fault) => {
                let error = Error::from(fault.clone());
                if matches!(error, Error::Unauthenticated(_)) {
                    logins.refused = Some((Instant::now(), error.clone()));
                    return Err(Fault::Setup(error));
                }
                let ended = self.tickets.fetch_add(1, Ordering::Relaxed);
                logins.failed = Some((ended, fault.clone()));
                // A token that still lives for a while is better than none.
                match &logins.token {
                    Some(token) if refused.is_none() && self.clock.now() < token.expires => {
                        Ok(token.clone())
                    }
                    _ => Err(fault),
                }
            }
        }
    }

    async fn login(&self) -> Result<Token, Fault> {
        let call = Call::new(Service::Compute, Method::POST, "/auth/tokens")
            .body(keystone::login(&self.account));
        let title = "POST /auth/tokens of identity";
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let answer =
                self.exchange(&self.account.auth_url, &call, title, HeaderMap::new()).await;
            match answer {
                Ok((head, body)) => {
                    let secret = head.get("x-subject-token").and_then(|it| it.to_str().ok());
                    let secret = secret.unwrap_or_default();
                    return keystone::read(secret, &body, &self.account).map_err(Fault::Setup);
                }
                // An unknown application credential is 404: all three mean the credentials are wrong.
                Err(Fault::Answered(refusal))
                    if matches!(refusal.status.as_u16(), 401 | 403 | 404) =>
                {
                    let text = format!("{} says {}", self.account.auth_url, refusal.message);
                    return Err(Fault::Setup(Error::Unauthenticated(text)));
                }
                // A login has no effect that a second one would harm.
                Err(fault) if fault.is_passing() && attempt < ATTEMPTS => {
                    let wait = fault.retry_after().unwrap_or_else(|| self.jitter(pause));
                    if wait > LONGEST_PAUSE {
                        return Err(fault);
                    }
                    tokio::time::sleep(wait).await;
                    pause *= 2;
                }
                Err(fault) => return Err(fault),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// What Nova is asked to speak, settled once.
    async fn compute_version(&self, endpoint: &str, token: &Token) -> Result<String, Fault> {
        let fetch = async {
            // Older clouds put the project behind the version.
            let root = endpoint.find("/v2").map_or(endpoint, |at| {
                let end = endpoint[at + 1..].find('/').map_or(endpoint.len(), |end| at + 1 + end);
                &endpoint[..end]
            });
            let call = Call::new(Service::Compute, Method::GET, "/");
            let mut head = HeaderMap::new();
            head.insert("x-auth-token", secret_header(token.secret.expose_secret())?);
            let (_, body) = self.exchange(root, &call, &call.title(), head).await?;
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let offered = answer["version"]["version"].as_str().unwrap_or_default();
            negotiate(offered).map_err(Fault::Setup)
        };
        self.compute_version.get(Duration::MAX, fetch).await
    }

    /// One request and its whole answer, within the endpoint's limits and the call's time.
    async fn exchange(
        &self,
        endpoint: &str,
        call: &Call,
        title: &str,
        mut head: HeaderMap,
    ) -> Result<(HeaderMap, Bytes), Fault> {
        let unsent =
            |why: String, retry_after| Fault::Unsent { call: title.to_owned(), why, retry_after };
        let gate = self.gates.of(endpoint);
        let _permit = gate
            .enter()
            .await
            .map_err(|pause| unsent("the cloud asked for a pause".to_owned(), Some(pause)))?;
        if call.not_after.is_some_and(|moment| self.clock.now() > moment) {
            return Err(unsent("its time is over".to_owned(), Some(Duration::ZERO)));
        }
        head.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let body = call.body.as_ref().map(|body| Bytes::from(body.to_string()));
        if body.is_some() {
            head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("{endpoint}{}", call.path))
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| unsent(format!("its address is malformed ({error})"), None))?;
        *request.headers_mut() = head;
        let lost = |why: String| Fault::Lost { call: title.to_owned(), why };
        let answer = tokio::time::timeout(CALL_TIMEOUT, async {
            let answer = self.transport.clone().oneshot(request).await.map_err(|error| {
                if error.unsent {
                    unsent(format!("no connection to {endpoint} ({error})"), None)
                } else {
                    lost(format!("no answer from {endpoint} ({error})"))
                }
            })?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| lost(format!("the answer broke off ({error})")))?;
            Ok((parts, body.to_bytes()))
        });
        let (parts, body) = answer.await.map_err(|_| {
            lost(format!("no answer from {endpoint} within {} s", CALL_TIMEOUT.as_secs()))
        })??;
        if parts.status.is_success() {
            return Ok((parts.headers, body));
        }
        let creates = call.method == Method::POST;
        let mut refusal =
            Refusal::read(title.to_owned(), creates, parts.status, &parts.headers, &body);
        for secret in self.account.secrets().filter(|it| !it.is_empty()) {
            refusal.message = refusal.message.replace(secret, "***");
        }
        let fault = Fault::Answered(Box::new(refusal));
        if let Some(pause) = fault.retry_after().filter(|_| fault.is_passing()) {
            gate.close(pause);
        }
        Err(fault)
    }

    fn jitter(&self, pause: Duration) -> Duration {
        let mut dice = self.dice.lock().expect("nobody panics with this lock");
        pause.mul_f64(0.5 + dice.f64())
    }
}

fn secret_header(secret: &str) -> Result<HeaderValue, Fault> {
    let mut value = HeaderValue::try_from(secret).map_err(|_| {
        Fault::Setup(Error::Unauthenticated("the token is no valid header value".into()))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The version to ask for: ours or the highest offered, whichever is lower.
fn negotiate(offered: &str) -> Result<String, Error> {
    let parsed = offered
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match parsed.map(|version: (u32, u32)| version.min(COMPUTE_VERSION)) {
        Some(version) if version >= COMPUTE_VERSION_MIN => {
            Ok(format!("compute {}.{}", version.0, version.1))
        }
        _ => Err(Error::Invalid(format!(
            "the compute service offers microversion {offered:?}; 2.52 or later is needed for tags"
        ))),
    }
}

#[cfg(test)]
mod tests;
