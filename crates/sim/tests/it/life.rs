//! What a machine shows through its life, and lives that other systems knew and Drover has to match.

use crate::manifests::{good, with};
use crate::workload::{CHAPTER, change, condition, gone, reason, until};
use drover_api::{Machine, Phase};
use drover_lab::cloud::{Effect, Fault};
use drover_sim::faults::Life;
use drover_sim::stage::{EXAMPLE, NAMESPACE, Stage, Working};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

async fn start() -> anyhow::Result<(Stage, Working)> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    Ok((stage, manager))
}

/// The phrase of `kubectl get ma -o wide`, with the names and IDs of this world taken out.
fn phrase(machine: &Machine) -> String {
    let ready = condition(machine, "Ready");
    let phase = machine.status.as_ref().and_then(|it| it.phase).map_or("", Phase::as_str);
    let name = machine.name_any();
    let is_id = |word: &&str| word.len() == 36 && word.matches('-').count() == 4;
    let words = ready.message.split(' ').map(|word| match word {
        word if is_id(&word) => "ID".to_owned(),
        word if word.starts_with(NAMESPACE) => "POD".to_owned(),
        word => word.replace(&name, "NAME"),
    });
    let message = words.collect::<Vec<_>>().join(" ");
    format!("{phase} {}: {message}", ready.reason)
}

/// What the only machine says until it is gone or `last` is said, each phrase once.
async fn story(stage: &Stage, last: &str) -> anyhow::Result<Vec<String>> {
    let mut told: Vec<String> = vec![];
    let deadline = tokio::time::Instant::now() + CHAPTER;
    loop {
        let machines = stage.machines().list(&ListParams::default()).await?.items;
        let said = machines.first().filter(|it| it.status.is_some()).map(phrase);
        let is_over = machines.is_empty() && !told.is_empty();
        if let Some(said) = said.filter(|said| told.last() != Some(said)) {
            told.push(said);
        }
        if is_over || told.last().is_some_and(|said| said == last) {
            return Ok(told);
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "the story does not end: {told:#?}"
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// What is said comes from this table and in its order; what is over at once may go unsaid, but for the lines
/// that begin with a star.
fn assert_told(told: &[String], table: &str) {
    let table: Vec<(bool, &str)> = table
        .trim()
        .lines()
        .map(|line| line.trim())
        .map(|line| line.strip_prefix("* ").map_or((false, line), |line| (true, line)))
        .collect();
    let mut at = 0;
    for said in told {
        let found = table[at..].iter().position(|(_, line)| line == said);
        let found = found.unwrap_or_else(|| panic!("{said:?} is not due in {told:#?}"));
        let skipped = table[at..at + found].iter().find(|(must, _)| *must);
        assert_eq!(skipped, None, "was not said before {said:?} in {told:#?}");
        at += found + 1;
    }
    let rest = table[at..].iter().find(|(must, _)| *must);
    assert_eq!(rest, None, "was never said in {told:#?}");
}

/// Gardener's scenario 1, in MetaKube's order of a birth. What differs: the Node is in `status.nodeRef` and
/// not in a label, and there is no annotation of a priority.
#[tokio::test(start_paused = true)]
async fn gardener_1_every_step_of_a_life_has_a_phrase_worth_reading() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(1).await?;
    let born = story(&stage, "Running NodeReady: the node is ready").await?;
    assert_told(
        &born,
        "
        Pending ServerOrdered: the server is being made
        Pending ServerWaiting: the cloud is at work: server ID to be built
        Pending ServerWaiting: the cloud is at work: server ID to be built, it is building
        Pending ServerWaiting: the cloud is at work: server ID to be built, it is scheduling
        Pending ServerWaiting: the cloud is at work: server ID to be built, it is networking
        Pending ServerWaiting: the cloud is at work: server ID to be built, it is block_device_mapping
        * Pending ServerWaiting: the cloud is at work: server ID to be built, it is spawning
        * Pending BootAwaited: the server boots; node NAME has not asked for a certificate yet
        Pending NodeAwaited: node NAME has its certificate and has not registered yet
        Pending NodeJoined: the node registered
        Pending NodeNotReady: the node is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized
        Pending NodeUninitialized: the cloud controller manager has not seen the node yet
        Pending CriticalPodsAwaited: the node's critical pod POD is not ready yet
        Pending CriticalPodsAwaited: the node's critical pods are not ready yet
        * Running NodeReady: the node is ready
        ",
    );
    let machine = stage.machines().list(&ListParams::default()).await?.items.remove(0);
    let status = machine.status.clone().unwrap_or_default();
    let types: Vec<&str> = status.conditions.iter().map(|it| it.type_.as_str()).collect();
    let steps = [
        "Configured",
        "PortsReady",
        "ServerCreated",
        "FloatingIPReady",
        "ServerReady",
        "Booted",
        "CertificateIssued",
        "NodeJoined",
        "AddressesKnown",
        "CriticalPodsReady",
        "Ready",
    ];
    assert_eq!(types, steps, "one condition for each step");
    let operation = serde_json::to_value(&status.last_operation)?;
    assert_eq!((&operation["type"], &operation["state"]), (&json!("Create"), &json!("Successful")));
    assert!(status.versions.is_some() && status.node_ref.is_some() && status.addresses.len() > 1);
    assert_eq!(stage.census().await?.tokens, 0);

    stage.scale(0).await?;
    let ended = story(&stage, "").await?;
    assert_told(
        &ended,
        "
        Running NodeReady: the node is ready
        Terminating VolumesDetached: no volume is attached to the node
        Terminating ServerDeleting: the cloud is deleting the server
        * Terminating ServerDeleting: the cloud is at work: server ID to go
        Terminating ServerDeleting: the cloud is at work: the server to go
        ",
    );
    manager.end().await
}

/// A Secret as Gardener's classes refer to: credentials and user-data in one.
fn class_secret(stage: &Stage) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "cloud", "namespace": NAMESPACE },
        "stringData": {
            "authURL": format!("{}/identity/v3", stage.world.cloud_url()),
            "username": "drover", "password": "password", "domainName": "Default",
            "tenantName": "drover", "userData": "#cloud-config\n{}\n",
        },
    })
}

async fn classed_machine(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let class = with(good("MachineClass", "small"), "/providerSpec/region", json!("dbl"));
    let class = with(class, "/secretRef", json!({ "name": "cloud", "namespace": NAMESPACE }));
    stage.create(&class).await?;
    let from = json!({ "valueFrom": { "machineClass": { "name": "small" } } });
    let machine = with(good("Machine", name), "/spec/providerSpec", from);
    stage.create(&with(machine, "/spec/creationTimeout", json!("20m"))).await?;
    Ok(())
}

/// MetaKube's scenario 11. What differs: Drover's own user-data needs no Secret; this is about the user-data
/// of a MachineClass.
#[tokio::test(start_paused = true)]
async fn metakube_11_nothing_is_made_before_the_user_data_is_there() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    classed_machine(&stage, "lone").await?;
    let message = reason(&stage, "lone", "Ready", "CredentialsMissing").await?;
    assert!(message.contains("Secret kube-system/cloud does not exist; create it"), "{message}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let cloud = stage.census().await?.cloud;
    assert!(cloud.is_empty() && cloud.servers_made == 0, "nothing was made");
    stage.create(&class_secret(&stage)).await?;
    let begun = tokio::time::Instant::now();
    reason(&stage, "lone", "ServerReady", "ServerRunning").await?;
    assert!(begun.elapsed() < Duration::from_secs(180), "{:?}", begun.elapsed());
    stage.machines().delete("lone", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    manager.end().await
}

/// Gardener's scenarios 13 and 14: what a class says of its nodes holds against a user's hand, and what is not its own
/// stays.
#[tokio::test(start_paused = true)]
async fn a_node_of_a_class_gets_back_its_labels_and_follows_its_virtual_capacity()
-> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let class = with(good("MachineClass", "small"), "/providerSpec/region", json!("dbl"));
    let at = "/nodeTemplate/virtualCapacity";
    let class = with(class, at, json!({ "example.com/dongle": "2" }));
    stage.create(&class).await?;
    let from = json!({ "valueFrom": { "machineClass": { "name": "small" } } });
    let machine = with(good("Machine", "lone"), "/spec/providerSpec", from);
    stage.create(&with(machine, "/spec/metadata/labels", json!({ "a": "1", "b": "1" }))).await?;
    reason(&stage, "lone", "Ready", "NodeReady").await?;
    let holds = async |labels: [Option<&str>; 3], dongles: Option<&str>| {
        let what = format!("labels {labels:?} and dongles {dongles:?}");
        until(&what, async || {
            let node = stage.nodes().get("lone").await?;
            let has = ["a", "b", "x"].map(|key| node.labels().get(key).map(String::as_str));
            let capacity = node.status.as_ref().and_then(|it| it.capacity.clone());
            let capacity = capacity.unwrap_or_default();
            let of = |name: &str| capacity.get(name).map(|it| it.0.as_str());
            let is_so = has == labels && of("example.com/dongle") == dongles;
            Ok((is_so && of("cpu").is_some()).then_some(()))
        })
        .await
    };
    holds([Some("1"), Some("1"), None], Some("2")).await?;
    let edit = Patch::Merge(json!({ "metadata": { "labels": { "a": "2", "x": "9" } } }));
    stage.nodes().patch("lone", &PatchParams::default(), &edit).await?;
    holds([Some("1"), Some("1"), Some("9")], Some("2")).await?;
    change(&stage, "lone", json!({ "spec": { "metadata": { "labels": { "b": null } } } })).await?;
    holds([Some("1"), None, Some("9")], Some("2")).await?;
    for dongles in [Some("3"), None] {
        let capacity =
            json!({ "nodeTemplate": { "virtualCapacity": { "example.com/dongle": dongles } } });
        let patch = Patch::Merge(capacity);
        stage.api(&class).patch("small", &PatchParams::default(), &patch).await?;
        holds([Some("1"), None, Some("9")], dongles).await?;
    }
    manager.end().await
}

/// Gardener's scenario 29: create ends Available with addresses; delete skips drain, node and token.
#[tokio::test(start_paused = true)]
async fn gardener_29_without_a_target_cluster_servers_come_and_go() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let life = Life::long();
    let manager = stage.work_as(stage.wires(&life), "sim", |it| it.machine.joins = false)?;
    stage.create(&class_secret(&stage)).await?;
    classed_machine(&stage, "lone").await?;
    until("lone is Available", async || {
        let status = stage.machines().get("lone").await?.status.unwrap_or_default();
        Ok((status.phase == Some(Phase::Available)).then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let machine = stage.machines().get("lone").await?;
    let status = machine.status.clone().unwrap_or_default();
    assert_eq!(status.phase, Some(Phase::Available), "there is no deadline for a Node");
    assert!(!status.addresses.is_empty());
    let rendered = good("Machine", "rendered");
    stage.create(&rendered).await?;
    let message = reason(&stage, "rendered", "Ready", "DescriptionRefused").await?;
    assert!(message.contains("user-data"), "{message}");
    for name in ["lone", "rendered"] {
        stage.machines().delete(name, &DeleteParams::default()).await?;
    }
    gone(&stage, &machine).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    let log = life.log();
    let other = |call: &&String| {
        ["/nodes/", "/secrets", "/eviction", "/pods/"].iter().any(|part| call.contains(part))
    };
    assert_eq!(log.iter().find(other), None, "no node, no token and no drain");
    manager.end().await
}

/// MetaKube's scenario 40, with fewer machines.
#[tokio::test(start_paused = true)]
async fn metakube_40_steady_machines_are_left_alone_and_a_flap_concerns_one() -> anyhow::Result<()>
{
    const MACHINES: usize = 20;
    let stage = Stage::start().await?;
    let life = Life::long();
    let manager = stage.work(stage.wires(&life))?;
    stage.apply_example(MACHINES as u32).await?;
    let machines = stage.whole(MACHINES, &BTreeSet::new(), CHAPTER).await?.machines;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = life.log().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(life.log()[before..], [] as [String; 0], "nothing is written for ten minutes");

    let name = machines[0].name_any();
    let flap = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    stage.nodes().patch_status(&name, &PatchParams::default(), &Patch::Strategic(flap)).await?;
    until("its machine is Unknown", async || {
        let phase = stage.machines().get(&name).await?.status.and_then(|it| it.phase);
        Ok((phase == Some(Phase::Unknown)).then_some(()))
    })
    .await?;
    stage.whole(MACHINES, &BTreeSet::new(), CHAPTER).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let log = life.log();
    let others: Vec<String> = machines[1..].iter().map(ResourceExt::name_any).collect();
    let stray =
        log[before..].iter().find(|call| others.iter().any(|it| call.contains(it.as_str())));
    assert_eq!(stray, None, "only {name} is concerned");
    assert_eq!(life.calls(), log.len() as u64);
    manager.end().await
}

/// MetaKube's scenario 35.
#[tokio::test(start_paused = true)]
async fn metakube_35_a_pool_whose_image_was_removed_goes_away() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(2).await?;
    stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    manager.end().await?;
    stage.cloud()?.add_fault(Fault::on("image", Effect::status(404)));
    // One that has no image in its cache.
    let manager = stage.work(stage.wires(&Life::long()))?;
    stage.scale(3).await?;
    until("a machine that finds no image", async || {
        let machines = stage.census().await?.machines;
        let lacks = |it: &&Machine| {
            it.status.as_ref().is_some_and(|it| it.phase == Some(Phase::CrashLoopBackOff))
        };
        Ok(machines.iter().find(lacks).map(drop))
    })
    .await?;
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    let left = stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    assert!(left.cloud.is_empty(), "{left}");
    manager.end().await
}

/// Gardener's scenario 4. What differs: the deadline is 2 h unless `creationTimeout` says otherwise.
#[tokio::test(start_paused = true)]
async fn gardener_4_a_machine_that_cannot_be_made_in_time_is_replaced() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.cloud()?.add_fault(Fault::on("compute POST /servers", Effect::status(503)));
    let pool = with(good("MachineDeployment", "nodes"), "/spec/replicas", json!(1));
    stage.create(&with(pool, "/spec/template/spec/creationTimeout", json!("6m"))).await?;
    let first =
        until("the first machine", async || Ok(stage.census().await?.machines.into_iter().next()))
            .await?;
    let (name, born) = (first.name_any(), tokio::time::Instant::now());
    tokio::time::sleep(Duration::from_secs(5 * 60)).await;
    let status = stage.machines().get(&name).await?.status.unwrap_or_default();
    assert_eq!(status.phase, Some(Phase::CrashLoopBackOff));
    gone(&stage, &first).await?;
    let took = born.elapsed();
    assert!(took < Duration::from_secs(8 * 60), "it was replaced after {took:?}");
    stage.cloud()?.set_faults(vec![]);
    stage.whole(1, &first.uid().into_iter().collect(), CHAPTER).await?;
    manager.end().await
}

/// Gardener's scenarios 8 and 10. What differs: nobody asks for a permit, a set replaces its Failed machines
/// within its own budget, so pools never wait for each other.
#[tokio::test(start_paused = true)]
async fn gardener_8_gardener_10_silent_machines_of_two_pools_are_replaced_at_once()
-> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    for name in ["nodes", "others"] {
        let mut pool: Value = serde_saphyr::from_str(EXAMPLE)?;
        pool["metadata"]["name"] = json!(name);
        pool["spec"]["replicas"] = json!(1);
        pool["spec"]["selector"]["matchLabels"]["group"] = json!(name);
        pool["spec"]["template"]["metadata"]["labels"]["group"] = json!(name);
        pool["spec"]["template"]["spec"]["healthTimeout"] = json!("10m");
        stage.create(&pool).await?;
    }
    let up = async |old: &BTreeSet<String>| {
        until("both pools are up", async || {
            let census = stage.census().await?;
            let new = census.uids().is_disjoint(old) && census.machines.len() == 2;
            let ready = |it: &Machine| condition(it, "Ready").status.as_str() == "True";
            Ok((new && census.machines.iter().all(ready)).then_some(census))
        })
        .await
    };
    let census = up(&BTreeSet::new()).await?;
    let patch = Patch::Merge(json!({ "spec": { "disableHealthTimeout": true } }));
    let spared = &census.machines[0].name_any();
    stage.machines().patch(spared, &PatchParams::default(), &patch).await?;
    for server in &census.cloud.servers {
        assert!(stage.cloud()?.crash(&server.id, false));
    }
    let begun = tokio::time::Instant::now();
    gone(&stage, &census.machines[1]).await?;
    assert!(begun.elapsed() < Duration::from_secs(25 * 60), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let status = stage.machines().get(spared).await?.status.unwrap_or_default();
    assert_eq!(status.phase, Some(Phase::Unknown), "disableHealthTimeout keeps it");
    let patch = Patch::Merge(json!({ "spec": { "disableHealthTimeout": null } }));
    stage.machines().patch(spared, &PatchParams::default(), &patch).await?;
    up(&census.uids()).await?;
    manager.end().await
}
