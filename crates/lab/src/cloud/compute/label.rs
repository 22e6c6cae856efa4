//! Metadata and tags of servers.

use super::{Server, VmState, create, gone, policy, schema, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn metadata(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    policy(call, "server-metadata:index")?;
    let now = state.compute.server(id)?.metadata.clone();
    let missing = || fault(404, "Metadata item was not found");
    match (&call.method, rest) {
        (&Method::GET, []) => Ok(Reply::json(200, json!({"metadata": now}))),
        (&Method::POST | &Method::PUT, []) => {
            let given = given(call, "metadata")?;
            let all = if call.method == Method::PUT {
                given
            } else {
                now.into_iter().chain(given).collect()
            };
            set_metadata(state, id, "update metadata", all.clone())?;
            Ok(Reply::json(200, json!({"metadata": all})))
        }
        (&Method::GET, [key]) => {
            let value = now.get(*key).ok_or_else(missing)?;
            Ok(Reply::json(200, json!({"meta": {*key: value}})))
        }
        (&Method::PUT, [key]) => {
            let given = given(call, "meta")?;
            if given.keys().ne([*key]) {
                return Err(fault(400, "Request body and URI mismatch"));
            }
            let mut all = now;
            all.extend(given.clone());
            set_metadata(state, id, "update metadata", all)?;
            Ok(Reply::json(200, json!({"meta": given})))
        }
        (&Method::DELETE, [key]) => {
            let mut all = now;
            all.remove(*key).ok_or_else(missing)?;
            set_metadata(state, id, "delete metadata", all)?;
            Ok(Reply::empty(204))
        }
        _ => Err(unknown_path()),
    }
}

fn given(call: &Call, field: &str) -> Result<BTreeMap<String, String>, Reply> {
    let body = schema::body(call)?;
    let Some(items) = body.get(field) else {
        return Err(fault(400, format!("'{field}' is a required property")));
    };
    schema::check_metadata(items)?;
    Ok(serde_json::from_value(items.clone()).unwrap_or_default())
}

/// Nova: the states of a server whose labels can be changed; `verb` is what its refusal calls the change.
fn check_state(server: &Server, verb: &str) -> Result<(), Reply> {
    let is_up = matches!(
        server.vm,
        VmState::Active | VmState::Paused | VmState::Suspended | VmState::Stopped
    );
    if is_up { Ok(()) } else { Err(busy(server, verb, "vm_state", server.vm.name())) }
}

fn busy(server: &Server, verb: &str, what: &str, is: &str) -> Reply {
    fault(409, format!("Cannot '{verb}' instance {} while it is in {what} {is}", server.id))
}

fn set_metadata(
    state: &mut State,
    id: &str,
    verb: &str,
    all: BTreeMap<String, String>,
) -> Result<(), Reply> {
    let server = state.compute.server(id)?;
    if server.locked {
        return Err(fault(409, format!("Instance {id} is locked")));
    }
    check_state(server, verb)?;
    if let Some(task) = server.task {
        return Err(busy(server, verb, "task_state", task));
    }
    create::metadata_quota(state, all.len())?;
    let now = state.now();
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.metadata = all;
    server.updated = now;
    Ok(())
}

/// Two tags that differ in case alone are one to Nova's database, which Nova does not expect.
fn collide(tags: &[String]) -> bool {
    let folded: BTreeSet<String> = tags.iter().map(|tag| tag.to_lowercase()).collect();
    let plain: BTreeSet<&String> = tags.iter().collect();
    folded.len() < plain.len()
}

pub(super) fn tags(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    policy(call, "os-server-tags:index")?;
    let server = state.compute.server(id)?;
    let verb = match (&call.method, rest) {
        (&Method::PUT, []) => Some("update tags"),
        (&Method::PUT, [_]) => Some("update tag"),
        (&Method::DELETE, []) => Some("delete tags"),
        (&Method::DELETE, [_]) => Some("delete tag"),
        _ => None,
    };
    let refused = verb.map_or(Ok(()), |verb| check_state(server, verb));
    // Nova: until a server has a place, its tags are kept where this call does not look.
    let is_unplaced =
        server.vm == VmState::Building && server.host.is_none() && server.tried.is_empty();
    let now = if is_unplaced { BTreeSet::new() } else { server.tags.clone() };
    let find = |tag: &str| now.iter().find(|one| one.eq_ignore_ascii_case(tag)).cloned();
    let missing = |tag: &str| fault(404, format!("Server {id} has no tag '{tag}'"));
    match (&call.method, rest) {
        (&Method::GET, []) if is_unplaced => Err(gone(id)),
        (&Method::GET, []) => Ok(Reply::json(200, json!({"tags": now}))),
        (&Method::PUT, []) => {
            let body = schema::body(call)?;
            schema::check_tags(&body["tags"])?;
            refused?;
            let tags: Vec<String> =
                serde_json::from_value(body["tags"].clone()).unwrap_or_default();
            if collide(&tags) {
                let message = "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and attach \
                               the Nova API log if possible.\n<class 'oslo_db.exception.DBDuplicateEntry'>";
                return Err(fault(500, message));
            }
            let tags: BTreeSet<String> = tags.into_iter().collect();
            set_tags(state, id, tags.clone())?;
            Ok(Reply::json(200, json!({"tags": tags})))
        }
        (&Method::DELETE, []) => {
            refused?;
            set_tags(state, id, BTreeSet::new()).map(|()| Reply::empty(204))
        }
        (&Method::GET, [tag]) => find(tag).map(|_| Reply::empty(204)).ok_or_else(|| missing(tag)),
        (&Method::PUT, [tag]) => {
            refused?;
            add_tag(state, id, tag, now)
        }
        (&Method::DELETE, [tag]) => {
            refused?;
            let gone = || fault(404, format!("Instance {id} has no tag '{tag}'"));
            let there = find(tag).ok_or_else(gone)?;
            let mut all = now.clone();
            all.remove(&there);
            set_tags(state, id, all).map(|()| Reply::empty(204))
        }
        _ => Err(unknown_path()),
    }
}

fn set_tags(state: &mut State, id: &str, tags: BTreeSet<String>) -> Result<(), Reply> {
    let now = state.now();
    let server = state.compute.server_mut(id).ok_or_else(|| gone(id))?;
    server.tags = tags;
    server.updated = now;
    Ok(())
}

fn add_tag(state: &mut State, id: &str, tag: &str, now: BTreeSet<String>) -> Answer {
    schema::check_tag("tag", &Value::from(tag))?;
    // Nova: these two answers it does not make itself.
    let bare = |status| Reply::empty(status).with("content-type", "text/html; charset=UTF-8");
    if now.contains(tag) {
        return Ok(bare(204));
    }
    let mut all = now;
    // One of other case is there already: accepted, and nothing is added.
    if !all.iter().any(|one| one.eq_ignore_ascii_case(tag)) {
        all.insert(tag.to_owned());
    }
    if all.len() > schema::TAGS_MAX {
        let message =
            format!("The number of tags exceeded the per-server limit {}", schema::TAGS_MAX);
        return Err(fault(400, message));
    }
    set_tags(state, id, all)?;
    let base = &state.config.base_url;
    let location = format!("{base}/compute/v2.1/servers/{id}/tags/{tag}");
    Ok(bare(201).with("location", location))
}
