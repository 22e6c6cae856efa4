//! What `kubectl get ma -o wide` says at each step of a life, and which conditions that leaves behind.

use super::*;

/// A life told by its phrases.
struct Told {
    world: World,
    lines: Vec<String>,
}

impl Told {
    fn new(world: World) -> Self {
        Self { world, lines: vec![] }
    }

    fn look(&mut self) {
        let plan = self.world.pass();
        let status = plan.status;
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
        let phase = status.phase.map_or("-", Phase::as_str);
        let line = ready.map_or_else(
            || format!("{phase}: nothing yet"),
            |it| format!("{phase} {}: {}", it.reason, it.message),
        );
        if self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    fn hear(&mut self, to: Question, answer: Answer) {
        self.world.answer(to, answer);
        self.look();
    }

    fn nodes(&mut self, node: Arc<Node>) {
        self.world.nodes = vec![node];
        self.look();
    }

    fn assert(&self, expected: &str) {
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(self.lines, expected, "\n{}", self.lines.join("\n"));
    }
}

fn notes(keys: &[&str]) -> BTreeMap<String, String> {
    keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect()
}

fn waiting(keys: &[&str], waits_for: &str) -> Answer {
    let after = Duration::from_secs(2);
    Answer::Waiting { memory: notes(keys), waits_for: waits_for.to_owned(), after }
}

fn unready(patch: Value) -> Arc<Node> {
    let mut value = json!({
        "spec": {"taints": [
            {"key": labels::TAINT_STARTUP, "effect": "NoSchedule"},
            {"key": labels::TAINT_UNINITIALIZED, "effect": "NoSchedule"},
        ]},
        "status": {"conditions": [{
            "type": "Ready", "status": "False", "message": "cni plugin not initialized",
        }]},
    });
    merge(&mut value, &patch);
    node(value)
}

fn cni(status: &str) -> Arc<Pod> {
    pod(
        "cni-x",
        json!({
            "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cni", "uid": "d", "controller": true}]},
            "spec": {"priorityClassName": "system-node-critical"},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }),
    )
}

/// Gardener's scenario 1, in MetaKube's order of a birth: port, server, floating IP, boot, certificate, registered, addresses, critical
/// pods, ready.
#[test]
fn a_birth_says_at_every_step_what_it_waits_for() {
    let mut told = Told::new(World::new());
    told.world.description.as_mut().unwrap().server.floating_ip_pool = Some("ext-net".into());
    told.look();
    told.hear(Question::Create, Answer::Record { memory: notes(&["promisedAt"]) });
    told.world.refuse(Question::Create, Reason::QuotaExceeded, Retry::Backoff);
    told.look();
    let keys = ["promisedAt", "port", "server", "floatingAddress"];
    told.hear(Question::Create, waiting(&keys[..2], "volume v-1 to be available, it is creating"));
    told.hear(Question::Create, waiting(&keys[..3], "server s-1 to be built, it is spawning"));
    let memory = notes(&keys);
    told.hear(Question::Create, Answer::Created { memory, server: server() });
    told.world.certificate = Some(Certificate::Waits("no machine is known".into()));
    told.look();
    told.world.certificate = Some(Certificate::Approved);
    told.look();
    told.world.pods = vec![cni("False")];
    told.nodes(unready(json!({})));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    told.nodes(unready(json!({"status": {"conditions": ready}})));
    let startup = json!([{"key": labels::TAINT_STARTUP, "effect": "NoSchedule"}]);
    told.nodes(unready(json!({"spec": {"taints": startup}, "status": {"conditions": ready}})));
    told.world.pods = vec![cni("True")];
    told.look();
    told.look();
    told.assert(
        "
        -: nothing yet
        Pending ServerOrdered: the server is being made
        CrashLoopBackOff QuotaExceeded: the cloud's words
        Pending ServerWaiting: the cloud is at work: volume v-1 to be available, it is creating
        Pending ServerWaiting: the cloud is at work: server s-1 to be built, it is spawning
        Pending BootAwaited: the server boots; node nodes-abc has not asked for a certificate yet
        Pending CertificateAwaited: the certificate request of node nodes-abc is not approved yet: no machine is known
        Pending NodeAwaited: node nodes-abc has its certificate and has not registered yet
        Pending NodeNotReady: the node is not ready: cni plugin not initialized
        Pending NodeUninitialized: the cloud controller manager has not seen the node yet
        Pending CriticalPodsAwaited: the node's critical pod default/cni-x is not ready yet
        Pending CriticalPodsAwaited: the node's critical pods are not ready yet
        Running NodeReady: the node is ready
        ",
    );
    let conditions = told.world.machine.status.unwrap().conditions;
    let seen: Vec<String> = conditions.iter().map(|it| it.type_.clone()).collect();
    let order = ConditionType::OF_MACHINE.iter().map(|it| it.as_str()).take(11);
    assert_eq!(seen, order.collect::<Vec<_>>(), "one for each step, in their order");
    assert!(
        conditions.iter().all(|it| it.status == ConditionStatus::True && !it.reason.is_empty())
    );
}

#[test]
fn a_request_for_a_certificate_that_is_denied_is_told() {
    let mut told = Told::new(World::made());
    let cause = "common name \"x\" is not \"system:node:nodes-abc\"";
    told.world.certificate = Some(Certificate::Denied(cause.into()));
    let plan = told.world.pass();
    assert_eq!(plan.events.last().unwrap().why, Reason::CertificateDenied);
    assert!(plan.events.last().unwrap().is_warning);
    told.look();
    told.assert(
        "Pending CertificateDenied: the certificate request of node nodes-abc was denied: \
         common name \"x\" is not \"system:node:nodes-abc\"",
    );
    // Another manager has heard of no request; the condition remembers one that was approved.
    told.world.certificate = Some(Certificate::Approved);
    told.look();
    told.world.certificate = None;
    told.look();
    assert_eq!(told.lines.len(), 2, "{:?}", told.lines);
}

/// Gardener's scenario 7: what makes a machine Unknown, and what does not.
#[test]
fn gardener_7_health_goes_to_unknown_and_back() {
    let with = |type_: &str, status: &str, message: &str| {
        node(json!({"status": {"conditions": [
            {"type": "Ready", "status": if type_ == "Ready" { status } else { "True" }, "message": message},
            {"type": if type_ == "Ready" { "PIDPressure" } else { type_ }, "status": if type_ == "Ready" { "False" } else { status }},
        ]}}))
    };
    let mut told = Told::new(World::running());
    told.nodes(with("Ready", "Unknown", "Kubelet stopped posting node status."));
    told.nodes(with("Ready", "True", ""));
    told.nodes(with("MemoryPressure", "True", ""));
    told.nodes(with("DiskPressure", "True", ""));
    told.nodes(with("DiskPressure", "False", ""));
    told.world.machine.spec.node_conditions = Some("MemoryPressure,KernelDeadlock".into());
    told.nodes(with("DiskPressure", "True", ""));
    told.nodes(with("MemoryPressure", "Unknown", ""));
    told.world.nodes = vec![];
    told.look();
    told.hear(Question::Look, Answer::Seen(Some(server())));
    told.world.heard = None;
    told.nodes(node(json!({})));
    told.look();
    told.assert(
        "
        Unknown NodeNotReady: the node is not ready: Kubelet stopped posting node status.
        Running NodeReady: the node is ready
        Unknown NodeUnhealthy: the node has DiskPressure True
        Running NodeReady: the node is ready
        Unknown NodeUnhealthy: the node has MemoryPressure Unknown
        Unknown NodeGone: node nodes-abc was deleted
        Unknown NodeJoined: the node registered
        Running NodeReady: the node is ready
        ",
    );
}

/// The steps of docs/deletion.md.
#[test]
fn an_end_says_at_every_step_what_it_waits_for() {
    let mut told = Told::new(World::running());
    let hook = format!("{}backup", labels::HOOK_PRE_DRAIN);
    let hooks = BTreeMap::from([(hook, "velero".to_owned())]);
    told.world.machine.metadata.annotations = Some(hooks);
    told.world.pods = vec![pod("web", json!({})), pod("db", json!({}))];
    let budget = json!({
        "metadata": {"name": "web-pdb", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    told.world.budgets = vec![Arc::new(from_value(budget).unwrap())];
    told.world.delete();
    told.look();
    told.world.machine.metadata.annotations = None;
    told.look();
    told.world.pods.pop();
    told.look();
    told.world.now = 7200;
    told.look();
    told.world.pods = vec![];
    told.world.attachments = vec![deletion::attachment("pv-1")];
    told.look();
    told.world.attachments = vec![];
    told.look();
    told.world.refuse(Question::Delete, Reason::CloudUnavailable, Retry::Backoff);
    told.look();
    let after = Duration::from_secs(2);
    let waits_for = "server s-1 to go".to_owned();
    told.hear(Question::Delete, Answer::Deleting { waits_for, after });
    told.assert(
        "
        Terminating HookAwaited: somebody asked to wait; the machine's annotations say who: pre-drain.delete.hook.machine.cluster.x-k8s.io/backup (velero)
        Terminating BudgetUnsatisfiable: 2 pods left, such as default/web: a disruption budget will never allow a disruption (PodDisruptionBudget web-pdb)
        Terminating BudgetUnsatisfiable: 1 pod left: default/web: a disruption budget will never allow a disruption (PodDisruptionBudget web-pdb)
        Terminating DrainDeadlineExceeded: 1 pod left: default/web: the pod is deleted because the drain took too long
        Terminating VolumesAttached: volumes are still attached to the node: pv-1
        Terminating ServerDeleting: the cloud is deleting the server
        Terminating CloudUnavailable: the cloud's words
        Terminating ServerDeleting: the cloud is at work: server s-1 to go
        ",
    );
}

#[test]
fn a_machine_in_maintenance_says_so_beside_its_health() {
    let mut told = Told::new(World::running());
    told.world.description.as_mut().unwrap().maintenance = true;
    told.world.pods = vec![pod("web", json!({}))];
    told.look();
    told.world.pods = vec![];
    told.look();
    told.look();
    told.world.description.as_mut().unwrap().maintenance = false;
    told.look();
    told.look();
    told.assert(
        "
        Running NodeReady: the node is ready; 1 pod left: default/web: the pod is asked to leave
        Running NodeReady: the node is ready; all pods that can leave have left the node
        Running NodeReady: the node is ready
        ",
    );
}

/// Gardener's scenario 29.
#[test]
fn without_a_target_cluster_a_server_is_all_there_is() {
    let mut world = World::new();
    world.settings.joins = false;
    let mut told = Told::new(world);
    told.hear(
        Question::Create,
        Answer::Created { memory: notes(&["port", "server"]), server: server() },
    );
    let status = told.world.machine.status.clone().unwrap();
    let addresses: Vec<_> = status.addresses.iter().map(|it| it.address.as_str()).collect();
    assert_eq!(addresses, ["10.0.0.5", "203.0.113.5"]);
    assert_eq!(status.last_operation.unwrap().state, OperationState::Successful);
    // A Node of the same name in the cluster of the machines is not theirs, and no deadline is missed.
    told.world.nodes = vec![node(json!({}))];
    told.world.pods = vec![pod("web", json!({}))];
    told.world.now = 9000;
    assert_eq!(steps(&told.world.look()), ["look"]);
    told.hear(Question::Look, Answer::Seen(Some(server())));
    let stopped = Server { state: ServerState::Stopped, ..server() };
    told.hear(Question::Look, Answer::Seen(Some(stopped)));
    told.hear(Question::Look, Answer::Seen(Some(server())));
    told.world.delete();
    assert_eq!(steps(&told.world.look()), ["delete server"], "no drain");
    told.look();
    told.world.answer(Question::Delete, Answer::Gone);
    assert_eq!(steps(&told.world.look()), ["release"], "no node and no token");
    told.assert(
        "
        Available ServerRunning: the server runs and has all that was ordered
        Unknown ServerStopped: the server does not run
        Available ServerRunning: the server runs and has all that was ordered
        Terminating ServerDeleting: the cloud is deleting the server
        ",
    );
}
