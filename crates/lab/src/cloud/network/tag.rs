//! Tags of Neutron's objects.

use super::{Kind, change, policy, seen};
use crate::cloud::http::{Answer, Call, Reply, neutron_error};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// Neutron: `MAX_TAG_LEN`, characters.
const TAG_MAX: usize = 255;
/// Neutron: tags of one object.
const TAGS_MAX: usize = 50;

pub(super) fn answer(
    state: &mut State,
    call: &Call,
    kind: Kind,
    id: &str,
    rest: &[&str],
) -> Answer {
    let object = seen(state, call, kind, id)?;
    let tags: Vec<String> = serde_json::from_value(object["tags"].clone()).unwrap_or_default();
    let missing =
        |tag: &str| neutron_error(404, "TagNotFound", format!("Tag {tag} could not be found."));
    if call.method != Method::GET {
        policy(call, "update_tags")?;
    }
    match (&call.method, rest) {
        (&Method::GET, []) => Ok(Reply::json(200, json!({"tags": tags}))),
        (&Method::PUT, []) => {
            let wanted = wanted(call)?;
            set(state, kind, id, wanted.clone())?;
            Ok(Reply::json(200, json!({"tags": wanted})))
        }
        (&Method::POST, []) => {
            let mut all = tags;
            all.extend(wanted(call)?);
            set(state, kind, id, all.clone())?;
            Ok(Reply::json(201, json!({"tags": all})))
        }
        (&Method::DELETE, []) => set(state, kind, id, Vec::new()).map(|()| Reply::empty(204)),
        (&Method::GET, [tag]) if tags.iter().any(|one| one == tag) => Ok(Reply::empty(204)),
        (&Method::PUT, [tag]) => {
            check(tag)?;
            let mut all = tags;
            all.push((*tag).to_owned());
            set(state, kind, id, all)?;
            Ok(Reply::json(201, Value::Null))
        }
        (&Method::DELETE, [tag]) if tags.iter().any(|one| one == tag) => {
            let rest = tags.into_iter().filter(|one| one != tag).collect();
            set(state, kind, id, rest).map(|()| Reply::empty(204))
        }
        (&Method::GET | &Method::DELETE, [tag]) => Err(missing(tag)),
        _ => Err(super::unknown_path()),
    }
}

fn wanted(call: &Call) -> Result<Vec<String>, Reply> {
    let bad =
        || neutron_error(400, "InvalidInput", "Invalid input for operation: Invalid tags body.");
    let body = call.json().map_err(|_| bad())?;
    let tags: Vec<String> = serde_json::from_value(body["tags"].clone()).map_err(|_| bad())?;
    tags.iter().try_for_each(|tag| check(tag))?;
    Ok(tags)
}

fn check(tag: &str) -> Result<(), Reply> {
    if tag.chars().count() <= TAG_MAX {
        return Ok(());
    }
    let message =
        format!("Invalid input for operation: '{tag}' exceeds maximum length of {TAG_MAX}.");
    Err(neutron_error(400, "InvalidInput", message))
}

fn set(state: &mut State, kind: Kind, id: &str, mut tags: Vec<String>) -> Result<(), Reply> {
    tags.sort();
    tags.dedup();
    if tags.len() > TAGS_MAX {
        let message = format!(
            "Bad {} request: The number of tags exceed the per-resource limit of {TAGS_MAX}.",
            kind.plural()
        );
        return Err(neutron_error(400, "BadRequest", message));
    }
    change(state, kind, id, |object| object["tags"] = json!(tags));
    Ok(())
}
