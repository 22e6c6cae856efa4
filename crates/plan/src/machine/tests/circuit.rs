//! A machine whose set stopped asking for servers: it waits, unless it is the one that tries.

use super::*;

fn open(until: i64, probe: Option<&str>) -> Option<CircuitStatus> {
    Some(CircuitStatus {
        reason: "QuotaExceeded".into(),
        failures: 3,
        open_since: Some(Time(at(0))),
        waits: 1,
        until: Some(Time(at(until))),
        probe: probe.map(str::to_owned),
        ..CircuitStatus::default()
    })
}

fn quota() -> Answer {
    Answer::Refused(Refused {
        why: Reason::QuotaExceeded,
        message: "no more servers".into(),
        code: "ResourceExhausted".into(),
        retry: Retry::After(Duration::from_secs(120)),
    })
}

fn asks(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::CreateServer { .. }))
}

#[test]
fn a_newborn_waits_and_says_so() {
    let mut world = World::new();
    world.circuit = open(60, None);
    let plan = world.look();
    assert!(!asks(&plan));
    assert_eq!(plan.wake, Wake::After(Duration::from_secs(60)));
    assert_eq!(plan.status.phase, Some(Phase::Pending));
    let ready = plan.status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!(
        (ready.reason.as_str(), ready.message.as_str()),
        ("CircuitOpen", "the pool asks the cloud for no new server now")
    );
    world.circuit = None;
    assert!(asks(&world.look()), "the circuit closed");
}

#[test]
fn who_was_refused_keeps_saying_why_and_asks_only_when_it_is_its_turn() {
    let mut world = World::new();
    world.answer(Question::Create, quota());
    world.passes(1);
    assert_eq!(world.phase(), Some(Phase::CrashLoopBackOff));
    world.circuit = open(300, None);
    world.now = 200;
    let plan = world.look();
    assert!(!asks(&plan), "its own pause of two minutes is over, and it waits");
    assert_eq!(Some(&plan.status), world.machine.status.as_ref(), "nothing new is said");

    world.circuit = open(300, Some("nodes-abc"));
    assert!(!asks(&world.look()), "not before its time");
    world.now = 300;
    assert!(asks(&world.look()), "its turn, whatever the cloud asked for before");
    world.circuit = open(300, Some("nodes-xyz"));
    assert!(!asks(&world.look()), "another's turn");
}

#[test]
fn the_machine_that_tries_tries_once() {
    let mut world = World::new();
    world.answer(Question::Create, quota());
    world.passes(1);
    let before = world.machine.status.clone().unwrap().last_operation;
    world.circuit = open(60, Some("nodes-abc"));
    world.now = 60;
    world.answer(Question::Create, quota());
    let plan = world.look();
    let after = plan.status.last_operation.clone();
    assert_ne!(after, before, "the same words, and yet its set sees that it failed again");
    assert_eq!(after.unwrap().last_update_time, Some(Time(at(60))));
    world.now = 400;
    assert!(!asks(&world.look()), "its set decides who is next");
}

#[test]
fn what_is_under_way_goes_on() {
    let mut world = World::new();
    let memory = BTreeMap::from([("promisedAt".to_owned(), "now".to_owned())]);
    world.answer(Question::Create, Answer::Record { memory: memory.clone() });
    world.passes(1);
    let after = Duration::from_secs(2);
    let waits_for = "server s to be built".to_owned();
    world.answer(Question::Create, Answer::Waiting { memory, waits_for, after });
    world.passes(1);
    world.circuit = open(600, None);
    world.now = 10;
    assert!(asks(&world.look()));
}

#[test]
fn a_server_that_comes_after_all_is_not_held_up() {
    let mut world = World::new();
    world.answer(Question::Create, quota());
    world.passes(1);
    let (memory, after) = (BTreeMap::new(), Duration::from_secs(2));
    let waits_for = "server s to be built".to_owned();
    world.answer(Question::Create, Answer::Waiting { memory, waits_for, after });
    world.circuit = open(600, None);
    world.passes(1);
    assert_eq!(world.phase(), Some(Phase::Pending));
    world.now = 3;
    assert!(asks(&world.look()));
}
