//! The answer as bytes: JSON or YAML, whole objects, tables or metadata alone.

use super::media::{Accept, Encoding, Shape};
use super::read::{self, Page};
use super::request::{Request, Verb};
use super::status::NO_SUCH_PATH;
use super::store::Entry;
use super::{Answer, ApiServer, Body, Status, prepare, table};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use serde_json::{Value, json};

/// A body that is whole.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// An answer of this status, type and body.
pub(super) fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A text.
pub(super) fn plain(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    response(code, "text/plain; charset=utf-8", whole(text))
}

/// A path the server does not have.
pub(super) fn page_not_found() -> Response<Body> {
    plain(404, NO_SUCH_PATH)
}

/// JSON of anything.
pub(super) fn json_of(code: u16, value: &impl Serialize) -> Response<Body> {
    response(code, "application/json", whole(serde_json::to_vec(value).unwrap_or_default()))
}

/// A refusal.
pub(super) fn refusal(status: &Status) -> Response<Body> {
    if status.is_no_such_path() {
        return page_not_found();
    }
    let mut response = json_of(status.code, &status.to_value());
    if let Some(seconds) = status.details["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A watch.
pub(super) fn stream(request: &Request, events: Body) -> Response<Body> {
    warned(response(200, "application/json", events), request.kind.warning.iter())
}

/// A table or bare metadata in the version the client asked for.
pub(super) fn versioned(mut value: Value, accept: Accept) -> Value {
    if value["apiVersion"] == Accept::PLAIN.version && value["apiVersion"] != accept.version {
        value["apiVersion"] = accept.version.into();
    }
    value
}

fn written(code: u16, accept: Accept, pretty: bool, value: &Value) -> Response<Body> {
    let bytes = match accept.encoding {
        Encoding::Json if pretty => serde_json::to_vec_pretty(value).unwrap_or_default(),
        Encoding::Json => serde_json::to_vec(value).unwrap_or_default(),
        Encoding::Yaml => serde_saphyr::to_string(value).unwrap_or_default().into_bytes(),
    };
    response(code, accept.content_type(), whole(bytes))
}

fn pretty(request: &Request) -> bool {
    request.query.flag("pretty")
}

/// Whether a GET is answered with the stored JSON as it is.
pub(super) fn is_plain(request: &Request) -> bool {
    request.accept == Accept::PLAIN
        && matches!(request.subresource.as_str(), "" | "status")
        && request.kind.warning.is_none()
        && !pretty(request)
        && prepare::is_stored_form(&request.kind)
}

/// An object as it is kept.
pub(super) fn entry(entry: &Entry) -> Response<Body> {
    response(200, "application/json", whole(entry.json()))
}

/// An answer in the form the client accepts.
pub(super) fn answer(
    server: &ApiServer,
    request: &Request,
    answer: Answer,
) -> Result<Response<Body>, Status> {
    let Answer { code, body, warnings } = answer;
    let of_kind = body["kind"] == request.kind.kind.as_str();
    let body = match request.accept.shape {
        Shape::Object | Shape::Discovery => body,
        _ if !of_kind && body["items"].is_null() => body,
        Shape::Partial => table::partial(&body),
        Shape::PartialList => table::partial_list(std::slice::from_ref(&body), json!({})),
        Shape::Table => {
            let now = server.clock().now();
            let version = body["metadata"]["resourceVersion"].clone();
            let metadata = json!({"resourceVersion": version});
            match body["items"].as_array() {
                Some(items) => table::table(&request.kind, metadata, items, &request.query, now)?,
                None => {
                    let items = [body];
                    table::table(&request.kind, metadata, &items, &request.query, now)?
                }
            }
        }
    };
    let body = versioned(body, request.accept);
    let response = written(code, request.accept, pretty(request), &body);
    let kind = &request.kind;
    let inert = (kind.inert && request.verb != Verb::Get).then(|| {
        format!("{}.{} are kept by the lab, and nothing acts on them", kind.plural, kind.group)
    });
    Ok(warned(response, warnings.iter().chain(&kind.warning).chain(&inert)))
}

/// Tells warnings beside an answer.
fn warned<'a>(
    mut response: Response<Body>,
    texts: impl Iterator<Item = &'a String>,
) -> Response<Body> {
    for value in texts.filter_map(|text| HeaderValue::from_str(&format!("299 - {text:?}")).ok()) {
        response.headers_mut().append(header::WARNING, value);
    }
    response
}

/// A page of a list in the form the client accepts.
pub(super) fn page(
    server: &ApiServer,
    request: &Request,
    page: &Page,
) -> Result<Response<Body>, Status> {
    let kind = &*request.kind;
    let plain = request.accept == Accept::PLAIN && !pretty(request);
    if plain && kind.custom && prepare::is_stored_form(kind) {
        let answer = response(200, "application/json", whole(joined(kind, page)));
        return Ok(warned(answer, kind.warning.iter()));
    }
    let objects = page.entries.iter().map(|entry| prepare::from_storage(kind, &entry.object));
    let body = match request.accept.shape {
        Shape::Object | Shape::Discovery => {
            let mut list = read::list_object(kind, page.revision, objects.collect());
            list["metadata"] = page.metadata();
            list
        }
        Shape::Partial | Shape::PartialList => {
            let objects: Vec<Value> = objects.collect();
            table::partial_list(&objects, page.metadata())
        }
        Shape::Table => {
            let objects: Vec<Value> = objects.collect();
            let now = server.clock().now();
            table::table(kind, page.metadata(), &objects, &request.query, now)?
        }
    };
    let body = versioned(body, request.accept);
    Ok(warned(written(200, request.accept, pretty(request), &body), kind.warning.iter()))
}

/// A list put together from JSON that is there already.
fn joined(kind: &super::Kind, page: &Page) -> Vec<u8> {
    let size: usize = page.entries.iter().map(|entry| entry.json().len() + 1).sum();
    let mut bytes = Vec::with_capacity(size + 200);
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        json!(kind.list_kind),
        json!(kind.api_version()),
        page.metadata()
    );
    bytes.extend_from_slice(head.as_bytes());
    for (at, entry) in page.entries.iter().enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&entry.json());
    }
    bytes.extend_from_slice(b"]}");
    bytes
}
