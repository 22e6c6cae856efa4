//! Keystone's administration: domains, projects, users, roles, and who has which role where.

use super::{DOMAIN_ID, DOMAIN_NAME, Project, User, forbidden, malformed, project_shown, unknown};
use crate::cloud::http::{Answer, Call, Reply, keystone_error};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// Keystone: each role brings those before it.
pub(super) const ROLES: [&str; 4] = ["reader", "member", "manager", "admin"];

/// The roles that these bring with them, themselves included.
pub(super) fn implied(given: &[String]) -> Vec<String> {
    let highest = ROLES.iter().rposition(|role| given.iter().any(|one| one == role));
    let chain = ROLES.iter().take(highest.map_or(0, |at| at + 1)).map(|role| (*role).to_owned());
    let others = given.iter().filter(|role| !ROLES.contains(&role.as_str())).cloned();
    chain.chain(others).collect()
}

/// A list in Keystone's envelope.
pub(super) fn listed(base: &str, path: &str, name: &str, all: Vec<Value>) -> Reply {
    let links =
        json!({"next": null, "self": format!("{base}/identity/v3/{path}"), "previous": null});
    Reply::json(200, json!({name: all, "links": links}))
}

pub(super) fn answer(state: &mut State, call: &Call) -> Answer {
    let path = call.segments();
    own_matters(call, &path)?;
    let base = state.config.base_url.clone();
    match (&call.method, path.as_slice()) {
        (&Method::GET, ["domains"]) => {
            let own = domain(&base);
            let found = [own].into_iter().filter(|one| wanted(call, one)).collect();
            Ok(listed(&base, "domains", "domains", found))
        }
        (&Method::GET, ["domains", id]) if *id == DOMAIN_ID => {
            Ok(Reply::json(200, json!({"domain": domain(&base)})))
        }
        (_, ["domains", id]) => Err(missing("domain", id)),
        (_, ["projects", project, "users", user, "roles", rest @ ..]) => {
            grants(state, call, project, user, rest)
        }
        (_, ["projects", rest @ ..]) => projects(state, call, rest),
        (&Method::GET, ["users", id, "projects"]) => {
            Ok(listed(&base, &format!("users/{id}/projects"), "projects", projects_of(state, id)))
        }
        (_, ["users", rest @ ..]) => users(state, call, rest),
        (_, ["roles", rest @ ..]) => roles(state, call, rest),
        (&Method::GET, ["role_assignments"]) => Ok(assignments(state, call)),
        _ => Err(unknown()),
    }
}

/// Keystone: what is not one's own is the administrator's.
fn own_matters(call: &Call, path: &[&str]) -> Result<(), Reply> {
    let own = match path {
        ["users", id] | ["users", id, "projects" | "password"] => {
            *id == call.session.user && call.method != Method::DELETE
        }
        ["projects", id] => {
            call.method == Method::GET && call.session.project.as_deref() == Some(id)
        }
        _ => false,
    };
    if own || call.session.is_admin() {
        return Ok(());
    }
    let what = path.first().map_or("", |first| first.trim_end_matches('s'));
    let verb = match (&call.method, path.len()) {
        (&Method::GET, 1) => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::DELETE, _) => "delete",
        _ => "update",
    };
    let plural = if verb == "list" { "s" } else { "" };
    Err(forbidden(&format!("identity:{verb}_{what}{plural}.")))
}

fn missing(kind: &str, id: &str) -> Reply {
    keystone_error(404, format!("Could not find {kind}: {id}."))
}

fn conflict(kind: &str, name: &str) -> Reply {
    let message = format!(
        "Conflict occurred attempting to store {kind} - Duplicate entry found with name {name} at domain ID {DOMAIN_ID}."
    );
    keystone_error(409, message)
}

/// The object within the body of a write, and its name where one is needed.
fn body(call: &Call, kind: &str) -> Result<Value, Reply> {
    let mut body =
        call.json().map_err(|_| malformed("Expecting to find valid JSON in request body."))?;
    match body.get_mut(kind) {
        Some(asked @ Value::Object(_)) => Ok(asked.take()),
        _ => Err(keystone_error(400, format!("'{kind}' is a required property"))),
    }
}

fn name(asked: &Value) -> Result<String, Reply> {
    let name = asked["name"].as_str().filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| keystone_error(400, "'name' is a required property"))
}

/// Whether an object passes the filters of a list.
fn wanted(call: &Call, object: &Value) -> bool {
    call.query.iter().all(|(name, value)| match object.get(name) {
        Some(Value::String(have)) => have == value,
        Some(Value::Bool(have)) => {
            *have == matches!(value.to_ascii_lowercase().as_str(), "" | "true" | "1")
        }
        _ => true,
    })
}

fn domain(base: &str) -> Value {
    json!({
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": "The default domain",
        "enabled": true,
        "tags": [],
        "options": {},
        "links": {"self": format!("{base}/identity/v3/domains/{DOMAIN_ID}")},
    })
}

fn projects(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    let base = state.config.base_url.clone();
    let at = match rest {
        [] => None,
        [id, ..] => {
            let at = state.identity.projects.iter().position(|project| project.id == *id);
            Some(at.ok_or_else(|| missing("project", id))?)
        }
    };
    match (&call.method, at) {
        (&Method::GET, None) => {
            let all = state.identity.projects.iter().map(|project| project_shown(project, &base));
            let found = all.filter(|one| wanted(call, one)).collect();
            Ok(listed(&base, "projects", "projects", found))
        }
        (&Method::POST, None) => {
            let asked = body(call, "project")?;
            let name = name(&asked)?;
            if state.identity.projects.iter().any(|project| project.name == name) {
                return Err(conflict("project", &name));
            }
            let description = asked["description"].as_str().unwrap_or_default().to_owned();
            let project = Project { id: state.hex(), name, description };
            let shown = project_shown(&project, &base);
            state.identity.projects.push(project);
            Ok(Reply::json(201, json!({"project": shown})))
        }
        (&Method::GET, Some(at)) => {
            let shown = project_shown(&state.identity.projects[at], &base);
            Ok(Reply::json(200, json!({"project": shown})))
        }
        (&Method::PATCH, Some(at)) => {
            let asked = body(call, "project")?;
            let project = &mut state.identity.projects[at];
            for (field, place) in
                [("name", &mut project.name), ("description", &mut project.description)]
            {
                if let Some(text) = asked[field].as_str() {
                    text.clone_into(place);
                }
            }
            Ok(Reply::json(200, json!({"project": project_shown(project, &base)})))
        }
        (&Method::DELETE, Some(at)) => {
            let gone = state.identity.projects.remove(at).id;
            state.identity.grants.retain(|(_, project, _)| *project != gone);
            state.identity.credentials.retain(|one| one.project != gone);
            state.identity.forget_tokens(|_, project| project == Some(&gone));
            Ok(Reply::empty(204))
        }
        _ => Err(unknown()),
    }
}

/// The projects in which a user has a role.
pub(super) fn projects_of(state: &State, user: &str) -> Vec<Value> {
    let base = &state.config.base_url;
    let all = state.identity.projects.iter();
    let own = all.filter(|project| !state.identity.roles(user, &project.id).is_empty());
    own.map(|project| project_shown(project, base)).collect()
}

fn user_shown(base: &str, user: &User) -> Value {
    let mut shown = json!({
        "id": user.id,
        "name": user.name,
        "domain_id": DOMAIN_ID,
        "enabled": true,
        "password_expires_at": null,
        "options": {},
        "links": {"self": format!("{base}/identity/v3/users/{}", user.id)},
    });
    if !user.project.is_empty() {
        shown["default_project_id"] = json!(user.project);
    }
    shown
}

fn users(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    let base = state.config.base_url.clone();
    let at = match rest {
        [] => None,
        [id, ..] => {
            let at = state.identity.users.iter().position(|user| user.id == *id);
            Some(at.ok_or_else(|| missing("user", id))?)
        }
    };
    match (&call.method, at, rest.get(1)) {
        (&Method::GET, None, _) => {
            let all = state.identity.users.iter().map(|user| user_shown(&base, user));
            let found = all.filter(|one| wanted(call, one)).collect();
            Ok(listed(&base, "users", "users", found))
        }
        (&Method::POST, None, _) => create_user(state, call),
        (&Method::GET, Some(at), None) => {
            Ok(Reply::json(200, json!({"user": user_shown(&base, &state.identity.users[at])})))
        }
        (&Method::PATCH, Some(at), None) => {
            let asked = body(call, "user")?;
            let user = &mut state.identity.users[at];
            for (field, place) in [
                ("name", &mut user.name),
                ("password", &mut user.password),
                ("default_project_id", &mut user.project),
            ] {
                if let Some(text) = asked[field].as_str() {
                    text.clone_into(place);
                }
            }
            Ok(Reply::json(200, json!({"user": user_shown(&base, user)})))
        }
        (&Method::POST, Some(at), Some(&"password")) => {
            let asked = body(call, "user")?;
            let user = &mut state.identity.users[at];
            if asked["original_password"] != user.password.as_str() {
                return Err(super::token::unauthorized(state));
            }
            asked["password"].as_str().unwrap_or_default().clone_into(&mut user.password);
            Ok(Reply::empty(204))
        }
        (&Method::DELETE, Some(at), None) => {
            let gone = state.identity.users.remove(at).id;
            state.identity.grants.retain(|(user, ..)| *user != gone);
            state.identity.credentials.retain(|one| one.user != gone);
            state.compute.keypairs.retain(|key| key.user != gone);
            state.identity.forget_tokens(|user, _| user == gone);
            Ok(Reply::empty(204))
        }
        _ => Err(unknown()),
    }
}

fn create_user(state: &mut State, call: &Call) -> Answer {
    let asked = body(call, "user")?;
    let name = name(&asked)?;
    if state.identity.users.iter().any(|user| user.name == name) {
        return Err(conflict("user", &name));
    }
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let user = User {
        id: state.hex(),
        name,
        password: text("password"),
        project: text("default_project_id"),
    };
    let shown = user_shown(&state.config.base_url, &user);
    state.identity.users.push(user);
    Ok(Reply::json(201, json!({"user": shown})))
}

fn role_shown(state: &State, name: &str) -> Value {
    let id = state.identity.ids.get(name).cloned().unwrap_or_default();
    let base = &state.config.base_url;
    json!({
        "id": id,
        "name": name,
        "domain_id": null,
        "description": null,
        "options": {"immutable": true},
        "links": {"self": format!("{base}/identity/v3/roles/{id}")},
    })
}

fn role_named(state: &State, id: &str) -> Result<&'static str, Reply> {
    let found = ROLES
        .into_iter()
        .find(|name| state.identity.ids.get(*name).is_some_and(|known| known == id));
    found.ok_or_else(|| missing("role", id))
}

fn roles(state: &State, call: &Call, rest: &[&str]) -> Answer {
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let all = ROLES.into_iter().map(|name| role_shown(state, name));
            let found = all.filter(|one| wanted(call, one)).collect();
            Ok(listed(&state.config.base_url, "roles", "roles", found))
        }
        (&Method::POST, []) => {
            let name = name(&body(call, "role")?)?;
            if ROLES.contains(&name.as_str()) {
                let message = format!(
                    "Conflict occurred attempting to store role - Duplicate entry found with name {name}."
                );
                return Err(keystone_error(409, message));
            }
            Err(keystone_error(501, "Roles of one's own are not simulated."))
        }
        (&Method::GET, [id]) => {
            let name = role_named(state, id)?;
            Ok(Reply::json(200, json!({"role": role_shown(state, name)})))
        }
        _ => Err(unknown()),
    }
}

/// `/projects/{project}/users/{user}/roles[/{role}]`.
fn grants(state: &mut State, call: &Call, project: &str, user: &str, rest: &[&str]) -> Answer {
    state.identity.user(user).ok_or_else(|| missing("user", user))?;
    state.identity.project(project).ok_or_else(|| missing("project", project))?;
    let given = state.identity.roles(user, project);
    let [role] = rest else {
        let all = given.iter().map(|name| role_shown(state, name)).collect();
        let path = format!("projects/{project}/users/{user}/roles");
        return Ok(listed(&state.config.base_url, &path, "roles", all));
    };
    let name = role_named(state, role)?;
    let grant = (user.to_owned(), project.to_owned(), name.to_owned());
    let there = given.iter().any(|one| one == name);
    match call.method {
        Method::PUT => {
            state.identity.grants.insert(grant);
        }
        Method::DELETE if there => {
            state.identity.grants.remove(&grant);
        }
        Method::HEAD | Method::GET if there => {}
        Method::HEAD | Method::GET | Method::DELETE => {
            let message = format!(
                "Could not find role assignment with role: {role}, user or group: {user}, project, domain, or system: {project}."
            );
            return Err(keystone_error(404, message));
        }
        _ => return Err(unknown()),
    }
    Ok(Reply::empty(204))
}

fn assignments(state: &State, call: &Call) -> Reply {
    let base = &state.config.base_url;
    let matches = |field: &str, value: &str| call.query(field).is_none_or(|asked| asked == value);
    let all = state.identity.grants.iter().filter(|(user, project, _)| {
        matches("user.id", user) && matches("scope.project.id", project)
    });
    let all = all.map(|(user, project, role)| {
        let role = state.identity.ids.get(role).cloned().unwrap_or_default();
        let own = format!("{base}/identity/v3/projects/{project}/users/{user}/roles/{role}");
        json!({
            "role": {"id": role},
            "user": {"id": user},
            "scope": {"project": {"id": project}},
            "links": {"assignment": own},
        })
    });
    let found =
        all.filter(|one| matches("role.id", one["role"]["id"].as_str().unwrap_or_default()));
    listed(base, "role_assignments", "role_assignments", found.collect())
}
