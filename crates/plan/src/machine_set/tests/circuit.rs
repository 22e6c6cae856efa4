//! What becomes of a set whose machines fail again and again.

use super::*;
use drover_api::{ConditionType, CurrentStatus, LastOperation, OperationState, OperationType};

/// A set and its machines over time.
struct Pool {
    set: MachineSet,
    machines: Vec<Arc<Machine>>,
    now: i64,
    log: Vec<String>,
}

impl Pool {
    fn of(machines: u32) -> Self {
        let set = set(machines);
        let mut pool = Self { set, machines: vec![], now: 0, log: vec![] };
        for number in 1..=machines {
            pool.born(&format!("m{number}"));
        }
        pool
    }

    fn time(&self) -> Time {
        at(-self.now)
    }

    fn born(&mut self, name: &str) {
        let mut machine = machine(name);
        let it = Arc::make_mut(&mut machine);
        it.metadata.creation_timestamp = Some(self.time());
        self.machines.push(machine);
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut MachineStatus)) {
        let found = self.machines.iter_mut().find(|it| it.name_any() == name).unwrap();
        change(Arc::make_mut(found).status.get_or_insert_default());
    }

    /// The cloud refused it, or its server failed.
    fn fails(&mut self, name: &str, phase: Phase, why: Reason) {
        let time = self.time();
        self.change(name, |status| {
            if status.phase != Some(phase) {
                status.current_status = Some(CurrentStatus {
                    last_update_time: Some(time.clone()),
                    ..CurrentStatus::default()
                });
            }
            status.phase = Some(phase);
            status.conditions =
                vec![condition("Ready", ConditionStatus::False, why.as_str(), &time)];
            status.last_operation = Some(LastOperation {
                type_: OperationType::Create,
                state: OperationState::Failed,
                description: "the cloud's words".to_owned(),
                error_code: None,
                last_update_time: Some(time),
            });
        });
    }

    /// Its server runs, and it is to become a node.
    fn comes_up(&mut self, name: &str) {
        let time = self.time();
        self.change(name, |status| {
            status.phase = Some(Phase::Pending);
            let runs = condition("ServerReady", ConditionStatus::True, "ServerRunning", &time);
            status.conditions = vec![runs];
        });
    }

    /// Looks, does as planned, and writes down what is new.
    fn look(&mut self) {
        let settings = Settings::default();
        let plan = plan(&Observed {
            set: &self.set,
            machines: &self.machines,
            deleted: &BTreeSet::new(),
            trouble: None,
            settings: &settings,
            now: self.time().0,
        });
        let mut said = shown(&plan);
        for event in &plan.events {
            said.push_str(&format!("\n      {}: {}", event.why.as_str(), event.note));
        }
        for step in &plan.steps {
            match step {
                Step::Delete { name, .. } => self.machines.retain(|it| it.name_any() != *name),
                Step::Create { machine, .. } => self.born(&machine.name_any()),
                Step::Patch { .. } => panic!("nothing is adopted here"),
                Step::Follow { .. } => {}
            }
        }
        self.set.status = Some(plan.status);
        let open = self.condition().map(|it| format!("\n      {}: {}", it.reason, it.message));
        self.log.push(format!("{:>5} s {said}{}", self.now, open.unwrap_or_default()));
    }

    fn later(&mut self, seconds: i64) {
        self.now += seconds;
        self.look();
    }

    fn condition(&self) -> Option<&Condition> {
        let status = self.set.status.as_ref()?;
        drover_api::find_condition(&status.conditions, ConditionType::CircuitOpen)
    }

    fn circuit(&self) -> drover_api::CircuitStatus {
        self.set.status.as_ref().and_then(|it| it.circuit.clone()).unwrap_or_default()
    }

    fn told(&self) -> String {
        let begin = format!("{}Z", &at(0).0.to_string()[..17]);
        self.log.join("\n").replace(&begin, "BEGIN")
    }
}

fn condition(type_: &str, status: ConditionStatus, reason: &str, time: &Time) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        last_transition_time: Some(time.clone()),
        ..Condition::default()
    }
}

#[test]
fn a_pool_that_meets_a_quota_tries_with_one_machine_after_ever_longer_waits() {
    let mut pool = Pool::of(5);
    for name in ["m1", "m2"] {
        pool.comes_up(name);
    }
    pool.now = 5;
    for name in ["m3", "m4", "m5"] {
        pool.fails(name, Phase::CrashLoopBackOff, Reason::QuotaExceeded);
    }
    pool.look();
    pool.later(15);
    for wait in [60, 120, 240, 480, 600, 600] {
        pool.later(wait);
        let probe = pool.circuit().probe.expect("one machine tries");
        pool.later(3);
        pool.fails(&probe, Phase::CrashLoopBackOff, Reason::QuotaExceeded);
        pool.look();
        let circuit = pool.circuit();
        let wait = circuit.until.unwrap().0.duration_since(pool.time().0);
        pool.log.push(format!("        wait {}: {} s", circuit.waits, wait.as_secs()));
    }
    pool.later(600);
    pool.now += 20;
    let probe = pool.circuit().probe.expect("one machine tries");
    pool.comes_up(&probe);
    pool.look();
    assert_eq!(pool.circuit(), drover_api::CircuitStatus::default());
    insta::assert_snapshot!(pool.told());
}

#[test]
fn a_server_that_fails_again_and_again_is_replaced_ever_more_seldom() {
    let mut pool = Pool::of(1);
    for _ in 0..3 {
        pool.later(20);
        let name = pool.machines[0].name_any();
        pool.fails(&name, Phase::Failed, Reason::ServerFailed);
        pool.look();
        pool.later(40);
        pool.later(1);
    }
    // All have failed for good: at the end of the wait one is replaced, and its successor tries.
    for _ in 0..3 {
        let until = pool.circuit().until.expect("open").0;
        pool.now = until.as_second() - NOW;
        pool.look();
        pool.later(1);
        pool.later(1);
        let probe = pool.circuit().probe.expect("a newborn tries");
        pool.later(20);
        pool.fails(&probe, Phase::Failed, Reason::ServerFailed);
        pool.look();
    }
    insta::assert_snapshot!(pool.told());
}

#[test]
fn what_fails_between_successes_or_for_other_reasons_opens_nothing() {
    let mut pool = Pool::of(6);
    for (name, why) in [
        ("m1", Reason::QuotaExceeded),
        ("m2", Reason::CloudUnavailable),
        ("m3", Reason::CloudConflict),
    ] {
        pool.fails(name, Phase::CrashLoopBackOff, why);
    }
    pool.later(60);
    assert_eq!(pool.condition(), None, "three reasons");
    pool.fails("m1", Phase::CrashLoopBackOff, Reason::CloudUnavailable);
    pool.fails("m3", Phase::CrashLoopBackOff, Reason::CloudUnavailable);
    pool.now += 1;
    pool.comes_up("m6");
    pool.later(60);
    assert_eq!(pool.condition(), None, "one came up after they failed");
    for name in ["m1", "m2", "m3"] {
        pool.fails(name, Phase::CrashLoopBackOff, Reason::CloudUnavailable);
    }
    pool.later(0);
    assert_eq!(pool.condition().unwrap().reason, "CloudUnavailable");
}

#[test]
fn a_stumble_of_the_cloud_opens_nothing() {
    let mut pool = Pool::of(4);
    for name in ["m1", "m2", "m3", "m4"] {
        pool.fails(name, Phase::CrashLoopBackOff, Reason::CloudUnavailable);
    }
    pool.look();
    pool.later(14);
    assert_eq!(pool.condition(), None);
    for name in ["m1", "m2", "m3", "m4"] {
        pool.comes_up(name);
    }
    pool.later(60);
    assert_eq!(pool.condition(), None);
}

#[test]
fn another_template_closes_it_and_another_size_does_not() {
    let mut pool = Pool::of(3);
    for name in ["m1", "m2", "m3"] {
        pool.fails(name, Phase::Failed, Reason::ServerFailed);
    }
    pool.later(1);
    assert!(pool.condition().is_some());
    pool.set.spec.replicas = 4;
    pool.later(1);
    assert!(pool.condition().is_some(), "one machine more is no other template");
    pool.set.spec.template.spec.versions.kubelet = "1.30.4".to_owned();
    pool.later(1);
    assert_eq!(pool.condition(), None);
    let told = pool.log.last().unwrap();
    assert!(told.contains("CircuitClosed") && told.contains("another template"), "{told}");
}

#[test]
fn a_probe_that_is_deleted_makes_room_for_another() {
    let mut pool = Pool::of(3);
    for name in ["m1", "m2", "m3"] {
        pool.fails(name, Phase::CrashLoopBackOff, Reason::CredentialsRefused);
    }
    pool.later(15);
    pool.later(60);
    assert_eq!(pool.circuit().probe.as_deref(), Some("m1"));
    pool.machines.remove(0);
    pool.later(1);
    assert_eq!(pool.circuit().probe.as_deref(), Some("m2"));
    pool.set.spec.replicas = 0;
    pool.later(1);
    pool.later(1);
    assert_eq!(pool.condition(), None, "who wants no machine waits for none");
}
