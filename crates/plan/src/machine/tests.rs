//! The life of a machine, step by step.

mod circuit;
mod deletion;
mod join;
mod mirantis;
mod phrases;

use super::*;
use drover_api::{
    ConditionStatus, ConditionType, OperationState, Phase, ProviderSpec, Resolved, Versions,
    describe,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{from_value, json};

const BORN: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(BORN + seconds).unwrap()
}

/// A machine and its world, changed by a test and looked at again and again.
struct World {
    machine: Machine,
    description: Result<ServerDescription, String>,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    budgets: Vec<Arc<PodDisruptionBudget>>,
    claims: Vec<Arc<PersistentVolumeClaim>>,
    attachments: Vec<Arc<VolumeAttachment>>,
    has_target: bool,
    heard: Option<Heard>,
    certificate: Option<Certificate>,
    settings: Settings,
    refused: BTreeMap<PodKey, EvictionRefusal>,
    trouble: Option<String>,
    circuit: Option<CircuitStatus>,
    cluster: Option<ApiCluster>,
    api_server: Option<Version>,
    now: i64,
}

fn provider_spec() -> Value {
    json!({
        "cloudProvider": "openstack", "operatingSystem": "ubuntu",
        "cloudProviderSpec": {"image": "i", "flavor": "f"},
    })
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::default();
        machine.metadata.name = Some("nodes-abc".into());
        machine.metadata.namespace = Some("kube-system".into());
        machine.metadata.uid = Some("uid-1".into());
        machine.metadata.resource_version = Some("7".into());
        machine.metadata.generation = Some(1);
        machine.metadata.creation_timestamp = Some(Time(at(0)));
        machine.metadata.finalizers =
            Some(vec![labels::FINALIZER_SERVER.into(), labels::FINALIZER_NODE.into()]);
        machine.spec.provider_spec =
            ProviderSpec { value: Some(provider_spec()), value_from: None };
        machine.spec.versions = Versions { kubelet: "1.30.3".into(), control_plane: None };
        machine.spec.metadata.labels.insert("group".into(), "nodes".into());
        let description = describe(&machine.spec, None, &Resolved::new()).unwrap();
        Self {
            machine,
            description: Ok(description),
            nodes: vec![],
            pods: vec![],
            budgets: vec![],
            claims: vec![],
            attachments: vec![],
            has_target: true,
            heard: None,
            certificate: None,
            settings: Settings::default(),
            refused: BTreeMap::new(),
            trouble: None,
            circuit: None,
            cluster: None,
            api_server: None,
            now: 0,
        }
    }

    /// One whose server was made.
    fn made() -> Self {
        let mut world = Self::new();
        world.answer(
            Question::Create,
            Answer::Created { memory: BTreeMap::new(), server: server() },
        );
        world.passes(1);
        world
    }

    /// One whose Node is Ready.
    fn running() -> Self {
        let mut world = Self::made();
        world.nodes = vec![node(json!({}))];
        world.heard = None;
        world.passes(4);
        assert_eq!(world.phase(), Some(Phase::Running));
        world
    }

    fn look(&self) -> Plan {
        plan(&Observed {
            machine: &self.machine,
            description: self.description.as_ref().map_err(String::as_str),
            cluster: self.cluster.as_ref(),
            api_server: self.api_server.as_ref(),
            nodes: &self.nodes,
            pods: &self.pods,
            budgets: &self.budgets,
            claims: &self.claims,
            attachments: &self.attachments,
            has_target: self.has_target,
            heard: self.heard.as_ref(),
            certificate: self.certificate.as_ref(),
            refused: &self.refused,
            circuit: self.circuit.as_ref(),
            trouble: self.trouble.as_deref(),
            settings: &self.settings,
            now: at(self.now),
        })
    }

    /// Plans, and does to the API objects what a controller would.
    fn pass(&mut self) -> Plan {
        let plan = self.look();
        if let Some(patch) = &plan.patch {
            let mut value = serde_json::to_value(&self.machine).unwrap();
            merge(&mut value, patch);
            self.machine = from_value(value).unwrap();
        }
        self.machine.status = Some(plan.status.clone());
        for step in &plan.steps {
            let patch = match step {
                Step::PatchNode { patch, .. } | Step::PatchNodeStatus { patch, .. } => Some(patch),
                Step::ApplyNode { object, .. } => Some(object),
                _ => None,
            };
            if let Some(patch) = patch {
                let mut value = serde_json::to_value(&*self.nodes[0]).unwrap();
                merge(&mut value, patch);
                self.nodes[0] = Arc::new(from_value(value).unwrap());
            }
        }
        plan
    }

    fn passes(&mut self, count: usize) {
        (0..count).for_each(|_| drop(self.pass()));
    }

    fn answer(&mut self, to: Question, answer: Answer) {
        self.heard = Some(Heard { to, answer, at: at(self.now), generation: Some(1), refusals: 1 });
    }

    fn refuse(&mut self, to: Question, why: Reason, retry: Retry) {
        let (message, code) = ("the cloud's words".to_owned(), "Internal".to_owned());
        self.answer(to, Answer::Refused(Refused { why, message, code, retry }));
    }

    fn delete(&mut self) {
        self.machine.metadata.deletion_timestamp = Some(Time(at(self.now)));
        self.heard = None;
    }

    fn phase(&self) -> Option<Phase> {
        self.machine.status.as_ref().and_then(|status| status.phase)
    }

    /// `True(Reason)` and so on.
    fn condition(&self, type_: &str) -> String {
        let conditions = self.machine.status.iter().flat_map(|status| &status.conditions);
        let found = conditions.into_iter().find(|it| it.type_ == type_);
        found.map_or_else(String::new, |it| format!("{}({})", it.status.as_str(), it.reason))
    }
}

fn merge(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let object = value.as_object_mut().unwrap();
    for (key, field) in fields {
        if field.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), field);
        }
    }
}

fn server() -> Server {
    Server {
        provider_id: "openstack:///s-1".into(),
        name: "nodes-abc".into(),
        state: ServerState::Running,
        addresses: vec![
            ("203.0.113.5".parse().unwrap(), true),
            ("10.0.0.5".parse().unwrap(), false),
        ],
    }
}

/// A Node that is Ready and has nothing left to wait for, changed by a merge patch.
fn node(patch: Value) -> Arc<Node> {
    let mut value = json!({
        "metadata": {
            "name": "nodes-abc", "uid": "node-uid", "resourceVersion": "9",
            "creationTimestamp": at(100).to_string(), "labels": {"group": "nodes"},
        },
        "spec": {"providerID": "openstack:///s-1"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "Hostname", "address": "nodes-abc"},
                {"type": "InternalIP", "address": "10.0.0.5"},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.30.3", "architecture": "amd64", "bootID": "", "machineID": "",
                "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "osImage": "", "systemUUID": "",
            },
        },
    });
    merge(&mut value, &patch);
    Arc::new(from_value(value).unwrap())
}

fn not_ready() -> Arc<Node> {
    node(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}))
}

fn pod(name: &str, extra: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [], "nodeName": "nodes-abc"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut value, &extra);
    Arc::new(from_value(value).unwrap())
}

/// The names of the steps, with what makes them differ.
fn steps(plan: &Plan) -> Vec<String> {
    let step = |step: &Step| match step {
        Step::CreateServer { memory } => format!("create server {memory:?}"),
        Step::LookAtServer => "look".into(),
        Step::DeleteServer { .. } => "delete server".into(),
        Step::PatchNode { why, .. }
        | Step::PatchNodeStatus { why, .. }
        | Step::ApplyNode { why, .. } => format!("patch node: {}", why.as_str()),
        Step::KeepToken { .. } => "keep token".into(),
        Step::DeleteNode { name, .. } => format!("delete node {name}"),
        Step::Leave { departures } => {
            let pods: Vec<_> =
                departures.iter().map(|it| format!("{} {}", it.why.as_str(), it.pod)).collect();
            pods.join(", ")
        }
        Step::Detach { attachments } => format!("detach {}", attachments.len()),
        Step::DeleteToken => "delete token".into(),
        Step::DeleteMachine { why } => format!("delete machine: {}", why.as_str()),
        Step::Release { .. } => "release".into(),
    };
    plan.steps.iter().map(step).collect()
}

#[test]
fn a_newborn_promises_before_its_server_is_made() {
    let mut world = World::new();
    let first = world.pass();
    assert_eq!(steps(&first), ["create server {}"]);
    assert_eq!(first.status, MachineStatus::default(), "nothing is known yet, nothing is written");

    let memory = BTreeMap::from([("promisedAt".to_owned(), "x".to_owned())]);
    world.answer(Question::Create, Answer::Record { memory: memory.clone() });
    let promised = world.pass();
    assert_eq!(promised.status.provider_status.as_ref().unwrap().memory, memory);
    assert_eq!(steps(&promised), ["create server {\"promisedAt\": \"x\"}"]);
    assert_eq!(world.phase(), Some(Phase::Pending));

    let waits_for = "server".to_owned();
    world.answer(
        Question::Create,
        Answer::Waiting { memory, waits_for, after: Duration::from_secs(3) },
    );
    let waiting = world.pass();
    assert!(waiting.steps.is_empty());
    assert_eq!(waiting.wake, Wake::After(Duration::from_secs(3)));
    assert_eq!(world.condition("ServerReady"), "False(ServerWaiting)");
    world.now = 3;
    assert_eq!(steps(&world.pass()), ["create server {\"promisedAt\": \"x\"}"]);
}

#[test]
fn a_node_that_is_quicker_than_the_cloud_waits_for_the_rest_of_its_order() {
    let mut world = World::new();
    let memory = BTreeMap::from([("promisedAt".to_owned(), "x".to_owned())]);
    world.answer(Question::Create, Answer::Record { memory: memory.clone() });
    world.passes(1);
    world.nodes = vec![node(json!({}))];
    let (waits_for, after) = ("the floating IP".to_owned(), Duration::from_secs(2));
    world.answer(Question::Create, Answer::Waiting { memory: memory.clone(), waits_for, after });
    assert_eq!(world.pass().wake, Wake::After(after));
    world.answer(Question::Create, Answer::Created { memory, server: server() });
    world.passes(4);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_status_waits_for_what_comes_next_unless_somebody_acts_on_it() {
    let mut world = World::made();
    let written = world.machine.clone();
    world.nodes = vec![not_ready()];
    let progress = world.pass();
    let said = |plan: &Plan, unwritten_since, now| {
        report(&written, plan, Told { written_at: None, unwritten_since }, at(now))
    };
    assert_eq!(said(&progress, None, 10), Report::At(at(13)));
    assert_eq!(said(&progress, Some(at(10)), 12), Report::At(at(13)), "the first change counts");
    assert_eq!(said(&progress, Some(at(10)), 13), Report::Now);
    let told = Told { written_at: Some(at(9)), unwritten_since: Some(at(10)) };
    assert_eq!(report(&written, &progress, told, at(18)), Report::At(at(19)), "it was told lately");
    assert_eq!(report(&written, &progress, told, at(19)), Report::Now);
    world.nodes = vec![node(json!({}))];
    world.passes(2);
    assert_eq!(
        said(&world.pass(), None, 10),
        Report::Now,
        "a machine that is Ready is told at once"
    );
    world.machine.status = written.status.clone();
    world.trouble = Some("no space left".into());
    assert_eq!(said(&world.pass(), None, 10), Report::Now, "so is an error");
    let mut world = World::new();
    let memory = BTreeMap::from([("promisedAt".to_owned(), "x".to_owned())]);
    world.answer(Question::Create, Answer::Record { memory });
    let before = world.machine.clone();
    assert_eq!(
        report(&before, &world.pass(), Told::default(), at(0)),
        Report::Now,
        "a promise comes first"
    );
}

#[test]
fn a_machine_of_another_hand_gets_its_finalizers_first() {
    let mut world = World::new();
    world.machine.metadata.finalizers = Some(vec!["other".into()]);
    let patch = world.look().patch.expect("a patch");
    assert_eq!(
        patch,
        json!({"metadata": {
            "uid": "uid-1", "resourceVersion": "7",
            "finalizers": ["other", labels::FINALIZER_SERVER, labels::FINALIZER_NODE],
        }})
    );
}

#[test]
fn a_machine_that_is_not_ours_is_let_alone() {
    let mut world = World::new();
    world.machine.metadata.labels =
        Some(BTreeMap::from([(labels::MACHINE_CONTROLLER_NAME.into(), "other".into())]));
    assert!(world.look().steps.is_empty());
    let mut world = World::new();
    world.machine.metadata.annotations =
        Some(BTreeMap::from([(labels::MACHINE_INITIALIZERS.into(), "wait".into())]));
    assert!(world.look().steps.is_empty());
}

#[test]
fn a_made_server_gets_its_id_and_is_awaited() {
    let mut world = World::new();
    world.answer(Question::Create, Answer::Created { memory: BTreeMap::new(), server: server() });
    let plan = world.pass();
    assert_eq!(plan.patch.unwrap()["spec"], json!({"providerID": "openstack:///s-1"}));
    let addresses: Vec<String> =
        plan.status.addresses.iter().map(|it| it.address.clone()).collect();
    assert_eq!(addresses, ["10.0.0.5", "203.0.113.5"]);
    assert_eq!(world.condition("ServerReady"), "True(ServerRunning)");
    assert_eq!(world.condition("NodeJoined"), "False(NodeAwaited)");
    world.machine.metadata.generation = Some(2);
    assert_eq!(world.pass().status, plan.status, "the patch costs no second status");
    world.now = 60;
    assert_eq!(steps(&world.pass()), ["keep token", "look"]);
    world.answer(Question::Look, Answer::Seen(Some(server())));
    let plan = world.pass();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.wake, Wake::After(Duration::from_secs(60)));
}

/// MetaKube's scenarios 14 and 34.
#[test]
fn metakube_14_a_node_is_matched_marked_and_ready_when_its_taints_are_gone() {
    let mut world = World::made();
    world.nodes = vec![node(json!({
        "spec": {"taints": [{"key": labels::TAINT_STARTUP, "effect": "NoSchedule"}]},
    }))];
    let cni = json!({
        "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cni", "uid": "d", "controller": true}]},
        "spec": {"priorityClassName": "system-node-critical"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    world.pods = vec![pod("cni", cni.clone())];
    let joined = world.pass();
    assert_eq!(steps(&joined), ["delete token", "patch node: NodeSynced"]);
    assert_eq!(joined.status.node_ref.as_ref().unwrap().name.as_deref(), Some("nodes-abc"));
    assert_eq!(joined.status.versions.as_ref().unwrap().kubelet, "v1.30.3");
    let labels = world.nodes[0].metadata.labels.clone().unwrap();
    assert_eq!(labels[labels::NODE_OWNED_BY], "uid-1");
    let annotations = world.nodes[0].metadata.annotations.clone().unwrap();
    assert_eq!(annotations[labels::NODE_MACHINE], "kube-system/nodes-abc");
    assert_eq!(world.condition("Ready"), "False(CriticalPodsAwaited)");

    let mut up = cni;
    up["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    world.pods = vec![pod("cni", up)];
    assert_eq!(steps(&world.pass()), ["delete token", "patch node: StartupTaintRemoved"]);
    assert_eq!(world.condition("Ready"), "False(CriticalPodsAwaited)", "said only when seen");
    world.now += 7;
    let ready = world.pass();
    assert_eq!(world.condition("Ready"), "True(NodeReady)");
    assert_eq!(world.phase(), Some(Phase::Running));
    let told: Vec<&str> = ready.events.iter().map(|event| event.note.as_str()).collect();
    assert_eq!(told, ["node nodes-abc is ready after 7 s: server 0 s, join 0 s, ready 7 s"]);
    let steady = world.pass();
    assert!(steady.steps.is_empty() && steady.events.is_empty() && steady.patch.is_none());
    assert_eq!(steady.status, ready.status);
    assert_eq!(steady.wake, Wake::OnChange);
}

#[test]
fn a_machine_is_not_ready_in_the_pass_that_deletes_its_token() {
    let mut world = World::made();
    world.nodes = vec![node(json!({}))];
    world.heard = None;
    assert!(steps(&world.pass()).contains(&"delete token".to_owned()));
    assert_eq!(world.condition("Ready"), "False(NodeJoined)");
    world.passes(1);
    assert_eq!(world.condition("Ready"), "True(NodeReady)");
}

#[test]
fn a_node_of_another_machine_is_never_taken() {
    for stranger in [
        json!({"spec": {"providerID": "openstack:///s-2"}}),
        json!({"spec": {"providerID": null}, "metadata": {"labels": {labels::NODE_OWNED_BY: "uid-0"}}}),
        json!({"spec": {"providerID": null}, "metadata": {"creationTimestamp": at(-100).to_string()}}),
        json!({"spec": {"providerID": null}, "metadata": {"name": "other"}}),
    ] {
        let mut world = World::made();
        world.nodes = vec![node(stranger.clone())];
        world.passes(1);
        assert_eq!(world.condition("NodeJoined"), "False(NodeAwaited)", "{stranger}");
    }
    for ours in [
        json!({"spec": {"providerID": "openstack://region/S-1"}, "metadata": {"name": "other"}}),
        json!({"spec": {"providerID": null}}),
    ] {
        let mut world = World::made();
        world.nodes = vec![node(ours.clone())];
        world.passes(1);
        assert_eq!(world.condition("NodeJoined"), "True(NodeJoined)", "{ours}");
    }
}

#[test]
fn refusals_are_shown_and_retried_in_their_own_time() {
    for (retry, wait) in
        [(Retry::After(Duration::from_secs(120)), 120), (Retry::Backoff, 2), (Retry::OnChange, 600)]
    {
        let mut world = World::new();
        world.refuse(Question::Create, Reason::QuotaExceeded, retry);
        let plan = world.pass();
        assert_eq!(plan.wake, Wake::After(Duration::from_secs(wait)));
        assert!(plan.steps.is_empty());
        assert_eq!(world.phase(), Some(Phase::CrashLoopBackOff));
        assert_eq!(plan.status.error_reason.as_deref(), Some("CreateError"));
        assert_eq!(plan.status.error_message.as_deref(), Some("the cloud's words"));
        assert_eq!(world.condition("ServerReady"), "False(QuotaExceeded)");
        world.now = i64::try_from(wait).unwrap();
        assert_eq!(steps(&world.pass()), ["create server {}"]);
        world.answer(
            Question::Create,
            Answer::Created { memory: BTreeMap::new(), server: server() },
        );
        assert_eq!(world.pass().status.error_message, None);
    }
    let mut world = World::new();
    world.refuse(Question::Create, Reason::DescriptionRefused, Retry::OnChange);
    world.machine.metadata.generation = Some(2);
    assert_eq!(steps(&world.pass()), ["create server {}"], "a changed order is tried at once");
}

/// Gardener's scenario 5 and MetaKube's 17.
#[test]
fn a_failed_server_or_a_missed_deadline_fails_the_machine() {
    let mut world = World::new();
    world.refuse(Question::Create, Reason::ServerFailed, Retry::Backoff);
    let plan = world.pass();
    let failure = plan.status.failure_message.as_deref();
    assert_eq!(failure, Some("the cloud's words; no set replaces it, so it stays: delete it"));
    assert_eq!(world.phase(), Some(Phase::Failed));
    world.now = 5000;
    assert_eq!(steps(&world.pass()), ["delete token"], "its set replaces it");

    let mut world = World::made();
    world.now = 7199;
    assert_eq!(world.pass().wake, Wake::After(Duration::from_secs(1)));
    world.now = 7200;
    let plan = world.pass();
    assert_eq!(plan.status.failure_reason.as_deref(), Some("JoinClusterTimeoutError"));
    assert_eq!(world.phase(), Some(Phase::Failed));

    let mut world = World::made();
    world.machine.spec.creation_timeout = Some("20m".parse().unwrap());
    world.now = 1200;
    world.passes(1);
    assert_eq!(world.phase(), Some(Phase::Failed));
    world.nodes = vec![node(json!({}))];
    world.passes(2);
    assert_eq!(world.phase(), Some(Phase::Running), "better late than never");
}

#[test]
fn a_wrong_description_is_named_and_asks_for_nothing() {
    let mut world = World::new();
    world.description = Err("spec.providerSpec.value.cloudProvider: missing".into());
    let plan = world.pass();
    assert!(plan.steps.is_empty());
    assert_eq!(world.condition("Configured"), "False(DescriptionInvalid)");
    assert_eq!(plan.status.error_reason.as_deref(), Some("InvalidConfiguration"));
    assert_eq!(plan.events.len(), 1);
    assert!(world.pass().events.is_empty());

    let mut world = World::running();
    world.description = Err("the Secret is gone".into());
    let plan = world.pass();
    assert!(plan.steps.is_empty(), "a running machine keeps its labels: {:?}", plan.steps);
    assert_eq!(world.phase(), Some(Phase::Running));
    world.delete();
    world.pods = vec![];
    assert_eq!(steps(&world.pass()).last().unwrap(), "delete server");
}

#[test]
fn a_server_gone_behind_our_back_costs_the_machine() {
    let mut world = World::running();
    world.nodes = vec![];
    let plan = world.pass();
    assert_eq!(steps(&plan), ["look"]);
    assert_eq!(world.condition("NodeJoined"), "False(NodeGone)");
    world.answer(Question::Look, Answer::Seen(None));
    assert_eq!(steps(&world.pass()), ["delete machine: ServerGone"]);

    let mut world = World::running();
    world.nodes = vec![not_ready()];
    assert!(steps(&world.pass()).contains(&"look".to_owned()));
    assert_eq!(world.phase(), Some(Phase::Unknown));
    assert_eq!(world.condition("Ready"), "False(NodeNotReady)");
    world.answer(Question::Look, Answer::Seen(Some(server())));
    assert!(world.pass().steps.is_empty(), "a server that is there is waited for");
    world.answer(Question::Look, Answer::Seen(None));
    assert_eq!(steps(&world.pass()), ["delete machine: ServerGone"]);
}

/// Gardener's scenario 8.
#[test]
fn an_unhealthy_node_fails_its_machine_only_when_a_timeout_is_given() {
    let mut world = World::running();
    world.nodes = vec![not_ready()];
    world.passes(1);
    world.now = 100_000;
    world.answer(Question::Look, Answer::Seen(Some(server())));
    world.passes(1);
    assert_eq!(world.phase(), Some(Phase::Unknown));
    world.machine.spec.health_timeout = Some("10m".parse().unwrap());
    world.machine.spec.disable_health_timeout = Some(true);
    world.passes(1);
    assert_eq!(world.phase(), Some(Phase::Unknown));
    world.machine.spec.disable_health_timeout = None;
    let plan = world.pass();
    assert_eq!(world.phase(), Some(Phase::Failed));
    assert_eq!(plan.status.failure_message.as_deref(), Some("the node was not ready for 10m"));
    assert_eq!(world.pass().status, plan.status, "Failed stays as it is");
}

#[test]
fn trouble_with_writes_is_shown_while_it_lasts() {
    let mut world = World::running();
    world.trouble = Some("failed to patch node".into());
    assert_eq!(world.pass().status.error_message.as_deref(), Some("failed to patch node"));
    assert_eq!(world.condition("Ready"), format!("{}(NodeReady)", ConditionStatus::True.as_str()));
    world.trouble = None;
    assert_eq!(world.pass().status.error_message, None);
}
