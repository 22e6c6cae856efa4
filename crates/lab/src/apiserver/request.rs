//! What a request asks for: its target from the path, its options from the query.

use super::media::Accept;
use super::registry::{Kind, api_version};
use super::status::Status;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use std::sync::Arc;

/// What is done to a resource, in the words of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of many.
    List,
    /// GET that stays.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of many.
    DeleteCollection,
}

impl Verb {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// What the path of a resource request names. Nothing of it need exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// `""` for the core group.
    pub group: String,
    /// As `v1`.
    pub version: String,
    /// `""` outside namespaces.
    pub namespace: String,
    /// The plural.
    pub resource: String,
    /// `""` for all objects.
    pub name: String,
    /// `""` for the object itself.
    pub subresource: String,
    /// The old form `/api/v1/watch/...`.
    pub watch_path: bool,
}

/// Undoes percent-encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.filter(|_| first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Target {
    /// Reads `/api/v1/...` and `/apis/GROUP/VERSION/...`; `None` for any other path, discovery included.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<String> =
            path.trim_matches('/').split('/').map(decode).collect::<Vec<_>>();
        let (group, skip) = match parts.first()?.as_str() {
            "api" => (String::new(), 1),
            "apis" => (parts.get(1)?.clone(), 2),
            _ => return None,
        };
        let version = parts.get(skip)?.clone();
        let mut rest: Vec<String> = parts.split_off(skip + 1);
        let watch_path = rest.first().is_some_and(|part| part == "watch");
        if watch_path {
            rest.remove(0);
        }
        let mut target = Self { group, version, watch_path, ..Self::default() };
        let own = |part: &str| part == "status" || part == "finalize";
        if rest.len() >= 3 && rest[0] == "namespaces" && !(rest.len() == 3 && own(&rest[2])) {
            target.namespace = rest[1].clone();
            rest.drain(..2);
        }
        let mut rest = rest.into_iter();
        target.resource = rest.next().filter(|part| !part.is_empty())?;
        target.name = rest.next().unwrap_or_default();
        target.subresource = rest.collect::<Vec<_>>().join("/");
        if target.resource == "namespaces" && target.group.is_empty() {
            target.namespace = target.name.clone();
        }
        Some(target)
    }

    /// The verb of a method on this target; `None` for one that no resource knows.
    #[must_use]
    pub fn verb(&self, method: &Method, query: &Query) -> Option<Verb> {
        let many = self.name.is_empty();
        Some(match *method {
            // Kubernetes: one object by its path is never watched.
            Method::GET if self.watch_path || many && query.flag("watch") => Verb::Watch,
            Method::GET if many => Verb::List,
            Method::GET => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if many => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => return None,
        })
    }
}

/// The query of a URL, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of this URL.
    #[must_use]
    pub fn of(uri: &Uri) -> Self {
        let text = uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The first value, or the empty text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// All values of a parameter.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether a parameter is given and not `0` or `false` (Kubernetes: any other text is true).
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "0" | "false" | "False" | "FALSE"))
    }

    /// A whole number; 400 in Go's words for anything else.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong = || format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
        text.parse().map(Some).map_err(|_| Status::bad_request(wrong()))
    }
}

/// A request for a resource that exists, from a user who may.
pub struct Request {
    /// What is done.
    pub verb: Verb,
    /// To objects of this kind.
    pub kind: Arc<Kind>,
    /// `""` outside namespaces, or for all of them.
    pub namespace: String,
    /// `""` for all objects.
    pub name: String,
    /// `""` for the object itself.
    pub subresource: String,
    /// The options.
    pub query: Query,
    /// The form of the answer.
    pub accept: Accept,
    /// Of the body, parameters included; empty when the client said nothing.
    pub content_type: String,
    /// The manager of fields: asked for, or else the first word of the User-Agent.
    pub manager: String,
    /// What the client sent.
    pub body: Bytes,
}

impl Request {
    /// `dryRun=All`: everything is decided, nothing is kept.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|value| !value.is_empty())
    }

    /// `apiVersion` of the version asked for.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.kind.group, &self.kind.version)
    }

    /// 404 of the object asked for.
    #[must_use]
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.group, &self.kind.plural, &self.name)
    }

    /// Where the object asked for is kept.
    #[must_use]
    pub fn key(&self) -> super::Key {
        self.key_of(&self.name)
    }

    /// Where an object of this request's namespace is kept.
    #[must_use]
    pub fn key_of(&self, name: &str) -> super::Key {
        let namespace = if self.kind.namespaced { self.namespace.clone() } else { String::new() };
        super::Key { resource: self.kind.storage.clone(), namespace, name: name.to_owned() }
    }
}

/// Kubernetes: the manager of a write without `fieldManager` is the User-Agent up to `/`.
#[must_use]
pub fn manager(query: &Query, headers: &HeaderMap) -> String {
    let asked = query.text("fieldManager");
    if !asked.is_empty() {
        return asked.to_owned();
    }
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let first = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    if first.is_empty() { "unknown".to_owned() } else { first.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> [String; 6] {
        let t = Target::parse(path).expect("a resource path");
        [t.group, t.version, t.namespace, t.resource, t.name, t.subresource]
    }

    #[test]
    fn paths_name_resources() {
        assert_eq!(target("/api/v1/nodes"), ["", "v1", "", "nodes", "", ""]);
        assert_eq!(target("/api/v1/namespaces/a"), ["", "v1", "a", "namespaces", "a", ""]);
        let status = ["", "v1", "a", "namespaces", "a", "status"];
        assert_eq!(target("/api/v1/namespaces/a/status"), status);
        assert_eq!(target("/api/v1/namespaces/a/pods"), ["", "v1", "a", "pods", "", ""]);
        let deep = ["apps", "v1", "a", "deployments", "b", "scale"];
        assert_eq!(target("/apis/apps/v1/namespaces/a/deployments/b/scale"), deep);
        let odd = ["rbac.authorization.k8s.io", "v1", "", "clusterroles", "system:node", ""];
        assert_eq!(target("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"), odd);
        assert_eq!(Target::parse("/apis/apps/v1"), None);
        assert_eq!(Target::parse("/version"), None);
    }

    #[test]
    fn flags_are_as_lax_as_the_real_ones() {
        let query = Query::of(&"/x?watch=maybe&a=0&b=false&c".parse().expect("a URI"));
        assert!(query.flag("watch") && query.flag("c"));
        assert!(!query.flag("a") && !query.flag("b") && !query.flag("d"));
    }

    #[test]
    fn the_user_agent_names_the_manager() {
        let mut headers = HeaderMap::new();
        assert_eq!(manager(&Query::default(), &headers), "unknown");
        headers.insert(header::USER_AGENT, http::HeaderValue::from_static("kubectl/v1.32 (linux)"));
        assert_eq!(manager(&Query::default(), &headers), "kubectl");
    }
}
