//! Who may join, for how long, and what the cluster has against it.

use super::*;

fn server_version(text: &str) -> Option<Version> {
    Some(text.parse().unwrap())
}

/// Kubernetes, version skew policy.
#[test]
fn a_kubelet_that_does_not_go_with_the_api_server_gets_no_server() {
    for (kubelet, server, word) in [
        ("1.33.0", "1.33.0", ""),
        ("1.33.9", "1.33.0", ""),
        ("1.30.3", "1.33.0+drover-lab", ""),
        ("1.29.9", "1.33.0", "too old"),
        ("1.34.0", "1.33.9", "newer"),
        ("1.25.0", "1.27.0", ""),
        ("1.24.0", "1.27.0", "too old"),
        ("1.25.0", "1.28.0", ""),
    ] {
        let mut world = World::new();
        world.description.as_mut().unwrap().kubelet = server_version(kubelet);
        world.api_server = server_version(server);
        let plan = world.pass();
        let orders = plan.steps.iter().any(|step| matches!(step, Step::CreateServer { .. }));
        assert_eq!(orders, word.is_empty(), "{kubelet} at {server}");
        if word.is_empty() {
            continue;
        }
        assert_eq!(world.condition("Configured"), "False(VersionSkew)");
        let status = world.machine.status.clone().unwrap();
        let message = status.error_message.unwrap();
        assert!(
            message.contains(word) && message.contains("Kubernetes allows a kubelet from"),
            "{message}"
        );
        // The control plane came along.
        world.api_server = server_version(kubelet);
        world.passes(2);
        assert_eq!(world.condition("Configured"), "True(DescriptionUnderstood)");
        assert_eq!(world.machine.status.as_ref().unwrap().error_message, None);
    }
}

#[test]
fn a_machine_that_runs_is_only_told_of_the_skew() {
    let mut world = World::running();
    world.api_server = server_version("1.40.0");
    world.passes(2);
    assert_eq!(world.condition("Configured"), "False(VersionSkew)");
    assert_eq!(
        (world.phase(), world.condition("Ready").as_str()),
        (Some(Phase::Running), "True(NodeReady)")
    );
    assert_eq!(world.machine.status.as_ref().unwrap().error_reason, None);
}

/// Mirantis: `allowedNodeLabels`, spelled either way.
#[test]
fn node_labels_must_be_on_the_list_of_the_cluster() {
    for spelling in ["releaseRef", "releaseRefs"] {
        let list = json!([{"key": "stacklight"}, {"key": "tier", "value": "gold"}]);
        let status = json!({spelling: {"current": {"allowedNodeLabels": list}}});
        for (key, value, is_allowed) in [
            ("stacklight", "any", true),
            ("tier", "gold", true),
            ("tier", "tin", false),
            ("x", "", false),
        ] {
            let mut world = World::new();
            let mut cluster = ApiCluster::default();
            cluster.metadata.name = Some("child".into());
            cluster.status.get_or_insert_default().provider_status = Some(status.clone());
            world.cluster = Some(cluster);
            let labels = &mut world.description.as_mut().unwrap().node_labels;
            labels.insert(key.to_owned(), value.to_owned());
            let plan = world.pass();
            let orders = plan.steps.iter().any(|step| matches!(step, Step::CreateServer { .. }));
            assert_eq!(orders, is_allowed, "{key}={value}");
            if !is_allowed {
                let message = world.machine.status.clone().unwrap().error_message.unwrap();
                assert_eq!(
                    message,
                    format!(
                        "spec.providerSpec.value.nodeLabels: {key}={value} is not among the \
                         allowedNodeLabels of Cluster child: stacklight, tier=gold; leave it out"
                    )
                );
            }
        }
    }
}

#[test]
fn a_label_that_is_no_longer_allowed_leaves_the_node() {
    let mut world = World::running();
    let labels = &mut world.description.as_mut().unwrap().node_labels;
    labels.insert("tier".to_owned(), "gold".to_owned());
    world.passes(2);
    assert_eq!(world.nodes[0].labels()["tier"], "gold");
    let mut cluster = ApiCluster::default();
    let status = json!({"releaseRefs": {"current": {"allowedNodeLabels": []}}});
    cluster.status.get_or_insert_default().provider_status = Some(status);
    world.cluster = Some(cluster);
    world.passes(2);
    assert!(!world.nodes[0].labels().contains_key("tier"));
    assert_eq!(world.condition("Configured"), "False(LabelNotAllowed)");
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_token_is_renewed_while_its_machine_may_join_and_goes_when_it_failed() {
    let mut world = World::made();
    world.machine.spec.creation_timeout = Some("5h".parse().unwrap());
    world.heard = None;
    world.now = 3 * 3600;
    let plan = world.pass();
    assert!(plan.steps.contains(&Step::KeepToken { until: at(5 * 3600) }), "{:?}", plan.steps);
    world.now = 5 * 3600;
    for _ in 0..2 {
        let plan = world.pass();
        assert_eq!(world.phase(), Some(Phase::Failed));
        assert!(plan.steps.contains(&Step::DeleteToken), "{:?}", plan.steps);
    }
}

/// MetaKube 9.2 scenario 17, second half: a standalone Machine is kept, and says so.
#[test]
fn a_machine_that_nobody_would_replace_says_that_it_stays() {
    let mut world = World::made();
    world.now = 2 * 3600;
    world.passes(1);
    let message = world.machine.status.clone().unwrap().failure_message.unwrap();
    assert!(message.ends_with("no set replaces it, so it stays: delete it"), "{message}");
}

/// MetaKube 9.2 scenario 34: the taint goes once.
#[test]
fn a_startup_taint_that_somebody_puts_on_again_stays() {
    let tainted =
        json!({"spec": {"taints": [{"key": labels::TAINT_STARTUP, "effect": "NoSchedule"}]}});
    let mut world = World::made();
    world.nodes = vec![node(tainted.clone())];
    world.heard = None;
    world.passes(4);
    assert!(!crate::node::has_taint(&world.nodes[0], labels::TAINT_STARTUP));
    assert_eq!(world.phase(), Some(Phase::Running));
    let mut value = serde_json::to_value(&*world.nodes[0]).unwrap();
    merge(&mut value, &tainted);
    world.nodes[0] = Arc::new(from_value(value).unwrap());
    world.passes(2);
    assert!(crate::node::has_taint(&world.nodes[0], labels::TAINT_STARTUP));
    assert_eq!(world.phase(), Some(Phase::Running));
}

/// Gardener: the annotation counts before the spec, and the spec before the manager's word. What is no duration is told,
/// and makes no server.
#[test]
fn the_time_to_join_is_of_the_annotation_then_of_the_spec_then_the_managers() {
    for (annotation, spec, seconds) in
        [(None, None, 7200), (None, Some("1h"), 3600), (Some("30m"), Some("1h"), 1800)]
    {
        let mut world = World::made();
        world.machine.spec.creation_timeout = spec.map(|text| text.parse().unwrap());
        let said = annotation.map(|text| (labels::CREATION_TIMEOUT.to_owned(), text.to_owned()));
        world.machine.metadata.annotations = Some(said.into_iter().collect());
        world.now = seconds - 1;
        assert_ne!(world.pass().status.phase, Some(Phase::Failed), "{annotation:?} {spec:?}");
        world.now = seconds;
        assert_eq!(world.pass().status.phase, Some(Phase::Failed), "{annotation:?} {spec:?}");
    }
    let mut world = World::new();
    world.machine.annotations_mut().insert(labels::CREATION_TIMEOUT.into(), "soon".into());
    assert!(world.pass().steps.is_empty());
    assert_eq!(world.condition("Ready"), "False(DescriptionInvalid)");
}
