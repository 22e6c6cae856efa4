//! `GET /images`: filters, order, pages.

use super::{Image, PAGE_DEFAULT, PAGE_MAX, render};
use crate::cloud::http::{Answer, Call, Reply, webob};
use crate::cloud::state::State;
use serde_json::{Value, json};

pub(super) fn list(state: &State, call: &Call) -> Answer {
    let limit = match call.query("limit").map(str::parse::<usize>) {
        None => PAGE_DEFAULT,
        Some(Ok(limit)) => limit.min(PAGE_MAX),
        Some(Err(_)) => {
            let negative = call.query("limit").is_some_and(|limit| limit.parse::<i64>().is_ok());
            let wanted = if negative { "positive" } else { "an integer" };
            return Err(webob(400, &format!("limit param must be {wanted}")));
        }
    };
    let all = state.images.all.values().rev().filter(|image| listed(image, call));
    let mut found: Vec<Value> = all.map(render).filter(|image| wanted(image, call)).collect();
    sort(&mut found, call);
    if let Some(marker) = call.query("marker") {
        let Some(at) = found.iter().position(|image| image["id"] == marker) else {
            let said = format!("No image found with ID {marker}");
            return Err(webob(404, &said));
        };
        found.drain(..=at);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let path = |marker: Option<&Value>| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(call.query.iter().filter(|(name, _)| name != "marker"));
        if let Some(Value::String(marker)) = marker {
            query.append_pair("marker", marker);
        }
        match query.finish() {
            empty if empty.is_empty() => "/v2/images".to_owned(),
            query => format!("/v2/images?{query}"),
        }
    };
    let mut page = json!({"first": path(None), "schema": "/v2/schemas/images"});
    if more {
        page["next"] = json!(path(found.last().map(|image| &image["id"])));
    }
    page["images"] = Value::Array(found);
    Ok(Reply::json(200, page))
}

/// `sort=name:asc,created_at:desc`, or `sort_key` and `sort_dir`; newest first without.
fn sort(images: &mut [Value], call: &Call) {
    let (key, direction) = match call.query("sort") {
        Some(sort) => {
            let first = sort.split(',').next().unwrap_or_default();
            first.split_once(':').unwrap_or((first, "desc"))
        }
        None => (
            call.query("sort_key").unwrap_or("created_at"),
            call.query("sort_dir").unwrap_or("desc"),
        ),
    };
    // Stable: images of one second stay newest first.
    images.sort_by(|one, other| {
        let order = one[key].to_string().cmp(&other[key].to_string());
        if direction == "asc" { order } else { order.reverse() }
    });
}

/// Glance: one's own, the public ones, and those shared with one that have been accepted, or are in the asked state.
fn listed(image: &Image, call: &Call) -> bool {
    let project = call.session.project();
    let state = call.query("member_status").unwrap_or("accepted");
    let member = image.members.iter().find(|member| member.project == project);
    image.visibility == "public"
        || image.owner == project
        || (image.visibility == "community" && call.query("visibility") == Some("community"))
        || (image.visibility == "shared"
            && member.is_some_and(|member| state == "all" || member.status == state))
}

fn wanted(image: &Value, call: &Call) -> bool {
    const OTHER: [&str; 6] = ["limit", "marker", "sort", "sort_key", "sort_dir", "member_status"];
    call.query.iter().filter(|(name, _)| !OTHER.contains(&name.as_str())).all(|(name, wanted)| {
        match &image[name.as_str()] {
            Value::String(value) => match wanted.strip_prefix("in:") {
                Some(list) => list.split(',').any(|one| one.trim_matches('"') == value),
                None => value == wanted,
            },
            Value::Bool(value) => wanted.eq_ignore_ascii_case(&value.to_string()),
            Value::Number(value) => *wanted == value.to_string(),
            Value::Array(tags) => tags.iter().any(|tag| tag == wanted),
            _ => false,
        }
    })
}
