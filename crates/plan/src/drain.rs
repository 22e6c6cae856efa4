//! Which pods leave a node now, which wait, and which block a drain.

mod budgets;
#[cfg(test)]
mod tests;
mod volumes;

pub use volumes::Volumes;

use crate::reason::Reason;
use crate::time::later;
use budgets::Allowances;
use drover_api::{MovingVolumes, OnDrainTimeout, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use volumes::Line;

/// Most evictions that one pass asks for; the API server is no faster for being asked all at once.
pub const EVICTIONS_MAX: usize = 64;
/// Kubernetes: the grace period of a pod that does not say.
const POD_GRACE_SECONDS: i64 = 30;
/// Kubernetes: pods from this priority up are critical to a node or the cluster.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// How long the first refused eviction is not repeated; kubectl waits 5 s. It doubles with each.
const REFUSAL_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause after a refused eviction.
const REFUSAL_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a budget that allows nothing is believed without a change of it being seen.
const BUDGET_PAUSE: Duration = Duration::from_secs(30);
/// How long pods that were deleted at the deadline are waited for; then the server goes with them.
const AFTER_DEADLINE: Duration = Duration::from_secs(60);
/// Most pods that a message names.
const NAMED_MAX: usize = 5;

/// A pod by its name, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl PodKey {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the API server said when it refused to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub at: Timestamp,
    /// How often in a row it was refused.
    pub times: u32,
    /// The pause that the API server asked for.
    pub pause: Duration,
}

impl Refusal {
    /// When the pod's eviction is asked for again.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        let doublings = self.times.saturating_sub(1).min(8);
        let own = REFUSAL_PAUSE.saturating_mul(1 << doublings).min(REFUSAL_PAUSE_MAX);
        later(self.at, own.max(self.pause))
    }
}

/// When waiting ends, and what then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub at: Timestamp,
    pub then: OnDrainTimeout,
}

/// A node's pods, what protects them and what they hold.
pub struct Observed<'a> {
    /// All pods on the node, in any order.
    pub pods: &'a [Arc<Pod>],
    /// All budgets of the pods' namespaces.
    pub budgets: &'a [Arc<PodDisruptionBudget>],
    pub volumes: Volumes<'a>,
    /// The volumes that were on their way when it was last planned.
    pub moving: Option<&'a MovingVolumes>,
    /// How long volumes may take to leave the node, after their pod's grace. Gardener: 2 min.
    pub detach_timeout: Duration,
    /// The last refusals. A cache: forgotten with the process.
    pub refused: &'a BTreeMap<PodKey, Refusal>,
    /// None for a drain that may take for ever.
    pub deadline: Option<Deadline>,
    pub now: Timestamp,
}

impl Observed<'_> {
    /// When pods are deleted, unless they never are.
    fn end(&self) -> Option<Timestamp> {
        let deletes = |it: &Deadline| it.then == OnDrainTimeout::DeletePods;
        self.deadline.filter(deletes).map(|it| it.at)
    }

    fn is_overdue(&self) -> bool {
        self.end().is_some_and(|end| end <= self.now)
    }
}

/// What is asked of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub pod: PodKey,
    /// The precondition.
    pub uid: String,
    /// In seconds; none for the pod's own.
    pub grace: Option<i64>,
    /// [`Reason::PodEvicted`]: by an eviction. Anything else: by a deletion.
    pub why: Reason,
}

/// A pod that is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    pub pod: PodKey,
    pub why: Reason,
    /// Names of budgets, or what the API server said.
    pub detail: String,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, why, detail } = self;
        match detail.as_str() {
            "" => write!(f, "{pod}: {}", why.sentence()),
            detail => write!(f, "{pod}: {} ({detail})", why.sentence()),
        }
    }
}

/// How a drain goes on.
#[must_use = "a plan does nothing until it is acted on"]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub departures: Vec<Departure>,
    /// The pods that are waited for, those that leave now among them.
    pub stays: Vec<Stay>,
    /// The volumes on their way; to be written down before a pod departs.
    pub moving: Option<MovingVolumes>,
    /// What is waited for besides pods.
    pub waits_for: Option<String>,
    /// What was waited for in vain.
    pub late: Option<String>,
    /// When to look again even when nothing changes.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Whether nothing is left that should leave.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stays.is_empty() && self.moving.is_none()
    }

    /// Why the drain as a whole is where it is.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let any = |why: Reason| self.stays.iter().any(|stay| stay.why == why);
        if any(Reason::PodOverdue) {
            Reason::DrainDeadlineExceeded
        } else if any(Reason::PodUnmovable) {
            Reason::BudgetUnsatisfiable
        } else if self.departures.is_empty()
            && (any(Reason::PodProtected) || any(Reason::PodRefused))
        {
            Reason::PodsBlocked
        } else if self.stays.is_empty() {
            Reason::VolumesMoving
        } else {
            Reason::PodsLeaving
        }
    }

    /// The pods that are waited for, the blocked ones first.
    fn ranked(&self) -> Vec<&Stay> {
        let rank = |stay: &Stay| match stay.why {
            Reason::PodUnmovable => 0,
            Reason::PodProtected | Reason::PodRefused => 1,
            Reason::PodInLine | Reason::PodOfLaterTier => 3,
            _ => 2,
        };
        let mut stays: Vec<&Stay> = self.stays.iter().collect();
        stays.sort_by_key(|stay| (rank(stay), &stay.pod));
        stays
    }

    /// The same in one phrase: how many pods, and what the first of them waits for.
    #[must_use]
    pub fn brief(&self) -> String {
        match (self.ranked().first(), self.stays.len()) {
            (None, _) => self.waits_for.clone().unwrap_or_default(),
            (Some(first), 1) => format!("1 pod left: {first}"),
            (Some(first), count) => format!("{count} pods left, such as {first}"),
        }
    }

    /// Which pods are waited for and why: the blocked ones first, the first few by name.
    #[must_use]
    pub fn story(&self) -> String {
        let stays = self.ranked();
        let named = stays.iter().take(NAMED_MAX).map(|stay| stay.to_string());
        let named = named.collect::<Vec<_>>().join("; ");
        let more = match stays.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let pods = match stays.len() {
            0 => String::new(),
            1 => format!("1 pod left: {named}"),
            count => format!("{count} pods left: {named}{more}"),
        };
        let parts = [Some(pods).filter(|text| !text.is_empty()), self.waits_for.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// What happens to the pods of a node now.
pub fn plan(seen: &Observed) -> Plan {
    let given_up = seen.end().is_some_and(|end| later(end, AFTER_DEADLINE) <= seen.now);
    if given_up {
        return Plan::default();
    }
    let mut pods: Vec<&Arc<Pod>> = seen.pods.iter().filter(|pod| stays(pod).is_none()).collect();
    // Gardener: of those that leave one after another, the most important first.
    pods.sort_by_key(|pod| (tier(pod), -priority(pod), PodKey::of(pod)));
    let overdue = seen.is_overdue();
    let mut turn = Turn {
        open: pods.first().map_or(0, |pod| tier(pod)),
        allowed: Allowances::of(seen.budgets),
        line: Line::of(seen.moving.filter(|_| !overdue), seen.pods, &seen.volumes, seen.now),
    };
    let mut plan = Plan { late: turn.line.late.take(), ..Plan::default() };
    for pod in pods {
        let (why, detail) = turn.judge(pod, seen);
        let leaves = matches!(why, Reason::PodEvicted | Reason::PodOverdue);
        if leaves && plan.departures.len() < EVICTIONS_MAX {
            plan.departures.push(departure(pod, why, seen));
        }
        plan.stays.push(Stay { pod: PodKey::of(pod), why, detail });
    }
    plan.next = next_look(&plan, &turn.line, seen);
    plan.waits_for = turn.line.story();
    plan.moving = turn.line.moving;
    plan
}

/// Why a pod need not leave: it would come back, it cannot go, or it is no more.
#[must_use]
pub fn stays(pod: &Pod) -> Option<Reason> {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if controller.is_some_and(|owner| owner.kind == "DaemonSet") {
        Some(Reason::PodDaemon)
    } else if pod.annotations().contains_key(labels::MIRROR_POD) {
        Some(Reason::PodMirror)
    } else if matches!(phase, Some("Succeeded" | "Failed")) {
        Some(Reason::PodFinished)
    } else {
        None
    }
}

/// Pods that others need leave last: only when no pod of an earlier tier is left.
fn tier(pod: &Pod) -> u8 {
    u8::from(priority(pod) >= CRITICAL_PRIORITY)
}

fn priority(pod: &Pod) -> i32 {
    let spec = pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
    let built_in = match class {
        Some("system-node-critical") => CRITICAL_PRIORITY + 1000,
        Some("system-cluster-critical") => CRITICAL_PRIORITY,
        _ => 0,
    };
    spec.and_then(|spec| spec.priority).unwrap_or(built_in)
}

/// What one pass has to go round.
struct Turn<'a> {
    /// The tier whose pods may leave.
    open: u8,
    allowed: Allowances<'a>,
    line: Line,
}

impl Turn<'_> {
    fn judge(&mut self, pod: &Pod, seen: &Observed) -> (Reason, String) {
        if pod.metadata.deletion_timestamp.is_some() {
            return (Reason::PodTerminating, String::new());
        }
        if seen.is_overdue() {
            return (Reason::PodOverdue, String::new());
        }
        if tier(pod) > self.open {
            return (Reason::PodOfLaterTier, String::new());
        }
        let volumes = seen.volumes.exclusive(pod, seen.pods);
        if !volumes.is_empty() && self.line.moving.is_some() {
            return (Reason::PodInLine, String::new());
        }
        let refusal = seen.refused.get(&PodKey::of(pod));
        if let Some(refusal) = refusal.filter(|it| it.until() > seen.now) {
            let names = self.allowed.names(pod);
            return (Reason::PodRefused, names.unwrap_or_else(|| refusal.message.clone()));
        }
        if let Err(block) = self.allowed.take(pod) {
            let why = if block.may_pass { Reason::PodProtected } else { Reason::PodUnmovable };
            return (why, block.names);
        }
        if !volumes.is_empty() {
            let grace = Duration::from_secs(u64::try_from(grace(pod)).unwrap_or_default());
            self.line.send(pod, volumes, later(seen.now, grace + seen.detach_timeout));
        }
        (Reason::PodEvicted, String::new())
    }
}

fn grace(pod: &Pod) -> i64 {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    own.unwrap_or(POD_GRACE_SECONDS)
}

fn departure(pod: &Pod, why: Reason, seen: &Observed) -> Departure {
    // A pod must be gone at the deadline, so it cannot be given more than what is left.
    let left = match (why, seen.end()) {
        (Reason::PodOverdue, _) => Some(POD_GRACE_SECONDS),
        (_, Some(end)) => Some(end.duration_since(seen.now).as_secs().max(1)),
        (_, None) => None,
    };
    Departure {
        pod: PodKey::of(pod),
        uid: pod.uid().unwrap_or_default(),
        grace: left.filter(|left| *left < grace(pod)),
        why,
    }
}

/// The pods that a server leaves behind that is gone: they end at once, for no kubelet will end them.
#[must_use]
pub fn bereaved(pods: &[Arc<Pod>]) -> Vec<Departure> {
    let left = pods.iter().filter(|pod| stays(pod).is_none());
    left.map(|pod| Departure {
        pod: PodKey::of(pod),
        uid: pod.uid().unwrap_or_default(),
        grace: Some(0),
        why: Reason::PodBereaved,
    })
    .collect()
}

fn next_look(plan: &Plan, line: &Line, seen: &Observed) -> Option<Timestamp> {
    let pause = |stay: &Stay| match stay.why {
        Reason::PodProtected | Reason::PodUnmovable => Some(later(seen.now, BUDGET_PAUSE)),
        Reason::PodRefused => seen.refused.get(&stay.pod).map(Refusal::until),
        // One that was too many for this pass goes in the next.
        Reason::PodEvicted => Some(later(seen.now, REFUSAL_PAUSE)),
        _ => None,
    };
    let end = seen.end().filter(|_| !plan.stays.is_empty() || line.moving.is_some());
    let end = end.map(|end| if seen.is_overdue() { later(end, AFTER_DEADLINE) } else { end });
    plan.stays.iter().filter_map(pause).chain(end).chain(line.until()).min()
}

/// Whether a pod says that it is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
