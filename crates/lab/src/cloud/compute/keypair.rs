//! Key pairs. They belong to a user, not to a project.

use super::{policy, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::{State, micros};
use base64::Engine as _;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A public key by name.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct KeyPair {
    pub name: String,
    pub public_key: String,
    pub user: String,
    pub created: Timestamp,
}

impl KeyPair {
    /// Sixteen bytes in hexadecimal, as Nova's MD5 of the key looks; `None` when the key is none.
    fn fingerprint(&self) -> Option<String> {
        let mut words = self.public_key.split_whitespace();
        let kind = words.next()?;
        let known =
            kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-");
        let blob = base64::engine::general_purpose::STANDARD.decode(words.next()?).ok()?;
        let digest = Sha256::digest(&blob);
        let bytes: Vec<String> = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        known.then(|| bytes.join(":"))
    }

    fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "public_key": self.public_key,
            "fingerprint": self.fingerprint(),
            "type": "ssh",
        })
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
            let own: Vec<Value> = own.map(|key| json!({"keypair": key.shown()})).collect();
            Ok(Reply::json(200, json!({"keypairs": own})))
        }
        (&Method::GET, [name]) => {
            let at = found(state, name)?;
            let key = &state.compute.keypairs[at];
            let mut shown = key.shown();
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
            Ok(Reply::empty(204))
        }
        _ => Err(unknown_path()),
    }
}

fn create(state: &mut State, call: &Call) -> Answer {
    let body = call.json().map_err(|_| fault(400, "Malformed request body"))?;
    let asked = &body["keypair"];
    let (Some(name), Some(public_key)) = (asked["name"].as_str(), asked["public_key"].as_str())
    else {
        // From 2.92 on Nova makes no keys any more, and here it never did.
        let message =
            "Invalid input for field/attribute keypair. 'public_key' is a required property";
        return Err(fault(400, message));
    };
    let key = KeyPair {
        name: name.to_owned(),
        public_key: public_key.to_owned(),
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
    let mut shown = key.shown();
    shown["user_id"] = json!(key.user);
    state.compute.keypairs.push(key);
    Ok(Reply::json(if call.minor >= 2 { 201 } else { 200 }, json!({"keypair": shown})))
}
