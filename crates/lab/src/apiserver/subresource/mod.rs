//! The parts of an object that have a life of their own: scale, eviction, binding, approval, tokens, reviews.

mod approval;
mod binding;
pub(crate) mod eviction;
mod review;
mod scale;
mod token;

use super::access::User;
use super::registry::api_version;
use super::request::{Request, Verb};
use super::{Answer, ApiServer, Status, body, create};
use serde_json::Value;

/// Answers a request for something that is no view of a stored object; `None` for one that is
/// (the object itself, its status, a namespace's finalize).
pub(super) fn answer(
    server: &ApiServer,
    user: &User,
    request: &Request,
) -> Option<Result<Answer, Status>> {
    Some(match (request.subresource.as_str(), request.verb) {
        ("scale", Verb::Get) => scale::get(server, request),
        ("scale", Verb::Update | Verb::Patch) => scale::write(server, user, request),
        ("eviction" | "binding" | "token", Verb::Create) => post(server, user, request),
        ("", Verb::Create) if !request.kind.offers("get") => post(server, user, request),
        _ => return None,
    })
}

/// POST of what is not kept.
fn post(server: &ApiServer, user: &User, request: &Request) -> Result<Answer, Status> {
    create::check_options(request, "CreateOptions")?;
    let mut sent = body::decode(request)?.object;
    expect(request, &mut sent)?;
    let answered = match request.subresource.as_str() {
        "eviction" => eviction::post(server, user, request, &sent),
        "binding" => binding::post(server, request, &sent),
        "token" => token::post(server, user, request, &sent),
        _ => review::post(server, user, request, sent),
    };
    answered.map(Answer::created)
}

/// Checks that the body is of the kind this path takes; one that does not say is.
fn expect(request: &Request, sent: &mut Value) -> Result<(), Status> {
    let kind = &request.kind;
    let own = (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str());
    let wanted = kind.subresources.get(&request.subresource);
    let (group, version, name) =
        wanted.map_or(own, |sub| (sub.group.as_str(), sub.version.as_str(), sub.kind.as_str()));
    let given = sent["kind"].as_str().unwrap_or(name);
    if given != name {
        let from = sent["apiVersion"].as_str().unwrap_or_default();
        let short = from.rsplit('/').next().unwrap_or_default();
        let package = if group.is_empty() { "core" } else { group };
        return Err(Status::bad_request(format!(
            "{given} in version {short:?} cannot be handled as a {name}: converting ({short}.{given}) to ({package}.{name}): unknown conversion"
        )));
    }
    sent["kind"] = name.into();
    if sent["apiVersion"].as_str().is_none_or(str::is_empty) {
        sent["apiVersion"] = api_version(group, version).into();
    }
    Ok(())
}

/// Completes and checks a change of an object through a subresource: what it may change, and when.
pub(super) fn before_update(
    server: &ApiServer,
    request: &Request,
    old: &Value,
    new: &mut Value,
) -> Result<(), Status> {
    if request.kind.kind == "CertificateSigningRequest" && !request.kind.custom {
        return approval::before_update(server, request, old, new);
    }
    Ok(())
}
