//! Pods whose node is gone go too.

use super::object::{meta, node_of};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use crate::clock::Pace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a node must be missing before its pods are given up (Kubernetes: 40 s).
const QUARANTINE: Duration = Duration::from_secs(40);

/// Deletes pods without grace that are bound to a node which is not there.
pub(super) struct Pods {
    pace: Pace,
    missing_since: Mutex<BTreeMap<String, Instant>>,
}

impl Pods {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, missing_since: Mutex::default() }
    }

    fn missing(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.missing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for Pods {
    fn name(&self) -> &'static str {
        "pod garbage collector"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of("nodes") {
            match &change.now {
                None => {
                    let pods = view.pods_on(&change.address.name);
                    pods.iter().for_each(|pod| wake(address(pod)));
                    // Its pods count the time from now on, not from an earlier loss.
                    self.missing().remove(&change.address.name);
                }
                Some(_) if change.before.is_none() => {
                    self.missing().remove(&change.address.name);
                }
                Some(_) => {}
            }
        }
        if let Some(pod) = &change.now
            && change.is_of("pods")
            && change.before.as_deref().map(node_of) != Some(node_of(pod))
            && !node_of(pod).is_empty()
            && view.get("nodes", "", node_of(pod)).is_none()
        {
            wake(change.address.clone());
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(pod) = hands.view.at(at) else { return Ok(Next::Change) };
        let node = node_of(&pod).to_owned();
        if node.is_empty() || hands.view.get("nodes", "", &node).is_some() {
            self.missing().remove(&node);
            return Ok(Next::Change);
        }
        let since = *self.missing().entry(node.clone()).or_insert_with(Instant::now);
        let left = self.pace.of(QUARANTINE).saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        match hands.client.get(&format!("/api/v1/nodes/{node}")).await {
            Err(error) if error.is_not_found() => {}
            Ok(_) => return Ok(Next::Change),
            Err(error) => return Err(error),
        }
        let options = json!({
            "gracePeriodSeconds": 0, "preconditions": {"uid": meta(&pod, "uid")},
        });
        match hands.client.delete(&hands.path(at)?, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(Next::Change),
        }
    }
}

fn address(pod: &Value) -> Address {
    Address::new("pods", meta(pod, "namespace"), meta(pod, "name"))
}
