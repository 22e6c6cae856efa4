//! Server groups.

use super::{policy, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// Servers that are to be apart, or together.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct Group {
    pub id: String,
    pub name: String,
    /// `anti-affinity`, `affinity`, `soft-anti-affinity`, `soft-affinity`.
    pub policy: String,
    /// How many of an anti-affinity group one host may have.
    pub max_per_host: Option<u64>,
    pub project: String,
    pub user: String,
}

pub(super) fn answer(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    policy(call, "os-server-groups:index")?;
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let groups = state.compute.groups.values();
            let groups: Vec<Value> = groups
                .filter(|group| call.session.sees(&group.project))
                .map(|group| shown(state, call, group))
                .collect();
            Ok(Reply::json(200, json!({"server_groups": groups})))
        }
        (&Method::GET, [id]) => {
            let group = seen(state, call, id)?;
            Ok(Reply::json(200, json!({"server_group": shown(state, call, group)})))
        }
        (&Method::POST, []) => create(state, call),
        (&Method::DELETE, [id]) => {
            seen(state, call, id)?;
            state.compute.groups.shift_remove(*id);
            Ok(Reply::empty(204))
        }
        _ => Err(unknown_path()),
    }
}

fn seen<'a>(state: &'a State, call: &Call, id: &str) -> Result<&'a Group, Reply> {
    let group = state.compute.groups.get(id).filter(|group| call.session.sees(&group.project));
    group.ok_or_else(|| fault(404, format!("Instance group {id} could not be found.")))
}

fn shown(state: &State, call: &Call, group: &Group) -> Value {
    let members: Vec<&String> = state
        .compute
        .servers
        .values()
        .filter(|server| server.group.as_ref() == Some(&group.id))
        .map(|server| &server.id)
        .collect();
    let mut shown = json!({"id": group.id, "name": group.name, "members": members});
    if call.minor >= 13 {
        shown["project_id"] = json!(group.project);
        shown["user_id"] = json!(group.user);
    }
    if call.minor >= 64 {
        shown["policy"] = json!(group.policy);
        shown["rules"] = match group.max_per_host {
            Some(max) => json!({"max_server_per_host": max}),
            None => json!({}),
        };
    } else {
        shown["policies"] = json!([group.policy]);
        shown["metadata"] = json!({});
    }
    shown
}

fn create(state: &mut State, call: &Call) -> Answer {
    const POLICIES: [&str; 4] =
        ["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"];
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let asked = &body["server_group"];
    let Some(name) = asked["name"].as_str() else {
        return Err(fault(
            400,
            "Invalid input for field/attribute server_group. 'name' is a required property",
        ));
    };
    let wanted = if call.minor >= 64 { &asked["policy"] } else { &asked["policies"][0] };
    let Some(wanted) = wanted.as_str().filter(|wanted| POLICIES.contains(wanted)) else {
        let wanted = wanted.as_str().unwrap_or_default();
        let message = format!(
            "Invalid input for field/attribute policy. Value: {wanted}. '{wanted}' is not one of ['{}']",
            POLICIES.join("', '")
        );
        return Err(fault(400, message));
    };
    if wanted != "anti-affinity"
        && asked["rules"].as_object().is_some_and(|rules| !rules.is_empty())
    {
        return Err(fault(400, "Only anti-affinity policy supports rules."));
    }
    let project = call.session.project();
    let used = state.compute.groups.values().filter(|group| group.project == project).count();
    let limit = state.config.quotas.server_groups;
    if limit >= 0 && i64::try_from(used).is_ok_and(|used| used >= limit) {
        return Err(fault(403, "Quota exceeded, too many server groups."));
    }
    let group = Group {
        id: state.uuid(),
        name: name.to_owned(),
        policy: wanted.to_owned(),
        max_per_host: asked["rules"]["max_server_per_host"].as_u64(),
        project,
        user: call.session.user.clone(),
    };
    let shown = shown(state, call, &group);
    state.compute.groups.insert(group.id.clone(), group);
    Ok(Reply::json(200, json!({"server_group": shown})))
}
