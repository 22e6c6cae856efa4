//! Key pairs. They belong to a user, not to a project.

use super::schema::{self, invalid};
use super::{policy, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::{State, micros};
use base64::Engine as _;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A public key or certificate by name.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct KeyPair {
    pub name: String,
    pub public_key: String,
    /// `ssh` or `x509`.
    pub kind: &'static str,
    pub user: String,
    pub created: Timestamp,
}

impl KeyPair {
    /// Bytes in hexadecimal, as many as in life: sixteen of a key (Nova: MD5), twenty of a certificate (Nova: SHA-1);
    /// `None` when it is neither.
    fn fingerprint(&self) -> Option<String> {
        let (blob, length) = match self.kind {
            "x509" => {
                let lines = self.public_key.lines().map(str::trim).collect::<Vec<_>>();
                let [first, middle @ .., last] = lines.as_slice() else { return None };
                let framed =
                    first.contains("BEGIN CERTIFICATE") && last.contains("END CERTIFICATE");
                (decoded(&middle.concat()).filter(|_| framed)?, 20)
            }
            _ => {
                let mut words = self.public_key.split_whitespace();
                let (kind, blob) = (words.next()?, decoded(words.next()?)?);
                // RFC 4253: the key itself begins with its kind, after that one's length.
                let length = blob.first_chunk().map(|length| u32::from_be_bytes(*length))?;
                let inside = blob.get(4..)?.get(..usize::try_from(length).ok()?)?;
                (blob.clone(), if inside == kind.as_bytes() { 16 } else { return None })
            }
        };
        let digest = Sha256::digest(&blob);
        let bytes: Vec<String> =
            digest[..length].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(bytes.join(":"))
    }

    fn shown(&self, minor: u16) -> Value {
        let mut shown = json!({
            "name": self.name,
            "public_key": self.public_key,
            "fingerprint": self.fingerprint(),
        });
        if minor >= 2 {
            shown["type"] = json!(self.kind);
        }
        shown
    }
}

pub(super) fn answer(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    policy(call, "os-keypairs:index")?;
    let user = call.session.user.clone();
    let found = |state: &State, name: &str| {
        let position =
            state.compute.keypairs.iter().position(|key| key.user == user && key.name == name);
        position.ok_or_else(|| fault(404, format!("Keypair {name} not found for user {user}")))
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let own = state.compute.keypairs.iter().filter(|key| key.user == user);
            let own: Vec<Value> =
                own.map(|key| json!({"keypair": key.shown(call.minor)})).collect();
            Ok(Reply::json(200, json!({"keypairs": own})))
        }
        (&Method::GET, [name]) => {
            let at = found(state, name)?;
            let key = &state.compute.keypairs[at];
            let mut shown = key.shown(call.minor);
            shown["user_id"] = json!(key.user);
            shown["created_at"] = json!(micros(key.created));
            shown["id"] = json!(at + 1);
            shown["deleted"] = json!(false);
            shown["deleted_at"] = Value::Null;
            shown["updated_at"] = Value::Null;
            Ok(Reply::json(200, json!({"keypair": shown})))
        }
        (&Method::POST, []) => create(state, call),
        (&Method::DELETE, [name]) => {
            let at = found(state, name)?;
            state.compute.keypairs.remove(at);
            Ok(Reply::empty(if call.minor >= 2 { 204 } else { 202 }))
        }
        _ => Err(unknown_path()),
    }
}

fn create(state: &mut State, call: &Call) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let asked = &body["keypair"];
    let name = checked_name(asked)?;
    let kind = match asked["type"].as_str() {
        Some("x509") if call.minor >= 2 => "x509",
        _ => "ssh",
    };
    let (public_key, private_key) = match asked["public_key"].as_str() {
        Some(public_key) => (public_key.to_owned(), None),
        None => generated(call, kind)?,
    };
    let key = KeyPair {
        name: name.to_owned(),
        public_key,
        kind,
        user: call.session.user.clone(),
        created: state.now(),
    };
    if key.fingerprint().is_none() {
        return Err(fault(400, "Keypair data is invalid: failed to generate fingerprint"));
    }
    let own = || state.compute.keypairs.iter().filter(|one| one.user == key.user);
    if own().any(|one| one.name == key.name) {
        return Err(fault(409, format!("Key pair '{name}' already exists.")));
    }
    let limit = state.config.quotas.key_pairs;
    if limit >= 0 && i64::try_from(own().count()).is_ok_and(|used| used >= limit) {
        return Err(fault(403, "Quota exceeded, too many key pairs."));
    }
    let mut shown = key.shown(call.minor);
    shown["user_id"] = json!(key.user);
    if let Some(private_key) = private_key {
        shown["private_key"] = json!(private_key);
    }
    state.compute.keypairs.push(key);
    Ok(Reply::json(if call.minor >= 2 { 201 } else { 200 }, json!({"keypair": shown})))
}

/// Nova: up to 255 letters, digits, blanks, dashes and underscores; from 2.92 on dots and at signs too.
fn checked_name(asked: &Value) -> Result<&str, Reply> {
    let Some(name) = asked["name"].as_str() else {
        let why = "'name' is a required property";
        return Err(invalid("keypair", asked, why));
    };
    let quoted = schema::python(&asked["name"]);
    if name.is_empty() || name.chars().count() > 255 {
        let why = if name.is_empty() { "is too short" } else { "is too long" };
        return Err(invalid("name", &asked["name"], &format!("{quoted} {why}")));
    }
    let legal = |one: char| one.is_ascii_alphanumeric() || " -_.@".contains(one);
    if !name.chars().all(legal) {
        let message = "Keypair data is invalid: Keypair name contains unsafe characters";
        return Err(fault(400, message));
    }
    Ok(name)
}

fn decoded(base64: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(base64).ok()
}

/// A new key or certificate: what is public of it, and all of it. Nova makes RSA, here it is an elliptic curve.
fn generated(call: &Call, kind: &str) -> Result<(String, Option<String>), Reply> {
    if call.minor >= 92 {
        let message =
            "Invalid input for field/attribute keypair. 'public_key' is a required property";
        return Err(fault(400, message));
    }
    let failed = |_| fault(500, "Unexpected API Error.");
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    if kind == "x509" {
        let params = rcgen::CertificateParams::new(Vec::new()).map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        return Ok((certificate.pem(), Some(key.serialize_pem())));
    }
    // RFC 5656: the algorithm, the curve and the point, each after its length.
    let mut blob = Vec::new();
    for part in [b"ecdsa-sha2-nistp256".as_slice(), b"nistp256", key.public_key_raw()] {
        blob.extend(u32::try_from(part.len()).unwrap_or_default().to_be_bytes());
        blob.extend(part);
    }
    let public = base64::engine::general_purpose::STANDARD.encode(blob);
    Ok((format!("ecdsa-sha2-nistp256 {public} Generated-by-Nova"), Some(key.serialize_pem())))
}
