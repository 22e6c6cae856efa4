//! How machines end, and how nodes are drained on request.

use super::*;

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
        assert_eq!(world.condition("Drained"), "False(PodsBlocked)");
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

#[test]
fn nothing_is_evicted_where_it_would_not_help() {
    let skips: [fn(&mut World); 3] = [
        |world| world.nodes = vec![not_ready()],
        |world| world.has_target = false,
        |world| {
            let marked = json!({"metadata": {"annotations": {labels::NODE_SKIP_EVICTION: ""}}});
            world.nodes = vec![node(marked)];
        },
    ];
    for skip in skips {
        let mut world = World::running();
        world.pods = vec![pod("web", json!({}))];
        skip(&mut world);
        world.delete();
        assert_eq!(steps(&world.pass()), ["delete server"]);
        assert_eq!(world.condition("Drained"), "True(DrainSkipped)");
    }
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.description.as_mut().unwrap().deletion_policy = Some(DeletionPolicy::Unsafe);
    world.delete();
    let plan = world.pass();
    assert_eq!(steps(&plan), ["delete server"]);
    assert_eq!(plan.status.deletion_policy, Some(DeletionPolicy::Unsafe));
}

#[test]
fn a_cloud_that_refuses_to_delete_is_asked_again_unless_forced() {
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
    world.description.as_mut().unwrap().deletion_policy = Some(DeletionPolicy::Forced);
    assert!(world.pass().steps.is_empty());
    world.heard.as_mut().unwrap().refusals = 3;
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

#[test]
fn a_deletion_asked_for_in_the_description_can_be_withdrawn_while_it_drains() {
    let mut world = World::running();
    world.pods = vec![pod("web", json!({}))];
    world.description.as_mut().unwrap().delete = true;
    let plan = world.pass();
    let status = plan.status.provider_status.unwrap();
    assert_eq!(
        (status.delete, status.prepare_deletion_phase.as_deref()),
        (Some(true), Some("started"))
    );
    world.description.as_mut().unwrap().delete = false;
    assert_eq!(steps(&world.pass()), ["patch node: MaintenanceEnded"]);
    world.description.as_mut().unwrap().delete = true;
    world.pods = vec![];
    assert!(steps(&world.pass()).contains(&"delete machine: DeletionRequested".to_owned()));
}
