//! The bootstrap token of one machine: found again by the machine's UID, gone when it has joined.
//!
//! Kubernetes: "Authenticating with Bootstrap Tokens". The Secret's name follows from the token's id
//! and the id from the machine's UID, so a crash between making the token and using it leaves
//! nothing behind that is not found again.

use crate::rbac::{BOOTSTRAP_GROUP, NAMESPACE};
use drover_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;
/// Ids that are tried when another machine's token has the first.
const ID_TRIES_MAX: u32 = 4;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read bootstrap token {name:?}")]
    Read { name: String, source: kube::Error },
    #[error("failed to create bootstrap token {name:?}")]
    Create { name: String, source: kube::Error },
    #[error(
        "bootstrap token {name:?} was replaced or deleted just now; the next look makes a new one"
    )]
    Changed { name: String },
    #[error("failed to renew bootstrap token {name:?}")]
    Renew { name: String, source: kube::Error },
    #[error("failed to delete bootstrap token {name:?}")]
    Delete { name: String, source: kube::Error },
    #[error(
        "the first {ID_TRIES_MAX} token ids of the machine belong to other Secrets in {NAMESPACE}"
    )]
    Taken,
    #[error("the operating system gave no random bytes: {0}")]
    NoEntropy(getrandom::Error),
}

/// For whom a token is.
#[derive(Clone, Copy, Debug)]
pub struct Bearer<'a> {
    pub machine_uid: &'a str,
    /// `namespace/name`.
    pub machine: &'a str,
}

/// A token that is there. Its secret half is for one machine's user-data alone.
#[derive(Clone)]
pub struct Token {
    id: String,
    secret: String,
    uid: Option<String>,
    pub expires: Timestamp,
}

impl Token {
    /// As `id.secret`.
    pub fn text(&self) -> String {
        let Self { id, secret, .. } = self;
        format!("{id}.{secret}")
    }
}

/// The token of this machine: the one that is there, else a new one.
///
/// # Errors
/// When the API server refuses, or all ids are taken by others.
pub async fn ensure(
    client: &Client,
    bearer: Bearer<'_>,
    expires: Timestamp,
    now: Timestamp,
) -> Result<Token, Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    for attempt in 0..ID_TRIES_MAX {
        let id = id_of(bearer.machine_uid, attempt);
        let name = secret_name(&id);
        let fresh = new_secret()?;
        let secret = manifest(&id, &fresh, bearer, expires);
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(made) => return Ok(Token { id, secret: fresh, uid: made.uid(), expires }),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(source) => return Err(Error::Create { name, source }),
        }
        match secrets.get_opt(&name).await {
            Ok(Some(found)) if !is_of(&found, bearer.machine_uid) => {}
            Ok(Some(found)) => match usable(&found, now) {
                Some((secret, expires)) => {
                    return Ok(Token { id, secret, uid: found.uid(), expires });
                }
                None => {
                    delete_one(&secrets, &name, found.uid()).await?;
                    return Err(Error::Changed { name });
                }
            },
            Ok(None) => return Err(Error::Changed { name }),
            Err(source) => return Err(Error::Read { name, source }),
        }
    }
    Err(Error::Taken)
}

/// The token of this machine, good until then; None when there is none: its secret was told to one server
/// and cannot be made again.
///
/// # Errors
/// When the API server refuses.
pub async fn keep(
    client: &Client,
    machine_uid: &str,
    until: Timestamp,
) -> Result<Option<Token>, Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    for attempt in 0..ID_TRIES_MAX {
        let id = id_of(machine_uid, attempt);
        let name = secret_name(&id);
        let found = secrets.get_opt(&name).await;
        let Some(found) = found.map_err(|source| Error::Read { name: name.clone(), source })?
        else {
            return Ok(None);
        };
        if !is_of(&found, machine_uid) {
            continue;
        }
        let Some((secret, expires)) = usable(&found, Timestamp::MIN) else { return Ok(None) };
        let uid = found.uid();
        if expires >= until {
            return Ok(Some(Token { id, secret, uid, expires }));
        }
        let patch = Patch::Merge(json!({
            "metadata": { "uid": uid },
            "stringData": { "expiration": in_seconds(until) },
        }));
        secrets
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .map_err(|source| Error::Renew { name, source })?;
        return Ok(Some(Token { id, secret, uid, expires: until }));
    }
    Ok(None)
}

/// Deletes the token of this machine, if there is one. One call when there never was a collision.
///
/// # Errors
/// When the API server refuses for another reason than that it is not there.
pub async fn delete(client: &Client, machine_uid: &str) -> Result<(), Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    for attempt in 0..ID_TRIES_MAX {
        let name = secret_name(&id_of(machine_uid, attempt));
        match secrets.get_opt(&name).await {
            Ok(Some(found)) if is_of(&found, machine_uid) => {
                return delete_one(&secrets, &name, found.uid()).await;
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(source) => return Err(Error::Read { name, source }),
        }
    }
    Ok(())
}

/// Deletes a token that this process knows, in one call.
///
/// # Errors
/// When the API server refuses for another reason than that it is not there.
pub async fn delete_this(client: &Client, token: &Token) -> Result<(), Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    delete_one(&secrets, &secret_name(&token.id), token.uid.clone()).await
}

/// For which machine (UID) the token with this id was made, when Drover made it.
///
/// # Errors
/// When the API server does not answer.
pub async fn bearer_of(client: &Client, id: &str) -> Result<Option<String>, Error> {
    let name = secret_name(id);
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    match secrets.get_opt(&name).await {
        Ok(found) => {
            Ok(found.and_then(|secret| secret.labels().get(labels::TOKEN_MACHINE).cloned()))
        }
        Err(source) => Err(Error::Read { name, source }),
    }
}

async fn delete_one(secrets: &Api<Secret>, name: &str, uid: Option<String>) -> Result<(), Error> {
    let only_this = DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    };
    match secrets.delete(name, &only_this).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(source) => Err(Error::Delete { name: name.to_owned(), source }),
    }
}

fn manifest(id: &str, secret: &str, bearer: Bearer<'_>, expires: Timestamp) -> Secret {
    let expires = in_seconds(expires);
    let data = [
        ("token-id", id),
        ("token-secret", secret),
        ("expiration", &expires),
        ("usage-bootstrap-authentication", "true"),
        ("auth-extra-groups", BOOTSTRAP_GROUP),
        ("description", "One machine's first certificate request; Drover deletes it afterwards."),
    ];
    let mut made = Secret {
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        string_data: Some(data.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..Secret::default()
    };
    made.metadata.name = Some(secret_name(id));
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.metadata.labels =
        Some(BTreeMap::from([(labels::TOKEN_MACHINE.to_owned(), bearer.machine_uid.to_owned())]));
    made.metadata.annotations =
        Some(BTreeMap::from([(labels::NODE_MACHINE.to_owned(), bearer.machine.to_owned())]));
    made
}

/// Kubernetes: a bootstrap token's expiration has whole seconds.
fn in_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_of(secret: &Secret, machine_uid: &str) -> bool {
    secret.labels().get(labels::TOKEN_MACHINE).is_some_and(|uid| uid == machine_uid)
}

/// The secret half of a token that is whole and not expired, and when it will be.
fn usable(secret: &Secret, now: Timestamp) -> Option<(String, Timestamp)> {
    let text = |key: &str| {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        String::from_utf8(bytes.clone()).ok()
    };
    let expires: Timestamp = text("expiration")?.parse().ok()?;
    (expires > now && secret.metadata.deletion_timestamp.is_none())
        .then(|| text("token-secret"))
        .flatten()
        .filter(|half| half.len() == SECRET_CHARS)
        .map(|half| (half, expires))
}

fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// Six characters that follow from the machine's UID (FNV-1a; the id is public).
fn id_of(machine_uid: &str, attempt: u32) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in machine_uid.bytes().chain(attempt.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut id = String::with_capacity(ID_CHARS);
    for _ in 0..ID_CHARS {
        id.push(char::from(ALPHABET[(hash % 36) as usize]));
        hash /= 36;
    }
    id
}

fn new_secret() -> Result<String, Error> {
    let mut secret = String::with_capacity(SECRET_CHARS);
    let mut bytes = [0_u8; 64];
    while secret.len() < SECRET_CHARS {
        getrandom::fill(&mut bytes).map_err(Error::NoEntropy)?;
        // 252 is the greatest multiple of 36 in a byte: without it some characters came more often.
        let fair = bytes.iter().filter(|byte| **byte < 252);
        secret.extend(
            fair.map(|byte| char::from(ALPHABET[usize::from(byte % 36)]))
                .take(SECRET_CHARS - secret.len()),
        );
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_from_the_machine_and_a_secret_does_not() {
        assert_eq!(id_of("uid-1", 0), id_of("uid-1", 0));
        assert_ne!(id_of("uid-1", 0), id_of("uid-1", 1));
        let (one, two) = (new_secret().unwrap(), new_secret().unwrap());
        assert_eq!((one.len(), two.len()), (16, 16));
        assert_ne!(one, two);
    }

    #[test]
    fn an_expired_token_is_not_used_again() {
        let bearer = Bearer { machine_uid: "u", machine: "kube-system/m" };
        let expires: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut secret = manifest("abcdef", "0123456789abcdef", bearer, expires);
        let data = secret.string_data.take().unwrap();
        secret.data = Some(
            data.into_iter()
                .map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes())))
                .collect(),
        );
        let at = |text: &str| usable(&secret, text.parse().unwrap()).map(|(half, _)| half);
        assert_eq!(at("2025-12-31T23:59:59Z").as_deref(), Some("0123456789abcdef"));
        assert_eq!(at("2026-01-01T00:00:00Z"), None);
    }
}
