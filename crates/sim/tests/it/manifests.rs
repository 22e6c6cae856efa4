//! Wrong manifests: refused or reported with object, field, value and way out, at no cost to others.

use drover_api::Machine;
use drover_sim::faults::Life;
use drover_sim::stage::{EXAMPLE, NAMESPACE, Stage, Working};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const CHAPTER: Duration = Duration::from_secs(3600);
/// A refusal that only a change can lift is asked about again every 10 minutes: a promise, a look at
/// each thing the description names, and a status each time.
const API_CALLS_PER_MACHINE_AND_HOUR: u64 = 6 * 3;
const CLOUD_CALLS_PER_MACHINE_AND_HOUR: u64 = 6 * 10;

/// An object, what is wrong in it (null: what is left out), and the words of the refusal.
type Wrong = (&'static str, &'static str, Value, &'static [&'static str]);

/// A good object of this kind, made of the example.
pub fn good(kind: &str, name: &str) -> Value {
    let example: Value = serde_saphyr::from_str(EXAMPLE).expect("the example is YAML");
    let spec = match kind {
        "MachineDeployment" => example["spec"].clone(),
        "MachineSet" => json!({
            "replicas": 1,
            "selector": example["spec"]["selector"],
            "template": example["spec"]["template"],
        }),
        _ => example["spec"]["template"]["spec"].clone(),
    };
    let mut object = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    });
    if kind == "MachineClass" {
        object["spec"].take();
        object.as_object_mut().expect("an object").remove("spec");
        object["provider"] = json!("OpenStack");
        object["providerSpec"] = json!({
            "imageName": "Ubuntu Noble 24.04 (2024-08-01)", "flavorName": "m1.small",
            "region": "dbl", "networkID": "metakube-mmxfcmgjkx",
        });
    }
    object
}

/// A Secret with these texts.
pub fn secret(name: &str, texts: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": NAMESPACE }, "stringData": texts,
    })
}

/// The object with another value at this place; the objects around it are made as needed.
pub fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    let (parents, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    for parent in parents.split('/').skip(1) {
        at = &mut at[parent];
    }
    match (value, at.as_object_mut()) {
        (Value::Null, Some(parent)) => drop(parent.remove(name)),
        (value, _) => at[name] = value,
    }
    object
}

fn refused_pools() -> Vec<Wrong> {
    let d = "MachineDeployment";
    vec![
        (d, "/spec/replicas", json!(-1), &["spec.replicas", "-1", "greater than or equal to 0"]),
        (d, "/spec/replicas", json!("two"), &["spec.replicas", "string", "integer"]),
        (d, "/spec/replicas", json!(100_001), &["spec.replicas", "100001", "100000"]),
        (d, "/spec/selector", json!({}), &["spec.selector", "empty", "give matchLabels"]),
        (
            d,
            "/spec/selector/matchLabels/group",
            json!("x"),
            &["spec", "does not match the template"],
        ),
        (d, "/spec/selector", Value::Null, &["spec.selector", "Required"]),
        (d, "/spec/template", Value::Null, &["spec.template", "Required"]),
        (
            d,
            "/spec/strategy/rollingUpdate",
            json!({"maxSurge": 0}),
            &["spec.strategy.rollingUpdate", "both zero", "raise one"],
        ),
        (
            d,
            "/spec/strategy/rollingUpdate",
            json!({"maxUnavailable": "120%"}),
            &["spec.strategy.rollingUpdate.maxUnavailable", "120%"],
        ),
        (
            d,
            "/spec/strategy/type",
            json!("Replace"),
            &["spec.strategy.type", "\"Replace\"", "\"RollingUpdate\""],
        ),
        (
            d,
            "/spec/strategy/type",
            json!("InPlaceUpdate"),
            &["spec.strategy", "needs strategy.inPlaceUpdate"],
        ),
        (d, "/spec/minReadySeconds", json!(1.5), &["spec.minReadySeconds", "number", "integer"]),
        (
            d,
            "/spec/template/spec/versions/kubelet",
            json!("latest"),
            &["spec.template.spec.versions.kubelet", "\"latest\""],
        ),
        (
            d,
            "/spec/template/metadata/labels/zone",
            json!("z".repeat(64)),
            &["spec.template.metadata.labels.zone", "63"],
        ),
        (d, "/metadata/name", json!("n".repeat(47)), &["at most 46 characters"]),
        (d, "/metadata/name", json!("Nodes_1"), &["metadata.name", "\"Nodes_1\"", "RFC 1123"]),
        (d, "/metadata/labels", json!({"a b": "c"}), &["metadata.labels", "\"a b\""]),
    ]
}

fn refused_others() -> Vec<Wrong> {
    let m = "Machine";
    vec![
        ("MachineSet", "/spec/replicas", json!(-3), &["spec.replicas", "-3"]),
        (
            "MachineSet",
            "/spec/selector/matchLabels/group",
            json!("x"),
            &["spec", "does not match the template"],
        ),
        (m, "/metadata/name", json!("n".repeat(64)), &["at most 63 characters"]),
        (m, "/spec/configSource", json!({}), &["spec", "configSource", "leave it out"]),
        (
            m,
            "/spec/providerSpec/valueFrom",
            json!({"machineClass": {"name": "c"}}),
            &["spec.providerSpec", "not both"],
        ),
        (m, "/spec/creationTimeout", json!("soon"), &["spec.creationTimeout", "\"soon\""]),
        (m, "/spec/class", json!({"kind": "MachineClass"}), &["spec.class.name", "Required"]),
        (m, "/spec/taints", json!([{"key": "k"}]), &["spec.taints[0].effect", "Required"]),
        (
            m,
            "/spec/providerSpec/value/deletionPolicy",
            json!("gentle"),
            &["spec.providerSpec.value.deletionPolicy", "\"gentle\""],
        ),
        (
            m,
            "/spec/providerSpec/value/cloudProviderSpec",
            json!([]),
            &["spec.providerSpec.value.cloudProviderSpec", "array", "object"],
        ),
        ("MachineClass", "/providerSpec", Value::Null, &["providerSpec", "Required"]),
        (
            "MachineClass",
            "/secretRef",
            json!({"name": 7}),
            &["secretRef.name", "integer", "string"],
        ),
    ]
}

/// MetaKube's scenario 5, as far as a schema can tell.
#[tokio::test(start_paused = true)]
async fn what_a_schema_can_say_is_refused_at_the_door() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    for (kind, pointer, value, words) in refused_pools().into_iter().chain(refused_others()) {
        let object = with(good(kind, "wrong"), pointer, value);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let case = format!("{kind} {pointer}");
        let Err(kube::Error::Api(status)) = stage.create(&object).await else {
            panic!("{case} was not refused")
        };
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{case}");
        let named = format!("{kind}.cluster.k8s.io \"{name}\" is invalid: ");
        assert!(status.message.starts_with(&named), "{case}: {}", status.message);
        for word in words {
            assert!(status.message.contains(word), "{case}: {word:?} in {}", status.message);
        }
    }
    assert_eq!(stage.census().await?.machines.len(), 0);
    Ok(())
}

const VALUE: &str = "/spec/providerSpec/value";
const CLOUD: &str = "/spec/providerSpec/value/cloudProviderSpec";

/// What is wrong in a Machine, and the words of the report: where, in which field, and its value.
type Reported = (&'static str, &'static str, Value, &'static [&'static str]);

/// What only a reader of the description can say.
fn reported_by_readers() -> Vec<Reported> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut noise = || (0..396).map(|_| rng.alphanumeric()).collect::<String>();
    let big: Vec<String> = (0..250).map(|_| format!("ssh-rsa AAAA{}", noise())).collect();
    let lost = json!({"secretKeyRef": {"namespace": NAMESPACE, "name": "lost", "key": "k"}});
    vec![
        (VALUE, "cloudProvider", json!("aws"), &["value.cloudProvider", "aws", "openstack"]),
        (
            VALUE,
            "operatingSystem",
            json!("windows"),
            &["value.operatingSystem", "windows", "ubuntu or flatcar"],
        ),
        (VALUE, "operatingSystem", Value::Null, &["value.operatingSystem", "missing"]),
        (VALUE, "cloudProviderSpec", Value::Null, &["value.cloudProviderSpec", "missing"]),
        (
            VALUE,
            "sshPublicKeys",
            json!(["my key"]),
            &["value.sshPublicKeys", "my key", "ssh-ed25519"],
        ),
        (VALUE, "sshPublicKeys", json!(big), &["user-data", "bytes", "65535"]),
        (
            VALUE,
            "network",
            json!({"cidr": "10.0.0.0/24"}),
            &["value.network.cidr", "10.0.0.0/24", "leave it out"],
        ),
        (VALUE, "colour", json!("red"), &["value.colour", "unknown field"]),
        (
            VALUE,
            "kind",
            json!("OpenstackMachineProviderSpec"),
            &["value.apiVersion", "openstackproviderconfig.k8s.io/v1alpha1"],
        ),
        (
            CLOUD,
            "flavour",
            json!("m1.small"),
            &["cloudProviderSpec.flavour", "unknown field", "flavor"],
        ),
        (CLOUD, "image", Value::Null, &["cloudProviderSpec.image", "missing"]),
        (CLOUD, "tags", json!(["a,b"]), &["cloudProviderSpec.tags", "a,b", "comma"]),
        (
            CLOUD,
            "rootDiskSizeGB",
            json!(0),
            &["cloudProviderSpec.rootDiskSizeGB", "0", "from 1 up"],
        ),
        (
            CLOUD,
            "rootDiskVolumeType",
            json!("ssd"),
            &["cloudProviderSpec.rootDiskSizeGB", "missing"],
        ),
        (
            CLOUD,
            "serverGroup",
            json!("other"),
            &["cloudProviderSpec.serverGroupID", "one of the two"],
        ),
        (
            CLOUD,
            "flavor",
            lost.clone(),
            &["cloudProviderSpec.flavor", "Secret kube-system/lost", "create it"],
        ),
        (CLOUD, "password", lost, &["Secret kube-system/lost", "create it"]),
    ]
}

/// What the cloud does not have, and what of a Machine's own fields makes no node.
fn reported_by_others() -> Vec<Reported> {
    vec![
        (CLOUD, "image", json!("BeOS"), &["image", "BeOS"]),
        (CLOUD, "flavor", json!("m1.vast"), &["flavor", "m1.vast"]),
        (CLOUD, "network", json!("nowhere"), &["network", "nowhere"]),
        (CLOUD, "subnet", json!("nothing"), &["subnet", "nothing"]),
        (CLOUD, "securityGroups", json!(["lax"]), &["security group", "lax"]),
        (CLOUD, "serverGroupID", json!("herd"), &["server group", "herd"]),
        (CLOUD, "floatingIpPool", json!("puddle"), &["floating", "puddle"]),
        (CLOUD, "availabilityZone", json!("atlantis"), &["availability zone", "atlantis"]),
        (CLOUD, "region", json!("moon"), &["region", "moon"]),
        (
            "/spec",
            "providerSpec",
            Value::Null,
            &["spec.providerSpec.value", "missing", "MachineClass"],
        ),
        ("/spec", "versions", Value::Null, &["spec.versions.kubelet", "missing", "1.30.3"]),
        (
            "/spec",
            "class",
            json!({"kind": "MachineClass", "name": "c"}),
            &["spec.class", "not both"],
        ),
        (
            "/spec",
            "providerSpec",
            json!({"valueFrom": {"machineClass": {"name": "first-class"}}}),
            &["machineClass", "first-class", "create it"],
        ),
        (
            "/spec",
            "taints",
            json!([{"key": "k", "effect": "Sometimes"}]),
            &["taint", "Sometimes", "NoSchedule"],
        ),
        ("/spec", "taints", json!([{"key": "a key", "effect": "NoSchedule"}]), &["taint", "a key"]),
        ("/spec", "metadata", json!({"labels": {"k": "not a value"}}), &["label", "not a value"]),
        ("/spec", "metadata", json!({"labels": {"a b": "v"}}), &["label", "a b"]),
    ]
}

/// All that is said of a machine where its user looks: conditions and error.
fn said(machine: &Machine) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let mut said: Vec<String> = status.conditions.into_iter().map(|it| it.message).collect();
    said.extend(status.error_message);
    said.join("\n")
}

async fn warnings(stage: &Stage, name: &str) -> anyhow::Result<String> {
    let events: Api<Event> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let events = events.list(&about).await?.items.into_iter();
    let warnings = events.filter(|it| it.type_.as_deref() == Some("Warning"));
    Ok(warnings.filter_map(|it| it.message).collect::<Vec<_>>().join("\n"))
}

/// The manager is as well as before.
pub fn unharmed(manager: &Working) {
    let text = manager.metrics.text();
    assert!(!text.contains("panicked"), "{text}");
}

/// MetaKube's scenarios 4 and 5. What differs: there is no webhook; what only a reader of a description can say is told
/// by the machine, and nothing is made.
#[tokio::test(start_paused = true)]
async fn metakube_4_metakube_5_what_only_a_reader_can_say_is_reported_and_costs_nothing()
-> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let life = Life::until(u64::MAX, |_| true);
    let mut wires = stage.wires(&life);
    let cloud = Life::until(u64::MAX, |_| true);
    wires.openstack = stage.wires(&cloud).openstack;
    let manager = stage.work(wires)?;
    let wrong: Vec<Reported> =
        reported_by_readers().into_iter().chain(reported_by_others()).collect();
    for (at, (root, field, value, _)) in wrong.iter().enumerate() {
        let object = good("Machine", &format!("wrong-{at}"));
        stage.create(&with(object, &format!("{root}/{field}"), value.clone())).await?;
    }
    stage.apply_example(1).await?;
    tokio::time::sleep(CHAPTER / 2).await;
    let (api_calls, cloud_calls) = (life.calls(), cloud.calls());
    tokio::time::sleep(CHAPTER).await;
    let (api_calls, cloud_calls) = (life.calls() - api_calls, cloud.calls() - cloud_calls);

    let mut silent = vec![];
    for (at, (root, field, value, words)) in wrong.iter().enumerate() {
        let name = format!("wrong-{at}");
        let (said, warned) =
            (said(&stage.machines().get(&name).await?), warnings(&stage, &name).await?);
        for (place, text) in [("status", said), ("events", warned)] {
            if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
                let value: String = value.to_string().chars().take(60).collect();
                silent
                    .push(format!("{name} {root}/{field} {value}: no {word:?} in {place}: {text}"));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
    let census = stage.census().await?;
    assert_eq!((census.available, census.cloud.servers.len()), (1, 1), "{census}");
    assert_eq!(census.cloud.servers_made, 1, "only the good one was made");
    // Nova judges a zone only when it is given the port.
    let zone =
        wrong.iter().position(|it| it.1 == "availabilityZone").map(|at| format!("wrong-{at}"));
    let ports = census.cloud.ports.iter().filter(|port| Some(&port.name) != zone.as_ref());
    assert_eq!((ports.count(), census.cloud.floating_ips.len()), (1, 1), "{census}");
    let count = wrong.len() as u64 + 1;
    assert!(api_calls <= API_CALLS_PER_MACHINE_AND_HOUR * count, "{api_calls} calls");
    assert!(cloud_calls <= CLOUD_CALLS_PER_MACHINE_AND_HOUR * count, "{cloud_calls} calls");
    unharmed(&manager);

    for at in 0..wrong.len() {
        stage.machines().delete(&format!("wrong-{at}"), &DeleteParams::default()).await?;
    }
    stage.whole(1, &BTreeSet::new(), CHAPTER).await?;
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_used_is_reported_by_its_machines() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let wrong: [(&str, Value, &[&str]); 4] = [
        ("/provider", json!("AWS"), &["MachineClass wrong-0: provider", "AWS", "OpenStack"]),
        (
            "/providerSpec/colour",
            json!("red"),
            &["MachineClass wrong-1: providerSpec.colour", "unknown"],
        ),
        ("/providerSpec/subnetIDs", json!("a"), &["providerSpec.subnetIDs", "give a list"]),
        ("/secretRef", json!({"name": "lost"}), &["Secret kube-system/lost", "create it"]),
    ];
    for (at, (pointer, value, _)) in wrong.iter().enumerate() {
        let name = format!("wrong-{at}");
        stage.create(&with(good("MachineClass", &name), pointer, value.clone())).await?;
        let by_class = json!({"valueFrom": {"machineClass": {"name": name}}});
        stage.create(&with(good("Machine", &name), "/spec/providerSpec", by_class)).await?;
    }
    tokio::time::sleep(CHAPTER / 4).await;
    for (at, (pointer, _, words)) in wrong.iter().enumerate() {
        let said = said(&stage.machines().get(&format!("wrong-{at}")).await?);
        for word in *words {
            assert!(said.contains(word), "{pointer}: {word:?} in {said}");
        }
        stage.machines().delete(&format!("wrong-{at}"), &DeleteParams::default()).await?;
    }
    unharmed(&manager);
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    assert_eq!(stage.census().await?.cloud.servers_made, 0);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_put_right_goes_on() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let image = "/spec/template/spec/providerSpec/value/cloudProviderSpec/image";
    stage.create(&with(good("MachineDeployment", "nodes"), image, json!("BeOS"))).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    let old = stage.census().await?.uids();
    assert_eq!(old.len(), 2);
    let right = Patch::Merge(with(json!({}), image, json!("Ubuntu Noble 24.04 (2024-08-01)")));
    stage.pools().patch("nodes", &PatchParams::default(), &right).await?;
    let whole = stage.whole(2, &old, CHAPTER).await?;
    assert_eq!(whole.cloud.servers_made, 2);
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;

    let by_class = json!({"valueFrom": {"machineClass": {"name": "late"}}});
    let place = "/spec/template/spec/providerSpec";
    stage.create(&with(good("MachineDeployment", "nodes"), place, by_class)).await?;
    tokio::time::sleep(CHAPTER / 4).await;
    assert_eq!(
        stage.census().await?.cloud.servers_made,
        2,
        "nothing can be made without the class"
    );
    stage.create(&good("MachineClass", "late")).await?;
    let deadline = tokio::time::Instant::now() + CHAPTER / 4;
    while stage.census().await?.available < 2 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let census = stage.census().await?;
    assert_eq!(census.available, 2, "{census}");
    unharmed(&manager);
    manager.end().await
}

#[tokio::test(start_paused = true)]
async fn bounds_of_the_autoscaler_that_make_no_sense_are_told() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    for (at, (min, max, words)) in [
        ("5", "2", ["min-size", "5", "2"]),
        ("few", "2", ["min-size", "few", "number"]),
        ("1", "-1", ["max-size", "-1", "number"]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("bounds-{at}");
        let annotations = json!({
            "cluster.k8s.io/cluster-api-autoscaler-node-group-min-size": min,
            "cluster.k8s.io/cluster-api-autoscaler-node-group-max-size": max,
        });
        let pool = with(good("MachineDeployment", &name), "/spec/replicas", json!(0));
        stage.create(&with(pool, "/metadata/annotations", annotations)).await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let status = stage.pools().get(&name).await?.status.unwrap_or_default();
        let told = status.conditions.iter().find(|it| it.type_ == "AutoscalerBounds");
        let told = told.map(|it| it.message.clone()).unwrap_or_default();
        for word in words {
            assert!(told.contains(word), "{min} {max}: {word:?} in {told:?}");
        }
    }
    unharmed(&manager);
    let names: Vec<String> =
        stage.census().await?.machines.iter().map(|it| it.name_any()).collect();
    assert!(names.is_empty(), "{names:?}");
    manager.end().await
}
