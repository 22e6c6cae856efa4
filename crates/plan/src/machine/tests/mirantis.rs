//! `status.providerStatus` of a machine in Mirantis' dialect.

use super::*;

fn mirantis() -> World {
    let mut world = World::new();
    let value = json!({
        "apiVersion": "openstackproviderconfig.k8s.io/v1alpha1", "kind": "OpenstackMachineProviderSpec",
        "image": "i", "flavor": "f", "upgradeIndex": 3,
    });
    world.machine.spec.provider_spec.value = Some(value);
    world.description = Ok(describe(&world.machine.spec, None, &Resolved::new()).unwrap());
    world
}

/// The value, and the conditions as `Type` or, when they are not ready, `!Type`.
fn shown(plan: &Plan) -> String {
    let status = plan.status.provider_status.clone().unwrap_or_default();
    let conditions: Vec<String> = status
        .conditions
        .iter()
        .map(|it| format!("{}{}", if it.ready { "" } else { "!" }, it.type_))
        .collect();
    format!("{} {}", status.status.unwrap_or_default(), conditions.join(" "))
}

/// Mirantis: Provision, Uninitialized, Pending, Prepare, Deploy, Ready; Maintenance from Ready and back.
#[test]
fn the_status_goes_through_mirantis_values_in_their_order() {
    let mut world = mirantis();
    let mut told = vec![];
    let memory = BTreeMap::new();
    world.answer(Question::Create, Answer::Record { memory: memory.clone() });
    told.push(shown(&world.pass()));
    world.answer(Question::Create, Answer::Created { memory, server: server() });
    told.push(shown(&world.pass()));
    world.heard = None;
    world.certificate = Some(Certificate::Approved);
    told.push(shown(&world.pass()));
    let taints = json!([{"key": labels::TAINT_UNINITIALIZED, "effect": "NoSchedule"}]);
    let capacity = json!({"cpu": "4", "memory": "16393260Ki"});
    world.nodes = vec![node(json!({"spec": {"taints": taints}, "status": {"capacity": capacity}}))];
    told.push(shown(&world.pass()));
    let taints = json!([{"key": labels::TAINT_STARTUP, "effect": "NoSchedule"}]);
    world.nodes = vec![node(json!({"spec": {"taints": taints}}))];
    let waits = json!({
        "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cni", "uid": "d", "controller": true}]},
        "spec": {"priorityClassName": "system-node-critical"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    world.pods = vec![pod("cni", waits)];
    told.push(shown(&world.pass()));
    world.pods = vec![];
    world.nodes = vec![node(json!({}))];
    world.passes(2);
    let plan = world.pass();
    told.push(shown(&plan));
    let status = plan.status.provider_status.unwrap();
    assert_eq!(status.upgrade_index, Some(3));
    let hardware = status.hardware.unwrap();
    assert_eq!((hardware.cpu, hardware.ram), (4, 16));
    assert_eq!(status.private_ip.as_deref(), Some("10.0.0.5"));
    assert_eq!(status.public_ip.as_deref(), Some("203.0.113.5"));
    assert_eq!(status.provider_instance_state.unwrap().ready, Some(true));
    world.description.as_mut().unwrap().maintenance = true;
    world.pods = vec![pod("web", json!({}))];
    told.push(shown(&world.pass()));
    world.pods = vec![];
    told.push(shown(&world.pass()));
    world.description.as_mut().unwrap().maintenance = false;
    world.passes(1);
    told.push(shown(&world.pass()));
    world.nodes = vec![not_ready()];
    world.heard = None;
    told.push(shown(&world.pass()));
    world.nodes = vec![node(json!({}))];
    world.passes(1);
    world.description.as_mut().unwrap().delete = true;
    world.pods = vec![pod("web", json!({}))];
    told.push(shown(&world.pass()));
    let expected = [
        "Provision !ProviderInstance !LCM !Kubelet",
        "Uninitialized ProviderInstance !LCM !Kubelet",
        "Pending ProviderInstance !LCM !Kubelet",
        "Prepare ProviderInstance !LCM !Kubelet",
        "Deploy ProviderInstance !LCM !Kubelet",
        "Ready ProviderInstance LCM Kubelet",
        "Ready ProviderInstance LCM Kubelet !Maintenance",
        "Maintenance ProviderInstance LCM Kubelet Maintenance",
        "Ready ProviderInstance LCM Kubelet",
        "Ready ProviderInstance LCM !Kubelet",
        "Ready ProviderInstance LCM Kubelet !PrepareDeletion",
    ];
    assert_eq!(told, expected);
}

#[test]
fn other_dialects_keep_a_status_without_mirantis_words() {
    let world = World::running();
    let status = world.machine.status.unwrap().provider_status.unwrap();
    assert_eq!((status.status, status.conditions.len(), status.hardware), (None, 0, None));
}
