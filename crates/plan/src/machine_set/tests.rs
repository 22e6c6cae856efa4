//! Sets in a line, plans in a line.

mod circuit;

use super::*;
use drover_api::{Condition, ConditionStatus, DeletePolicy, MachineStatus, Phase};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

const NOW: i64 = 1_800_000_000;

fn at(seconds_ago: i64) -> Time {
    Time(Timestamp::from_second(NOW - seconds_ago).unwrap())
}

fn set(replicas: u32) -> MachineSet {
    let mut set: MachineSet = serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"name": "nodes", "namespace": "kube-system", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"group": "nodes"}},
            "template": {
                "metadata": {"labels": {"group": "nodes"}, "annotations": {"a": "b"}},
                "spec": {"versions": {"kubelet": "1.30.3"}},
            },
        },
    }))
    .unwrap();
    set.metadata.resource_version = Some("7".to_owned());
    set
}

/// `m1`, followed by what is special: `joined`, `ready`, `ready=SECONDS`, `failed`, `error`,
/// `deleting`, `marked`, `foreign`, `orphan`, `other-labels`, `age=SECONDS`.
fn machine(line: &str) -> Arc<Machine> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let mut machine = Machine::new(name, set(0).spec.template.spec);
    machine.metadata.uid = Some(format!("uid-{name}"));
    machine.metadata.resource_version = Some("9".to_owned());
    machine.metadata.creation_timestamp = Some(at(3600));
    machine.metadata.labels = Some(set(0).spec.template.metadata.labels);
    machine.metadata.owner_references = Some(vec![owner_reference(&set(0))]);
    let mut status = MachineStatus::default();
    let ready = |since| Condition {
        type_: "Ready".to_owned(),
        status: ConditionStatus::True,
        last_transition_time: Some(at(since)),
        ..Condition::default()
    };
    for word in words {
        let (key, number) = word.split_once('=').unwrap_or((word, "600"));
        let seconds = number.parse().unwrap();
        match key {
            "joined" => status.node_ref = Some(ObjectReference::default()),
            "ready" => {
                status.node_ref = Some(ObjectReference::default());
                status.conditions.push(ready(seconds));
            }
            "failed" => status.phase = Some(Phase::Failed),
            "error" => status.error_reason = Some("CreateError".to_owned()),
            "deleting" => machine.metadata.deletion_timestamp = Some(at(5)),
            "marked" => {
                machine.annotations_mut().insert(labels::DELETE_MACHINE.into(), "yes".into());
            }
            "foreign" => {
                machine.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
            }
            "orphan" => machine.metadata.owner_references = None,
            "other-labels" => machine.labels_mut().clear(),
            "age" => machine.metadata.creation_timestamp = Some(at(seconds)),
            other => panic!("what is {other}?"),
        }
    }
    machine.status = Some(status);
    Arc::new(machine)
}

fn plan_of(set: &MachineSet, machines: &[Arc<Machine>]) -> Plan {
    let settings = Settings::default();
    let deleted = BTreeSet::new();
    let now = Timestamp::from_second(NOW).unwrap();
    let (trouble, settings, deleted) = (None, &settings, &deleted);
    plan(&Observed { set, machines, deleted, trouble, settings, now })
}

fn shown(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Create { machine, why } => format!("create {}: {}", machine.name_any(), why.as_str()),
        Step::Delete { name, uid, why } => {
            assert_eq!(*uid, format!("uid-{name}"));
            format!("delete {name}: {}", why.as_str())
        }
        Step::Patch { name, why, .. } => format!("patch {name}: {}", why.as_str()),
        Step::Follow { name, .. } => format!("follow {name}"),
    });
    let wake = match plan.wake {
        Wake::OnChange => None,
        Wake::After(delay) => Some(format!("wake {}s", delay.as_secs())),
    };
    steps.chain(wake).collect::<Vec<_>>().join("; ")
}

/// Machines are separated by semicolons.
#[track_caller]
fn check(set: &MachineSet, machines: &str, expected: &str) {
    let lines = machines.split(';').map(str::trim).filter(|line| !line.is_empty());
    let machines: Vec<Arc<Machine>> = lines.map(machine).collect();
    assert_eq!(shown(&plan_of(set, &machines)), expected);
}

fn promising(replicas: u32, minted: u64, promised: &[&str]) -> MachineSet {
    let promised = promised.iter().map(|&name| name.to_owned()).collect();
    let status = MachineSetStatus { minted, promised, ..MachineSetStatus::default() };
    MachineSet { status: Some(status), ..set(replicas) }
}

fn with_policy(policy: DeletePolicy, replicas: u32) -> MachineSet {
    let mut set = set(replicas);
    set.spec.delete_policy = Some(policy);
    set
}

/// A set of a deployment that may surge by one.
fn surging(replicas: u32) -> MachineSet {
    let mut set = set(replicas);
    let annotations = [(labels::DESIRED_REPLICAS, replicas), (labels::MAX_REPLICAS, replicas + 1)];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_string()));
    set.metadata.annotations = Some(BTreeMap::from(annotations));
    set
}

#[test]
fn missing_machines_are_created_under_promised_names() {
    check(&set(0), "", "");
    check(&set(2), "", "create nodes-sxtsc: MachineMissing; create nodes-n6gfx: MachineMissing");
    let plan = plan_of(&set(2), &[]);
    assert_eq!(plan.status.promised, ["nodes-sxtsc", "nodes-n6gfx"]);
    assert_eq!(plan.status.minted, 2);
}

#[test]
fn a_stale_cache_makes_no_second_machine() {
    let mut seen = set(2);
    for _ in 0..3 {
        let plan = plan_of(&seen, &[]);
        assert_eq!(plan.status.minted, 2);
        assert_eq!(plan.steps.len(), 2);
        seen.status = Some(plan.status);
    }
    let one = [machine("nodes-sxtsc")];
    let plan = plan_of(&seen, &one);
    assert_eq!(shown(&plan), "create nodes-n6gfx: MachineMissing");
    assert_eq!(plan.status.promised, ["nodes-n6gfx"]);
}

#[test]
fn a_name_in_use_is_not_given_again() {
    // The status was lost, as a backup without statuses loses it.
    check(&set(2), "nodes-sxtsc ready", "create nodes-n6gfx: MachineMissing");
    // Somebody else's machine has the promised name.
    let taken = promising(1, 1, &["nodes-sxtsc"]);
    check(&taken, "nodes-sxtsc foreign", "create nodes-n6gfx: MachineMissing");
}

#[test]
fn a_promise_beyond_the_wanted_number_is_neither_made_nor_counted() {
    let set = promising(1, 3, &["p1", "p2"]);
    check(&set, "m1 ready", "");
    check(&set, "m1 ready; p1", "delete p1: MachineSurplus");
    check(&promising(2, 3, &["p1", "p2"]), "m1 ready", "create p1: MachineMissing");
}

#[test]
fn a_large_set_is_made_in_bursts() {
    let settings = Settings::default();
    let plan = plan_of(&set(1000), &[]);
    assert_eq!(plan.steps.len(), settings.create_burst_max);
    let half = MachineSet { status: Some(plan.status.clone()), ..set(1000) };
    let seen: Vec<_> = plan.status.promised.iter().take(60).map(|name| machine(name)).collect();
    let next = plan_of(&half, &seen);
    assert_eq!(next.status.promised.len(), settings.create_burst_max);
    assert_eq!(next.status.minted, 160);
}

#[test]
fn a_shrinking_set_gives_up_what_it_misses_least() {
    let set = set(1);
    check(&set, "m1; m2", "delete m1: MachineSurplus");
    check(&set, "m1 ready; m2", "delete m2: MachineSurplus");
    check(&set, "m1 ready; m2 joined", "delete m2: MachineSurplus");
    check(&set, "m1 joined; m2 error", "delete m2: MachineSurplus");
    check(&set, "m1 joined; m2", "delete m2: MachineSurplus");
    check(&set, "m1; m2 ready marked", "delete m2: MachineSurplus");
    check(&set, "m3; m2; m1 ready", "delete m2: MachineSurplus; delete m3: MachineSurplus");
    let mut patient = set.clone();
    patient.spec.min_ready_seconds = 30;
    check(&patient, "m1 ready=60; m2 ready=10", "delete m2: MachineSurplus; wake 20s");
}

#[test]
fn equal_machines_go_by_policy_and_then_by_name() {
    let machines = "m1 ready age=100; m2 ready age=300; m3 ready age=200; m4 ready age=300";
    for (policy, gone) in
        [(DeletePolicy::Random, "m1"), (DeletePolicy::Newest, "m1"), (DeletePolicy::Oldest, "m2")]
    {
        check(&with_policy(policy, 3), machines, &format!("delete {gone}: MachineSurplus"));
    }
    let marked = "m1 ready age=100; m2 ready age=300; m3 ready age=200 marked";
    for policy in [DeletePolicy::Random, DeletePolicy::Newest, DeletePolicy::Oldest] {
        check(&with_policy(policy, 2), marked, "delete m3: MachineSurplus");
    }
}

#[test]
fn a_machine_being_deleted_is_replaced_at_once() {
    let plan = plan_of(&set(1), &[machine("m1 ready deleting")]);
    assert_eq!(shown(&plan), "create nodes-sxtsc: MachineMissing");
    assert_eq!(plan.status.replicas, 0);
}

#[test]
fn a_deletion_that_the_cache_has_not_seen_is_not_followed_by_another() {
    let machines: Vec<_> = ["m1", "m2 ready"].map(machine).to_vec();
    let (set, settings, now) = (set(1), Settings::default(), Timestamp::from_second(NOW).unwrap());
    let deleted = BTreeSet::from(["uid-m1".to_owned()]);
    let seen = Observed {
        set: &set,
        machines: &machines,
        deleted: &deleted,
        trouble: None,
        settings: &settings,
        now,
    };
    assert_eq!(shown(&plan(&seen)), "");
}

#[test]
fn machines_change_hands_by_labels_and_controller() {
    check(&set(1), "m1 orphan", "patch m1: MachineAdopted");
    check(&set(0), "m1 foreign", "");
    check(
        &set(1),
        "m1 other-labels",
        "patch m1: MachineReleased; create nodes-sxtsc: MachineMissing",
    );
    check(&set(0), "m1 orphan other-labels", "");
    let plan = plan_of(&set(1), &[machine("m1 orphan")]);
    let Step::Patch { patch, .. } = &plan.steps[0] else { panic!("{:?}", plan.steps) };
    insta::assert_json_snapshot!(patch, @r#"
    {
      "metadata": {
        "ownerReferences": [
          {
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "MachineSet",
            "name": "nodes",
            "uid": "set"
          }
        ],
        "resourceVersion": "9",
        "uid": "uid-m1"
      }
    }
    "#);
}

#[test]
fn a_failed_machine_without_a_node_is_replaced_when_it_is_old_enough() {
    let replaced = "delete m1: MachineFailed";
    check(&set(1), "m1 failed", replaced);
    check(&surging(1), "m1 failed", replaced);
    check(&set(1), "m1 failed age=20", "wake 40s");
}

#[test]
fn few_failed_machines_are_replaced_at_once() {
    let many = |count: usize, what: &str| -> Vec<Arc<Machine>> {
        (0..count).map(|n| machine(&format!("m{n:03} {what}"))).collect()
    };
    // One that came up since keeps the circuit closed.
    let and_one = |count| many(count, "failed").into_iter().chain([machine("z ready=1")]).collect();
    let replaced = |count: u32| {
        let machines: Vec<_> = and_one(count as usize);
        plan_of(&set(count + 1), &machines).steps.len()
    };
    assert_eq!((replaced(5), replaced(100)), (3, 10));
    // Those before are being replaced.
    check(&set(3), "m1 failed; m2 age=20; m3 age=10", "delete m1: MachineFailed; wake 40s");
    check(&set(4), "m1 failed; m2 age=20; m3 age=10; m4 age=10", "wake 40s");
    let gone = plan_of(&set(6), &many(3, "failed"));
    assert!(gone.steps.iter().all(|step| matches!(step, Step::Create { .. })), "{gone:?}");
}

#[test]
fn in_the_middle_of_a_rollout_the_surge_is_not_for_failed_machines() {
    let mut set = surging(2);
    set.spec.replicas = 1;
    check(&set, "m1 failed joined", "delete m1: MachineFailed");
}

#[test]
fn a_failed_machine_with_a_node_stays_until_its_replacement_is_available() {
    let failed = "m1 failed joined; m2 ready";
    check(&surging(2), failed, "create nodes-sxtsc: MachineMissing");
    check(&surging(2), &format!("{failed}; m3"), "");
    check(&surging(2), &format!("{failed}; m3 ready"), "delete m1: MachineFailed");
    let two = "m1 failed joined; m2 failed joined; m3 ready";
    check(&surging(3), two, "create nodes-sxtsc: MachineMissing");
    check(&surging(3), &format!("{two}; m4 ready"), "delete m1: MachineFailed");
    check(&surging(0), "m1 failed joined", "delete m1: MachineFailed");
}

#[test]
fn without_surge_one_failed_machine_goes_first() {
    let both = "m1 failed joined; m2 failed joined; m3 ready";
    check(&set(3), both, "delete m1: MachineFailed");
    check(&set(3), "m2 failed joined; m3 ready; m4", "");
    let next = "delete m2: MachineFailed";
    check(&set(3), "m2 failed joined; m3 ready; m4 ready", next);
}

#[test]
fn machines_are_born_complete() {
    let plan = plan_of(&set(1), &[]);
    let Step::Create { machine, .. } = &plan.steps[0] else { panic!("{:?}", plan.steps) };
    insta::assert_json_snapshot!(machine, @r#"
    {
      "apiVersion": "cluster.k8s.io/v1alpha1",
      "kind": "Machine",
      "metadata": {
        "annotations": {
          "a": "b"
        },
        "finalizers": [
          "machine-delete-finalizer",
          "machine-node-delete-finalizer"
        ],
        "labels": {
          "group": "nodes"
        },
        "name": "nodes-sxtsc",
        "namespace": "kube-system",
        "ownerReferences": [
          {
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "MachineSet",
            "name": "nodes",
            "uid": "set"
          }
        ]
      },
      "spec": {
        "versions": {
          "kubelet": "1.30.3"
        }
      }
    }
    "#);
}

#[test]
fn the_status_counts_what_was_seen() {
    let mut seen = set(4);
    seen.spec.min_ready_seconds = 60;
    let machines: Vec<_> =
        ["m1 ready=60", "m2 ready=59", "m3 joined", "m4 failed age=10", "m5 deleting ready"]
            .map(machine)
            .to_vec();
    let status = plan_of(&seen, &machines).status;
    insta::assert_json_snapshot!(status, @r#"
    {
      "replicas": 4,
      "fullyLabeledReplicas": 4,
      "readyReplicas": 2,
      "availableReplicas": 1,
      "observedGeneration": 1,
      "selector": "group=nodes",
      "conditions": [
        {
          "type": "Available",
          "status": "False",
          "reason": "MinimumReplicasUnavailable",
          "message": "1 of 4 machines are available",
          "lastTransitionTime": "2027-01-15T08:00:00Z"
        }
      ],
      "failedMachines": [
        {
          "name": "m4",
          "ownerRef": {
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "MachineSet",
            "name": "nodes",
            "uid": "set"
          }
        }
      ]
    }
    "#);
    // Nothing changed, so nothing is written.
    seen.status = Some(status.clone());
    assert_eq!(plan_of(&seen, &machines).status, status);
}

#[test]
fn trouble_is_shown_until_it_is_over() {
    let (settings, now) = (Settings::default(), Timestamp::from_second(NOW).unwrap());
    let deleted = BTreeSet::new();
    let (machines, settings, deleted): (&[_], _, _) = (&[], &settings, &deleted);
    let mut seen = set(0);
    let words = "machine \"a\" was refused: too many";
    let trouble = Some(words);
    let status = plan(&Observed { set: &seen, machines, deleted, trouble, settings, now }).status;
    let failure = status.conditions.iter().find(|it| it.type_ == "ReplicaFailure").unwrap();
    assert_eq!(failure.message, words);
    seen.status = Some(status);
    assert!(plan_of(&seen, &[]).status.conditions.iter().all(|it| it.type_ != "ReplicaFailure"));
}

#[test]
fn a_set_that_would_not_own_its_machines_makes_none() {
    for selector in [json!({}), json!({"matchLabels": {"group": "other"}})] {
        let mut seen = set(3);
        seen.spec.selector = serde_json::from_value(selector).unwrap();
        let plan = plan_of(&seen, &[machine("m1")]);
        assert_eq!(shown(&plan), "");
        assert_eq!(plan.status.conditions[0].reason, "SelectorMismatch");
    }
}

#[test]
fn a_set_being_deleted_is_left_to_the_garbage_collector() {
    let mut seen = set(3);
    seen.metadata.deletion_timestamp = Some(at(1));
    check(&seen, "m1 ready; m2 failed", "");
}

#[test]
fn a_plan_does_not_depend_on_the_order_of_what_was_seen() {
    let mut machines: Vec<_> =
        (0..50).map(|n| machine(&format!("m{n:02} age={}", n % 7))).collect();
    let forwards = shown(&plan_of(&with_policy(DeletePolicy::Oldest, 20), &machines));
    machines.reverse();
    assert_eq!(shown(&plan_of(&with_policy(DeletePolicy::Oldest, 20), &machines)), forwards);
}

/// A set tells what is the matter with the first of its machines that has an error, as long as there is one.
#[test]
fn a_set_says_why_its_machines_do_not_come_up() {
    let set = set(2);
    let [mut bad, good] = ["b", "a age=5 ready=5"].map(machine);
    let status = Arc::make_mut(&mut bad).status.as_mut().unwrap();
    status.error_reason = Some("CreateError".to_owned());
    status.error_message = Some("quota exceeded".to_owned());
    let told = plan_of(&set, &[bad, good.clone()]).status;
    assert_eq!(told.error_reason.as_deref(), Some("CreateError"));
    assert_eq!(told.error_message.as_deref(), Some("machine b: quota exceeded"));
    let available = &told.conditions[0];
    assert_eq!(available.message, "1 of 2 machines are available; machine b: quota exceeded");
    let told = plan_of(&set, &[machine("b"), good]).status;
    assert_eq!((told.error_reason, told.error_message), (None, None));
}

/// Gardener: the pool's time for making a machine is the machine's.
#[test]
fn a_newborn_takes_the_pools_time_to_join_along() {
    let mut set = set(1);
    set.annotations_mut().insert(labels::CREATION_TIMEOUT.to_owned(), "30m".to_owned());
    let mut plan = plan_of(&set, &[]);
    let Some(Step::Create { machine, .. }) = plan.steps.pop() else { panic!("{plan:?}") };
    assert_eq!(machine.annotations()[labels::CREATION_TIMEOUT], "30m");
}
