//! Disruption budgets: how many pods are healthy, how many must be, and how many may go.

use super::object::{condition, controller, is_deleting, meta, number, revision};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::apiserver::subresource::eviction::{covers, is_ready};
use crate::client::ApiError;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// How long an evicted pod may still be seen before its eviction counts as failed (Kubernetes: 2 min).
const CONFIRMATION: SignedDuration = SignedDuration::from_secs(120);

/// Keeps the status of budgets.
pub(super) struct Budgets;

/// How many pods there should be, and how many of them must be healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Demand {
    expected: i64,
    desired: i64,
}

/// A number, or a percentage of `total`, rounded up.
fn scaled(value: &Value, total: i64) -> i64 {
    match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => {
            let percent: i64 = percent.parse().unwrap_or(0);
            (total * percent + 99) / 100
        }
        None => number(value),
    }
}

/// Kubernetes: a plain `minAvailable` counts the pods there are, anything else the scale of their controllers.
fn demand(spec: &Value, pods: i64, scale: Result<i64, String>) -> Result<Demand, String> {
    if !spec["maxUnavailable"].is_null() {
        let expected = scale?;
        let desired = (expected - scaled(&spec["maxUnavailable"], expected)).max(0);
        return Ok(Demand { expected, desired });
    }
    if spec["minAvailable"].is_string() {
        let expected = scale?;
        return Ok(Demand { expected, desired: scaled(&spec["minAvailable"], expected) });
    }
    Ok(Demand { expected: pods, desired: number(&spec["minAvailable"]) })
}

/// The sum of the replicas that the controllers of these pods want.
fn scale(view: &View, pods: &[Arc<Value>]) -> Result<i64, String> {
    let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let name = meta(pod, "name");
        let nobody = || format!("found no controllers for pod {name:?}");
        let uid =
            |of: &Value| controller(of).and_then(|owner| owner["uid"].as_str()).map(str::to_owned);
        // Kubernetes: a pod that nobody controls does not count.
        let Some(mut own) = uid(pod) else { continue };
        let (mut at, mut found) = view.by_uid(&own).ok_or_else(nobody)?;
        // The replicas that count are those of the Deployment behind a ReplicaSet.
        if *at.id == *"replicasets.apps"
            && let Some(above) = uid(&found)
            && let Some((owner_at, owner)) = view.by_uid(&above)
            && *owner_at.id == *"deployments.apps"
        {
            (own, at, found) = (above, owner_at, owner);
        }
        let scales = matches!(&*at.id, "replicasets.apps" | "deployments.apps")
            || found["spec"]["replicas"].is_i64();
        if !scales {
            return Err(format!("{} does not implement the scale subresource", at.id));
        }
        wanted.insert(own, number(&found["spec"]["replicas"]));
    }
    Ok(wanted.values().sum())
}

/// Evictions not seen to have happened yet, and when the first of them counts as failed.
fn unconfirmed(
    budget: &Value,
    pods: &[Arc<Value>],
    now: Timestamp,
) -> (Map<String, Value>, Option<Timestamp>) {
    let mut kept = Map::new();
    let mut next: Option<Timestamp> = None;
    for (name, time) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let at: Timestamp = time.as_str().and_then(|t| t.parse().ok()).unwrap_or(Timestamp::MIN);
        let until = at.saturating_add(CONFIRMATION).unwrap_or(Timestamp::MAX);
        let stands = pods.iter().any(|pod| meta(pod, "name") == name && !is_deleting(pod));
        if stands && until > now {
            kept.insert(name.clone(), time.clone());
            next = Some(next.map_or(until, |known| known.min(until)));
        }
    }
    (kept, next)
}

/// The status of a budget.
fn status(
    budget: &Value,
    pods: &[Arc<Value>],
    demand: &Result<Demand, String>,
    disrupted: Map<String, Value>,
    now: &str,
) -> Value {
    let generation = number(&budget["metadata"]["generation"]);
    let healthy = pods.iter().filter(|pod| {
        is_ready(pod) && !is_deleting(pod) && !disrupted.contains_key(meta(pod, "name"))
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let mut status = budget["status"].as_object().cloned().unwrap_or_default();
    let (word, reason, message) = match demand {
        Err(why) => {
            status.insert("disruptionsAllowed".to_owned(), 0.into());
            ("False", "SyncFailed", why.clone())
        }
        Ok(Demand { expected, desired }) => {
            let allowed = if *expected <= 0 { 0 } else { (healthy - desired).max(0) };
            status.insert("disruptionsAllowed".to_owned(), allowed.into());
            status.insert("currentHealthy".to_owned(), healthy.into());
            status.insert("desiredHealthy".to_owned(), (*desired).into());
            status.insert("expectedPods".to_owned(), (*expected).into());
            status.insert("observedGeneration".to_owned(), generation.into());
            status.remove("disruptedPods");
            if !disrupted.is_empty() {
                status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
            }
            let enough = ("True", "SufficientPods", String::new());
            if allowed > 0 { enough } else { ("False", "InsufficientPods", String::new()) }
        }
    };
    let known = condition(budget, "DisruptionAllowed");
    let since = known.filter(|one| one["status"] == word).map(|one| &one["lastTransitionTime"]);
    status.insert(
        "conditions".to_owned(),
        json!([{
            "type": "DisruptionAllowed", "status": word, "observedGeneration": generation,
            "lastTransitionTime": since.cloned().unwrap_or_else(|| now.into()),
            "reason": reason, "message": message,
        }]),
    );
    Value::Object(status)
}

impl Controller for Budgets {
    fn name(&self) -> &'static str {
        "disruption budgets"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of(BUDGETS) && change.now.is_some() {
            wake(change.address.clone());
        }
        let home = &change.address.namespace;
        let budget_at = |budget: &Value| Address::new(BUDGETS, home, meta(budget, "name"));
        if change.is_of("pods") {
            let budgets = view.within(BUDGETS, home);
            let met =
                budgets.iter().filter(|budget| change.states().any(|pod| covers(budget, pod)));
            met.for_each(|budget| wake(budget_at(budget)));
        }
        let scaled = || {
            let mut replicas = change.states().map(|one| &one["spec"]["replicas"]);
            replicas.next() != replicas.next()
        };
        let scales = ["deployments.apps", "replicasets.apps", "statefulsets.apps"];
        if scales.iter().any(|kind| change.is_of(kind)) && scaled() {
            view.within(BUDGETS, home).iter().for_each(|budget| wake(budget_at(budget)));
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(budget) = hands.view.at(at) else { return Ok(Next::Change) };
        let mut pods = hands.view.within("pods", &at.namespace);
        pods.retain(|pod| covers(&budget, pod));
        let now = hands.clock.now();
        let (disrupted, next) = unconfirmed(&budget, &pods, now);
        let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let demand = demand(&budget["spec"], count, scale(&hands.view, &pods));
        let status = status(&budget, &pods, &demand, disrupted, &hands.stamp());
        if budget["status"] != status {
            let mut new = (*budget).clone();
            new["status"] = status;
            // The revision that was read goes with it: an eviction in between is not undone.
            debug_assert!(revision(&new) > 0, "budgets are read from the server");
            hands.replace(at, "/status", &new).await?;
        }
        Ok(match next {
            Some(until) => {
                let left = until.duration_since(now);
                Next::After(Duration::try_from(left).unwrap_or_default())
            }
            None => Next::Change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &Value, pods: i64, scale: i64) -> (i64, i64) {
        let demand = demand(spec, pods, Ok(scale)).expect("scales");
        (demand.expected, demand.desired)
    }

    #[test]
    fn demands() {
        assert_eq!(of(&json!({"minAvailable": 2}), 1, 5), (1, 2));
        assert_eq!(of(&json!({"minAvailable": "50%"}), 1, 5), (5, 3));
        assert_eq!(of(&json!({"maxUnavailable": 1}), 3, 5), (5, 4));
        assert_eq!(of(&json!({"maxUnavailable": "30%"}), 3, 5), (5, 3));
        assert_eq!(of(&json!({"maxUnavailable": "100%"}), 3, 5), (5, 0));
        let nobody = demand(&json!({"maxUnavailable": 1}), 1, Err("nobody".to_owned()));
        assert_eq!(nobody, Err("nobody".to_owned()));
    }

    fn pod(name: &str, ready: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    #[test]
    fn an_eviction_counts_until_it_is_seen_or_too_old() {
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().expect("a time");
        let budget = json!({"metadata": {"generation": 1}, "status": {"disruptedPods": {
            "a": "2026-11-21T08:59:00Z", "b": "2026-11-21T08:58:00Z", "c": "2026-11-21T08:59:59Z",
        }}});
        let pods = [pod("a", "True"), pod("b", "True"), pod("d", "False")];
        let (kept, next) = unconfirmed(&budget, &pods, now);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(next.map(|at| at.to_string()).as_deref(), Some("2026-11-21T09:01:00Z"));
        let demand = Ok(Demand { expected: 3, desired: 1 });
        let status = status(&budget, &pods, &demand, kept, "t");
        assert_eq!(status["currentHealthy"], 1, "a is going, d is not ready");
        assert_eq!(status["disruptionsAllowed"], 0);
        assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
    }
}
