//! Eviction: the deletion of a pod that its disruption budget allows.

use crate::apiserver::access::{self, Attributes, User};
use crate::apiserver::delete::{self, DeleteOptions};
use crate::apiserver::{ApiServer, Key, Request, Status};
use crate::schema::selector::LabelSelector;
use serde_json::{Value, json};

/// Seconds after which to ask again while a budget has not been looked at (Kubernetes: 10).
const UNOBSERVED_RETRY: i64 = 10;
/// Evictions of one budget that its controller has not seen yet (Kubernetes: 2,000).
const DISRUPTED_MAX: usize = 2_000;

/// Answers POST of an Eviction: 429 while the pod's budget does not allow it.
pub fn post(
    server: &ApiServer,
    user: &User,
    request: &Request,
    body: &Value,
) -> Result<Value, Status> {
    if body["metadata"]["name"].as_str() != Some(request.name.as_str()) {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let key = request.key();
    let pod = server.store().entry(&key).ok_or_else(|| request.not_found())?;
    let ask = Attributes {
        verb: "create",
        resource: "pods",
        subresource: "eviction",
        namespace: &request.namespace,
        name: &request.name,
        ..Attributes::default()
    };
    access::admit(server, user, &ask, Some(body), Some(&pod.object))?;
    let options = DeleteOptions::read(&body["deleteOptions"], &request.query)?;
    if !is_beyond_budgets(&pod.object) {
        spend(server, &key, &pod.object, options.dry_run)?;
    }
    let mut pod = pod;
    // Preconditions are checked against the pod as it was: what fails them is not marked.
    let uid = &pod.object["metadata"]["uid"];
    let same = options.uid.as_deref().is_none_or(|wanted| uid == wanted);
    if same && options.resource_version.is_none() && !options.dry_run {
        let marked = with_condition((*pod.object).clone(), &server.stamp());
        pod = server
            .store()
            .replace(&key, marked, Some(pod.revision))
            .map_err(|_| Status::outdated("", "pods", &request.name))?;
    }
    delete::remove(server, &request.kind, &key, &pod, &options)?;
    Ok(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    }))
}

/// Kubernetes: a pod that has not begun, has ended, or is going already disrupts nothing.
fn is_beyond_budgets(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
        || pod["metadata"]["deletionTimestamp"].is_string()
}

/// Takes one disruption from the pod's budget, if it has one.
fn spend(server: &ApiServer, pod: &Key, object: &Value, dry_run: bool) -> Result<(), Status> {
    let budgets = crate::apiserver::ResourceId::new("policy", "poddisruptionbudgets");
    let (_, all) = server.store().entries(&budgets, Some(&pod.namespace));
    let mut own = all.iter().map(|(_, entry)| entry).filter(|entry| covers(&entry.object, object));
    let Some(entry) = own.next() else { return Ok(()) };
    if own.next().is_some() {
        return Err(Status::new(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let mut budget = (*entry.object).clone();
    if !is_ready(object) && allows_unready(&budget) {
        return Ok(());
    }
    let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    take_one(&mut budget, &pod.name, &server.stamp())?;
    if dry_run {
        return Ok(());
    }
    let key = Key { resource: budgets, namespace: pod.namespace.clone(), name };
    let kept = server.store().replace(&key, budget, Some(entry.revision));
    kept.map(|_| ()).map_err(|_| Status::outdated("policy", "poddisruptionbudgets", &key.name))
}

/// Whether a budget is about a pod. Kubernetes: an empty selector takes every pod, none at all no pod.
pub(crate) fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    selector.is_object()
        && LabelSelector::from_object(selector)
            .is_ok_and(|selector| selector.matches(&pod["metadata"]["labels"]))
}

/// Whether the condition `Ready` of an object is true.
pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Kubernetes: a pod that is not ready may go when the policy says so, or when enough others are healthy.
fn allows_unready(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy"))
}

/// Takes one disruption from a budget, or tells in Kubernetes' words why there is none.
fn take_one(budget: &mut Value, pod: &str, now: &str) -> Result<(), Status> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let status = &budget["status"];
    if number(&status["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(&why, Some(UNOBSERVED_RETRY)));
    }
    let allowed = number(&status["disruptionsAllowed"]);
    let spent = status["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if spent > DISRUPTED_MAX {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden("policy", "poddisruptionbudget", &name, why));
    }
    if allowed <= 0 {
        let (needs, has) = (number(&status["desiredHealthy"]), number(&status["currentHealthy"]));
        let why = if needs == 0 {
            format!("The disruption budget {name} does not allow evicting pods currently")
        } else {
            format!(
                "The disruption budget {name} needs {needs} healthy pods and has {has} currently"
            )
        };
        return Err(refused(&why, None));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][pod] = now.into();
    if allowed == 1
        && let Some(conditions) = budget["status"]["conditions"].as_array_mut()
    {
        for condition in conditions.iter_mut().filter(|one| one["type"] == "DisruptionAllowed") {
            condition["status"] = "False".into();
            condition["reason"] = "InsufficientPods".into();
            condition["lastTransitionTime"] = now.into();
        }
    }
    Ok(())
}

fn refused(why: &str, retry: Option<i64>) -> Status {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry {
        details["retryAfterSeconds"] = seconds.into();
    }
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::new(429, "TooManyRequests", message).with(details)
}

/// Notes in the pod's status why it goes.
fn with_condition(mut pod: Value, now: &str) -> Value {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
    });
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) if list.iter().any(|one| one["type"] == condition["type"]) => {}
        Some(list) => list.push(condition),
        None => pod["status"]["conditions"] = json!([condition]),
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(allowed: i64, healthy: i64, desired: i64) -> Value {
        json!({
            "metadata": {"name": "pa", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {
                "observedGeneration": 1, "disruptionsAllowed": allowed,
                "currentHealthy": healthy, "desiredHealthy": desired,
                "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}],
            },
        })
    }

    #[test]
    fn a_budget_is_spent_one_by_one() {
        let mut budget = budget(2, 3, 1);
        take_one(&mut budget, "a", "t1").expect("two are left");
        assert_eq!(budget["status"]["conditions"][0]["status"], "True");
        take_one(&mut budget, "b", "t2").expect("one is left");
        assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");
        assert_eq!(budget["status"]["disruptedPods"], json!({"a": "t1", "b": "t2"}));
        let refused = take_one(&mut budget, "c", "t3").expect_err("none is left");
        assert_eq!(refused.code, 429);
        let cause = &refused.details["causes"][0];
        let text = "The disruption budget pa needs 1 healthy pods and has 3 currently";
        assert_eq!(cause["message"], text);
        assert!(refused.details["retryAfterSeconds"].is_null());
    }

    #[test]
    fn a_budget_nobody_looked_at_asks_to_come_back() {
        let mut budget = budget(1, 1, 0);
        budget["metadata"]["generation"] = 2.into();
        let refused = take_one(&mut budget, "a", "t").expect_err("not observed");
        assert_eq!(refused.details["retryAfterSeconds"], 10);
        let text = "The disruption budget pa is still being processed by the server.";
        assert_eq!(refused.details["causes"][0]["message"], text);
    }

    #[test]
    fn unready_pods_go_by_the_policy() {
        assert!(!allows_unready(&budget(0, 0, 1)));
        assert!(!allows_unready(&budget(0, 0, 0)), "nothing is known of a budget of none");
        assert!(allows_unready(&budget(0, 2, 2)));
        let mut always = budget(0, 0, 1);
        always["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
        assert!(allows_unready(&always));
    }

    #[test]
    fn only_a_selector_covers() {
        let pod = json!({"metadata": {"labels": {"app": "a"}}});
        assert!(covers(&budget(1, 1, 1), &pod));
        assert!(covers(&json!({"spec": {"selector": {}}}), &pod));
        assert!(!covers(&json!({"spec": {}}), &pod));
    }
}
