//! Which pods leave, which wait, and what is said of them.

use super::*;
use serde_json::{Value, from_value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut value);
    Arc::new(from_value(value).unwrap())
}

fn plain(name: &str) -> Arc<Pod> {
    pod(name, |_| {})
}

fn budget(name: &str, selector: Value, allowed: i32) -> Arc<PodDisruptionBudget> {
    Arc::new(
        from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap(),
    )
}

fn drain(pods: &[Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>], deadline: Option<i64>) -> Plan {
    plan(&Observed {
        pods,
        budgets,
        refused: &BTreeMap::new(),
        deadline: deadline.map(at),
        now: at(0),
    })
}

#[test]
fn each_kind_of_pod_has_its_verdict() {
    let owned = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    let pods = [
        pod("daemon", |pod| pod["metadata"]["ownerReferences"] = owned("DaemonSet")),
        pod("mirror", |pod| pod["metadata"]["annotations"] = json!({labels::MIRROR_POD: "x"})),
        pod("done", |pod| pod["status"]["phase"] = json!("Succeeded")),
        pod("broken", |pod| pod["status"]["phase"] = json!("Failed")),
        pod("owned", |pod| pod["metadata"]["ownerReferences"] = owned("ReplicaSet")),
        plain("unmanaged"),
        pod("leaving", |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        }),
    ];
    let plan = drain(&pods, &[], None);
    let stays: Vec<String> =
        plan.stays.iter().map(|it| format!("{} {}", it.pod.name, it.why.as_str())).collect();
    assert_eq!(stays, ["leaving PodTerminating", "owned PodEvicted", "unmanaged PodEvicted"]);
    let leave: Vec<&str> = plan.departures.iter().map(|it| it.pod.name.as_str()).collect();
    assert_eq!(leave, ["owned", "unmanaged"]);
    assert!(drain(&pods[..4], &[], None).is_done());
}

#[test]
fn a_budget_is_spent_within_one_pass_and_named_when_it_blocks() {
    let pods = [plain("a"), plain("b"), plain("c")];
    let two = budget("web", json!({"matchLabels": {"app": "web"}}), 2);
    let plan = drain(&pods, &[two], None);
    assert_eq!(plan.departures.len(), 2);
    assert!(!plan.is_blocked(), "two are on their way");
    assert_eq!(
        plan.story(),
        "3 pods left: default/c: a disruption budget allows no disruption now (PodDisruptionBudget web); \
         default/a: the pod is asked to leave; default/b: the pod is asked to leave"
    );
    let none = budget("all", json!({}), 0);
    let plan = drain(&pods, &[none], None);
    assert!(plan.is_blocked() && plan.departures.is_empty());
    assert_eq!(plan.next, Some(at(30)));
    let other = budget("db", json!({"matchLabels": {"app": "db"}}), 0);
    assert_eq!(drain(&pods, &[other], None).departures.len(), 3);
}

#[test]
fn a_refused_pod_pauses_and_tells_what_was_said() {
    let pods = [plain("a")];
    let refusal = Refusal { message: "too many requests".into(), at: at(-4) };
    let refused = BTreeMap::from([(PodKey::of(&pods[0]), refusal)]);
    let mut seen =
        Observed { pods: &pods, budgets: &[], refused: &refused, deadline: None, now: at(0) };
    let first = plan(&seen);
    assert!(first.is_blocked());
    assert!(first.story().contains("too many requests"), "{}", first.story());
    assert_eq!(first.next, Some(at(6)));
    seen.now = at(6);
    assert_eq!(plan(&seen).departures.len(), 1);
}

#[test]
fn grace_shrinks_towards_the_deadline_and_then_budgets_no_longer_count() {
    let slow = |pod: &mut Value| pod["spec"]["terminationGracePeriodSeconds"] = json!(600);
    let pods = [pod("slow", slow), plain("quick")];
    let graces = |deadline: i64| -> Vec<(String, Option<i64>, Reason)> {
        let none = budget("all", json!({}), i32::from(deadline > 0) * 9);
        let plan = drain(&pods, &[none], Some(deadline));
        plan.departures.into_iter().map(|it| (it.pod.name, it.grace, it.why)).collect()
    };
    let quick = |grace, why| ("quick".to_owned(), grace, why);
    let slow = |grace, why| ("slow".to_owned(), grace, why);
    assert_eq!(graces(7200), [quick(None, Reason::PodEvicted), slow(None, Reason::PodEvicted)]);
    assert_eq!(graces(60), [quick(None, Reason::PodEvicted), slow(Some(60), Reason::PodEvicted)]);
    assert_eq!(graces(0), [quick(None, Reason::PodOverdue), slow(Some(30), Reason::PodOverdue)]);
    assert!(drain(&pods, &[], Some(-60)).is_done(), "the server goes with what is left");
}

#[test]
fn an_unready_pod_is_left_to_the_eviction_to_judge() {
    let pods = [pod("a", |pod| pod["status"]["conditions"][0]["status"] = json!("False"))];
    assert_eq!(drain(&pods, &[budget("all", json!({}), 0)], None).departures.len(), 1);
}
