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
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3},
        }))
        .unwrap(),
    )
}

const NONE: &BTreeMap<PodKey, Refusal> = &BTreeMap::new();

/// A drain that just began and may take for ever.
fn seen(pods: &[Arc<Pod>]) -> Observed<'_> {
    Observed {
        pods,
        budgets: &[],
        volumes: Volumes { node: "here", ..Volumes::default() },
        moving: None,
        detach_timeout: Duration::from_secs(120),
        refused: NONE,
        deadline: None,
        now: at(0),
    }
}

fn drain(pods: &[Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>], deadline: Option<i64>) -> Plan {
    let then = OnDrainTimeout::DeletePods;
    let deadline = deadline.map(|end| Deadline { at: at(end), then });
    plan(&Observed { budgets, deadline, ..seen(pods) })
}

/// The pods that leave now.
fn leaving(plan: &Plan) -> Vec<&str> {
    plan.departures.iter().map(|it| it.pod.name.as_str()).collect()
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
    assert_eq!(leaving(&plan), ["owned", "unmanaged"]);
    assert!(drain(&pods[..4], &[], None).is_done());
}

#[test]
fn a_budget_is_spent_within_one_pass_and_named_when_it_blocks() {
    let pods = [plain("a"), plain("b"), plain("c")];
    let two = budget("web", json!({"matchLabels": {"app": "web"}}), 2);
    let plan = drain(&pods, &[two], None);
    assert_eq!(plan.departures.len(), 2);
    assert_eq!(plan.reason(), Reason::PodsLeaving, "two are on their way");
    assert_eq!(
        plan.story(),
        "3 pods left: default/c: a disruption budget allows no disruption now (PodDisruptionBudget web); \
         default/a: the pod is asked to leave; default/b: the pod is asked to leave"
    );
    let none = budget("all", json!({}), 0);
    let plan = drain(&pods, &[none], None);
    assert_eq!((plan.reason(), leaving(&plan)), (Reason::PodsBlocked, vec![]));
    assert_eq!(plan.next, Some(at(30)));
    let other = budget("db", json!({"matchLabels": {"app": "db"}}), 0);
    assert_eq!(drain(&pods, &[other], None).departures.len(), 3);
}

#[test]
fn a_refused_pod_pauses_ever_longer_and_tells_what_was_said() {
    let pods = [plain("a"), plain("b")];
    let refusal = |times, pause| Refusal {
        message: "too many requests".into(),
        at: at(0),
        times,
        pause: Duration::from_secs(pause),
    };
    let until: Vec<Timestamp> =
        [(1, 0), (2, 0), (3, 0), (9, 0), (1, 10)].map(|(n, s)| refusal(n, s).until()).to_vec();
    assert_eq!(until, [5, 10, 20, 60, 10].map(at));
    let refused = BTreeMap::from([(PodKey::of(&pods[0]), refusal(1, 0))]);
    let first = plan(&Observed { refused: &refused, ..seen(&pods) });
    assert_eq!(leaving(&first), ["b"], "the others need not wait for it");
    assert!(first.story().contains("too many requests"), "{}", first.story());
    assert_eq!(first.next, Some(at(5)));
    let again = plan(&Observed { refused: &refused, now: at(5), ..seen(&pods[..1]) });
    assert_eq!(leaving(&again), ["a"]);
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

#[test]
fn a_deadline_that_only_evicts_never_deletes() {
    let pods = [plain("a")];
    let none = [budget("all", json!({}), 0)];
    let deadline = Some(Deadline { at: at(-9999), then: OnDrainTimeout::KeepEvicting });
    let plan = plan(&Observed { budgets: &none, deadline, ..seen(&pods) });
    assert_eq!((plan.reason(), leaving(&plan)), (Reason::PodsBlocked, vec![]));
}

#[test]
fn critical_pods_leave_when_no_other_is_left() {
    let of = |name: &str, class: &str, priority: Value| {
        pod(name, |pod| {
            pod["spec"]["priorityClassName"] = json!(class);
            pod["spec"]["priority"] = priority;
        })
    };
    let pods = [
        of("dns", "system-cluster-critical", json!(2_000_000_000)),
        of("storage", "system-node-critical", Value::Null),
        of("web", "important", json!(1000)),
        plain("batch"),
    ];
    let plan = drain(&pods, &[], None);
    assert_eq!(leaving(&plan), ["web", "batch"]);
    let waits = plan.stays.iter().filter(|it| it.why == Reason::PodOfLaterTier);
    assert_eq!(waits.count(), 2);
    assert_eq!(leaving(&drain(&pods[..2], &[], None)), ["storage", "dns"]);
}

/// Gardener's scenario 22.
#[test]
fn gardener_22_a_budget_that_can_never_be_satisfied_is_told_from_one_that_may() {
    let of = |metadata: Value, status: Value| -> Arc<PodDisruptionBudget> {
        let mut value = json!({
            "metadata": {"name": "web", "namespace": "default", "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "observedGeneration": 2, "expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 3,
                "disruptionsAllowed": 0,
            },
        });
        for (part, change) in [("metadata", metadata), ("status", status)] {
            for (field, new) in change.as_object().unwrap() {
                value[part][field] = new.clone();
            }
        }
        Arc::new(from_value(value).unwrap())
    };
    let pods = [plain("a")];
    let reason = |budgets: &[Arc<PodDisruptionBudget>]| drain(&pods, budgets, None).reason();
    let none = || json!({});
    let never = of(none(), none());
    let plan = drain(&pods, std::slice::from_ref(&never), None);
    assert_eq!(plan.reason(), Reason::BudgetUnsatisfiable);
    assert!(plan.story().contains("PodDisruptionBudget web"), "{}", plan.story());
    for may in [
        of(none(), json!({"observedGeneration": 1})),
        of(none(), json!({"currentHealthy": 2})),
        of(none(), json!({"disruptedPods": {"b": "2027-01-15T08:00:00Z"}})),
        of(none(), json!({"expectedPods": 0})),
    ] {
        assert_eq!(reason(&[may]), Reason::PodsBlocked);
    }
    let second = of(json!({"name": "web2"}), json!({"disruptionsAllowed": 1}));
    let first = of(none(), json!({"disruptionsAllowed": 1}));
    assert_eq!(
        reason(&[first, second]),
        Reason::BudgetUnsatisfiable,
        "an eviction is refused for ever when two budgets protect the pod"
    );
}

mod volumes;
