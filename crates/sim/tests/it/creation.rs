//! How machines come into being when the cloud is short of something, and what a Gardener class asks for.

use crate::manifests::{good, secret, unharmed, with};
use crate::secrets::{key, own_credentials};
use crate::workload::{reason, until};
use base64::{Engine, engine::general_purpose::STANDARD};
use drover_api::{Machine, MachineSet, Phase, Resolved, describe, find_condition, labels};
use drover_lab::cloud::{Cloud, Effect, Fault, Quotas};
use drover_plan::bootstrap::BootstrapToken;
use drover_plan::machine::{Settings, user_data};
use drover_sim::faults::Life;
use drover_sim::stage::{NAMESPACE, Stage, Working};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const CHAPTER: Duration = Duration::from_secs(3600);

async fn start() -> anyhow::Result<(Stage, Working)> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    Ok((stage, manager))
}

fn cloud(stage: &Stage) -> &Cloud {
    stage.cloud().expect("the lab's own")
}

fn calls(stage: &Stage) -> u64 {
    cloud(stage).ledger().calls.values().sum()
}

/// The names of the objects of this kind that have an Event of this reason, once for each Event.
async fn events(stage: &Stage, reason: &str, kind: &str) -> anyhow::Result<Vec<String>> {
    let all = Api::<Event>::namespaced(stage.admin.clone(), NAMESPACE);
    let all = all.list(&ListParams::default()).await?.items.into_iter();
    let meant = all.filter(|event| {
        event.reason.as_deref() == Some(reason)
            && event.involved_object.kind.as_deref() == Some(kind)
    });
    Ok(meant.filter_map(|event| event.involved_object.name).collect())
}

async fn sets(stage: &Stage) -> anyhow::Result<Vec<MachineSet>> {
    let sets = Api::<MachineSet>::namespaced(stage.admin.clone(), NAMESPACE);
    Ok(sets.list(&ListParams::default()).await?.items)
}

/// MetaKube's scenario 1. What differs: a server carries the UID of its machine as `drover-machine`, and in a tag.
#[tokio::test(start_paused = true)]
async fn metakube_1_a_pool_of_three_is_one_set_three_machines_and_three_servers()
-> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    stage.apply_example(3).await?;
    let whole = stage.whole(3, &BTreeSet::new(), CHAPTER).await?;
    let sets = sets(&stage).await?;
    assert_eq!(sets.len(), 1);
    let set = &sets[0];
    let owner = |owners: &[OwnerReference]| match owners {
        [one] if one.controller == Some(true) => (one.kind.clone(), one.uid.clone()),
        other => panic!("one owner, and it controls: {other:?}"),
    };
    let pool = stage.pools().get("nodes").await?.uid().unwrap_or_default();
    assert_eq!(owner(set.owner_references()), ("MachineDeployment".to_owned(), pool));
    assert_eq!(set.annotations()[labels::REVISION], "1");
    let hash = &set.labels()[labels::TEMPLATE_HASH];
    for machine in &whole.machines {
        let uid = set.uid().unwrap_or_default();
        assert_eq!(owner(machine.owner_references()), ("MachineSet".to_owned(), uid));
        assert_eq!(&machine.labels()[labels::TEMPLATE_HASH], hash);
        for finalizer in [labels::FINALIZER_SERVER, labels::FINALIZER_NODE] {
            assert!(machine.finalizers().contains(&finalizer.to_owned()), "{finalizer}");
        }
    }
    let servers = whole.cloud.servers.iter().map(|it| it.metadata["drover-machine"].clone());
    assert_eq!(servers.collect::<BTreeSet<_>>(), whole.uids());
    unharmed(&manager);
    manager.end().await
}

/// MetaKube's scenario 8. What differs: for a key that is missing no variable of the manager stands in. It is named and
/// waited for: a deletion with other credentials would find nothing and take that for the end.
#[tokio::test(start_paused = true)]
async fn metakube_8_credentials_by_reference_resolve_and_a_missing_key_is_named()
-> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "who", "namespace": NAMESPACE }, "data": { "user": "drover" },
    });
    stage.create(&config).await?;
    stage.create(&secret("cloud", json!({ "passwort": "password" }))).await?;
    let user = json!({"configMapKeyRef": {"namespace": NAMESPACE, "name": "who", "key": "user"}});
    let given = json!({
        "username": user, "password": key("cloud", "password"),
        "domainName": "Default", "projectName": "drover",
    });
    let machine = own_credentials(good("Machine", "lone"), "/spec", &stage, &given);
    stage.create(&machine).await?;
    let message = reason(&stage, "lone", "Ready", "CredentialsMissing").await?;
    assert!(message.contains("key password of Secret kube-system/cloud"), "{message}");
    assert_eq!(calls(&stage), 0, "the cloud is not even asked");
    let found = Patch::Merge(json!({ "stringData": { "password": "password" } }));
    let secrets = stage.api(&secret("cloud", json!({})));
    secrets.patch("cloud", &PatchParams::default(), &found).await?;
    reason(&stage, "lone", "Ready", "NodeReady").await?;
    stage.machines().delete("lone", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    unharmed(&manager);
    manager.end().await
}

/// MetaKube's scenario 8, as its tools write descriptions: with the address of the cloud, for the manager has the rest. The
/// manager's own goes to no other address.
#[tokio::test(start_paused = true)]
async fn metakube_8_what_a_description_does_not_name_is_the_managers() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let elsewhere = json!({ "identityEndpoint": "https://keystone.example:5000/v3" });
    let named = |name: &str| with(good("Machine", name), "/metadata/name", json!(name));
    stage.create(&own_credentials(named("abroad"), "/spec", &stage, &elsewhere)).await?;
    let message = reason(&stage, "abroad", "Ready", "DescriptionRefused").await?;
    assert!(
        message.contains("a password, token or application credential is missing"),
        "{message}"
    );
    assert!(message.contains("its Keystone is another one"), "{message}");
    assert_eq!(calls(&stage), 0, "no cloud is asked");

    stage.create(&secret("cloud", json!({ "password": "password" }))).await?;
    let own = json!({ "username": "drover", "password": key("cloud", "password") });
    for (name, given, has) in [
        ("address", json!({}), "identityEndpoint (inline), the rest is the manager's"),
        (
            "login",
            own,
            "identityEndpoint (inline), password (key password of Secret kube-system/cloud), username (inline)",
        ),
    ] {
        stage.create(&own_credentials(named(name), "/spec", &stage, &given)).await?;
        reason(&stage, name, "Ready", "NodeReady").await?;
        let message = reason(&stage, name, "Configured", "DescriptionUnderstood").await?;
        assert!(message.contains(has), "{message}");
        stage.machines().delete(name, &DeleteParams::default()).await?;
    }
    stage.machines().delete("abroad", &DeleteParams::default()).await?;
    stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
    unharmed(&manager);
    manager.end().await
}

/// The message of the condition CircuitOpen of the pool and of its set.
async fn circuit(stage: &Stage) -> anyhow::Result<[Option<String>; 2]> {
    let open = drover_api::ConditionType::CircuitOpen;
    let pool = stage.pools().get("nodes").await?.status.unwrap_or_default();
    let sets = sets(stage).await?;
    let of_sets = sets.iter().filter_map(|set| set.status.as_ref());
    let of_set = of_sets.filter_map(|status| find_condition(&status.conditions, open)).next();
    let words = |it: &drover_api::Condition| format!("{}: {}", it.reason, it.message);
    Ok([find_condition(&pool.conditions, open).map(words), of_set.map(words)])
}

/// An outage of an hour costs a pool of 50 a few tries, not thousands of calls, and both pool and set say so.
#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_costs_a_pool_of_fifty_few_calls() -> anyhow::Result<()> {
    for (struck, most) in [("", 150), ("compute", 100), ("compute POST /servers", 400)] {
        let (stage, manager) = start().await?;
        cloud(&stage).set_faults(vec![Fault::on(struck, Effect::status(503))]);
        stage.apply_example(50).await?;
        tokio::time::sleep(CHAPTER).await;
        let calls = calls(&stage);
        println!("an hour without {struck:?}: {calls} calls to the cloud");
        assert!(calls <= most, "{calls} calls while {struck:?} is struck");
        for words in circuit(&stage).await? {
            let words = words.expect("both say that they wait");
            assert!(words.starts_with("CloudUnavailable") || words.contains("503"), "{words}");
        }
        for kind in ["MachineSet", "MachineDeployment"] {
            assert_eq!(events(&stage, "CircuitOpened", kind).await?.len(), 1, "{kind}");
        }
        cloud(&stage).set_faults(vec![]);
        let whole = stage.whole(50, &BTreeSet::new(), 15 * MINUTE).await?;
        assert_eq!(whole.made_twice(), None);
        assert_eq!(circuit(&stage).await?, [None, None]);
        for kind in ["MachineSet", "MachineDeployment"] {
            assert_eq!(events(&stage, "CircuitClosed", kind).await?.len(), 1, "{kind}");
        }
        unharmed(&manager);
        manager.end().await?;
    }
    Ok(())
}

/// machine-controller, scenario 19: a quota 403 shows as CreateError with the cloud's text, retries back off, and after
/// the quota is raised the Machine recovers and the error fields clear.
#[tokio::test(start_paused = true)]
async fn metakube_19_a_quota_is_told_and_the_pool_recovers_when_it_is_raised() -> anyhow::Result<()>
{
    let (stage, manager) = start().await?;
    cloud(&stage).set_quotas(Quotas { instances: 2, ..Quotas::default() });
    stage.apply_example(6).await?;
    tokio::time::sleep(CHAPTER).await;
    let census = stage.census().await?;
    assert_eq!((census.machines.len(), census.cloud.servers.len()), (6, 2), "{census}");
    let short: Vec<&Machine> =
        census.machines.iter().filter(|it| it.spec.provider_id.is_none()).collect();
    assert_eq!(short.len(), 4);
    for machine in &short {
        let status = machine.status.clone().unwrap_or_default();
        assert_eq!(status.phase, Some(Phase::CrashLoopBackOff));
        assert_eq!(status.error_reason.as_deref(), Some("CreateError"));
        let message = status.error_message.unwrap_or_default();
        assert!(message.contains("Quota exceeded for instances"), "{message}");
        let code = status.last_operation.and_then(|it| it.error_code);
        assert_eq!(code.as_deref(), Some("ResourceExhausted"));
    }
    let mut told = events(&stage, "QuotaExceeded", "Machine").await?;
    told.sort();
    let mut names: Vec<String> = short.iter().map(|it| it.name_any()).collect();
    names.sort();
    assert_eq!(told, names, "each says it once, however often it was refused");
    let tries = census.cloud.count("compute POST /servers") - 2;
    assert!(tries <= 4 * 3 + 10, "{tries} tries in an hour");
    let words = circuit(&stage).await?[0].clone().unwrap_or_default();
    assert!(words.contains("Quota exceeded for instances"), "{words}");

    cloud(&stage).set_quotas(Quotas::default());
    let whole = stage.whole(6, &BTreeSet::new(), 15 * MINUTE).await?;
    for machine in &whole.machines {
        let status = machine.status.clone().unwrap_or_default();
        assert_eq!((status.error_reason, status.error_message), (None, None));
    }
    let kept: BTreeSet<String> = short.iter().filter_map(|it| it.uid()).collect();
    assert!(kept.is_subset(&whole.uids()), "a quota is no reason to replace a machine");
    unharmed(&manager);
    manager.end().await
}

/// machine-controller 2080: servers that end in ERROR are replaced, ever more seldom, and when the cause is gone the
/// pool is whole again without anybody's help.
#[tokio::test(start_paused = true)]
async fn issue_2080_servers_in_error_are_replaced_and_the_pool_recovers() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let failure = Effect::BootFailure { message: "no space left on device".into() };
    cloud(&stage).set_faults(vec![Fault::on("compute POST /servers", failure)]);
    stage.apply_example(4).await?;
    tokio::time::sleep(CHAPTER).await;
    let census = stage.census().await?;
    let failed = census.machines.iter().filter(|machine| {
        let status = machine.status.as_ref();
        let failed = status.is_some_and(|status| status.phase == Some(Phase::Failed));
        failed
            && status.and_then(|status| status.failure_message.as_deref()).is_some_and(|text| {
                text.contains("is in ERROR: Exceeded maximum number of retries")
            })
    });
    assert!(failed.count() >= 3, "the cloud's words are in the status: {census}");
    let made = census.cloud.servers_made;
    assert!(made <= 4 + 10, "{made} servers were made in an hour");
    assert!(circuit(&stage).await?[0].is_some(), "the pool says that it waits");

    cloud(&stage).set_faults(vec![]);
    stage.whole(4, &BTreeSet::new(), 20 * MINUTE).await?;
    assert_eq!(circuit(&stage).await?, [None, None]);
    unharmed(&manager);
    manager.end().await
}

/// What becomes of the cloud, or of the machine, and the words that the machine then says: the reason of its condition
/// ServerReady, and Gardener's code in `status.lastOperation.errorCode`.
type Trouble = (&'static str, fn(&Stage), fn(Value) -> Value, &'static str, &'static str);

const VALUE: &str = "/spec/providerSpec/value/cloudProviderSpec";

fn same(machine: Value) -> Value {
    machine
}

fn strike(stage: &Stage, call: &str, effect: Effect) {
    cloud(stage).set_faults(vec![Fault::on(call, effect)]);
}

#[rustfmt::skip]
const TROUBLES: &[Trouble] = &[
    ("a login refused", |stage| strike(stage, "identity POST", Effect::status(401)), same,
        "CredentialsRefused", "Unauthenticated"),
    ("no right to make servers", |stage| strike(stage, "compute POST /servers", Effect::status(403)), same,
        "CloudForbids", "PermissionDenied"),
    ("an image that is not there", |_| {}, |it| with(it, &format!("{VALUE}/image"), json!("BeOS")),
        "DescriptionRefused", "InvalidArgument"),
    ("a volume type that is not there", |_| {},
        |it| with(with(it, &format!("{VALUE}/rootDiskSizeGB"), json!(20)), &format!("{VALUE}/rootDiskVolumeType"), json!("gold")),
        "DescriptionRefused", "InvalidArgument"),
    ("the quota of servers (403)",
        |stage| cloud(stage).set_quotas(Quotas { instances: 0, ..Quotas::default() }), same,
        "QuotaExceeded", "ResourceExhausted"),
    ("the quota of volumes (413)",
        |stage| cloud(stage).set_quotas(Quotas { volumes: 0, ..Quotas::default() }),
        |it| with(it, &format!("{VALUE}/rootDiskSizeGB"), json!(20)),
        "QuotaExceeded", "ResourceExhausted"),
    ("no valid host", |_| {}, |it| with(it, &format!("{VALUE}/flavor"), json!("m1.impossible")),
        "CapacityExhausted", "ResourceExhausted"),
    ("a conflict (409)", |stage| strike(stage, "compute POST /servers", Effect::status(409)), same,
        "CloudConflict", "Aborted"),
    ("too many requests (429)",
        |stage| strike(stage, "compute POST /servers", Effect::Status { code: 429, retry_after: Some(60), acted: false }), same,
        "CloudUnavailable", "Unavailable"),
    ("a broken service (500)", |stage| strike(stage, "compute POST /servers", Effect::status(500)), same,
        "CloudUnavailable", "Unavailable"),
    ("an answer that does not come", |stage| strike(stage, "network POST /ports", Effect::Slow { millis: 60_000 }), same,
        "CloudSilent", "DeadlineExceeded"),
];

#[tokio::test(start_paused = true)]
async fn every_trouble_has_its_reason_and_code_and_ends_when_its_cause_ends() -> anyhow::Result<()>
{
    for (what, hurt, change, reason, code) in TROUBLES {
        let (stage, manager) = start().await?;
        hurt(&stage);
        let machine = change(good("Machine", "m1"));
        stage.create(&machine).await?;
        let said = async |stage: &Stage| {
            let status = stage.machines().get("m1").await?.status.unwrap_or_default();
            let server = find_condition(&status.conditions, drover_api::ConditionType::ServerReady);
            let why = server.map(|it| it.reason.clone()).unwrap_or_default();
            let told = status.last_operation.and_then(|it| it.error_code).unwrap_or_default();
            Ok(why == *reason && told == *code)
        };
        stage.until(&format!("{reason} and {code} for {what}"), said).await?;
        if machine == good("Machine", "m1") {
            cloud(&stage).set_faults(vec![]);
            cloud(&stage).set_quotas(Quotas::default());
            let runs = async |stage: &Stage| {
                let status = stage.machines().get("m1").await?.status.unwrap_or_default();
                Ok(status.phase == Some(Phase::Running) && status.error_message.is_none())
            };
            stage.until(&format!("end of {what}"), runs).await?;
        }
        stage.machines().delete("m1", &DeleteParams::default()).await?;
        stage.whole(0, &BTreeSet::new(), CHAPTER).await?;
        unharmed(&manager);
        manager.end().await?;
    }
    Ok(())
}

/// MetaKube, scenario 25, seen from the Machine: what it borrowed is there when it is gone.
#[tokio::test(start_paused = true)]
async fn metakube_25_a_borrowed_floating_ip_outlives_its_machine() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    cloud(&stage).keep_floating_ip("").expect("the pool has room");
    let kept = cloud(&stage).ledger().floating_ips;
    stage.apply_example(2).await?;
    let whole = stage.whole(2, &BTreeSet::new(), CHAPTER).await?;
    let addresses: Vec<String> = whole
        .machines
        .iter()
        .flat_map(|machine| machine.status.iter().flat_map(|status| status.addresses.clone()))
        .filter(|it| it.type_ == "ExternalIP")
        .map(|it| it.address)
        .collect();
    assert!(addresses.contains(&kept[0].name), "{addresses:?} without {}", kept[0].name);
    stage.pools().delete("nodes", &DeleteParams::default()).await?;
    let gone = async |stage: &Stage| Ok(stage.census().await?.machines.is_empty());
    stage.until("end of the machines", gone).await?;
    assert_eq!(cloud(&stage).ledger().floating_ips, kept);
    unharmed(&manager);
    manager.end().await
}

/// User-data as a Gardener would write it: one text for all machines, with placeholders. A kubelet of the lab boots
/// from it, so a name or a token that is not filled in joins nothing.
fn foreign_user_data(stage: &Stage) -> anyhow::Result<String> {
    let mut machine = Machine::new(
        "placeholder-of-the-name",
        serde_json::from_value(good("Machine", "m")["spec"].clone())?,
    );
    machine.metadata.namespace = Some(NAMESPACE.to_owned());
    let description = describe(&machine.spec, None, &Resolved::new())?;
    let token = BootstrapToken::parse("abcdef.0123456789abcdef")?;
    let settings = Settings::default();
    let bytes =
        user_data(&machine, &description, token, &stage.cluster(), &BTreeMap::new(), &settings)?;
    let mut config: Value = serde_saphyr::from_str(&String::from_utf8(bytes)?)?;
    for file in config["write_files"].as_array_mut().into_iter().flatten() {
        if file["encoding"] == "gz+b64" {
            let packed = STANDARD.decode(file["content"].as_str().unwrap_or_default())?;
            let mut plain = String::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut plain)?;
            file["content"] = json!(plain);
            file["encoding"] = json!("text/plain");
        }
    }
    let text = format!("#cloud-config\n{}", serde_json::to_string(&config)?);
    assert!(text.contains("abcdef.0123456789abcdef") && text.contains("placeholder-of-the-name"));
    let text = text.replace("abcdef.0123456789abcdef", "<<BOOTSTRAP_TOKEN>>");
    Ok(text.replace("placeholder-of-the-name", "<<MACHINE_NAME>>"))
}

/// Gardener's pair of Secrets, and the one Secret that holds both; no nodeTemplate in either class.
#[tokio::test(start_paused = true)]
async fn a_class_brings_user_data_with_placeholders_and_its_own_credentials() -> anyhow::Result<()>
{
    let (stage, manager) = start().await?;
    let text = foreign_user_data(&stage)?;
    let login = json!({
        "authURL": "http://cloud.lab/identity/v3", "username": "drover", "password": "password",
        "domainName": "Default", "tenantName": "drover",
    });
    let mut both = login.clone();
    both["userData"] = json!(text);
    stage.create(&secret("boot", json!({"userData": text}))).await?;
    stage.create(&secret("login", login)).await?;
    stage.create(&secret("both", both)).await?;
    let class = |name: &str, boot: &str| {
        let class = good("MachineClass", name);
        assert!(class.get("nodeTemplate").is_none());
        with(class, "/secretRef", json!({"name": boot, "namespace": NAMESPACE}))
    };
    let login = json!({"name": "login", "namespace": NAMESPACE});
    stage.create(&with(class("pair", "boot"), "/credentialsSecretRef", login)).await?;
    stage.create(&class("single", "both")).await?;
    stage.create(&class("plain", "boot")).await?;
    for name in ["pair", "single", "plain"] {
        let by_class = json!({"valueFrom": {"machineClass": {"name": name}}});
        let set = with(good("MachineSet", name), "/spec/template/spec/providerSpec", by_class);
        let labels = json!({"group": name});
        let set = with(set, "/spec/selector/matchLabels", labels.clone());
        let set = with(set, "/spec/template/metadata/labels", labels);
        stage.create(&with(set, "/spec/replicas", json!(2))).await?;
    }
    let joined = async |stage: &Stage| {
        let machines = stage.machines().list(&ListParams::default()).await?.items;
        let runs = |machine: &&Machine| {
            machine.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Running))
        };
        Ok(machines.iter().filter(runs).count() == 6)
    };
    stage.until("six nodes", joined).await?;
    let census = stage.census().await?;
    let nodes: BTreeSet<String> = census.nodes.iter().map(ResourceExt::name_any).collect();
    let machines: BTreeSet<String> = census.machines.iter().map(ResourceExt::name_any).collect();
    assert_eq!(nodes, machines, "each has its own name");
    assert_eq!(census.tokens, 0, "each token was used and deleted");
    assert_eq!(census.cloud.server_groups.len(), 2, "the demo's, and one that all six share");
    unharmed(&manager);
    manager.end().await
}

/// MetaKube: a pool's annotations tune its kubelets; a mistake in one is named, and where.
#[tokio::test(start_paused = true)]
async fn a_pool_tunes_its_kubelets_by_annotations() -> anyhow::Result<()> {
    let (stage, manager) = start().await?;
    let tuned = |name: &str, pods: &str| {
        let key = format!("{}MaxPods", labels::KUBELET_CONFIG);
        let pool = good("MachineDeployment", name);
        let pool = with(pool, "/metadata/annotations", json!({ key: pods }));
        let own = json!({ "pool": name });
        let pool = with(pool, "/spec/selector/matchLabels", own.clone());
        with(with(pool, "/spec/template/metadata/labels", own), "/spec/replicas", json!(1))
    };
    stage.create(&tuned("small", "42")).await?;
    stage.create(&tuned("wrong", "many")).await?;
    let named = until("the pool tells what is wrong", async || {
        let pool = stage.pools().get("wrong").await?.status.unwrap_or_default();
        let found = find_condition(&pool.conditions, drover_api::ConditionType::Progressing);
        let message = found.map(|it| it.message.clone()).unwrap_or_default();
        Ok(message.contains("MaxPods").then_some(message))
    })
    .await?;
    assert!(named.contains("MaxPods: \"many\" cannot be used; give a whole number"), "{named}");
    let capacity = until("the node of the other pool", async || {
        let nodes = stage.nodes().list(&ListParams::default()).await?.items;
        let status = nodes.into_iter().next().and_then(|node| node.status);
        Ok(status.and_then(|status| status.capacity))
    })
    .await?;
    assert_eq!(capacity["pods"].0, "42");
    manager.end().await
}
