//! Who is asking: client certificates, tokens of service accounts, bootstrap tokens, impersonation.

use super::{AUTHENTICATED, Attributes, UNAUTHENTICATED, User, authorize, token};
use crate::apiserver::{ApiServer, Key, Peer, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;
use std::collections::BTreeMap;

/// The user of requests that prove nothing.
const ANONYMOUS: &str = "system:anonymous";
/// Names the credential in a user's extra fields.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Finds out who asks; 401 when something is shown that proves nothing.
pub fn authenticate(server: &ApiServer, peer: &Peer, headers: &HeaderMap) -> Result<User, Status> {
    let mut user = match peer {
        Peer::User(user) => user.clone(),
        Peer::Anonymous => bearer(server, headers)?.unwrap_or_else(anonymous),
        Peer::Certificate(der) => match server.pki().identify(der) {
            Some(identity) => {
                let groups: Vec<&str> = identity.organizations.iter().map(String::as_str).collect();
                let mut user = User::new(&identity.common_name, &groups);
                let id = format!("X509SHA256={}", identity.fingerprint);
                user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
                user
            }
            None => bearer(server, headers)?.ok_or_else(Status::unauthorized)?,
        },
    };
    if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return impersonate(server, &user, headers);
    }
    Ok(user)
}

fn anonymous() -> User {
    let groups = vec![UNAUTHENTICATED.to_owned()];
    User { name: ANONYMOUS.to_owned(), groups, ..User::default() }
}

/// The user of the bearer token, if one is shown; 401 for one that is not good.
fn bearer(server: &ApiServer, headers: &HeaderMap) -> Result<Option<User>, Status> {
    let Some(header) = headers.get(http::header::AUTHORIZATION) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default().trim();
    let Some((scheme, token)) = text.split_once(' ') else { return Ok(None) };
    // Kubernetes: other schemes than Bearer are not looked at.
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        return Ok(None);
    }
    user_of(server, token.trim()).map(Some).ok_or_else(Status::unauthorized)
}

/// The user of a token.
pub(crate) fn user_of(server: &ApiServer, token: &str) -> Option<User> {
    match token.split_once('.') {
        Some((id, secret)) if id.len() == 6 && secret.len() == 16 => bootstrap(server, id, secret),
        _ => {
            let claims = token::read(server, token).ok()?;
            claims.is_for(token::AUDIENCE).then(|| service_account(&claims))
        }
    }
}

/// The user of a service account's token.
pub(crate) fn service_account(claims: &token::Claims) -> User {
    let token::Claims { namespace, name, uid, id, bound, .. } = claims;
    let mut user = service_account_user(namespace, name);
    user.uid.clone_from(uid);
    user.groups.push(AUTHENTICATED.to_owned());
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    if let Some(bound) = bound {
        let key = |field| format!("authentication.kubernetes.io/{}-{field}", bound.kind);
        user.extra.insert(key("name"), vec![bound.name.clone()]);
        user.extra.insert(key("uid"), vec![bound.uid.clone()]);
    }
    user
}

fn service_account_user(namespace: &str, name: &str) -> User {
    let groups =
        vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let name = format!("system:serviceaccount:{namespace}:{name}");
    User { name, groups, ..User::default() }
}

/// The user of a bootstrap token: its Secret must exist, hold it, allow it and not be expired.
fn bootstrap(server: &ApiServer, id: &str, secret: &str) -> Option<User> {
    const PREFIX: &str = "system:bootstrappers:";
    let key = Key::new("", "secrets", "kube-system", &format!("bootstrap-token-{id}"));
    let found = server.store().get(&key)?;
    let field = |name: &str| -> Option<String> {
        let text = found["data"][name].as_str()?;
        String::from_utf8(STANDARD.decode(text).ok()?).ok()
    };
    let good = found["type"] == "bootstrap.kubernetes.io/token"
        && found["metadata"]["deletionTimestamp"].is_null()
        && field("token-id").as_deref() == Some(id)
        && same(field("token-secret")?.as_bytes(), secret.as_bytes())
        && field("usage-bootstrap-authentication").as_deref() == Some("true");
    if !good {
        return None;
    }
    if let Some(expiry) = field("expiration") {
        // Kubernetes: an expiration that cannot be read means expired.
        let expiry: jiff::Timestamp = expiry.parse().ok()?;
        if server.clock().now() >= expiry {
            return None;
        }
    }
    let mut groups = vec!["system:bootstrappers".to_owned()];
    let extra = field("auth-extra-groups").unwrap_or_default();
    for group in extra.split(',').map(str::trim).filter(|group| !group.is_empty()) {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ":-".contains(c);
        if !group.strip_prefix(PREFIX)?.chars().all(word) {
            return None;
        }
        groups.push(group.to_owned());
    }
    groups[1..].sort();
    groups.push(AUTHENTICATED.to_owned());
    Some(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// Compares secrets in a time that does not depend on where they differ.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Puts another user in the place of this one, who must have the verb `impersonate` on all of it.
fn impersonate(server: &ApiServer, user: &User, headers: &HeaderMap) -> Result<User, Status> {
    let texts = |name: &str| -> Vec<String> {
        let all = headers.get_all(name).iter();
        all.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let name = texts("impersonate-user").pop().unwrap_or_default();
    let groups = texts("impersonate-group");
    let uid = texts("impersonate-uid").pop();
    let mut extra = BTreeMap::new();
    for header in headers.keys() {
        let Some(key) = header.as_str().strip_prefix("impersonate-extra-") else { continue };
        extra.insert(unescaped(key), texts(header.as_str()));
    }
    if name.is_empty() {
        return Err(nobody_named(uid.as_deref().unwrap_or_default(), &groups, &extra));
    }
    let may = |api_group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let verb = "impersonate";
        let ask = Attributes { verb, api_group, resource, subresource, namespace, name, ..ask() };
        authorize(server, user, &ask)
    };
    let mut other =
        match name.strip_prefix("system:serviceaccount:").and_then(|n| n.split_once(':')) {
            Some((namespace, account)) => {
                may("", "serviceaccounts", "", namespace, account)?;
                service_account_user(namespace, account)
            }
            None => {
                may("", "users", "", "", &name)?;
                // Kubernetes: who is a node is in the group of nodes.
                let nodes = name.starts_with("system:node:").then(|| "system:nodes".to_owned());
                User { name, groups: nodes.into_iter().collect(), ..User::default() }
            }
        };
    groups.iter().try_for_each(|group| may("", "groups", "", "", group))?;
    if !groups.is_empty() {
        other.groups = groups;
    }
    let marks = [AUTHENTICATED, UNAUTHENTICATED];
    if !marks.iter().any(|mark| other.is_in(mark)) {
        let mark = if other.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        other.groups.push(mark.to_owned());
    }
    if let Some(uid) = uid {
        may("authentication.k8s.io", "uids", "", "", &uid)?;
        other.uid = uid;
    }
    for (key, values) in extra {
        values
            .iter()
            .try_for_each(|value| may("authentication.k8s.io", "userextras", &key, "", value))?;
        other.extra.insert(key, values);
    }
    Ok(other)
}

/// 400 of an impersonation that names no user, with what it names as Go prints it.
fn nobody_named(uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> Status {
    fn list(texts: &[String]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        format!("{{{}}}", texts.join(", "))
    }
    let groups = if groups.is_empty() { "(nil)".to_owned() } else { list(groups) };
    let pairs: Vec<String> =
        extra.iter().map(|(key, values)| format!("{key:?}:[]string{}", list(values))).collect();
    let extra =
        if pairs.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", pairs.join(", ")) };
    Status::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string{groups}, Extra:map[string][]string{extra}}} without impersonating a user name"
    ))
}

/// A key of `extra` from a header's name, where other signs than letters are written as `%2f`.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code =
            code.filter(|_| first == b'%').and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ask<'a>() -> Attributes<'a> {
    Attributes::default()
}

/// `userInfo` as reviews and certificate requests tell it.
#[must_use]
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = serde_json::Map::new();
    info.insert("username".to_owned(), user.name.clone().into());
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), user.uid.clone().into());
    }
    info.insert("groups".to_owned(), user.groups.clone().into());
    if !user.extra.is_empty() {
        let extra: serde_json::Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
        info.insert("extra".to_owned(), Value::Object(extra));
    }
    Value::Object(info)
}
