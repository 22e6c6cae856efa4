//! Expired bootstrap tokens go.

use super::object::meta;
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Deletes bootstrap token Secrets at their expiration.
pub(super) struct Cleaner;

/// When a bootstrap token expires. Kubernetes: what cannot be read is expired.
fn expiry(secret: &Value) -> Option<Timestamp> {
    if secret["type"] != "bootstrap.kubernetes.io/token" {
        return None;
    }
    let encoded = secret["data"]["expiration"].as_str()?;
    let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(text.and_then(|text| text.parse().ok()).unwrap_or(Timestamp::MIN))
}

impl Controller for Cleaner {
    fn name(&self) -> &'static str {
        "token cleaner"
    }

    fn concerns(&self, _: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        let is_token = change.now.as_deref().is_some_and(|secret| expiry(secret).is_some());
        if change.is_of("secrets") && is_token {
            wake(change.address.clone());
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(secret) = hands.view.at(at) else { return Ok(Next::Change) };
        let Some(expiry) = expiry(&secret) else { return Ok(Next::Change) };
        let left = expiry.duration_since(hands.clock.now());
        if left.is_positive() {
            return Ok(Next::After(Duration::try_from(left).unwrap_or(Duration::MAX)));
        }
        hands.delete(at, meta(&secret, "uid"), "Background").await?;
        Ok(Next::Change)
    }
}
