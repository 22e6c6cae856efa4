//! The way of a call into a service and of the answer out of it: faults, latency, tokens, headers.

use super::fault::{Effect, Fault};
use super::http::{Call, Reply, Service, keystone_error, proxy_error, webob};
use super::identity::{Session, authenticate};
use super::state::State;
use super::{Cloud, compute, identity, image, ledger, network, volume};
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt as _, Limited};
use serde_json::json;
use std::time::Duration;

/// OpenStack: `max_request_body_size` of oslo.middleware, in bytes.
const BODY_MAX: usize = 114_688;
/// Bytes of an image that one may upload: they are kept in memory.
const IMAGE_MAX: usize = 64 << 20;

/// Answers one request.
pub(super) async fn pass(cloud: Cloud, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let segments: Vec<String> =
        parts.uri.path().split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let prefix = segments.first().map_or("", String::as_str);
    let most = if prefix == Service::Image.name() { IMAGE_MAX } else { BODY_MAX };
    let body = Limited::new(body, most).collect().await.map(|whole| whole.to_bytes());
    if prefix == "lab" {
        let reply = inspect(&cloud, &parts.method, &segments[1..], &body.unwrap_or_default());
        return reply.into_response(false);
    }
    if prefix == "placement" && segments.len() == 1 {
        let own = json!([{"rel": "self", "href": ""}]);
        let version = json!({
            "id": "v1.0", "status": "CURRENT", "min_version": "1.0", "max_version": "1.39", "links": own,
        });
        let id = format!("req-{}", cloud.shared.lock().uuid());
        return Reply::json(200, json!({"versions": [version]}))
            .with("openstack-api-version", "placement 1.0")
            .with("vary", "openstack-api-version")
            .with("x-openstack-request-id", id)
            .into_response(false);
    }
    let Some(service) = Service::of_prefix(prefix) else {
        return proxy_error(404).into_response(false);
    };
    let query = parts.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let mut path: Vec<String> = segments[1..].to_vec();
    let version = match path.first() {
        Some(first) if is_version(first) => path.remove(0),
        _ => String::new(),
    };
    let too_large = body.is_err();
    let call = Call {
        service,
        method: parts.method,
        path,
        version,
        query,
        headers: parts.headers,
        body: body.unwrap_or_default(),
        request_id: String::new(),
        effect: None,
        session: Session::default(),
        minor: 1,
    };
    if too_large {
        let said = "Request is too large. Larger than max_request_body_size (%s).";
        return webob(413, said).into_response(false);
    }
    handle(cloud, call).await
}

fn is_version(segment: &str) -> bool {
    segment
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
}

fn decode(segment: &str) -> String {
    // A plus is a plus in a path, and a blank in form encoding.
    let escaped = format!("x={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(escaped.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

async fn handle(cloud: Cloud, mut call: Call) -> Response<Body> {
    let (wait, effect) = {
        let mut state = cloud.shared.lock();
        let name = call.name();
        call.request_id = format!("req-{}", state.uuid());
        state.counters.count(&name);
        let latency = state.config.latency.mul_f64(0.5 + state.rng().f64());
        (state.config.pace.of(latency), state.faults.strike(&name))
    };
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    match effect {
        Some(Effect::Status { code, retry_after, acted }) => {
            if acted {
                answer(&cloud, &mut call);
            }
            let reply = proxy_error(code);
            match retry_after {
                Some(after) => reply.with("retry-after", after.to_string()),
                None => reply,
            }
            .into_response(false)
        }
        Some(Effect::Cut { acted }) => {
            let reply = if acted { answer(&cloud, &mut call) } else { Reply::empty(200) };
            Reply::empty(reply.status).into_response(true)
        }
        Some(Effect::Slow { millis }) => {
            let reply = answer(&cloud, &mut call);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            reply.into_response(false)
        }
        effect => {
            call.effect = effect;
            answer(&cloud, &mut call).into_response(false)
        }
    }
}

fn answer(cloud: &Cloud, call: &mut Call) -> Reply {
    let mut state = cloud.shared.lock();
    state.settle();
    let state = &mut *state;
    let reply = match call.service {
        Service::Identity => identity::answer(state, call),
        Service::Compute => compute::answer(state, call),
        Service::Network => network::answer(state, call),
        Service::Image => image::answer(state, call),
        Service::Volume => volume::answer(state, call),
    };
    reply.unwrap_or_else(|refusal| refusal).accepted_by(&call.headers)
}

/// Puts the caller's session into the call, or refuses it as the token check in front of every service does.
pub(super) fn admit(state: &mut State, call: &mut Call) -> Result<(), Reply> {
    if let Some(session) = authenticate(state, call) {
        call.session = session;
        return Ok(());
    }
    let uri = format!("Keystone uri=\"{}/identity/v3\"", state.config.base_url);
    let refusal = if call.service == Service::Image {
        webob(
            401,
            "This server could not verify that you are authorized to access the document you requested. Either you \
             supplied the wrong credentials (e.g., bad password), or your browser does not understand how to supply \
             the credentials required.",
        )
    } else {
        keystone_error(401, "The request you have made requires authentication.")
            .with("x-openstack-request-id", call.request_id.clone())
    };
    Err(refusal.with("www-authenticate", uri))
}

/// The inspection page of tests.
fn inspect(cloud: &Cloud, method: &Method, path: &[String], body: &Bytes) -> Reply {
    let mut state = cloud.shared.lock();
    state.settle();
    match (method, path.first().map_or("", String::as_str)) {
        (&Method::GET, "state") => Reply::json(200, ledger::page(&state)),
        (&Method::GET, "faults") => Reply::json(200, json!(state.faults.list())),
        (&Method::PUT, "faults") => match serde_json::from_slice::<Vec<Fault>>(body) {
            Ok(faults) => {
                state.faults.set(faults);
                Reply::json(200, json!(state.faults.list()))
            }
            Err(error) => Reply::json(400, json!({"error": error.to_string()})),
        },
        (_, "state" | "faults") => Reply::json(405, json!({"error": "method not allowed"})),
        _ => Reply::json(404, json!({"error": "there are /lab/state and /lab/faults"})),
    }
}
