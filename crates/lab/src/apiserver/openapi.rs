//! OpenAPI v3 documents of everything that is served.

use super::request::Query;
use super::{ApiServer, Body, Status, render};
use http::{HeaderMap, Response};

/// Answers below `/openapi/`.
pub(super) fn answer(
    _server: &ApiServer,
    _path: &str,
    _query: &Query,
    _headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    Ok(render::page_not_found())
}
