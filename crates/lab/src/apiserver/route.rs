//! From a request to its answer: who asks, whether they may, what they ask for, and in what form.

use super::access::{self, Attributes, User};
use super::media::{self, Accept, Shape};
use super::read::{self, ListOptions};
use super::render;
use super::request::{self, Query, Request, Target, Verb};
use super::{
    Answer, ApiServer, Body, Peer, Status, crds, create, delete, discovery, duration, openapi,
    patch, subresource, update, watch,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use std::convert::Infallible;
use std::sync::PoisonError;
use std::task::{Context, Poll};

/// Largest body accepted, in bytes (Kubernetes: 3 MiB).
const BODY_SIZE: usize = 3 * 1024 * 1024;

/// The API server as one peer sees it.
#[derive(Clone)]
pub struct Service {
    server: ApiServer,
    peer: Peer,
}

impl Service {
    pub(super) fn new(server: ApiServer, peer: Peer) -> Self {
        Self { server, peer }
    }
}

impl<B> tower::Service<http::Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Self { server, peer } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let head = parts.method == Method::HEAD;
            let bytes = match Limited::new(body, BODY_SIZE).collect().await {
                Ok(whole) => Ok(whole.to_bytes()),
                Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
                Err(error) => Err(Status::bad_request(error.to_string())),
            };
            let answered = match bytes {
                Ok(bytes) => respond(&server, &peer, &parts, bytes).await,
                Err(status) => Err(status),
            };
            let mut answer = answered.unwrap_or_else(|status| render::refusal(&status));
            if head {
                *answer.body_mut() = render::whole("");
            }
            Ok(answer)
        })
    }
}

fn too_large() -> Status {
    let why = format!("Request entity too large: limit is {BODY_SIZE}");
    Status::new(413, "RequestEntityTooLarge", why)
}

async fn respond(
    server: &ApiServer,
    peer: &Peer,
    parts: &http::request::Parts,
    body: Bytes,
) -> Result<Response<Body>, Status> {
    let query = Query::of(&parts.uri);
    // Kubernetes: the deadline of a request is set before anything is asked about who sends it.
    duration::check(query.text("timeout"))?;
    let user = access::authenticate(server, peer, &parts.headers)?;
    let path = parts.uri.path();
    let Some(target) = Target::parse(path) else {
        let verb = parts.method.as_str().to_lowercase();
        access::authorize(server, &user, &Attributes { verb: &verb, path, ..Default::default() })?;
        return elsewhere(server, parts, &query);
    };
    let verb = target.verb(&parts.method, &query);
    let asked = asked_name(&target, verb, &query);
    let ask = Attributes {
        verb: verb.map_or("", Verb::word),
        api_group: &target.group,
        resource: &target.resource,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: &asked,
        field_selector: query.get("fieldSelector"),
        ..Attributes::default()
    };
    access::authorize(server, &user, &ask)?;
    if server.registry().groups().group(&target.group).is_none() {
        return Ok(render::page_not_found());
    }
    let request = resolve(server, target, verb, query, parts, body)?;
    match request.verb {
        Verb::Watch => Ok(render::stream(&request, watch::start(server, &request)?)),
        Verb::List => list(server, &request).await,
        Verb::Get if render::is_plain(&request) => {
            ready(server, &request).await?;
            let entry = read::entry(server, &request)?;
            Ok(render::entry(&entry))
        }
        _ => {
            ready(server, &request).await?;
            let answer = decide(server, &user, &request)?;
            render::answer(server, &request, answer)
        }
    }
}

/// Kubernetes: a list with `metadata.name=x` is a request for x to the authorizer.
fn asked_name(target: &Target, verb: Option<Verb>, query: &Query) -> String {
    if target.name.is_empty() && matches!(verb, Some(Verb::List | Verb::Watch)) {
        let fields = query.text("fieldSelector").split(',');
        let mut named = fields.filter_map(|term| term.strip_prefix("metadata.name="));
        return named.next_back().unwrap_or_default().trim_start_matches('=').to_owned();
    }
    target.name.clone()
}

/// Requests that are for no resource.
fn elsewhere(
    server: &ApiServer,
    parts: &http::request::Parts,
    query: &Query,
) -> Result<Response<Body>, Status> {
    let path = parts.uri.path();
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(Status::method_not_allowed());
    }
    if path.starts_with("/openapi/") {
        return openapi::answer(server, path, query, &parts.headers);
    }
    discovery::answer(server, path, query, &parts.headers)
}

/// Finds the kind and reads the headers; 404, 405 and 406 are decided here.
fn resolve(
    server: &ApiServer,
    target: Target,
    verb: Option<Verb>,
    query: Query,
    parts: &http::request::Parts,
    body: Bytes,
) -> Result<Request, Status> {
    let Target { group, version, namespace, resource, name, subresource, .. } = target;
    let groups = server.registry().groups();
    // Kubernetes: what definitions serve is routed by another part, which speaks plain text here.
    let custom = groups.group(&group).is_some_and(|group| group.custom);
    let missing = if custom { Status::no_such_path } else { Status::no_such_resource };
    let kind = groups.kind(&group, &version, &resource).cloned().ok_or_else(missing)?;
    let named = !name.is_empty();
    // Kinds in namespaces can be listed over all of them, but not reached by name without one.
    let misplaced = if kind.namespaced {
        namespace.is_empty() && (named || verb == Some(Verb::Create))
    } else {
        !namespace.is_empty() && kind.plural != "namespaces"
    };
    if misplaced {
        return Err(missing());
    }
    let offered = offered(&kind, &subresource, &name)?;
    let verb = verb.filter(|verb| offered.iter().any(|one| one == verb.word()));
    let verb = verb.filter(|&verb| match verb {
        Verb::Create => named != subresource.is_empty(),
        Verb::Update | Verb::Patch => named,
        _ => true,
    });
    let verb = verb.ok_or_else(Status::method_not_allowed)?;
    let text = |name: header::HeaderName| header_text(&parts.headers, &name);
    let accept = accepted(&text(header::ACCEPT), verb, kind.offers("get"))?;
    Ok(Request {
        verb,
        namespace,
        name,
        subresource,
        accept,
        content_type: text(header::CONTENT_TYPE),
        manager: request::manager(&query, &parts.headers),
        query,
        body,
        kind,
    })
}

fn offered<'a>(
    kind: &'a super::Kind,
    subresource: &str,
    name: &str,
) -> Result<&'a [String], Status> {
    if subresource.is_empty() {
        return Ok(&kind.verbs);
    }
    let missing = || match kind.custom {
        true => Status::not_found(&kind.group, &kind.plural, name),
        false => Status::no_such_resource(),
    };
    let found = kind.subresources.get(subresource).ok_or_else(missing)?;
    Ok(&found.verbs)
}

pub(super) fn header_text(headers: &HeaderMap, name: &header::HeaderName) -> String {
    let values: Vec<&str> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn accepted(header: &str, verb: Verb, tables: bool) -> Result<Accept, Status> {
    // Streams are told apart by a parameter that says nothing new.
    let mut accept = media::negotiate(&header.replace(";stream=watch", ""), tables)?;
    if accept.shape == Shape::Discovery {
        accept.shape = Shape::Object;
    }
    if verb == Verb::Watch {
        accept.encoding = media::Encoding::Json;
    }
    Ok(accept)
}

/// Waits a little for a revision that is still to come.
async fn ready(server: &ApiServer, request: &Request) -> Result<(), Status> {
    let reads = matches!(request.verb, Verb::Get | Verb::List);
    let asked = request.query.text("resourceVersion").parse::<u64>().unwrap_or(0);
    if !reads || asked <= server.store().revision() {
        return Ok(());
    }
    tokio::time::sleep(read::FUTURE_WAIT).await;
    let now = server.store().revision();
    if asked <= now { Ok(()) } else { Err(read::too_large(asked, now)) }
}

async fn list(server: &ApiServer, request: &Request) -> Result<Response<Body>, Status> {
    let options = ListOptions::of(request)?;
    ready(server, request).await?;
    let page = read::page(server, request, &options)?;
    render::page(server, request, &page)
}

/// Answers everything that is decided at once.
fn decide(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    if request.verb == Verb::Get && request.subresource.is_empty() {
        return read::get(server, request);
    }
    let _turn = server.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = subresource::answer(server, user, request)
        .unwrap_or_else(|| write(server, user, request))?;
    crds::settle(server, request);
    Ok(answered)
}

fn write(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    match request.verb {
        Verb::Get => read::get(server, request),
        Verb::Create => create::create(server, user, request),
        Verb::Update => update::update(server, user, request),
        Verb::Patch => patch::patch(server, user, request),
        Verb::Delete => delete::delete(server, user, request),
        Verb::DeleteCollection => delete::delete_collection(server, user, request),
        Verb::List | Verb::Watch => Err(Status::method_not_allowed()),
    }
}
