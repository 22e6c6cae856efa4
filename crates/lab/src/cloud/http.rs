//! What all services share of HTTP: a call, read once, and an answer before it is bytes.

use super::fault::Effect;
use super::identity::Session;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

/// The services, each under a prefix of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Identity,
    Compute,
    Network,
    Image,
    Volume,
}

impl Service {
    pub(super) fn of_prefix(prefix: &str) -> Option<Self> {
        [Self::Identity, Self::Compute, Self::Network, Self::Image, Self::Volume]
            .into_iter()
            .find(|service| service.name() == prefix)
    }

    /// The prefix, which is also the type in the catalogue but for volumes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Network => "network",
            Self::Image => "image",
            Self::Volume => "volume",
        }
    }
}

/// One call of a service.
pub(super) struct Call {
    pub service: Service,
    pub method: Method,
    /// The segments after the service's prefix, decoded, without a version: `["servers", "detail"]`.
    pub path: Vec<String>,
    /// `v2.1`, `v2.0`, `v3`; empty at a service's root.
    pub version: String,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// `req-` and a UUID.
    pub request_id: String,
    /// What a fault wants of the service itself.
    pub effect: Option<Effect>,
    /// Who calls; set before a service other than the identity service sees it.
    pub session: Session,
    /// The minor microversion, 1 when none was asked for (volumes: 0).
    pub minor: u16,
}

impl Call {
    pub(super) fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// The first value of a query parameter.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a query parameter.
    pub(super) fn queries<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as JSON; an empty one is null.
    pub(super) fn json(&self) -> Result<Value, serde_json::Error> {
        if self.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&self.body) }
    }

    /// The call's name, by which it is counted and faults find it: `compute GET /servers/{id}`.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{} {} ", self.service.name(), self.method);
        let mut before = "";
        for segment in &self.path {
            let named = matches!(
                before,
                "tags" | "metadata" | "os-keypairs" | "os-instance-actions" | "flavors" | "images"
            ) && segment != "detail";
            name.push('/');
            name.push_str(if named || is_id(segment) { "{id}" } else { segment });
            before = segment;
        }
        if self.path.is_empty() {
            name.push('/');
        }
        name
    }
}

/// Whether this is a UUID, with dashes or without.
pub(super) fn is_id(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && (text.len() == 32 || is_uuid(text))
}

/// Whether this is a UUID with dashes.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Content {
    Empty,
    Json(Value),
    Html(String),
    /// An error of WebOb, which is JSON or HTML as the caller accepts: its message.
    WebOb(String),
    Bytes(Bytes),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub content: Content,
}

/// What a route gives: both sides are answers, and `?` gives the refusals.
pub(super) type Answer = Result<Reply, Reply>;

impl Reply {
    pub(super) fn json(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), content: Content::Json(body) }
    }

    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), content: Content::Empty }
    }

    pub(super) fn html(status: u16, text: String) -> Self {
        Self { status, headers: Vec::new(), content: Content::Html(text) }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// WebOb: HTML for whoever accepts anything, JSON for who asks for that.
    pub(super) fn accepted_by(mut self, headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let html = accept.is_some_and(|accept| {
            accept.contains("text/html")
                || (accept.contains("*/*") && !accept.contains("application/json"))
        });
        if let (Content::WebOb(message), true) = (&self.content, html) {
            let line = format!("{} {}", self.status, title(self.status));
            self.content = Content::Html(format!(
                "<html>\n <head>\n  <title>{line}</title>\n </head>\n <body>\n  <h1>{line}</h1>\n  {message}<br \
                 /><br />\n\n\n\n </body>\n</html>"
            ));
        }
        self
    }

    /// As bytes. `cut` breaks the connection where the body would begin.
    pub(super) fn into_response(self, cut: bool) -> Response<Body> {
        let (content_type, bytes) = match self.content {
            Content::Empty => (None, Bytes::new()),
            Content::Json(value) => (Some("application/json"), Bytes::from(value.to_string())),
            Content::Bytes(bytes) => (Some("application/octet-stream"), bytes),
            Content::WebOb(message) => {
                let title = title(self.status);
                let body = json!({
                    "message": format!("{message}<br /><br />\n\n\n"),
                    "code": format!("{} {title}", self.status),
                    "title": title,
                });
                (Some("application/json"), Bytes::from(body.to_string()))
            }
            Content::Html(text) => (Some("text/html; charset=utf-8"), Bytes::from(text)),
        };
        let length = bytes.len();
        let body = if cut {
            let broken: Result<Bytes, _> = Err(std::io::Error::other("connection reset"));
            Body::from_stream(futures::stream::iter([broken]))
        } else {
            Body::from(bytes)
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if self.status != 204 && !cut {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Keystone's error, and that of every service's token check but the image service's.
pub(super) fn keystone_error(status: u16, message: impl Into<String>) -> Reply {
    let title = title(status);
    Reply::json(
        status,
        json!({"error": {"code": status, "title": title, "message": message.into()}}),
    )
}

/// The error of Nova and Cinder: one key that names the fault.
pub(super) fn fault(status: u16, message: impl Into<String>) -> Reply {
    let key = match status {
        400 => "badRequest",
        403 => "forbidden",
        404 => "itemNotFound",
        405 => "badMethod",
        409 => "conflictingRequest",
        413 => "overLimit",
        501 => "notImplemented",
        _ => "computeFault",
    };
    Reply::json(status, json!({key: {"code": status, "message": message.into()}}))
}

/// Neutron's error; clients match the type.
pub(super) fn neutron_error(status: u16, kind: &str, message: impl Into<String>) -> Reply {
    Reply::json(
        status,
        json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}),
    )
}

/// The error of WebOb: Glance's, and that of every path Nova does not know.
pub(super) fn webob(status: u16, message: &str) -> Reply {
    Reply { status, headers: Vec::new(), content: Content::WebOb(message.to_owned()) }
}

/// A proxy's error, in HTML.
pub(super) fn proxy_error(status: u16) -> Reply {
    let title = title(status);
    Reply::html(
        status,
        format!(
            "<html><head><title>{status} {title}</title></head><body><center><h1>{status} {title}\
             </h1></center></body></html>\n"
        ),
    )
}

fn title(status: u16) -> &'static str {
    match status {
        413 => "Request Entity Too Large",
        code => StatusCode::from_u16(code)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("Error"),
    }
}
