//! Taints `NoExecute` expel the pods that do not tolerate them, or not for longer.

use super::object::{condition, is_deleting, items, meta, node_of};
use super::placement::{Patience, patience};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Deletes pods when their toleration of their node's taints has run out.
#[derive(Default)]
pub(super) struct Expulsions {
    /// When each pod that may stay for a while has to go. Kubernetes: the first look sets the time.
    due: Mutex<BTreeMap<Address, (String, Instant)>>,
}

impl Expulsions {
    fn due(&self) -> MutexGuard<'_, BTreeMap<Address, (String, Instant)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a pod may stay; None for ever.
    fn left(&self, at: &Address, pod: &Value, node: &Value) -> Option<Duration> {
        let mut due = self.due();
        let Some(Patience::Seconds(seconds)) = patience(&pod["spec"], node) else {
            due.remove(at);
            return None;
        };
        let pause = Duration::from_secs(seconds.unsigned_abs());
        let (uid, now) = (meta(pod, "uid").to_owned(), Instant::now());
        let until = match due.get(at) {
            Some((known, until)) if *known == uid && !pause.is_zero() => *until,
            _ => now + pause,
        };
        due.insert(at.clone(), (uid, until));
        Some(until.saturating_duration_since(now))
    }
}

/// Tells in the pod's status why it goes, and deletes it with its own grace.
async fn expel(hands: &Hands, at: &Address, pod: &Value) -> Result<(), ApiError> {
    if condition(pod, "DisruptionTarget").is_none_or(|one| one["status"] != "True") {
        let mut all = items(&pod["status"]["conditions"]).to_vec();
        all.retain(|one| one["type"] != "DisruptionTarget");
        all.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastProbeTime": null, "lastTransitionTime": hands.stamp(),
            "observedGeneration": pod["metadata"]["generation"],
        }));
        let patch = json!({"metadata": {"uid": meta(pod, "uid")}, "status": {"conditions": all}});
        match hands.merge(at, "/status", &patch).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    hands.delete(at, meta(pod, "uid"), "Background").await
}

impl Controller for Expulsions {
    fn name(&self) -> &'static str {
        "taint eviction"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of("nodes") {
            let taints = |state: &Value| state["spec"]["taints"].clone();
            if change.before.as_deref().map(taints) != change.now.as_deref().map(taints) {
                let pods = view.pods_on(&change.address.name);
                let bound = pods.iter().filter(|pod| !node_of(pod).is_empty());
                bound.for_each(|pod| {
                    wake(Address::new("pods", meta(pod, "namespace"), meta(pod, "name")));
                });
            }
        }
        if change.is_of("pods") {
            let what = |pod: &Value| (node_of(pod).to_owned(), pod["spec"]["tolerations"].clone());
            if change.before.as_deref().map(what) != change.now.as_deref().map(what) {
                wake(change.address.clone());
            }
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let pod = hands.view.at(at).filter(|pod| !is_deleting(pod));
        let node = pod.as_ref().and_then(|pod| hands.view.get("nodes", "", node_of(pod)));
        let (Some(pod), Some(node)) = (pod, node) else {
            self.due().remove(at);
            return Ok(Next::Change);
        };
        match self.left(at, &pod, &node) {
            None => Ok(Next::Change),
            Some(left) if !left.is_zero() => Ok(Next::After(left)),
            Some(_) => {
                expel(hands, at, &pod).await?;
                Ok(Next::Change)
            }
        }
    }
}
