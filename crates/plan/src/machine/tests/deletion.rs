//! How machines end, and how nodes are drained on request.

use super::*;

/// What makes of a world the one that a case is about.
type Change = Box<dyn Fn(&mut World)>;

#[test]
fn a_deletion_drains_detaches_deletes_and_lets_go() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.delete();
    let plan = world.pass();
    assert_eq!(steps(&plan), ["patch node: NodeCordoned", "PodEvicted default/web"]);
    assert_eq!(
        world.nodes[0].metadata.annotations.as_ref().unwrap()[labels::NODE_CORDONED],
        "DeletionBegun"
    );
    assert_eq!(world.condition("Drained"), "False(PodsLeaving)");

    world.pods = vec![];
    let volume = json!({
        "metadata": {"name": "csi-1"},
        "spec": {"attacher": "cinder", "nodeName": "nodes-abc", "source": {"persistentVolumeName": "pv-1"}},
    });
    world.attachments = vec![Arc::new(from_value(volume).unwrap())];
    assert!(world.pass().steps.is_empty());
    assert_eq!(world.condition("VolumesDetached"), "False(VolumesAttached)");

    world.attachments = vec![];
    assert_eq!(steps(&world.pass()), ["delete server"]);
    assert_eq!(world.condition("VolumesDetached"), "True(VolumesDetached)");
    let after = Duration::from_secs(2);
    world.answer(Question::Delete, Answer::Deleting { waits_for: "server s-1".into(), after });
    let plan = world.pass();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.wake, Wake::After(after));
    world.nodes = vec![not_ready()];
    assert!(world.pass().steps.is_empty(), "a drained node is not drained again");

    world.answer(Question::Delete, Answer::Gone);
    let before = world.machine.status.clone();
    let plan = world.pass();
    assert_eq!(steps(&plan), ["delete node nodes-abc", "delete token", "release"]);
    assert_eq!(Some(plan.status), before, "no status is written for an object that goes");
    let Some(Step::Release { patch }) = plan.steps.last() else { panic!("released") };
    assert_eq!(patch["metadata"]["finalizers"], json!([]));
    assert_eq!(patch["metadata"]["resourceVersion"], json!("7"));
}

/// Gardener's scenario 23 and MetaKube's 22.
#[test]
fn a_drain_that_waits_names_pod_and_budget_and_never_deletes_early() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    let budget = json!({
        "metadata": {"name": "web-pdb", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    world.budgets = vec![Arc::new(from_value(budget).unwrap())];
    world.delete();
    for now in [0, 60, 7000] {
        world.now = now;
        let plan = world.pass();
        assert!(!steps(&plan).iter().any(|it| it.contains("default/web") || it.contains("server")));
        assert_eq!(world.condition("Drained"), "False(BudgetUnsatisfiable)");
        assert_eq!(plan.status.last_operation.as_ref().unwrap().state, OperationState::Failed);
        let text = serde_json::to_string(&plan.status.conditions).unwrap();
        assert!(
            text.contains("default/web") && text.contains("PodDisruptionBudget web-pdb"),
            "{text}"
        );
        assert!(matches!(plan.wake, Wake::After(_)));
    }
    world.now = 7200;
    assert_eq!(steps(&world.pass()), ["PodOverdue default/web"]);
    assert_eq!(world.condition("Drained"), "False(DrainDeadlineExceeded)");
    world.now = 7260;
    assert_eq!(steps(&world.pass()), ["delete server"]);
}

/// MetaKube's scenario 23 and Gardener's 25.
#[test]
fn nothing_is_evicted_where_it_would_not_help() {
    let long_silent = || {
        let silent = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-300).to_string()}]);
        node(json!({"status": {"conditions": silent}}))
    };
    let read_only = || {
        let conditions = json!([
            {"type": "Ready", "status": "True", "lastTransitionTime": at(-900).to_string()},
            {"type": "ReadonlyFilesystem", "status": "True", "lastTransitionTime": at(-300).to_string()},
        ]);
        node(json!({"status": {"conditions": conditions}}))
    };
    let forced = |value: &'static str| {
        move |world: &mut World| {
            let label = (labels::FORCE_DELETION.to_owned(), value.to_owned());
            world.machine.metadata.labels = Some(BTreeMap::from([label]));
        }
    };
    let skips: Vec<Change> = vec![
        Box::new(move |world| world.nodes = vec![long_silent()]),
        Box::new(move |world| world.nodes = vec![read_only()]),
        Box::new(|world| world.has_target = false),
        Box::new(|world| {
            let marked = json!({"metadata": {"annotations": {labels::NODE_SKIP_EVICTION: ""}}});
            world.nodes = vec![node(marked)];
        }),
        Box::new(forced("true")),
        Box::new(forced("True")),
        Box::new(forced("1")),
    ];
    for skip in skips {
        let mut world = World::running();
        world.pods = vec![pod("web", json!({}))];
        skip(&mut world);
        world.delete();
        assert_eq!(steps(&world.pass()), ["patch node: NodeCordoned", "delete server"]);
        assert_eq!(world.condition("Drained"), "True(DrainSkipped)");
    }
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    forced("yes")(&mut world);
    world.delete();
    assert_eq!(steps(&world.pass()), ["patch node: NodeCordoned", "PodEvicted default/web"]);
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.machine.spec.deletion_policy = Some(DeletionPolicy::Unsafe);
    world.delete();
    let plan = world.pass();
    assert_eq!(steps(&plan), ["delete server"]);
    assert_eq!(plan.status.deletion_policy, Some(DeletionPolicy::Unsafe));
}

/// Gardener's scenario 25 and MetaKube's 23, the fast path: a node is forced after it was silent for five minutes. What
/// differs: its pods are ended only when the server is off, for they may run twice otherwise.
#[test]
fn a_silent_node_gets_five_minutes_and_its_volumes_are_freed_when_its_server_is_off() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.attachments = vec![attachment("pv-1")];
    let silent =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(0).to_string()}]);
    world.nodes = vec![node(json!({"status": {"conditions": silent}}))];
    world.now = 60;
    world.delete();
    let plan = world.pass();
    assert_eq!(steps(&plan), ["patch node: NodeCordoned"]);
    assert_eq!(world.condition("Drained"), "False(NodeUnreachable)");
    assert_eq!(plan.wake, Wake::After(Duration::from_secs(240)));
    world.now = 300;
    assert_eq!(steps(&world.pass()), ["delete server"]);
    let after = Duration::from_secs(2);
    world.answer(Question::Delete, Answer::Deleting { waits_for: "server s-1".into(), after });
    assert!(world.pass().steps.is_empty(), "the server may still write to its volumes");
    world.answer(Question::Delete, Answer::Gone);
    let plan = world.pass();
    let end =
        ["detach 1", "PodBereaved default/web", "delete node nodes-abc", "delete token", "release"];
    assert_eq!(steps(&plan), end);
    let Step::Leave { departures } = &plan.steps[1] else { panic!("pods") };
    assert_eq!(departures[0].grace, Some(0));
}

#[test]
fn a_node_that_is_gone_leaves_its_volumes_to_be_freed() {
    let mut world = World::running();
    world.nodes = vec![];
    world.attachments = vec![attachment("pv-1")];
    world.delete();
    assert_eq!(steps(&world.pass()), ["delete server"]);
    world.answer(Question::Delete, Answer::Gone);
    assert_eq!(steps(&world.pass()), ["detach 1", "delete token", "release"]);
}

/// Cluster API's order: pre-drain hooks, drain, detach, pre-terminate hooks, server.
#[test]
fn hooks_hold_the_deletion_before_the_drain_and_before_the_server_goes() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    let (drain, end) = (
        format!("{}backup", labels::HOOK_PRE_DRAIN),
        format!("{}etcd", labels::HOOK_PRE_TERMINATE),
    );
    let hooks = [(drain.clone(), "velero".to_owned()), (end.clone(), String::new())];
    world.machine.metadata.annotations = Some(BTreeMap::from(hooks));
    world.delete();
    let plan = world.pass();
    assert!(plan.steps.is_empty());
    assert_eq!(world.condition("Drained"), "False(HookAwaited)");
    let text = serde_json::to_string(&plan.status.conditions).unwrap();
    assert!(text.contains(&format!("{drain} (velero)")), "{text}");
    world.now = 9000;
    assert!(world.pass().steps.is_empty(), "a hook is waited for without limit");
    world.machine.metadata.annotations.as_mut().unwrap().remove(&drain);
    let plan = world.pass();
    assert_eq!(steps(&plan), ["patch node: NodeCordoned", "PodEvicted default/web"]);
    assert!(plan.promises, "the drain's clock starts now, also for the next manager");
    world.now = 16_199;
    assert_eq!(steps(&world.pass()), ["PodEvicted default/web"]);
    world.pods = vec![];
    assert!(world.pass().steps.is_empty());
    assert_eq!(world.condition("ServerDeleted"), "False(HookAwaited)");
    world.machine.metadata.annotations = None;
    assert_eq!(steps(&world.pass()), ["delete server"]);

    for (policy, waits) in [(DeletionPolicy::Unsafe, true), (DeletionPolicy::Forced, false)] {
        let mut world = World::running();
        let hooks = [(drain.clone(), String::new()), (end.clone(), String::new())];
        world.machine.metadata.annotations = Some(BTreeMap::from(hooks));
        world.machine.spec.deletion_policy = Some(policy);
        world.delete();
        assert_eq!(world.pass().steps.is_empty(), waits, "{policy:?}");
    }
}

/// Gardener's scenario 17 and Mirantis' policies: retried for ever, unless forced.
#[test]
fn gardener_17_a_cloud_that_refuses_to_delete_is_asked_again_unless_forced() {
    let mut world = World::running();
    world.refuse(Question::Create, Reason::QuotaExceeded, Retry::OnChange);
    let heard = world.heard.clone();
    world.delete();
    world.heard = heard;
    assert_eq!(
        steps(&world.pass()).last().unwrap(),
        "delete server",
        "an old refusal is no answer"
    );
    world.refuse(Question::Delete, Reason::CloudUnavailable, Retry::Backoff);
    let plan = world.pass();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.status.error_reason.as_deref(), Some("DeleteError"));
    assert_eq!(plan.wake, Wake::After(Duration::from_secs(2)));
    world.machine.spec.deletion_policy = Some(DeletionPolicy::Forced);
    assert!(world.pass().steps.is_empty());
    world.heard.as_mut().unwrap().refusals = 3;
    world.attachments = vec![attachment("pv-1")];
    let plan = world.pass();
    assert_eq!(
        steps(&plan),
        ["delete node nodes-abc", "delete token", "release"],
        "nothing is detached from a server that may run"
    );
    let event = plan.events.last().unwrap();
    assert_eq!(event.why, Reason::LeftBehind);
    for word in ["openstack:///s-1", "uid-1", "the cloud's words"] {
        assert!(event.note.contains(word), "{word} is not in {}", event.note);
    }

    let mut world = World::running();
    world.machine.spec.deletion_policy = Some(DeletionPolicy::Forced);
    world.delete();
    assert_eq!(steps(&world.pass()), ["delete server"]);
    let after = Duration::from_secs(2);
    for (now, ends) in [(1, false), (299, false), (300, true)] {
        world.now = now;
        world.answer(Question::Delete, Answer::Deleting { waits_for: "x".into(), after });
        let plan = world.pass();
        assert_eq!(steps(&plan).contains(&"release".to_owned()), ends, "after {now} s");
    }
}

/// Mirantis: after the deletion began the policy moves in one direction only.
#[test]
fn a_policy_can_only_be_relaxed_once_the_deletion_began() {
    let mut world = World::running();
    world.machine.spec.deletion_policy = Some(DeletionPolicy::Unsafe);
    world.passes(1);
    world.machine.spec.deletion_policy = Some(DeletionPolicy::Graceful);
    assert_eq!(world.pass().status.deletion_policy, Some(DeletionPolicy::Graceful));
    world.delete();
    world.pods = vec![pod("web", json!({}))];
    world.passes(1);
    for (said, holds) in [
        (DeletionPolicy::Unsafe, DeletionPolicy::Unsafe),
        (DeletionPolicy::Graceful, DeletionPolicy::Unsafe),
        (DeletionPolicy::Forced, DeletionPolicy::Forced),
        (DeletionPolicy::Unsafe, DeletionPolicy::Forced),
    ] {
        world.machine.spec.deletion_policy = Some(said);
        assert_eq!(world.pass().status.deletion_policy, Some(holds));
    }
    let value =
        json!({"kind": "OpenstackMachineProviderSpec", "deletionPolicy": "forced", "typo": 1});
    let mut world = World::running();
    world.machine.spec.provider_spec.value = Some(value);
    world.description = Err("spec.providerSpec.value.typo: unknown field".into());
    world.delete();
    assert_eq!(
        world.pass().status.deletion_policy,
        Some(DeletionPolicy::Forced),
        "a description that is broken elsewhere still says how to delete"
    );
}

/// MetaKube's scenario 35 and Gardener's lesson: what is missing is named, and the deletion resumes.
#[test]
fn a_deletion_without_credentials_says_what_it_needs_and_resumes() {
    let mut world = World::running();
    world.description = Err("MachineClass small does not exist in the namespace; create it".into());
    world.delete();
    assert_eq!(steps(&world.pass()).last().unwrap(), "delete server");
    world.refuse(Question::Delete, Reason::CredentialsMissing, Retry::OnChange);
    let plan = world.pass();
    assert!(plan.steps.is_empty(), "without credentials nobody knows that nothing is left");
    assert_eq!(world.condition("ServerDeleted"), "False(CredentialsMissing)");
    assert_eq!(plan.wake, Wake::After(Duration::from_secs(30)));
    world.now += 30;
    assert_eq!(steps(&world.pass()), ["delete server"]);
    world.answer(Question::Delete, Answer::Gone);
    assert_eq!(steps(&world.pass()).last().unwrap(), "release");
}

#[test]
fn a_machine_that_never_had_a_server_is_let_go_after_a_look() {
    let mut world = World::new();
    world.delete();
    assert_eq!(steps(&world.pass()), ["delete server"]);
    world.answer(Question::Delete, Answer::Gone);
    assert_eq!(steps(&world.pass()), ["delete token", "release"]);
}

#[test]
fn maintenance_drains_and_gives_back_only_what_drover_cordoned() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.description.as_mut().unwrap().maintenance = true;
    world.has_target = false;
    let elsewhere = pod("db", json!({"spec": {"nodeName": "other"}}));
    world.pods.push(elsewhere);
    assert_eq!(steps(&world.pass()), ["patch node: NodeCordoned", "PodEvicted default/web"]);
    world.pods = vec![];
    assert_eq!(world.pass().status.provider_status.unwrap().maintenance, Some(true));
    world.description.as_mut().unwrap().maintenance = false;
    assert_eq!(steps(&world.pass()), ["patch node: MaintenanceEnded"]);
    assert_eq!(world.nodes[0].spec.as_ref().unwrap().unschedulable, None);
    assert!(world.pass().steps.is_empty());

    let mut world = World::running();
    world.nodes = vec![node(json!({"spec": {"unschedulable": true}}))];
    world.passes(2);
    world.description.as_mut().unwrap().maintenance = true;
    world.passes(1);
    world.description.as_mut().unwrap().maintenance = false;
    world.passes(1);
    assert_eq!(
        world.nodes[0].spec.as_ref().unwrap().unschedulable,
        Some(true),
        "cordoned by another hand"
    );
}

/// Mirantis: `prepareDeletionPhase` goes from started over aborting to nothing, or to completed; failed
/// shows an error as long as it lasts.
#[test]
fn a_deletion_asked_for_in_the_description_can_be_withdrawn_while_it_drains() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    let shown = |plan: &Plan| {
        let status = plan.status.provider_status.clone().unwrap();
        (status.delete, status.prepare_deletion_phase.unwrap_or_default())
    };
    world.description.as_mut().unwrap().delete = true;
    let plan = world.pass();
    assert_eq!(shown(&plan), (Some(true), "started".to_owned()));
    assert!(plan.promises, "the drain's clock is written down");
    assert_eq!(steps(&plan), ["patch node: NodeCordoned", "PodEvicted default/web"]);
    world.trouble = Some("failed to evict".into());
    assert_eq!(shown(&world.pass()).1, "failed");
    world.trouble = None;
    assert_eq!(shown(&world.pass()).1, "started");

    world.description.as_mut().unwrap().delete = false;
    let abort = world.pass();
    assert_eq!(steps(&abort), ["patch node: MaintenanceEnded"]);
    assert_eq!(shown(&abort), (Some(true), "aborting".to_owned()));
    let aborted = world.pass();
    assert_eq!(shown(&aborted), (Some(false), String::new()));
    assert!(aborted.steps.is_empty() && aborted.status.drain.is_none());
    assert_eq!(world.condition("Drained"), "");

    let hook = format!("{}etcd", labels::HOOK_PRE_TERMINATE);
    world.machine.metadata.annotations = Some(BTreeMap::from([(hook, String::new())]));
    world.description.as_mut().unwrap().delete = true;
    world.passes(1);
    world.now = 7199;
    assert_eq!(steps(&world.pass()), ["PodEvicted default/web"], "the clock began anew");
    world.pods = vec![];
    let plan = world.pass();
    assert_eq!(shown(&plan), (Some(true), "started".to_owned()), "its server is held");
    assert_eq!(world.condition("ServerDeleted"), "False(HookAwaited)");
    assert!(plan.steps.is_empty(), "so there is still a way back");
    world.machine.metadata.annotations = None;
    let plan = world.pass();
    assert_eq!(shown(&plan), (Some(true), "completed".to_owned()));
    assert!(
        plan.promises && steps(&plan).contains(&"delete machine: DeletionRequested".to_owned())
    );
}

/// Mirantis: `failed` is no end. The deletion goes on when its cause is mended or its policy relaxed, and so does its
/// withdrawal.
#[test]
fn a_preparation_that_failed_goes_on_when_it_can() {
    let shown = |plan: &Plan| {
        plan.status.provider_status.clone().unwrap().prepare_deletion_phase.unwrap_or_default()
    };
    let failed = || {
        let mut world = World::running();
        world.pods = vec![pod("web", json!({}))];
        world.description.as_mut().unwrap().delete = true;
        world.passes(1);
        world.trouble = Some("failed to evict".into());
        assert_eq!(shown(&world.pass()), "failed");
        world
    };
    let mut mended = failed();
    mended.trouble = None;
    mended.pods = vec![];
    assert_eq!(shown(&mended.pass()), "completed");

    let mut relaxed = failed();
    relaxed.machine.spec.deletion_policy = Some(DeletionPolicy::Unsafe);
    let plan = relaxed.pass();
    assert_eq!(shown(&plan), "completed");
    assert!(steps(&plan).contains(&"delete machine: DeletionRequested".to_owned()));

    let mut withdrawn = failed();
    withdrawn.description.as_mut().unwrap().delete = false;
    let plan = withdrawn.pass();
    assert_eq!(
        (shown(&plan), steps(&plan)),
        ("failed".into(), vec!["patch node: MaintenanceEnded".into()])
    );
    withdrawn.trouble = None;
    let plan = withdrawn.pass();
    assert_eq!(shown(&plan), "");
    assert_eq!(plan.status.provider_status.unwrap().delete, Some(false));
}

/// Gardener: a Node that is deleted takes its machine with it, drained when something holds the Node.
#[test]
fn a_deleted_node_costs_the_machine_once() {
    let mut world = World::running();
    let owner = json!([{"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true}]);
    world.machine.metadata.owner_references = Some(from_value(owner).unwrap());
    world.nodes = vec![];
    assert_eq!(steps(&world.pass()), ["look"]);
    world.answer(Question::Look, Answer::Seen(Some(server())));
    assert!(world.pass().steps.is_empty(), "its kubelet may register again");
    world.now = 300;
    world.answer(Question::Look, Answer::Seen(Some(server())));
    assert_eq!(steps(&world.pass()), ["delete machine: NodeGone"]);
    world.machine.metadata.owner_references = None;
    assert!(world.pass().steps.is_empty(), "nobody would replace it");

    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    let held =
        json!({"metadata": {"deletionTimestamp": at(5).to_string(), "finalizers": ["other"]}});
    world.nodes = vec![node(held)];
    assert_eq!(steps(&world.pass()), ["delete machine: NodeGone"]);
    world.delete();
    assert_eq!(steps(&world.pass()), ["patch node: NodeCordoned", "PodEvicted default/web"]);
}

pub fn attachment(volume: &str) -> Arc<VolumeAttachment> {
    let value = json!({
        "metadata": {"name": format!("csi-{volume}"), "uid": volume},
        "spec": {"attacher": "cinder", "nodeName": "nodes-abc", "source": {"persistentVolumeName": volume}},
        "status": {"attached": true},
    });
    Arc::new(from_value(value).unwrap())
}

/// Nothing was ever made of a machine whose status tells of its birth and of no order. One without a status may have
/// been wiped, and its server may be there.
#[test]
fn only_a_status_from_its_birth_proves_that_a_machine_has_no_server() {
    for (is_wiped, expected) in [(false, vec!["delete token", "release"]), (true, vec![])] {
        let mut world = World::new();
        world.refuse(Question::Create, Reason::CredentialsMissing, Retry::OnChange);
        world.passes(1);
        if is_wiped {
            world.machine.status = None;
        }
        world.delete();
        world.passes(1);
        world.refuse(Question::Delete, Reason::CredentialsMissing, Retry::OnChange);
        assert_eq!(steps(&world.pass()), expected, "wiped: {is_wiped}");
    }
}
