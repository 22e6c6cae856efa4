//! Tokens of service accounts: signed claims, good as long as the account and what they are bound to exist.

use super::authn::same;
use crate::apiserver::{ApiServer, Key};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Who issues tokens.
const ISSUER: &str = "https://kubernetes.default.svc";
/// Whom tokens are for unless they say otherwise: the API server.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// What a token is bound to: it ends with that object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// `pod`, `secret` or `node`: the word of the claim.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    /// The object's uid.
    pub uid: String,
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    /// Of the service account.
    pub namespace: String,
    /// Of the service account.
    pub name: String,
    /// Of the service account.
    pub uid: String,
    /// Of the token itself.
    pub id: String,
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// Seconds since 1970.
    pub issued: i64,
    /// Seconds since 1970.
    pub expires: i64,
    /// What it ends with.
    pub bound: Option<Bound>,
}

/// A token that proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid bearer token")]
pub(crate) struct Invalid;

impl Claims {
    /// Whether the token is meant for this audience.
    pub fn is_for(&self, audience: &str) -> bool {
        self.audiences.iter().any(|own| own == audience)
    }

    fn to_value(&self) -> Value {
        let mut own = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.name, "uid": self.uid},
        });
        if let Some(bound) = &self.bound {
            own[bound.kind] = json!({"name": bound.name, "uid": bound.uid});
        }
        json!({
            "aud": self.audiences,
            "exp": self.expires,
            "iat": self.issued,
            "iss": ISSUER,
            "jti": self.id,
            "kubernetes.io": own,
            "nbf": self.issued,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.name),
        })
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let own = &value["kubernetes.io"];
        let bound = ["pod", "secret", "node"].into_iter().find_map(|kind| {
            let (name, uid) = (text(&own[kind]["name"])?, text(&own[kind]["uid"])?);
            Some(Bound { kind, name, uid })
        });
        Some(Self {
            namespace: text(&own["namespace"])?,
            name: text(&own["serviceaccount"]["name"])?,
            uid: text(&own["serviceaccount"]["uid"])?,
            id: text(&value["jti"])?,
            audiences: value["aud"].as_array()?.iter().filter_map(text).collect(),
            issued: value["iat"].as_i64()?,
            expires: value["exp"].as_i64()?,
            bound,
        })
    }
}

/// Writes a token.
pub(crate) fn write(server: &ApiServer, claims: &Claims) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = URL_SAFE_NO_PAD.encode(claims.to_value().to_string());
    let signed = format!("{header}.{body}");
    let proof = URL_SAFE_NO_PAD.encode(hmac(server.pki().secret(), signed.as_bytes()));
    format!("{signed}.{proof}")
}

/// Reads a token, if it is the server's own, not expired, and its account and object still exist.
pub(crate) fn read(server: &ApiServer, token: &str) -> Result<Claims, Invalid> {
    let (signed, proof) = token.rsplit_once('.').ok_or(Invalid)?;
    let (_, body) = signed.split_once('.').ok_or(Invalid)?;
    let proof = URL_SAFE_NO_PAD.decode(proof).map_err(|_| Invalid)?;
    if !same(&proof, &hmac(server.pki().secret(), signed.as_bytes())) {
        return Err(Invalid);
    }
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| Invalid)?;
    let value = serde_json::from_slice(&body).map_err(|_| Invalid)?;
    let claims = Claims::from_value(&value).ok_or(Invalid)?;
    let account = Key::new("", "serviceaccounts", &claims.namespace, &claims.name);
    let bound = claims.bound.as_ref().is_none_or(|bound| {
        let namespace = if bound.kind == "node" { "" } else { &claims.namespace };
        let key = Key::new("", &format!("{}s", bound.kind), namespace, &bound.name);
        exists(server, &key, &bound.uid)
    });
    let good = server.clock().now().as_second() < claims.expires
        && exists(server, &account, &claims.uid)
        && bound;
    if good { Ok(claims) } else { Err(Invalid) }
}

fn exists(server: &ApiServer, key: &Key, uid: &str) -> bool {
    server.store().get(key).is_some_and(|found| found["metadata"]["uid"] == uid)
}

/// RFC 2104 with SHA-256; the key is shorter than a block.
fn hmac(key: &[u8; 32], text: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK];
        block.iter_mut().zip(key).for_each(|(into, key)| *into ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::hmac;

    #[test]
    fn hmac_is_that_of_the_rfc() {
        // RFC 4231, case 1: a key of twenty 0x0b; zeroes behind it change nothing.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let hex: String = hmac(&key, b"Hi There").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
}
