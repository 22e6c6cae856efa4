//! Tokens: issue, check, show, revoke.

use super::people::implied;
use super::{DOMAIN_ID, DOMAIN_NAME, Session, catalog, malformed};
use crate::cloud::http::{Answer, Call, Reply, Service, keystone_error};
use crate::cloud::state::State;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// From so many tokens on, expired ones are forgotten when one is issued.
const TOKENS_KEPT: usize = 1_000;

/// One token.
#[derive(Clone)]
pub(super) struct Token {
    method: String,
    user: String,
    project: Option<String>,
    roles: Vec<String>,
    issued: Timestamp,
    expires: Timestamp,
    revoked: bool,
    /// The application credential it came from: id and name.
    credential: Option<(String, String)>,
    audit: String,
    /// When a service first saw it good.
    seen: BTreeMap<Service, Timestamp>,
}

impl Token {
    /// Whether its user or project is meant.
    pub(super) fn is(&self, of: impl Fn(&str, Option<&String>) -> bool) -> bool {
        of(&self.user, self.project.as_ref())
    }
}

/// What a login proved.
struct Proof {
    method: &'static str,
    user: String,
    /// The project and the roles in it, when the proof itself decides them.
    grant: Option<(String, Vec<String>)>,
    not_after: Option<Timestamp>,
    credential: Option<(String, String)>,
}

pub(super) fn unauthorized(state: &State) -> Reply {
    keystone_error(401, "The request you have made requires authentication.")
        .with("www-authenticate", format!("Keystone uri=\"{}/identity/v3\"", state.config.base_url))
}

/// Who the token of a call belongs to. Services but the identity service go on trusting a revoked one for a while.
pub(in crate::cloud) fn authenticate(state: &mut State, call: &Call) -> Option<Session> {
    let now = state.now();
    let cache = SignedDuration::try_from(state.config.token_cache).unwrap_or_default();
    let token = state.identity.tokens.get_mut(call.header("x-auth-token")?)?;
    if token.expires <= now {
        return None;
    }
    if token.revoked {
        let seen = token.seen.get(&call.service)?;
        if call.service == Service::Identity || now.duration_since(*seen) > cache {
            return None;
        }
    } else {
        token.seen.insert(call.service, now);
    }
    Some(Session {
        user: token.user.clone(),
        project: token.project.clone(),
        roles: token.roles.clone(),
        restricted: token.method == "application_credential",
    })
}

/// `POST /v3/auth/tokens`.
pub(super) fn create(state: &mut State, call: &Call) -> Answer {
    let body =
        call.json().map_err(|_| malformed("Expecting to find valid JSON in request body."))?;
    let auth = &body["auth"];
    if !auth.is_object() {
        return Err(expecting("auth in request body"));
    }
    let methods = auth["identity"]["methods"].as_array();
    let Some(method) = methods.and_then(|methods| methods.first()).and_then(Value::as_str) else {
        let missing = if auth["identity"].is_object() { "methods" } else { "identity" };
        let said =
            format!("'{missing}' is a required property\n\nFailed validating 'required' in schema");
        return Err(keystone_error(400, said));
    };
    let identity = &auth["identity"][method];
    let proof = match method {
        "password" => by_password(state, &identity["user"])?,
        "application_credential" => {
            if !auth["scope"].is_null() {
                return Err(refuse_scope(state));
            }
            super::credential::prove(state, identity).map(|granted| Proof {
                method: "application_credential",
                user: granted.user,
                grant: Some((granted.project, granted.roles)),
                not_after: granted.expires,
                credential: Some(granted.credential),
            })?
        }
        "token" => by_token(state, identity)?,
        unknown if identity.is_null() => return Err(expecting(&format!("{unknown} in identity"))),
        _ => return Err(unauthorized(state)),
    };
    let scope = match &proof.grant {
        Some(grant) => Some(grant.clone()),
        None => scope(state, &auth["scope"], &proof.user)?,
    };
    Ok(issue(state, proof, scope, call.query("nocatalog").is_some()))
}

fn expecting(what: &str) -> Reply {
    keystone_error(
        400,
        format!(
            "Expecting to find {what}. The server could not comply with the request since it is either malformed or \
             otherwise incorrect. The client is assumed to be in error."
        ),
    )
}

fn refuse_scope(state: &State) -> Reply {
    let message = "Error authenticating with application credential: Application credentials cannot request a scope.";
    Reply::json(
        401,
        json!({"error": {"code": 401, "identity": {}, "message": message, "title": "Unauthorized"}}),
    )
    .with("www-authenticate", format!("Keystone uri=\"{}/identity/v3\"", state.config.base_url))
}

/// Whether this names the one domain; without any it is a 400.
fn in_domain(domain: &Value, of: &str) -> Result<bool, Reply> {
    if !domain.is_object() {
        return Err(malformed(&format!("Expecting to find domain in {of}.")));
    }
    Ok(domain["id"] == DOMAIN_ID || domain["name"] == DOMAIN_NAME)
}

/// The id of the user that this object names.
pub(super) fn user_named(state: &State, user: &Value) -> Result<Option<String>, Reply> {
    if let Some(id) = user["id"].as_str() {
        return Ok(state.identity.user(id).map(|user| user.id.clone()));
    }
    if !in_domain(&user["domain"], "user")? {
        return Ok(None);
    }
    let named = state.identity.users.iter().find(|one| user["name"] == one.name.as_str());
    Ok(named.map(|user| user.id.clone()))
}

fn by_password(state: &State, user: &Value) -> Result<Proof, Reply> {
    let id = user_named(state, user)?;
    let known = id.and_then(|id| state.identity.user(&id));
    match known {
        Some(known) if user["password"] == known.password.as_str() => Ok(Proof {
            method: "password",
            user: known.id.clone(),
            grant: None,
            not_after: None,
            credential: None,
        }),
        _ => Err(unauthorized(state)),
    }
}

fn by_token(state: &State, identity: &Value) -> Result<Proof, Reply> {
    let token = identity["id"].as_str().and_then(|id| state.identity.tokens.get(id));
    match token {
        Some(token) if token.expires > state.now() && !token.revoked => Ok(Proof {
            method: "token",
            user: token.user.clone(),
            grant: None,
            not_after: Some(token.expires),
            credential: token.credential.clone(),
        }),
        Some(_) => Err(unauthorized(state)),
        None => Err(keystone_error(404, "Could not recognize Fernet token")),
    }
}

/// The project that is asked for, with the user's roles in it; none when unscoped is.
fn scope(state: &State, scope: &Value, user: &str) -> Result<Option<(String, Vec<String>)>, Reply> {
    let home = state.identity.user(user).map(|user| user.project.as_str());
    let granted = |project: &str| {
        let roles = implied(&state.identity.roles(user, project));
        (!roles.is_empty()).then(|| (project.to_owned(), roles))
    };
    if scope == "unscoped" {
        return Ok(None);
    }
    if scope.is_null() {
        return Ok(home.and_then(granted));
    }
    let project = &scope["project"];
    let asked = if let Some(id) = project["id"].as_str() {
        Some(id)
    } else if project.is_object() && in_domain(&project["domain"], "project")? {
        let named = state.identity.projects.iter().find(|one| project["name"] == one.name.as_str());
        named.map(|project| project.id.as_str())
    } else {
        None
    };
    match asked.and_then(granted) {
        Some(scope) => Ok(Some(scope)),
        None => Err(unauthorized(state)),
    }
}

fn issue(
    state: &mut State,
    proof: Proof,
    scope: Option<(String, Vec<String>)>,
    brief: bool,
) -> Reply {
    let (project, roles) = scope.unzip();
    let now = state.now();
    let life = SignedDuration::try_from(state.config.token_life).unwrap_or(SignedDuration::MAX);
    let latest = now.saturating_add(life).unwrap_or(Timestamp::MAX);
    let expires = proof.not_after.map_or(latest, |end| end.min(latest));
    let (secret, audit) = (format!("gAAAAAB{}{}", state.hex(), state.hex()), state.hex());
    let token = Token {
        method: proof.method.to_owned(),
        user: proof.user,
        roles: roles.unwrap_or_default(),
        project,
        issued: now,
        expires,
        revoked: false,
        credential: proof.credential,
        audit: audit[..22].to_owned(),
        seen: BTreeMap::new(),
    };
    let shown = render(state, &token, brief);
    if state.identity.tokens.len() >= TOKENS_KEPT {
        state.identity.tokens.retain(|_, token| token.expires > now);
    }
    state.identity.tokens.insert(secret.clone(), token);
    Reply::json(201, json!({"token": shown})).with("x-subject-token", secret)
}

fn render(state: &State, token: &Token, brief: bool) -> Value {
    let domain = json!({"id": DOMAIN_ID, "name": DOMAIN_NAME});
    let micros = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let name = state.identity.user(&token.user).map_or("", |user| user.name.as_str());
    let mut shown = json!({
        "methods": [token.method],
        "user": {"domain": domain, "id": token.user, "name": name, "password_expires_at": null},
        "audit_ids": [token.audit],
        "expires_at": micros(token.expires),
        "issued_at": micros(token.issued),
    });
    let project = token.project.as_deref().and_then(|id| state.identity.project(id));
    let Some(project) = project else {
        return shown;
    };
    shown["project"] = json!({"domain": domain, "id": project.id, "name": project.name});
    shown["is_domain"] = json!(false);
    let roles =
        token.roles.iter().map(|role| json!({"id": state.identity.ids.get(role), "name": role}));
    shown["roles"] = roles.collect();
    if let Some((id, name)) = &token.credential {
        shown["application_credential"] = json!({"id": id, "name": name, "restricted": true});
    }
    if !brief {
        shown["catalog"] = catalog(state);
    }
    shown
}

/// `GET /v3/auth/tokens`.
pub(super) fn show(state: &State, call: &Call) -> Answer {
    let subject = call.header("x-subject-token").unwrap_or_default();
    let token = state.identity.tokens.get(subject);
    match token.filter(|token| !token.revoked && token.expires > state.now()) {
        Some(token) => {
            let shown = render(state, token, call.query("nocatalog").is_some());
            Ok(Reply::json(200, json!({"token": shown})).with("x-subject-token", subject))
        }
        None => Err(keystone_error(404, "Failed to validate token")),
    }
}

/// `DELETE /v3/auth/tokens`.
pub(super) fn revoke(state: &mut State, call: &Call) -> Answer {
    let subject = call.header("x-subject-token").unwrap_or_default();
    match state.identity.tokens.get_mut(subject) {
        Some(token) => {
            token.revoked = true;
            Ok(Reply::empty(204))
        }
        None => Err(keystone_error(404, "Failed to validate token")),
    }
}
