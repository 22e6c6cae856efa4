//! Projects that an image is shared with, and what they say to it.

use super::{Image, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, webob};
use crate::cloud::state::{State, seconds};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub project: String,
    /// `pending`, `accepted`, `rejected`.
    pub status: String,
    created: Timestamp,
    updated: Timestamp,
}

impl Member {
    fn shown(&self, image: &str) -> Value {
        json!({
            "image_id": image,
            "member_id": self.project,
            "status": self.status,
            "created_at": seconds(self.created),
            "updated_at": seconds(self.updated),
            "schema": "/v2/schemas/member",
        })
    }
}

/// `/images/{id}/members[/{project}]`.
pub(super) fn answer(state: &mut State, call: &Call, id: &str, rest: &[&str]) -> Answer {
    let now = state.now();
    let Some(image) = state.images.all.get_mut(id) else {
        return Err(unknown_path());
    };
    let caller = call.session.project();
    let owner = call.session.sees(&image.owner);
    let missing = |project: &str| webob(404, &format!("Member {project} not found for image {id}"));
    let body = || call.json().map_err(|_| webob(400, "JSON body is malformed"));
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let seen = image.members.iter().filter(|one| owner || one.project == caller);
            let seen: Vec<Value> = seen.map(|member| member.shown(id)).collect();
            Ok(Reply::json(200, json!({"members": seen, "schema": "/v2/schemas/members"})))
        }
        (&Method::POST, []) => add(image, call, &body()?["member"], now),
        (_, [project]) => {
            let at = image.members.iter().position(|member| member.project == *project);
            let at = at.filter(|_| owner || *project == caller).ok_or_else(|| missing(project))?;
            match call.method {
                Method::GET => Ok(Reply::json(200, image.members[at].shown(id))),
                // The owner shares, the other accepts.
                Method::PUT if *project == caller => {
                    let body = body()?;
                    let Some(status @ ("pending" | "accepted" | "rejected")) =
                        body["status"].as_str()
                    else {
                        return Err(webob(400, "Invalid value for option status"));
                    };
                    status.clone_into(&mut image.members[at].status);
                    image.members[at].updated = now;
                    Ok(Reply::json(200, image.members[at].shown(id)))
                }
                Method::DELETE if owner => {
                    image.members.remove(at);
                    Ok(Reply::empty(204))
                }
                Method::PUT | Method::DELETE => {
                    Err(webob(403, "You are not authorized to complete modify_member action."))
                }
                _ => Err(unknown_path()),
            }
        }
        _ => Err(unknown_path()),
    }
}

fn add(image: &mut Image, call: &Call, project: &Value, now: Timestamp) -> Answer {
    let Some(project) = project.as_str().filter(|project| !project.is_empty()) else {
        return Err(webob(400, "Member can't be empty"));
    };
    if image.visibility != "shared" {
        return Err(webob(403, "Only shared images have members."));
    }
    if !call.session.sees(&image.owner) {
        return Err(webob(403, "You are not authorized to complete add_member action."));
    }
    if image.members.iter().any(|member| member.project == project) {
        let said = format!("Member {project} is duplicated for image {}", image.id);
        return Err(webob(409, &said));
    }
    let member = Member {
        project: project.to_owned(),
        status: "pending".to_owned(),
        created: now,
        updated: now,
    };
    let shown = member.shown(&image.id);
    image.members.push(member);
    Ok(Reply::json(200, shown))
}
