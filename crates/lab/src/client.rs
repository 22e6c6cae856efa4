//! A small JSON client of a Kubernetes API server, for the lab's own controllers and nodes.

mod informer;

pub use informer::{Delta, Informer, reflect};

use crate::dial::{Answer, Credential, Transport, in_process};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tower::ServiceExt as _;

/// What an API server said instead of yes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status; 0 when there was no answer.
    pub code: u16,
    /// The `reason` of the Status, as `AlreadyExists`; empty when there was none.
    pub reason: String,
    /// What went wrong, in the server's words.
    pub message: String,
    /// The whole answer; null when it was no JSON.
    pub body: Value,
}

impl ApiError {
    fn unanswered(message: impl std::fmt::Display) -> Self {
        Self { code: 0, reason: String::new(), message: message.to_string(), body: Value::Null }
    }

    fn of_status(code: u16, body: Value) -> Self {
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        let message = match text("message") {
            empty if empty.is_empty() => format!("the server answered {code}"),
            said => said,
        };
        Self { code, reason: text("reason"), message, body }
    }

    /// The object is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Somebody else wrote first, or the name is taken.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code == 409
    }

    /// The version asked for is older than the server remembers.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code == 410
    }
}

/// How a patch is to be read.
#[derive(Clone, Copy, Debug)]
pub enum PatchKind<'a> {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, for built-in kinds.
    Strategic,
    /// Server-side apply.
    Apply {
        /// The field manager.
        manager: &'a str,
        /// Takes fields over from other managers.
        force: bool,
    },
}

impl PatchKind<'_> {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply { .. } => "application/apply-patch+yaml",
        }
    }
}

/// One line of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object appeared.
    Added(Arc<Value>),
    /// The object changed.
    Modified(Arc<Value>),
    /// The object went away, or no longer matches; this is its last state.
    Deleted(Arc<Value>),
    /// Nothing changed up to this version.
    Bookmark {
        /// The version to go on from.
        resource_version: String,
    },
}

/// A client of one API server as one user.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    base: String,
    bearer: Option<header::HeaderValue>,
    agent: header::HeaderValue,
}

impl Client {
    /// A client over this transport, whose paths need no prefix.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            base: String::new(),
            bearer: None,
            agent: header::HeaderValue::from_static("drover-lab"),
        }
    }

    /// A client over a service of this process.
    pub fn over<S, B>(service: S) -> Self
    where
        S: tower::Service<Request<Full<Bytes>>, Response = http::Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Error: Into<crate::dial::BoxError>,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<crate::dial::BoxError>,
    {
        Self::new(in_process(service))
    }

    /// The same client with another base URL.
    #[must_use]
    pub fn at(mut self, base: &str) -> Self {
        base.trim_end_matches('/').clone_into(&mut self.base);
        self
    }

    /// The same client with a bearer token; a certificate belongs to the transport.
    #[must_use]
    pub fn showing(mut self, who: &Credential) -> Self {
        if let Credential::Bearer(token) = who {
            self.bearer = header::HeaderValue::from_str(&format!("Bearer {token}")).ok();
        }
        self
    }

    /// The same client under another name: the server takes the field manager from it.
    #[must_use]
    pub fn named(mut self, agent: &'static str) -> Self {
        self.agent = header::HeaderValue::from_static(agent);
        self
    }

    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.call(Method::GET, path, None, &Value::Null).await
    }

    /// Creates an object in the collection at this path.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, path, Some("application/json"), object).await
    }

    /// Replaces an object.
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, path, Some("application/json"), object).await
    }

    /// Patches an object.
    pub async fn patch(
        &self,
        path: &str,
        kind: PatchKind<'_>,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        if let PatchKind::Apply { manager, force } = kind {
            let path = with_query(path, &format!("fieldManager={manager}&force={force}"));
            return self.call(Method::PATCH, &path, Some(kind.content_type()), patch).await;
        }
        self.call(Method::PATCH, path, Some(kind.content_type()), patch).await
    }

    /// Deletes an object; `options` are DeleteOptions, null for none.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, ApiError> {
        let content = (!options.is_null()).then_some("application/json");
        self.call(Method::DELETE, path, content, options).await
    }

    /// Follows a collection; the path carries its own query, `watch=true` is added.
    pub async fn watch(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Event, ApiError>> + Send + use<>, ApiError> {
        let path = with_query(path, "watch=true");
        let answer = self.send(Method::GET, &path, None, Bytes::new()).await?;
        let status = answer.status();
        if !status.is_success() {
            let body = collect(answer.into_body()).await?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            return Err(ApiError::of_status(status.as_u16(), body));
        }
        Ok(lines(answer.into_body()))
    }

    /// Reads what is no JSON, as `/readyz` or a log.
    ///
    /// # Errors
    /// When there is no answer, or another than 2xx.
    pub async fn text(&self, path: &str) -> Result<String, ApiError> {
        let answer = self.send(Method::GET, path, None, Bytes::new()).await?;
        let status = answer.status();
        let text = String::from_utf8_lossy(&collect(answer.into_body()).await?).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let mut error = ApiError::of_status(status.as_u16(), Value::Null);
        error.message = text.chars().take(MESSAGE_MAX).collect();
        Err(error)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let sent = match content_type {
            Some(_) => serde_json::to_vec(body).map_err(ApiError::unanswered)?.into(),
            None => Bytes::new(),
        };
        let answer = self.send(method, path, content_type, sent).await?;
        let status = answer.status();
        let text = collect(answer.into_body()).await?;
        let parsed = serde_json::from_slice(&text);
        if status.is_success() {
            return parsed.map_err(|error| ApiError::unanswered(format!("{path}: {error}")));
        }
        let mut error = ApiError::of_status(status.as_u16(), parsed.unwrap_or_default());
        if error.body.is_null() && !text.is_empty() {
            error.message = String::from_utf8_lossy(&text).chars().take(MESSAGE_MAX).collect();
        }
        Err(error)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: Bytes,
    ) -> Result<http::Response<Answer>, ApiError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, self.agent.clone());
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, bearer.clone());
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body)).map_err(ApiError::unanswered)?;
        self.transport.clone().oneshot(request).await.map_err(|error| {
            let mut said = error.to_string();
            let mut cause = error.source();
            while let Some(deeper) = cause {
                said = format!("{said}: {deeper}");
                cause = deeper.source();
            }
            ApiError::unanswered(said)
        })
    }
}

/// How much of an answer that is no JSON is kept, in characters.
const MESSAGE_MAX: usize = 200;

/// A path with one more piece of query.
pub(crate) fn with_query(path: &str, more: &str) -> String {
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}{more}")
}

async fn collect(body: Answer) -> Result<Bytes, ApiError> {
    Ok(body.collect().await.map_err(ApiError::unanswered)?.to_bytes())
}

/// Decodes a watch: one JSON object a line, however the lines were cut into pieces.
fn lines(body: Answer) -> impl Stream<Item = Result<Event, ApiError>> + Send {
    let state = (body, BytesMut::new(), VecDeque::new(), false);
    futures::stream::unfold(state, |(mut body, mut rest, mut ready, mut over)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((event, (body, rest, ready, over)));
            }
            if over {
                return None;
            }
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        rest.extend_from_slice(&data);
                        take_lines(&mut rest, &mut ready);
                    }
                }
                Some(Err(error)) => {
                    over = true;
                    ready.push_back(Err(ApiError::unanswered(error)));
                }
                None => over = true,
            }
        }
    })
}

fn take_lines(rest: &mut BytesMut, ready: &mut VecDeque<Result<Event, ApiError>>) {
    let Some(last) = rest.iter().rposition(|byte| *byte == b'\n') else { return };
    let whole = rest.split_to(last + 1);
    let lines = whole[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    ready.extend(lines.map(decode));
}

fn decode(line: &[u8]) -> Result<Event, ApiError> {
    let mut event: Value = serde_json::from_slice(line).map_err(ApiError::unanswered)?;
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED") => Ok(Event::Added(Arc::new(object))),
        Some("MODIFIED") => Ok(Event::Modified(Arc::new(object))),
        Some("DELETED") => Ok(Event::Deleted(Arc::new(object))),
        Some("BOOKMARK") => Ok(Event::Bookmark {
            resource_version: object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        }),
        _ => {
            let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            Err(ApiError::of_status(code.unwrap_or(500), object))
        }
    }
}

#[cfg(test)]
mod tests;
