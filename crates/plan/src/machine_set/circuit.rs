//! Whether a set may ask for new servers. Failures in a row open its circuit; then one machine tries after a while, and
//! after ever longer ones, until one succeeds.

use super::Observed;
use super::choice::View;
use crate::machine::Event;
use crate::reason::Reason;
use crate::time::{later, whole_seconds};
use drover_api::{
    CircuitStatus, Condition, ConditionStatus, ConditionType, MachineStatus, Phase, find_condition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// When a circuit opens and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// So many failures for one reason, without a success between them, open it.
    pub failures: u32,
    /// A machine that tries again by itself counts as failed when it has not come further for so long: a cloud that
    /// stumbles for a moment opens nothing.
    pub settle: Duration,
    /// The first wait; each next one is twice as long.
    pub wait_first: Duration,
    /// The longest wait.
    pub wait_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { failures: 3, settle: seconds(15), wait_first: seconds(60), wait_max: seconds(600) }
    }
}

/// How a machine that has no Node failed last.
pub(super) struct Failure<'a> {
    reason: &'a str,
    message: &'a str,
    at: Timestamp,
    /// From when on it counts.
    settled_at: Timestamp,
}

impl<'a> Failure<'a> {
    pub fn of(status: &'a MachineStatus, born: Timestamp, seen: &Observed) -> Option<Self> {
        let phase = status.phase?;
        if !matches!(phase, Phase::Failed | Phase::CrashLoopBackOff) || status.node_ref.is_some() {
            return None;
        }
        let ready = find_condition(&status.conditions, ConditionType::Ready);
        let reason = ready.map_or(Reason::MachineFailed.as_str(), |it| it.reason.as_str());
        let operation = status.last_operation.as_ref();
        let time = |time: Option<&Time>| time.map(|time| time.0);
        let current = status.current_status.as_ref();
        let since = time(current.and_then(|it| it.last_update_time.as_ref())).unwrap_or(born);
        let at = time(operation.and_then(|it| it.last_update_time.as_ref())).unwrap_or(since);
        let settle = match phase {
            Phase::Failed => Duration::ZERO,
            _ => seen.settings.circuit.settle,
        };
        let message = operation.map_or("", |it| it.description.as_str());
        Some(Self { reason, message, at: at.max(since), settled_at: later(since, settle) })
    }
}

/// How the circuit stands after this look.
pub(super) struct Circuit {
    pub status: Option<CircuitStatus>,
    pub condition: Option<Condition>,
    /// How many machines that failed before they had a Node may be replaced.
    pub replacements: usize,
    /// When it is to be looked at again.
    pub next: Option<Timestamp>,
    pub events: Vec<Event>,
}

/// `staying` are the machines of the set.
pub(super) fn judge(staying: &[View], seen: &Observed) -> Circuit {
    let past = seen.set.status.as_ref().and_then(|status| status.circuit.clone());
    let mut circuit = Circuit {
        status: None,
        condition: None,
        replacements: usize::MAX,
        next: None,
        events: Vec::new(),
    };
    if past.is_none() && staying.iter().all(|view| view.failure.is_none()) {
        return circuit;
    }
    let template = fingerprint(seen);
    let run = Run::of(staying, past.as_ref(), &template, seen);
    circuit.next = run.next;
    let open = past.filter(|past| past.open_since.is_some());
    match open {
        Some(open) => match ended(&open, staying, &template, seen) {
            Some(why) => circuit.events.push(told(Reason::CircuitClosed, why, false)),
            None => circuit.go_on(open, staying, seen),
        },
        None if run.failures >= seen.settings.circuit.failures => circuit.open(run, template, seen),
        None => circuit.status = run.kept,
    }
    let open = circuit.status.as_ref().filter(|it| it.open_since.is_some());
    circuit.condition = open.map(|open| condition(open, staying));
    circuit
}

/// Failures for one reason without a success between them.
struct Run {
    reason: String,
    failures: u32,
    last: Option<Timestamp>,
    /// Those of machines that were replaced meanwhile.
    kept: Option<CircuitStatus>,
    next: Option<Timestamp>,
}

impl Run {
    fn of(staying: &[View], past: Option<&CircuitStatus>, template: &str, seen: &Observed) -> Self {
        let mut counts: BTreeMap<&str, (u32, Timestamp)> = BTreeMap::new();
        let mut next = None;
        for failure in staying.iter().filter_map(|view| view.failure.as_ref()) {
            if succeeded_after(staying, failure.reason, failure.at).is_some() {
                continue;
            }
            if failure.settled_at > seen.now {
                next = Some(
                    next.map_or(failure.settled_at, |at: Timestamp| at.min(failure.settled_at)),
                );
                continue;
            }
            let entry = counts.entry(failure.reason).or_insert((0, failure.at));
            *entry = (entry.0 + 1, entry.1.max(failure.at));
        }
        let kept = past.filter(|past| {
            let last = past.last_failure_time.as_ref().map_or(seen.now, |time| time.0);
            past.template == template && succeeded_after(staying, &past.reason, last).is_none()
        });
        let of_kept = |reason: &str| {
            kept.filter(|kept| kept.reason == reason).map_or(0, |kept| kept.failures)
        };
        let most = counts.iter().max_by_key(|(reason, (count, _))| count + of_kept(reason));
        let (reason, failures, last) = match most {
            Some((reason, (count, last))) => (*reason, count + of_kept(reason), Some(*last)),
            None => ("", 0, None),
        };
        Self { reason: reason.to_owned(), failures, last, kept: kept.cloned(), next }
    }
}

/// The machine whose last success is later than this. What fails only after the server is up is no success of a server.
fn succeeded_after<'a>(staying: &[View<'a>], reason: &str, time: Timestamp) -> Option<&'a str> {
    use ConditionType::{NodeJoined, Ready, ServerReady};
    let counts: &[ConditionType] = match reason == Reason::JoinDeadlineExceeded.as_str() {
        true => &[NodeJoined, Ready],
        false => &[NodeJoined, Ready, ServerReady],
    };
    let is_later = |view: &&View| {
        let conditions = view.machine.status.as_ref().map(|status| status.conditions.as_slice());
        counts.iter().any(|type_| {
            find_condition(conditions.unwrap_or_default(), *type_).is_some_and(|condition| {
                let at = condition.last_transition_time.as_ref().map(|at| at.0);
                condition.status == ConditionStatus::True && at.is_some_and(|at| at > time)
            })
        })
    };
    staying.iter().find(is_later).map(|view| view.name)
}

/// Why an open circuit is one no more.
fn ended(
    open: &CircuitStatus,
    staying: &[View],
    template: &str,
    seen: &Observed,
) -> Option<String> {
    if open.template != template {
        return Some("the set has another template".to_owned());
    }
    let since = open.open_since.as_ref().map_or(seen.now, |time| time.0);
    if let Some(machine) = succeeded_after(staying, &open.reason, since) {
        return Some(format!("machine {machine} came up"));
    }
    let wanted = seen.set.spec.replicas as usize;
    let is_full = staying.len() >= wanted && staying.iter().all(|view| view.has_node);
    is_full.then(|| "the set needs no new machine".to_owned())
}

impl Circuit {
    fn open(&mut self, run: Run, template: String, seen: &Observed) {
        let until = whole_seconds(later(seen.now, wait(1, seen)));
        let Run { reason, failures, last, .. } = run;
        let note = format!(
            "{failures} machines in a row failed ({reason}); the next one tries at {until}"
        );
        self.events.push(told(Reason::CircuitOpened, note, true));
        self.replacements = 0;
        self.next = Some(until);
        self.status = Some(CircuitStatus {
            reason,
            failures,
            last_failure_time: last.map(Time),
            open_since: Some(Time(whole_seconds(seen.now))),
            waits: 1,
            until: Some(Time(until)),
            probe: None,
            template,
        });
    }

    fn go_on(&mut self, mut open: CircuitStatus, staying: &[View], seen: &Observed) {
        self.replacements = 0;
        let until = open.until.as_ref().map_or(seen.now, |time| time.0);
        let probe = staying.iter().find(|view| open.is_probe(view.name));
        match probe.map(|view| (view, view.failure.as_ref())) {
            // Its turn was in vain.
            Some((_, Some(failure))) if failure.at >= until => {
                open.waits = open.waits.saturating_add(1);
                open.failures = open.failures.saturating_add(1);
                failure.reason.clone_into(&mut open.reason);
                open.last_failure_time = Some(Time(failure.at));
                let until = whole_seconds(later(seen.now, wait(open.waits, seen)));
                open.until = Some(Time(until));
                open.probe = None;
                self.next = Some(until);
            }
            Some((view, _)) if !view.is_failed => {}
            _ if until > seen.now => {
                open.probe = None;
                self.next = Some(until);
            }
            _ => {
                open.probe = next_probe(staying).map(str::to_owned);
                // All have failed for good: one of them makes room for one that can try.
                self.replacements = usize::from(open.probe.is_none());
            }
        }
        self.status = Some(open);
    }

    /// Counts the machines that failed and are now replaced.
    pub fn replaced<'v, 'a: 'v>(
        &mut self,
        gone: impl Iterator<Item = &'v View<'a>>,
        seen: &Observed,
    ) {
        let is_open = self.status.as_ref().is_some_and(|it| it.open_since.is_some());
        for failure in gone.filter_map(|view| view.failure.as_ref()).filter(|_| !is_open) {
            let kept = self.status.take().filter(|kept| kept.reason == failure.reason);
            let before = kept.as_ref().and_then(|it| it.last_failure_time.as_ref()).map(|at| at.0);
            self.status = Some(CircuitStatus {
                reason: failure.reason.to_owned(),
                failures: kept.map_or(0, |kept| kept.failures) + 1,
                last_failure_time: Some(Time(before.map_or(failure.at, |at| at.max(failure.at)))),
                template: fingerprint(seen),
                ..CircuitStatus::default()
            });
        }
    }
}

/// Who has tried already, the one whose last try is the longest ago; a newborn when there is nobody else.
fn next_probe<'a>(staying: &[View<'a>]) -> Option<&'a str> {
    let able = staying.iter().filter(|view| !view.has_node && !view.is_failed);
    let order = |view: &&View| {
        let last = view.failure.as_ref().map_or(Timestamp::MAX, |failure| failure.at);
        (last, view.name.to_owned())
    };
    able.min_by_key(order).map(|view| view.name)
}

fn condition(open: &CircuitStatus, staying: &[View]) -> Condition {
    let failures = staying.iter().filter_map(|view| Some((view.failure.as_ref()?, view.name)));
    let of_reason = failures.filter(|(failure, _)| failure.reason == open.reason);
    let last = of_reason.max_by_key(|(failure, name)| (failure.at, *name));
    let mut message = format!("{} machines in a row failed", open.failures);
    if let Some((failure, name)) = last.filter(|(failure, _)| !failure.message.is_empty()) {
        message.push_str(&format!(", the last one {name}: {}", failure.message));
    }
    match (&open.probe, &open.until) {
        (Some(probe), _) => message.push_str(&format!("; machine {probe} tries now")),
        (None, Some(until)) => message.push_str(&format!("; the next one tries at {}", until.0)),
        (None, None) => {}
    }
    Condition {
        type_: ConditionType::CircuitOpen.as_str().to_owned(),
        status: ConditionStatus::True,
        reason: open.reason.clone(),
        message,
        ..Condition::default()
    }
}

fn told(why: Reason, cause: String, is_warning: bool) -> Event {
    Event { why, note: format!("{}: {cause}", why.sentence()), is_warning }
}

fn wait(number: u32, seen: &Observed) -> Duration {
    let settings = &seen.settings.circuit;
    let doublings = number.saturating_sub(1).min(16);
    settings.wait_first.saturating_mul(1 << doublings).min(settings.wait_max)
}

/// What stands for the template: another one may succeed where this failed.
fn fingerprint(seen: &Observed) -> String {
    let text = serde_json::to_vec(&seen.set.spec.template).unwrap_or_default();
    Sha256::digest(text).iter().take(6).fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes everything");
        hex
    })
}
