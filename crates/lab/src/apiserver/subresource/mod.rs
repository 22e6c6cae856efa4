//! The parts of an object that have a life of their own: scale, eviction, binding, approval, tokens.

mod scale;

use super::access::User;
use super::request::{Request, Verb};
use super::{Answer, ApiServer, Status};
use serde_json::Value;

/// Answers a request for a subresource that is no view of its object; `None` for one that is (status, finalize).
pub(super) fn answer(
    server: &ApiServer,
    user: &User,
    request: &Request,
) -> Option<Result<Answer, Status>> {
    match (request.subresource.as_str(), request.verb) {
        ("scale", Verb::Get) => Some(scale::get(server, request)),
        ("scale", Verb::Update | Verb::Patch) => Some(scale::write(server, user, request)),
        _ => None,
    }
}

/// Completes and checks a change of an object through a subresource: what it may change, and who may.
pub(super) fn before_update(
    _server: &ApiServer,
    _user: &User,
    _request: &Request,
    _old: &Value,
    _new: &mut Value,
) -> Result<(), Status> {
    Ok(())
}
