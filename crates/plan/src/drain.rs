//! Which pods leave a node now, which wait, and which block a drain.

#[cfg(test)]
mod tests;

use crate::reason::Reason;
use drover_api::{Selector, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// Most evictions that one pass asks for; the API server is no faster for being asked all at once.
pub const EVICTIONS_MAX: usize = 64;
/// Kubernetes: the grace period of a pod that does not say.
const POD_GRACE_SECONDS: i64 = 30;
/// How long a refused eviction is not repeated unless its budget changes; kubectl waits 5 s.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);
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
}

/// A node's pods and what protects them.
pub struct Observed<'a> {
    /// All pods on the node, in any order.
    pub pods: &'a [Arc<Pod>],
    /// All budgets of the pods' namespaces.
    pub budgets: &'a [Arc<PodDisruptionBudget>],
    /// The last refusals. A cache: forgotten with the process.
    pub refused: &'a BTreeMap<PodKey, Refusal>,
    /// When waiting ends; none for a drain that may take for ever.
    pub deadline: Option<Timestamp>,
    pub now: Timestamp,
}

/// What is asked of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub pod: PodKey,
    /// The precondition.
    pub uid: String,
    /// In seconds; none for the pod's own.
    pub grace: Option<i64>,
    /// [`Reason::PodEvicted`]: by an eviction. [`Reason::PodOverdue`]: by a deletion.
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

/// How a drain goes on.
#[must_use = "a plan does nothing until it is acted on"]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub departures: Vec<Departure>,
    /// The pods that are waited for, those that leave now among them.
    pub stays: Vec<Stay>,
    /// When to look again even when nothing changes.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Whether nothing is left that should leave.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stays.is_empty()
    }

    /// Whether only budgets and refusals hold it up.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let blocks = |stay: &Stay| matches!(stay.why, Reason::PodProtected | Reason::PodRefused);
        self.stays.iter().any(blocks) && self.departures.is_empty()
    }

    /// Which pods are waited for and why: the blocked ones first, the first few by name.
    #[must_use]
    pub fn story(&self) -> String {
        let mut stays: Vec<&Stay> = self.stays.iter().collect();
        stays.sort_by_key(|stay| {
            (!matches!(stay.why, Reason::PodProtected | Reason::PodRefused), &stay.pod)
        });
        let named = stays.iter().take(NAMED_MAX).map(|stay| match stay.detail.as_str() {
            "" => format!("{}: {}", stay.pod, stay.why.sentence()),
            detail => format!("{}: {} ({detail})", stay.pod, stay.why.sentence()),
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more = match stays.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let count = stays.len();
        let pods = if count == 1 { "pod" } else { "pods" };
        format!("{count} {pods} left: {named}{more}")
    }
}

/// What happens to the pods of a node now.
pub fn plan(seen: &Observed) -> Plan {
    let overdue = seen.deadline.is_some_and(|deadline| deadline <= seen.now);
    if overdue && given_up(seen) {
        return Plan::default();
    }
    let mut pods: Vec<&Arc<Pod>> = seen.pods.iter().filter(|pod| stays(pod).is_none()).collect();
    pods.sort_by_key(|pod| PodKey::of(pod));
    let mut allowed = Allowances::of(seen.budgets);
    let mut plan = Plan::default();
    for pod in pods {
        let (why, detail) = judge(pod, seen, overdue, &mut allowed);
        let leaves = matches!(why, Reason::PodEvicted | Reason::PodOverdue);
        if leaves && plan.departures.len() < EVICTIONS_MAX {
            plan.departures.push(departure(pod, why, seen));
        }
        plan.stays.push(Stay { pod: PodKey::of(pod), why, detail });
    }
    plan.next = next_look(&plan, seen, overdue);
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

fn judge(pod: &Pod, seen: &Observed, overdue: bool, allowed: &mut Allowances) -> (Reason, String) {
    if pod.metadata.deletion_timestamp.is_some() {
        return (Reason::PodTerminating, String::new());
    }
    if overdue {
        return (Reason::PodOverdue, String::new());
    }
    let refusal = seen.refused.get(&PodKey::of(pod));
    if let Some(refusal) = refusal.filter(|it| later(it.at, REFUSAL_PAUSE) > seen.now) {
        return (Reason::PodRefused, allowed.names(pod).unwrap_or_else(|| refusal.message.clone()));
    }
    match allowed.take(pod) {
        Some(blocking) => (Reason::PodProtected, blocking),
        None => (Reason::PodEvicted, String::new()),
    }
}

fn departure(pod: &Pod, why: Reason, seen: &Observed) -> Departure {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let own = own.unwrap_or(POD_GRACE_SECONDS);
    // A pod must be gone at the deadline, so it cannot be given more than what is left.
    let left = match (why, seen.deadline) {
        (Reason::PodOverdue, _) => Some(POD_GRACE_SECONDS),
        (_, Some(deadline)) => Some(deadline.duration_since(seen.now).as_secs().max(1)),
        (_, None) => None,
    };
    Departure {
        pod: PodKey::of(pod),
        uid: pod.uid().unwrap_or_default(),
        grace: left.filter(|left| *left < own),
        why,
    }
}

fn given_up(seen: &Observed) -> bool {
    seen.deadline.is_some_and(|deadline| later(deadline, AFTER_DEADLINE) <= seen.now)
}

fn next_look(plan: &Plan, seen: &Observed, overdue: bool) -> Option<Timestamp> {
    let pause = |stay: &Stay| match stay.why {
        Reason::PodProtected => Some(later(seen.now, BUDGET_PAUSE)),
        Reason::PodRefused => {
            seen.refused.get(&stay.pod).map(|refusal| later(refusal.at, REFUSAL_PAUSE))
        }
        // One that was too many for this pass goes in the next.
        Reason::PodEvicted => Some(later(seen.now, REFUSAL_PAUSE)),
        _ => None,
    };
    let deadline = seen
        .deadline
        .filter(|_| !plan.is_done())
        .map(|deadline| if overdue { later(deadline, AFTER_DEADLINE) } else { deadline });
    plan.stays.iter().filter_map(pause).chain(deadline).min()
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// How many pods each budget still lets go, counted down within a pass.
struct Allowances<'a>(Vec<(&'a PodDisruptionBudget, Selector, i32)>);

impl<'a> Allowances<'a> {
    fn of(budgets: &'a [Arc<PodDisruptionBudget>]) -> Self {
        let of_budget = |budget: &'a Arc<PodDisruptionBudget>| {
            let allowed = budget.status.as_ref().map_or(0, |status| status.disruptions_allowed);
            let given = budget.spec.as_ref()?.selector.as_ref()?;
            let selector = Selector {
                match_labels: given.match_labels.clone().unwrap_or_default(),
                match_expressions: given.match_expressions.clone().unwrap_or_default(),
            };
            Some((&**budget, selector, allowed))
        };
        let mut allowances: Vec<_> = budgets.iter().filter_map(of_budget).collect();
        allowances.sort_by_key(|(budget, ..)| budget.name_any());
        Self(allowances)
    }

    fn protecting<'s>(
        &'s mut self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = &'s mut (&'a PodDisruptionBudget, Selector, i32)> {
        self.0.iter_mut().filter(|(budget, selector, _)| {
            // Kubernetes (policy/v1): an empty selector protects every pod of the namespace.
            let all = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
            budget.namespace() == pod.namespace() && (all || selector.matches(pod.labels()))
        })
    }

    /// Counts one pod off its budgets, or names those that do not let it go.
    fn take(&mut self, pod: &Pod) -> Option<String> {
        // Whether an unhealthy pod may leave is for the eviction to decide: budgets differ in it.
        let blocking: Vec<String> = self
            .protecting(pod)
            .filter(|(.., allowed)| *allowed <= 0 && is_ready(pod))
            .map(|(budget, ..)| format!("PodDisruptionBudget {}", budget.name_any()))
            .collect();
        if blocking.is_empty() {
            self.protecting(pod).for_each(|(.., allowed)| *allowed -= 1);
            return None;
        }
        Some(blocking.join(", "))
    }

    fn names(&mut self, pod: &Pod) -> Option<String> {
        let names = self.protecting(pod).map(|(budget, ..)| budget.name_any());
        let names = names.collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("PodDisruptionBudget {names}"))
    }
}

/// Whether a pod says that it is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
