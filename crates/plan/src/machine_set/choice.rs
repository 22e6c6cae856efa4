//! Which machines go, and in which order.

use super::Observed;
use super::circuit::Failure;
use crate::reason::Reason;
use drover_api::{
    ConditionStatus, ConditionType, DeletePolicy, Machine, Phase, find_condition, labels,
};
use jiff::Timestamp;
use kube::ResourceExt;

/// So many machines that failed before they had a Node may be replaced at once in any set.
const FAILED_AT_ONCE_MIN: usize = 3;

/// A machine of the set with what is asked of it again and again.
pub(super) struct View<'a> {
    pub machine: &'a Machine,
    pub name: &'a str,
    pub rank: DeletionRank<'a>,
    /// From when on it is available, if nothing changes; absent when it is not Ready.
    pub available_at: Option<Timestamp>,
    pub is_failed: bool,
    pub has_node: bool,
    /// How it failed last, while it has no Node.
    pub failure: Option<Failure<'a>>,
}

/// Who goes first. The order of the fields is the policy, and the name decides ties.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeletionRank<'a> {
    /// MetaKube: a machine with the annotation `cluster.k8s.io/delete-machine` goes first.
    is_unmarked: bool,
    health: Health,
    by_policy: i64,
    name: &'a str,
}

/// How much is lost with a machine, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Failed,
    NotJoined,
    NotReady,
    Ready,
    Available,
}

impl<'a> View<'a> {
    pub fn of(machine: &'a Machine, seen: &Observed) -> Self {
        let status = machine.status.as_ref();
        let name = machine.metadata.name.as_deref().unwrap_or_default();
        let is_failed = status.is_some_and(|status| status.phase == Some(Phase::Failed));
        let has_node = status.is_some_and(|status| status.node_ref.is_some());
        let min_ready = jiff::SignedDuration::from_secs(seen.set.spec.min_ready_seconds.into());
        let ready = status
            .and_then(|status| find_condition(&status.conditions, ConditionType::Ready))
            .filter(|ready| ready.status == ConditionStatus::True && !is_failed);
        let since =
            ready.map(|ready| ready.last_transition_time.as_ref().map_or(seen.now, |t| t.0));
        let available_at = since.map(|since| since.saturating_add(min_ready).unwrap_or(seen.now));
        let has_error = status
            .is_some_and(|status| status.error_reason.is_some() || status.error_message.is_some());
        let health = match available_at {
            _ if is_failed => Health::Failed,
            Some(at) if at <= seen.now => Health::Available,
            Some(_) => Health::Ready,
            None if has_error => Health::Failed,
            None if has_node => Health::NotReady,
            None => Health::NotJoined,
        };
        let rank = DeletionRank {
            is_unmarked: !is_marked(machine),
            health,
            by_policy: by_policy(machine, seen.set.spec.delete_policy.unwrap_or_default()),
            name,
        };
        let born = machine.metadata.creation_timestamp.as_ref().map_or(seen.now, |time| time.0);
        let failure = status.and_then(|status| Failure::of(status, born, seen));
        Self { machine, name, rank, available_at, is_failed, has_node, failure }
    }

    pub fn is_available(&self) -> bool {
        self.rank.health == Health::Available
    }

    fn is_stillborn(&self) -> bool {
        self.is_failed && !self.has_node
    }
}

fn is_marked(machine: &Machine) -> bool {
    machine.annotations().get(labels::DELETE_MACHINE).is_some_and(|value| !value.is_empty())
}

/// Lower goes first. A machine of unknown age counts as just born.
fn by_policy(machine: &Machine, policy: DeletePolicy) -> i64 {
    let born = machine.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |t| t.0.as_second());
    match policy {
        DeletePolicy::Random => 0,
        DeletePolicy::Newest => -born,
        DeletePolicy::Oldest => born,
    }
}

/// Who goes now, and how many there should be besides.
pub(super) struct Losses<'v, 'a> {
    pub deletes: Vec<(&'v View<'a>, Reason)>,
    /// How many machines the set aims at: its replicas, and a few more while Failed ones stay
    /// until their replacements can take over.
    pub target: usize,
    /// When a Failed machine comes of age.
    pub next: Option<Timestamp>,
}

/// `staying` is in deletion order. At most so many `replacements` are for machines that failed before they had a Node.
pub(super) fn losses<'v, 'a>(
    staying: &'v [View<'a>],
    replacements: usize,
    seen: &Observed,
) -> Losses<'v, 'a> {
    let want = seen.set.spec.replicas as usize;
    let Stillborn { mut deletes, mut rest, next } = stillborn(staying, replacements, seen);
    let failed = rest.iter().filter(|view| view.is_failed && view.has_node).count();
    let available = rest.iter().filter(|view| view.is_available()).count();
    let surge = surge(seen).min(want);
    let replaced = if surge > 0 {
        // Each machine that is available beyond those that did not fail replaces one that did.
        (available + failed).saturating_sub(want)
    } else {
        // Without surge one goes first, and the next when its replacement is available.
        let coming = rest.len() - failed - available;
        usize::from(coming == 0)
    };
    let gone = replaced.min(failed);
    let mut left = gone;
    rest.retain(|view| {
        let goes = left > 0 && view.is_failed && view.has_node;
        if goes {
            left -= 1;
            deletes.push((*view, Reason::MachineFailed));
        }
        !goes
    });

    let target = want + (failed - gone).min(surge);
    let surplus = rest.len().saturating_sub(target);
    deletes.extend(rest.into_iter().take(surplus).map(|view| (view, Reason::MachineSurplus)));
    Losses { deletes, target, next }
}

/// The machines that failed before they had a Node, and all others.
struct Stillborn<'v, 'a> {
    deletes: Vec<(&'v View<'a>, Reason)>,
    rest: Vec<&'v View<'a>>,
    next: Option<Timestamp>,
}

/// A machine that failed before it had a Node is no loss, but its replacement may fail as well. So
/// it has to be old enough, and few replacements may be young at once.
fn stillborn<'v, 'a>(
    staying: &'v [View<'a>],
    replacements: usize,
    seen: &Observed,
) -> Stillborn<'v, 'a> {
    let want = seen.set.spec.replicas as usize;
    let age_min = seen.settings.failed_age_min;
    let of_age = |view: &View| {
        let born = view.machine.metadata.creation_timestamp.as_ref().map_or(seen.now, |it| it.0);
        born.saturating_add(age_min).unwrap_or(seen.now)
    };
    let young = staying.iter().map(of_age).filter(|at| *at > seen.now);
    let next = young.clone().min().filter(|_| staying.iter().any(View::is_stillborn));
    let coming = young.count() + want.saturating_sub(staying.len());
    let share = want * seen.settings.failed_percent_max / 100;
    let budget = share.max(FAILED_AT_ONCE_MIN).saturating_sub(coming);
    let mut budget = budget.min(replacements);

    let (mut deletes, mut rest) = (Vec::new(), Vec::with_capacity(staying.len()));
    for view in staying {
        if view.is_stillborn() && of_age(view) <= seen.now && budget > 0 {
            budget -= 1;
            deletes.push((view, Reason::MachineFailed));
        } else {
            rest.push(view);
        }
    }
    Stillborn { deletes, rest, next }
}

/// How many machines beyond its replicas the pool's owner allows, as its deployment wrote it down.
fn surge(seen: &Observed) -> usize {
    let number = |key| seen.set.annotations().get(key).and_then(|text| text.parse::<usize>().ok());
    match (number(labels::MAX_REPLICAS), number(labels::DESIRED_REPLICAS)) {
        // In the middle of a rollout the surge is the rollout's.
        (Some(max), Some(desired)) if desired == seen.set.spec.replicas as usize => {
            max.saturating_sub(desired)
        }
        _ => 0,
    }
}
