//! Deployments: one ReplicaSet for each template, rolled from old to new within bounds.

use super::object::{condition, controlled_by, controller, is_deleting, meta, number};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Rolls ReplicaSets.
pub(super) struct Deployments;

/// A short name of a template: equal templates have equal names.
pub(super) fn hash_of(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// How a set stands: replicas wanted, and pods available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    wanted: i64,
    available: i64,
}

/// How far a rollout may go beyond and below the replicas wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    replicas: i64,
    surge: i64,
    unavailable: i64,
}

impl Bounds {
    fn of(spec: &Value) -> Self {
        let replicas = number(&spec["replicas"]);
        let rolling = &spec["strategy"]["rollingUpdate"];
        if spec["strategy"]["type"] == "Recreate" {
            return Self { replicas, surge: 0, unavailable: replicas };
        }
        let scaled = |value: &Value, up: i64| match value.as_str().and_then(|s| s.strip_suffix('%'))
        {
            Some(percent) => (replicas * percent.parse::<i64>().unwrap_or(0) + up) / 100,
            None => number(value),
        };
        let surge = scaled(&rolling["maxSurge"], 99);
        let unavailable = scaled(&rolling["maxUnavailable"], 0);
        // Kubernetes: both zero would never move.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { replicas, surge, unavailable: unavailable.min(replicas) }
    }
}

/// The sizes of the sets after this round: the new one, and the old ones oldest first.
fn roll(bounds: Bounds, recreate: bool, new: Size, old: &[Size]) -> (i64, Vec<i64>) {
    let Bounds { replicas, surge, unavailable } = bounds;
    let mut olds: Vec<i64> = old.iter().map(|size| size.wanted).collect();
    let total = new.wanted + olds.iter().sum::<i64>();
    let grown = if new.wanted > replicas {
        replicas
    } else if recreate {
        let gone = old.iter().all(|size| size.wanted == 0 && size.available == 0);
        if gone { replicas } else { new.wanted }
    } else {
        new.wanted + (replicas + surge - total).clamp(0, replicas - new.wanted)
    };
    // Old pods that are not available keep nothing up: they go first.
    let least = replicas - unavailable;
    let mut spare = total - least - (new.wanted - new.available).max(0);
    for (size, left) in old.iter().zip(&mut olds) {
        let sick = (size.wanted - size.available).clamp(0, spare.max(0));
        *left -= sick;
        spare -= sick;
    }
    let available = new.available + old.iter().map(|size| size.available).sum::<i64>();
    let mut spare = (available - least).min(spare).max(0);
    for left in &mut olds {
        let fewer = (*left).min(spare);
        *left -= fewer;
        spare -= fewer;
    }
    (grown, olds)
}

/// The sets a deployment controls, oldest first.
fn sets_of(view: &View, uid: &str) -> Vec<(Address, Arc<Value>)> {
    let mut sets = view.dependents(uid);
    sets.retain(|(at, set)| {
        *at.id == *SETS && controller(set).is_some_and(|owner| owner["uid"] == uid)
    });
    sets.sort_by_key(|(at, set)| (revision_of(set), at.name.clone()));
    sets
}

fn revision_of(set: &Value) -> i64 {
    let text = set["metadata"]["annotations"][REVISION].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn size_of(set: &Value) -> Size {
    let available = number(&set["status"]["availableReplicas"]);
    Size { wanted: number(&set["spec"]["replicas"]), available }
}

/// A set for the deployment's template.
fn new_set(deployment: &Value, hash: &str, replicas: i64, revision: i64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = hash.into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.into();
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", meta(deployment, "name")),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": [controlled_by(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

impl Deployments {
    async fn report(
        &self,
        hands: &Hands,
        at: &Address,
        deployment: &Value,
        hash: &str,
    ) -> Result<(), ApiError> {
        let sets = sets_of(&hands.view, meta(deployment, "uid"));
        let status = status(deployment, &sets, hash, &hands.stamp());
        let revision = sets.last().map_or(0, |(_, set)| revision_of(set)).to_string();
        let mut new = deployment.clone();
        new["status"] = status;
        // Kubernetes: through status, so that it makes no new generation.
        new["metadata"]["annotations"][REVISION] = revision.into();
        if new != *deployment {
            hands.replace(at, "/status", &new).await?;
        }
        Ok(())
    }
}

async fn resize(
    hands: &Hands,
    at: &Address,
    set: &Value,
    replicas: i64,
    revision: i64,
) -> Result<(), ApiError> {
    if number(&set["spec"]["replicas"]) == replicas && revision_of(set) == revision {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"annotations": {REVISION: revision.to_string()}},
        "spec": {"replicas": replicas},
    });
    hands.merge(at, "", &patch).await
}

/// Deletes old sets beyond the history limit, the oldest first.
async fn forget(
    hands: &Hands,
    spec: &Value,
    old: &[&(Address, Arc<Value>)],
) -> Result<(), ApiError> {
    let limit = spec["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let empty = |set: &Value| {
        number(&set["spec"]["replicas"]) == 0 && number(&set["status"]["replicas"]) == 0
    };
    let empty: Vec<_> = old.iter().filter(|(_, set)| empty(set) && !is_deleting(set)).collect();
    for (at, set) in empty.iter().take(empty.len().saturating_sub(limit)) {
        hands.delete(at, meta(set, "uid"), "Background").await?;
    }
    Ok(())
}

/// The status by the sets.
fn status(deployment: &Value, sets: &[(Address, Arc<Value>)], hash: &str, now: &str) -> Value {
    let sum = |field: &str, of_new: bool| -> i64 {
        let counted =
            sets.iter().filter(|(at, _)| !of_new || at.name.ends_with(&format!("-{hash}")));
        counted.map(|(_, set)| number(&set["status"][field])).sum()
    };
    let wanted = number(&deployment["spec"]["replicas"]);
    let (total, updated) = (sum("replicas", false), sum("replicas", true));
    let available = sum("availableReplicas", false);
    let mut status = Map::new();
    status.insert("observedGeneration".to_owned(), deployment["metadata"]["generation"].clone());
    let mut put = |field: &str, value: i64| {
        if value > 0 {
            status.insert(field.to_owned(), value.into());
        }
    };
    put("replicas", total);
    put("updatedReplicas", updated);
    put("readyReplicas", sum("readyReplicas", false));
    put("availableReplicas", available);
    put("unavailableReplicas", wanted.max(total) - available);
    // Kubernetes: told even when nobody is on the way out.
    status.insert("terminatingReplicas".to_owned(), sum("terminatingReplicas", false).into());
    let enough = available >= wanted - Bounds::of(&deployment["spec"]).unavailable;
    let complete = updated == wanted && total == wanted && available >= wanted;
    let one = |kind: &str, good: bool, reason: &str, message: String| {
        let word = if good { "True" } else { "False" };
        let known = condition(deployment, kind);
        let same = known.filter(|one| one["status"] == word);
        let unchanged = same.filter(|one| one["reason"] == reason);
        let time = |of: Option<&Value>, field: &str| {
            of.map_or_else(|| now.into(), |one| one[field].clone())
        };
        json!({
            "type": kind, "status": word, "reason": reason, "message": message,
            "lastUpdateTime": time(unchanged, "lastUpdateTime"),
            "lastTransitionTime": time(same, "lastTransitionTime"),
        })
    };
    let set = format!("{}-{hash}", meta(deployment, "name"));
    let progress = if complete {
        let text = format!("ReplicaSet {set:?} has successfully progressed.");
        one("Progressing", true, "NewReplicaSetAvailable", text)
    } else {
        one("Progressing", true, "ReplicaSetUpdated", format!("ReplicaSet {set:?} is progressing."))
    };
    let availability = if enough {
        let text = "Deployment has minimum availability.";
        one("Available", true, "MinimumReplicasAvailable", text.to_owned())
    } else {
        let text = "Deployment does not have minimum availability.";
        one("Available", false, "MinimumReplicasUnavailable", text.to_owned())
    };
    status.insert("conditions".to_owned(), json!([availability, progress]));
    Value::Object(status)
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployments"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of(DEPLOYMENTS) && change.now.is_some() {
            wake(change.address.clone());
        }
        if change.is_of(SETS) {
            let uids = change.states().filter_map(|set| controller(set)?["uid"].as_str());
            let found = uids.filter_map(|uid| view.by_uid(uid));
            found.filter(|(at, _)| *at.id == *DEPLOYMENTS).for_each(|(at, _)| wake(at));
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(deployment) = hands.view.at(at) else { return Ok(Next::Change) };
        if is_deleting(&deployment) {
            return Ok(Next::Change);
        }
        let sets = sets_of(&hands.view, meta(&deployment, "uid"));
        let spec = &deployment["spec"];
        let hash = hash_of(&spec["template"]);
        let newest = sets.last().map_or(0, |(_, set)| revision_of(set));
        let is_new = |(at, _): &&(Address, Arc<Value>)| at.name.ends_with(&format!("-{hash}"));
        let new = sets.iter().find(is_new);
        let old: Vec<&(Address, Arc<Value>)> = sets.iter().filter(|set| !is_new(set)).collect();
        if spec["paused"] != true {
            let bounds = Bounds::of(spec);
            let recreate = spec["strategy"]["type"] == "Recreate";
            let now = new.map_or(Size { wanted: 0, available: 0 }, |(_, set)| size_of(set));
            let sizes: Vec<Size> = old.iter().map(|(_, set)| size_of(set)).collect();
            let (grown, shrunk) = roll(bounds, recreate, now, &sizes);
            match new {
                None => {
                    let set = new_set(&deployment, &hash, grown, newest + 1);
                    hands.create(SETS, &at.namespace, &set).await?;
                }
                Some((set_at, set)) => {
                    // Kubernetes: a template that comes back becomes the newest revision.
                    let revision = if revision_of(set) < newest { newest + 1 } else { newest };
                    resize(hands, set_at, set, grown, revision).await?;
                }
            }
            for ((set_at, set), size) in old.iter().zip(shrunk) {
                resize(hands, set_at, set, size, revision_of(set)).await?;
            }
            forget(hands, spec, &old).await?;
        }
        self.report(hands, at, &deployment, &hash).await?;
        Ok(Next::Change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(replicas: i64, surge: i64, unavailable: i64) -> Vec<String> {
        let bounds = Bounds { replicas, surge, unavailable };
        let (mut new, mut old) = (0, replicas);
        let mut steps = Vec::new();
        while (new, old) != (replicas, 0) {
            let size = |wanted| Size { wanted, available: wanted };
            let (grown, shrunk) = roll(bounds, false, size(new), &[size(old)]);
            assert!((new, old) != (grown, shrunk[0]), "stuck at {new}+{old}");
            assert!(grown + shrunk[0] <= replicas + surge, "too many");
            assert!(new + shrunk[0] >= replicas - unavailable, "too few");
            (new, old) = (grown, shrunk[0]);
            steps.push(format!("{new}+{old}"));
        }
        steps
    }

    #[test]
    fn rollouts_stay_within_bounds() {
        assert_eq!(trace(3, 1, 0), ["1+3", "1+2", "2+2", "2+1", "3+1", "3+0"]);
        assert_eq!(trace(2, 0, 1), ["0+1", "1+1", "1+0", "2+0"]);
        assert_eq!(trace(4, 2, 2).last().map(String::as_str), Some("4+0"));
    }

    #[test]
    fn sick_old_pods_go_first_and_recreate_waits() {
        let bounds = Bounds { replicas: 2, surge: 1, unavailable: 0 };
        let sick = Size { wanted: 2, available: 0 };
        let fresh = Size { wanted: 1, available: 0 };
        assert_eq!(roll(bounds, false, fresh, &[sick]).1, [2], "the new one is not up yet");
        let up = Size { wanted: 1, available: 1 };
        assert_eq!(roll(bounds, false, up, &[sick]), (1, vec![1]));
        let all = Bounds { replicas: 2, surge: 0, unavailable: 2 };
        let none = Size { wanted: 0, available: 0 };
        assert_eq!(roll(all, true, none, &[Size { wanted: 2, available: 2 }]), (0, vec![0]));
        assert_eq!(roll(all, true, none, &[none]), (2, vec![0]));
    }

    #[test]
    fn percentages_round_as_kubernetes_rounds() {
        let spec = |surge: &str, unavailable: &str| {
            json!({"replicas": 5, "strategy": {"type": "RollingUpdate", "rollingUpdate":
                {"maxSurge": surge, "maxUnavailable": unavailable}}})
        };
        let bounds = Bounds::of(&spec("25%", "25%"));
        assert_eq!((bounds.surge, bounds.unavailable), (2, 1));
        let bounds = Bounds::of(&spec("0%", "10%"));
        assert_eq!((bounds.surge, bounds.unavailable), (0, 1));
    }
}
