//! Application credentials.

use super::token::{unauthorized, user_named};
use super::{ApplicationCredential, forbidden, malformed};
use crate::cloud::http::{Answer, Call, Reply, keystone_error};
use crate::cloud::state::State;
use http::Method;
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Value, json};

/// What a good application credential grants.
pub(super) struct Grant {
    pub user: String,
    pub project: String,
    pub roles: Vec<String>,
    pub expires: Option<Timestamp>,
    /// Its id and name.
    pub credential: (String, String),
}

/// Checks id (or name and user) and secret.
pub(super) fn prove(state: &State, given: &Value) -> Result<Grant, Reply> {
    let all = &state.identity.credentials;
    let found = if let Some(id) = given["id"].as_str() {
        let found = all.iter().find(|one| one.id == id);
        Some(found.ok_or_else(|| {
            keystone_error(404, format!("Could not find Application Credential: {id}."))
        })?)
    } else {
        let user = user_named(state, &given["user"])?;
        all.iter()
            .find(|one| given["name"] == one.name.as_str() && Some(&one.user) == user.as_ref())
    };
    let now = state.now();
    match found {
        Some(found)
            if given["secret"] == found.secret.as_str()
                && found.expires.is_none_or(|end| end > now) =>
        {
            Ok(Grant {
                user: found.user.clone(),
                project: found.project.clone(),
                roles: found.roles.clone(),
                expires: found.expires,
                credential: (found.id.clone(), found.name.clone()),
            })
        }
        _ => Err(unauthorized(state)),
    }
}

pub(super) fn answer(
    state: &mut State,
    call: &Call,
    method: &Method,
    user: &str,
    rest: &[&str],
) -> Answer {
    if user != call.session.user && !call.session.is_admin() {
        return Err(forbidden("identity:list_application_credentials."));
    }
    match (method, rest) {
        (&Method::GET, []) => {
            let name = call.query("name");
            let found: Vec<Value> = state
                .identity
                .credentials
                .iter()
                .filter(|one| one.user == user && name.is_none_or(|name| name == one.name))
                .map(|one| render(state, one))
                .collect();
            let path = format!("/identity/v3/users/{user}/application_credentials");
            let own = format!("{}{path}", state.config.base_url);
            let links = json!({"next": null, "self": own, "previous": null});
            Ok(Reply::json(200, json!({"application_credentials": found, "links": links})))
        }
        (&Method::POST, []) => create(state, call, user),
        (&Method::DELETE, [id]) => {
            let before = state.identity.credentials.len();
            state.identity.credentials.retain(|one| one.id != *id);
            if state.identity.credentials.len() == before {
                return Err(unknown(id));
            }
            Ok(Reply::empty(204))
        }
        (&Method::GET, [id]) => {
            let found = state.identity.credentials.iter().find(|one| one.id == *id);
            let found = found.ok_or_else(|| unknown(id))?;
            Ok(Reply::json(200, json!({"application_credential": render(state, found)})))
        }
        _ => Err(super::unknown()),
    }
}

fn unknown(id: &str) -> Reply {
    keystone_error(404, format!("Could not find Application Credential: {id}."))
}

fn create(state: &mut State, call: &Call, user: &str) -> Answer {
    if call.session.restricted {
        return Err(forbidden(
            "Using method 'application_credential' is not allowed for managing additional application credentials..",
        ));
    }
    let body =
        call.json().map_err(|_| malformed("Expecting to find valid JSON in request body."))?;
    let asked = &body["application_credential"];
    let Some(name) = asked["name"].as_str() else {
        return Err(keystone_error(400, "'name' is a required property"));
    };
    if state.identity.credentials.iter().any(|one| one.user == user && one.name == name) {
        let said = format!(
            "Conflict occurred attempting to store application_credential - Duplicate entry found with name {name}."
        );
        return Err(keystone_error(409, said));
    }
    let expires = asked["expires_at"].as_str().and_then(time);
    if expires.is_some_and(|end| end <= state.now()) {
        return Err(malformed("The 'expires_at' must not be before now."));
    }
    let roles: Vec<String> = match asked["roles"].as_array() {
        Some(roles) => {
            roles.iter().filter_map(|role| role["name"].as_str()).map(str::to_owned).collect()
        }
        None => call.session.roles.clone(),
    };
    let secret = match asked["secret"].as_str() {
        Some(secret) => secret.to_owned(),
        None => state.hex(),
    };
    let made = ApplicationCredential {
        id: state.hex(),
        name: name.to_owned(),
        secret,
        user: user.to_owned(),
        project: call.session.project(),
        roles,
        description: asked["description"].as_str().map(str::to_owned),
        expires,
    };
    let mut shown = render(state, &made);
    shown["secret"] = json!(made.secret);
    state.identity.credentials.push(made);
    Ok(Reply::json(201, json!({"application_credential": shown})))
}

fn time(text: &str) -> Option<Timestamp> {
    let text = text.trim_end_matches('Z');
    text.parse::<DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|at| at.timestamp())
}

fn render(state: &State, one: &ApplicationCredential) -> Value {
    let roles: Vec<Value> = one
        .roles
        .iter()
        .map(|role| {
            json!({
                "id": state.identity.ids.get(role),
                "name": role,
                "domain_id": null,
                "description": null,
                "options": {"immutable": true},
            })
        })
        .collect();
    let own = format!("{}/identity/v3/application_credentials/{}", state.config.base_url, one.id);
    json!({
        "id": one.id,
        "name": one.name,
        "description": one.description,
        "user_id": one.user,
        "project_id": one.project,
        "system": null,
        "expires_at": one.expires.map(|end| end.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()),
        "unrestricted": null,
        "roles": roles,
        "links": {"self": own},
    })
}
