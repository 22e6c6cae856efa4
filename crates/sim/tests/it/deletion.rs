//! How machines end: in which order, on whose wish, and when something is missing or broken.

use crate::manifests::{good, with};
use crate::workload::{
    CHAPTER, budget, change, condition, gone, node_of, reason, running, until, workload,
};
use drover_lab::cloud::{Effect, Fault};
use drover_sim::faults::{Call, Life};
use drover_sim::stage::{NAMESPACE, Stage};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

async fn two_nodes() -> anyhow::Result<(Stage, drover_sim::stage::Working, Vec<drover_api::Machine>)>
{
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.apply_example(2).await?;
    let machines = stage.whole(2, &BTreeSet::new(), CHAPTER).await?.machines;
    Ok((stage, manager, machines))
}

/// Gardener's scenario 16. What differs: why the node is drained stands in the annotation of its cordon, not
/// in a condition of the Node.
#[tokio::test(start_paused = true)]
async fn gardener_16_full_deletion_order() -> anyhow::Result<()> {
    let (stage, builder, _) = two_nodes().await?;
    stage.create(&workload("web", 1)).await?;
    let node = node_of(&running(&stage, "web", 1).await?[0]);
    builder.end().await?;
    let life = Life::until(u64::MAX, Call::is_write);
    let manager = stage.work(stage.wires(&life))?;
    let machine = stage.machines().get(&node).await?;
    stage.machines().delete(&node, &DeleteParams::default()).await?;
    gone(&stage, &machine).await?;
    let log = life.log();
    let found = |begins: &str, ends: &str| {
        log.iter().position(|call| call.starts_with(begins) && call.ends_with(ends))
    };
    let first = |begins: &str, ends: &str| {
        found(begins, ends).unwrap_or_else(|| panic!("no {begins} .. {ends} in {log:#?}"))
    };
    let end = first("PATCH /apis/cluster.k8s.io/", &format!("/machines/{node}"));
    let order = [
        first("PATCH /api/v1/nodes/", &node),
        first("POST /api/v1/namespaces/", "/eviction"),
        first("DELETE /compute", ""),
        first("DELETE /network", ""),
        // The cloud controller manager, too, deletes a Node whose server is gone.
        found("DELETE /api/v1/nodes/", &node).unwrap_or(end),
        end,
    ];
    assert!(order.is_sorted(), "{order:?} in {log:#?}");
    assert!(stage.nodes().get_opt(&node).await?.is_none());
    manager.end().await
}

/// Waits until a machine of two is replaced, once, and its pod of `web` runs again.
async fn replaced_once(stage: &Stage, machine: &drover_api::Machine) -> anyhow::Result<()> {
    let old = machine.uid().into_iter().collect();
    let whole = stage.whole(2, &old, Duration::from_secs(1800)).await?;
    assert_eq!(whole.cloud.servers_made, 3, "one replacement");
    assert_eq!(whole.made_twice(), None);
    assert_ne!(node_of(&running(stage, "web", 1).await?[0]), machine.name_any());
    Ok(())
}

/// Two nodes with one pod of `web`, and the machine that it runs on.
async fn two_nodes_with_web()
-> anyhow::Result<(Stage, drover_sim::stage::Working, drover_api::Machine)> {
    let (stage, manager, _) = two_nodes().await?;
    stage.create(&workload("web", 1)).await?;
    let node = node_of(&running(&stage, "web", 1).await?[0]);
    let machine = stage.machines().get(&node).await?;
    Ok((stage, manager, machine))
}

/// Gardener's #1055 and MetaKube's scenario 32: a Node that is deleted takes its machine with it.
#[tokio::test(start_paused = true)]
async fn metakube_32_kubectl_delete_node_ends_in_clean_up_and_one_replacement() -> anyhow::Result<()>
{
    let (stage, manager, machine) = two_nodes_with_web().await?;
    stage.nodes().delete(&machine.name_any(), &DeleteParams::default()).await?;
    replaced_once(&stage, &machine).await?;
    manager.end().await
}

/// MetaKube's scenario 32 with a Node that something holds: it is drained first, within its budgets.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_that_is_held_is_drained_before_its_replacement() -> anyhow::Result<()> {
    let (stage, manager, machine) = two_nodes_with_web().await?;
    let name = machine.name_any();
    stage.create(&budget("web", 1)).await?;
    let hold =
        |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let params = PatchParams::default();
    stage.nodes().patch(&name, &params, &hold(json!(["example.com/inventory"]))).await?;
    stage.nodes().delete(&name, &DeleteParams::default()).await?;
    reason(&stage, &name, "Drained", "BudgetUnsatisfiable").await?;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(node_of(&running(&stage, "web", 1).await?[0]), name, "its budget holds it");
    let relaxed = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    stage.api(&budget("web", 0)).patch("web", &params, &relaxed).await?;
    gone(&stage, &machine).await?;
    stage.nodes().patch(&name, &params, &hold(Value::Null)).await?;
    replaced_once(&stage, &machine).await?;
    manager.end().await
}

/// MetaKube's scenario 32, in its own mode: the machine goes with its server.
#[tokio::test(start_paused = true)]
async fn a_server_deleted_in_openstack_ends_in_clean_up_and_one_replacement() -> anyhow::Result<()>
{
    let (stage, manager, machine) = two_nodes_with_web().await?;
    let servers = stage.census().await?.cloud.servers;
    let server = servers.iter().find(|it| it.name == machine.name_any()).expect("its server");
    assert!(stage.cloud()?.vanish(&server.id));
    replaced_once(&stage, &machine).await?;
    manager.end().await
}

/// Cluster API's hooks.
#[tokio::test(start_paused = true)]
async fn hooks_hold_a_deletion_at_their_step() -> anyhow::Result<()> {
    let (stage, manager, machines) = two_nodes().await?;
    let name = machines[0].name_any();
    let drain = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
    let end = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd";
    change(&stage, &name, json!({ "metadata": { "annotations": { drain: "velero", end: "" } } }))
        .await?;
    stage.machines().delete(&name, &DeleteParams::default()).await?;
    let message = reason(&stage, &name, "Drained", "HookAwaited").await?;
    assert!(message.contains("backup (velero)"), "{message}");
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    let node = stage.nodes().get(&name).await?;
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None, "it is not even cordoned");
    change(&stage, &name, json!({ "metadata": { "annotations": { drain: null } } })).await?;
    reason(&stage, &name, "ServerDeleted", "HookAwaited").await?;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let server = stage.census().await?.cloud.servers;
    assert!(server.iter().any(|it| it.name == name), "the server waits, too");
    change(&stage, &name, json!({ "metadata": { "annotations": { end: null } } })).await?;
    gone(&stage, &machines[0]).await?;
    manager.end().await
}

/// A machine of Mirantis' dialect that nobody owns.
pub fn mirantis(name: &str) -> Value {
    let value = json!({
        "apiVersion": "openstackproviderconfig.k8s.io/v1alpha1", "kind": "OpenstackMachineProviderSpec",
        "availabilityZone": "dbl1", "flavor": "m1.small", "image": "Ubuntu Noble 24.04 (2024-08-01)",
        "networks": [{ "uuid": "metakube-mmxfcmgjkx" }],
    });
    with(good("Machine", name), "/spec/providerSpec/value", value)
}

fn preparation(machine: &drover_api::Machine) -> (Option<bool>, String) {
    let status = machine.status.clone().and_then(|it| it.provider_status).unwrap_or_default();
    (status.delete, status.prepare_deletion_phase.unwrap_or_default())
}

/// Waits until the request for a machine's deletion is withdrawn.
pub async fn withdrawn(stage: &Stage, name: &str) -> anyhow::Result<()> {
    until("the request is withdrawn", async || {
        let machine = stage.machines().get(name).await?;
        Ok((preparation(&machine) == (Some(false), String::new())).then_some(()))
    })
    .await
}

/// Mirantis: `delete: true` can be withdrawn while the node is drained, and then it is uncordoned; or while a hook keeps
/// its server.
#[tokio::test(start_paused = true)]
async fn a_request_for_deletion_is_withdrawn_and_made_again() -> anyhow::Result<()> {
    let (stage, manager, machines) = two_nodes().await?;
    stage.create(&mirantis("lone")).await?;
    until("lone is Running", async || {
        let phase = stage.machines().get("lone").await?.status.and_then(|it| it.phase);
        Ok((phase == Some(drover_api::Phase::Running)).then_some(()))
    })
    .await?;
    for machine in &machines {
        crate::workload::cordon(&stage, &machine.name_any(), true).await?;
    }
    stage.create(&workload("web", 1)).await?;
    stage.create(&budget("web", 1)).await?;
    assert_eq!(node_of(&running(&stage, "web", 1).await?[0]), "lone");
    for machine in &machines {
        crate::workload::cordon(&stage, &machine.name_any(), false).await?;
    }
    let ask =
        |delete: bool| json!({ "spec": { "providerSpec": { "value": { "delete": delete } } } });
    let policy = |policy: &str| json!({ "spec": { "providerSpec": { "value": { "deletionPolicy": policy } } } });
    change(&stage, "lone", policy("unsafe")).await?;
    change(&stage, "lone", policy("graceful")).await?;
    change(&stage, "lone", ask(true)).await?;
    reason(&stage, "lone", "Drained", "BudgetUnsatisfiable").await?;
    let machine = stage.machines().get("lone").await?;
    assert_eq!(preparation(&machine), (Some(true), "started".to_owned()));
    let node = stage.nodes().get("lone").await?;
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), Some(true));

    change(&stage, "lone", ask(false)).await?;
    withdrawn(&stage, "lone").await?;
    let node = stage.nodes().get("lone").await?;
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None);

    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd";
    change(&stage, "lone", json!({ "metadata": { "annotations": { hook: "" } } })).await?;
    change(&stage, "lone", ask(true)).await?;
    reason(&stage, "lone", "Drained", "BudgetUnsatisfiable").await?;
    change(&stage, "lone", policy("unsafe")).await?;
    reason(&stage, "lone", "ServerDeleted", "HookAwaited").await?;
    let held = stage.machines().get("lone").await?;
    assert_eq!(preparation(&held), (Some(true), "started".to_owned()));
    assert_eq!(
        held.metadata.deletion_timestamp, None,
        "nothing is destroyed, so there is a way back"
    );
    change(&stage, "lone", ask(false)).await?;
    withdrawn(&stage, "lone").await?;
    change(&stage, "lone", ask(true)).await?;
    reason(&stage, "lone", "ServerDeleted", "HookAwaited").await?;
    let back = change(&stage, "lone", policy("graceful")).await.expect_err("there is no way back");
    assert!(format!("{back:#}").contains("can only become less careful"), "{back:#}");
    let status = stage.machines().get("lone").await?.status.unwrap_or_default();
    assert_eq!(status.deletion_policy, Some(drover_api::DeletionPolicy::Unsafe));
    change(&stage, "lone", json!({ "metadata": { "annotations": { hook: null } } })).await?;
    gone(&stage, &machine).await?;
    manager.end().await
}

/// Mirantis: a machine of a pool whose deletion is asked for is drained, deleted, and replaced: to have fewer, lower the
/// replicas first.
#[tokio::test(start_paused = true)]
async fn a_machine_of_a_pool_that_is_asked_to_go_is_replaced() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let value = mirantis("lone")["spec"]["providerSpec"]["value"].clone();
    let pool = good("MachineDeployment", "nodes");
    let pool = with(pool, "/spec/template/spec/providerSpec/value", value);
    stage.create(&with(pool, "/spec/replicas", json!(1))).await?;
    let up = async |old: Option<&drover_api::Machine>| {
        until("the machine is Running", async || {
            let machine = stage.census().await?.machines.into_iter().next();
            let status = machine.as_ref().and_then(|it| it.status.as_ref());
            let runs = status.is_some_and(|it| it.phase == Some(drover_api::Phase::Running));
            let is_new = machine.as_ref().map(|it| it.uid()) != old.map(|it| it.uid());
            Ok(machine.filter(|_| runs && is_new))
        })
        .await
    };
    let first = up(None).await?;
    let ask = json!({ "spec": { "providerSpec": { "value": { "delete": true } } } });
    change(&stage, &first.name_any(), ask).await?;
    let second = up(Some(&first)).await?;
    let census = stage.census().await?;
    assert_eq!((census.machines.len(), census.cloud.servers.len()), (1, 1), "{census}");
    assert_eq!(preparation(&second), (None, String::new()), "it is asked of the first alone");
    manager.end().await
}

/// Mirantis: a forced deletion ends although the cloud is stuck, and tells what may be left.
#[tokio::test(start_paused = true)]
async fn a_forced_deletion_ends_although_the_cloud_is_stuck() -> anyhow::Result<()> {
    let (stage, manager, machines) = two_nodes().await?;
    let name = machines[0].name_any();
    stage.cloud()?.add_fault(Fault::on("compute DELETE /servers/{id}", Effect::status(503)));
    stage.machines().delete(&name, &DeleteParams::default()).await?;
    reason(&stage, &name, "ServerDeleted", "CloudUnavailable").await?;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(stage.machines().get_opt(&name).await?.is_some(), "graceful never lets go");
    change(&stage, &name, json!({ "spec": { "deletionPolicy": "forced" } })).await?;
    gone(&stage, &machines[0]).await?;
    let servers = stage.census().await?.cloud.servers;
    let server = servers.iter().find(|it| it.name == name).expect("it was left behind");
    let events = Api::<Event>::namespaced(stage.admin.clone(), NAMESPACE);
    for kind in ["Machine", "MachineSet"] {
        until(&format!("an Event of the {kind} tells what is left"), async || {
            let all = events.list(&ListParams::default()).await?.items;
            let told = all.iter().any(|event| {
                let regarding = event.regarding.as_ref().and_then(|it| it.kind.as_deref());
                let note = event.note.as_deref().unwrap_or_default();
                regarding == Some(kind)
                    && event.reason.as_deref() == Some("LeftBehind")
                    && note.contains(&server.id)
            });
            Ok(told.then_some(()))
        })
        .await?;
    }
    manager.end().await
}

/// MetaKube's scenario 35 and its users' reports: what is missing is named, and the deletion resumes.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_credentials_or_class_says_what_it_needs_and_resumes()
-> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "cloud", "namespace": NAMESPACE }, "stringData": { "password": "password" },
    });
    stage.create(&secret).await?;
    let mut keyed = good("Machine", "keyed");
    let spec = &mut keyed["spec"]["providerSpec"]["value"]["cloudProviderSpec"];
    spec["identityEndpoint"] = json!(format!("{}/identity/v3", stage.world.cloud_url()));
    spec["username"] = json!("drover");
    spec["domainName"] = json!("Default");
    spec["projectName"] = json!("drover");
    spec["password"] =
        json!({ "secretKeyRef": { "namespace": NAMESPACE, "name": "cloud", "key": "password" } });
    let class = with(good("MachineClass", "small"), "/providerSpec/region", json!("dbl"));
    let classed = with(
        good("Machine", "classed"),
        "/spec/providerSpec",
        json!({ "valueFrom": { "machineClass": { "name": "small" } } }),
    );
    for object in [&class, &keyed, &classed] {
        stage.create(object).await?;
    }
    for name in ["keyed", "classed"] {
        reason(&stage, name, "Ready", "NodeReady").await?;
    }
    for object in [&secret, &class] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        stage.api(object).delete(name, &DeleteParams::default()).await?;
    }
    for name in ["keyed", "classed"] {
        stage.machines().delete(name, &DeleteParams::default()).await?;
    }
    let message = reason(&stage, "keyed", "ServerDeleted", "CredentialsMissing").await?;
    assert!(message.contains("Secret kube-system/cloud does not exist; create it"), "{message}");
    let message = reason(&stage, "classed", "ServerDeleted", "CredentialsMissing").await?;
    assert!(message.contains("MachineClass small does not exist"), "{message}");
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(stage.census().await?.cloud.servers.len(), 2, "nothing is let go unproven");
    for object in [&secret, &class] {
        stage.create(object).await?;
    }
    let left = stage.whole(0, &BTreeSet::new(), Duration::from_secs(600)).await?;
    assert!(left.cloud.is_empty(), "{left}");
    manager.end().await
}

/// MetaKube's webhook re-validated what was being deleted; here nothing is asked of it any more.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_description_is_broken_is_deleted_all_the_same() -> anyhow::Result<()> {
    let (stage, manager, machines) = two_nodes().await?;
    let name = machines[0].name_any();
    let typo = json!({ "spec": { "providerSpec": { "value": { "typo": "x" } } } });
    stage.machines().patch(&name, &PatchParams::default(), &Patch::Merge(typo)).await?;
    reason(&stage, &name, "Configured", "DescriptionInvalid").await?;
    let machine = stage.machines().get(&name).await?;
    assert_eq!(condition(&machine, "Ready").reason, "NodeReady", "it runs on");
    stage.machines().delete(&name, &DeleteParams::default()).await?;
    stage.whole(2, &machine.uid().into_iter().collect(), CHAPTER).await?;
    manager.end().await
}
