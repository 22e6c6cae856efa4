//! Keystone v3: who calls, for which project, and where the services are.

mod credential;
mod people;
mod token;

pub(super) use token::authenticate;

use super::gate::admit;
use super::http::{Answer, Call, Reply, keystone_error};
use super::state::State;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The one domain.
pub(super) const DOMAIN_ID: &str = "default";
/// Its name.
pub(super) const DOMAIN_NAME: &str = "Default";

/// Somebody with a password.
pub(super) struct User {
    pub id: String,
    pub name: String,
    pub password: String,
    /// The project of a token that asks for none; empty when there is none.
    pub project: String,
}

/// A project.
pub(super) struct Project {
    pub id: String,
    pub name: String,
    pub description: String,
}

/// A user's power of attorney for one project.
pub(super) struct ApplicationCredential {
    pub id: String,
    pub name: String,
    pub secret: String,
    pub user: String,
    pub project: String,
    pub roles: Vec<String>,
    pub description: Option<String>,
    pub expires: Option<Timestamp>,
}

/// Who calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub user: String,
    /// Absent for an unscoped token.
    pub project: Option<String>,
    pub roles: Vec<String>,
    /// The token came from an application credential.
    pub restricted: bool,
}

impl Session {
    /// May see and do everything.
    pub(super) fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == "admin")
    }

    /// May change things.
    pub(super) fn is_member(&self) -> bool {
        self.is_admin() || self.roles.iter().any(|role| role == "member")
    }

    /// Whether things of this project are the caller's to see.
    pub(super) fn sees(&self, project: &str) -> bool {
        self.is_admin() || self.project.as_deref() == Some(project)
    }

    /// The project of what the caller makes.
    pub(super) fn project(&self) -> String {
        self.project.clone().unwrap_or_default()
    }
}

/// Users, projects, credentials and tokens.
#[derive(Default)]
pub(super) struct Identity {
    pub users: Vec<User>,
    pub projects: Vec<Project>,
    pub credentials: Vec<ApplicationCredential>,
    /// User, project and role.
    pub grants: BTreeSet<(String, String, String)>,
    /// Ids of roles and endpoints, by name.
    pub ids: BTreeMap<String, String>,
    tokens: BTreeMap<String, token::Token>,
}

impl Identity {
    pub(super) fn expire_all(&mut self) {
        self.tokens.clear();
    }

    /// Forgets the tokens of a user or project that is no more.
    fn forget_tokens(&mut self, of: impl Fn(&str, Option<&String>) -> bool) {
        self.tokens.retain(|_, token| !token.is(&of));
    }

    /// The roles that a user was given in a project.
    fn roles(&self, user: &str, project: &str) -> Vec<String> {
        let own = self.grants.iter().filter(|(one, place, _)| one == user && place == project);
        own.map(|(_, _, role)| role.clone()).collect()
    }

    pub(super) fn user(&self, id: &str) -> Option<&User> {
        self.users.iter().find(|user| user.id == id)
    }

    pub(super) fn project(&self, id: &str) -> Option<&Project> {
        self.projects.iter().find(|project| project.id == id)
    }
}

pub(super) fn answer(state: &mut State, call: &mut Call) -> Answer {
    let identified = |reply: Reply, id: &str| {
        reply.with("vary", "X-Auth-Token").with("x-openstack-request-id", id)
    };
    let id = call.request_id.clone();
    route(state, call).map(|reply| identified(reply, &id)).map_err(|reply| identified(reply, &id))
}

fn route(state: &mut State, call: &mut Call) -> Answer {
    let base = state.config.base_url.clone();
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match (call.method.clone(), call.version.as_str(), path.as_slice()) {
        (Method::GET, "", []) => {
            return Ok(Reply::json(300, json!({"versions": {"values": [version(&base)]}}))
                .with("location", format!("{base}/identity/v3/")));
        }
        (Method::GET, "v3", []) => return Ok(Reply::json(200, json!({"version": version(&base)}))),
        (Method::POST, "v3", ["auth", "tokens"]) => return token::create(state, call),
        (
            _,
            "v3",
            ["auth" | "domains" | "users" | "projects" | "roles" | "role_assignments", ..],
        ) => admit(state, call)?,
        _ => return Err(unknown()),
    }
    let path = call.segments();
    match (&call.method, path.as_slice()) {
        (&Method::GET | &Method::HEAD, ["auth", "tokens"]) => token::show(state, call),
        (&Method::DELETE, ["auth", "tokens"]) => token::revoke(state, call),
        (&Method::GET, ["auth", "catalog"]) => {
            let links = json!({"self": format!("{base}/identity/v3/auth/catalog")});
            Ok(Reply::json(200, json!({"catalog": catalog(state), "links": links})))
        }
        (&Method::GET, ["auth", "projects"]) => {
            let own = people::projects_of(state, &call.session.user);
            Ok(people::listed(&base, "auth/projects", "projects", own))
        }
        (method, ["users", user, "application_credentials", rest @ ..]) => {
            credential::answer(state, call, method, user, rest)
        }
        (_, ["auth", ..]) => Err(unknown()),
        _ => people::answer(state, call),
    }
}

fn version(base: &str) -> Value {
    json!({
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{base}/identity/v3/")}],
        "media-types": [{
            "base": "application/json",
            "type": "application/vnd.openstack.identity-v3+json",
        }],
    })
}

fn unknown() -> Reply {
    Reply::html(
        404,
        "<!doctype html>\n<html lang=en>\n<title>404 Not Found</title>\n<h1>Not Found</h1>\n<p>The requested URL was \
         not found on the server. If you entered the URL manually please check your spelling and try again.</p>\n"
            .to_owned(),
    )
}

/// Keystone's refusal by policy.
fn forbidden(what: &str) -> Reply {
    keystone_error(403, format!("You are not authorized to perform the requested action: {what}"))
}

/// Keystone's words for every 400 about a body.
pub(super) fn malformed(what: &str) -> Reply {
    let message = format!(
        "{what} The server could not comply with the request since it is either malformed or otherwise incorrect. The \
         client is assumed to be in error."
    );
    keystone_error(400, message)
}

fn project_shown(project: &Project, base: &str) -> Value {
    json!({
        "id": project.id,
        "name": project.name,
        "domain_id": DOMAIN_ID,
        "description": project.description,
        "enabled": true,
        "parent_id": DOMAIN_ID,
        "is_domain": false,
        "tags": [],
        "options": {},
        "links": {"self": format!("{base}/identity/v3/projects/{}", project.id)},
    })
}

/// Where the services are.
pub(super) fn catalog(state: &State) -> Value {
    let base = &state.config.base_url;
    let services = [
        ("identity", "keystone", "/identity/v3"),
        ("network", "neutron", "/network"),
        ("compute", "nova", "/compute/v2.1"),
        ("image", "glance", "/image"),
        ("block-storage", "cinder", "/volume/v3"),
        // In every cloud's catalogue; only its versions are told.
        ("placement", "placement", "/placement"),
    ];
    let entries = services.map(|(kind, name, path)| {
        let interfaces: &[&str] = if kind == "identity" {
            &["admin", "internal", "public"]
        } else {
            &["internal", "public"]
        };
        let endpoints: Vec<Value> = interfaces
            .iter()
            .map(|interface| {
                json!({
                    "id": state.identity.ids.get(&format!("{kind}/{interface}")),
                    "interface": interface,
                    "region_id": "dbl",
                    "region": "dbl",
                    "url": format!("{base}{path}"),
                })
            })
            .collect();
        json!({
            "id": state.identity.ids.get(kind), "type": kind, "name": name, "endpoints": endpoints,
        })
    });
    Value::from(entries.to_vec())
}

/// Every name whose id the catalogue and the roles need.
pub(super) fn names() -> Vec<String> {
    let mut names: Vec<String> = people::ROLES.map(str::to_owned).into();
    for kind in ["identity", "network", "compute", "image", "block-storage"] {
        names.push(kind.to_owned());
        names.extend(["admin", "internal", "public"].map(|one| format!("{kind}/{one}")));
    }
    names
}
