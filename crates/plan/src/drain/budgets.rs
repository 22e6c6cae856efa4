//! What disruption budgets still let go, and which of them never will.

use super::is_ready;
use drover_api::Selector;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::sync::Arc;

/// Why budgets keep a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The budgets by name.
    pub names: String,
    /// Whether waiting helps: false when the budget allows nothing although all its pods are healthy.
    pub may_pass: bool,
}

/// How many pods each budget still lets go, counted down within a pass.
pub struct Allowances<'a>(Vec<Allowance<'a>>);

struct Allowance<'a> {
    budget: &'a PodDisruptionBudget,
    selector: Selector,
    left: i32,
}

impl<'a> Allowances<'a> {
    pub fn of(budgets: &'a [Arc<PodDisruptionBudget>]) -> Self {
        let of_budget = |budget: &'a Arc<PodDisruptionBudget>| {
            let left = budget.status.as_ref().map_or(0, |status| status.disruptions_allowed);
            let given = budget.spec.as_ref()?.selector.as_ref()?;
            let selector = Selector {
                match_labels: given.match_labels.clone().unwrap_or_default(),
                match_expressions: given.match_expressions.clone().unwrap_or_default(),
            };
            Some(Allowance { budget, selector, left })
        };
        let mut allowances: Vec<_> = budgets.iter().filter_map(of_budget).collect();
        allowances.sort_by_key(|it| it.budget.name_any());
        Self(allowances)
    }

    fn protecting<'s>(
        &'s mut self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = &'s mut Allowance<'a>> + 's {
        self.0.iter_mut().filter(|it| {
            // Kubernetes (policy/v1): an empty selector protects every pod of the namespace.
            let all =
                it.selector.match_labels.is_empty() && it.selector.match_expressions.is_empty();
            it.budget.namespace() == pod.namespace() && (all || it.selector.matches(pod.labels()))
        })
    }

    /// Counts one pod off its budgets, or tells which do not let it go.
    pub fn take(&mut self, pod: &Pod) -> Result<(), Block> {
        // Whether an unhealthy pod may leave is for the eviction to decide: budgets differ in it.
        let ready = is_ready(pod);
        let protecting: Vec<_> = self.protecting(pod).collect();
        // Kubernetes: the eviction of a pod with several budgets is always refused.
        let several = protecting.len() > 1;
        let blocking: Vec<&&mut Allowance> =
            protecting.iter().filter(|it| several || (ready && it.left <= 0)).collect();
        if blocking.is_empty() {
            protecting.into_iter().for_each(|it| it.left -= 1);
            return Ok(());
        }
        Err(Block {
            names: named(blocking.iter().map(|it| it.budget)),
            may_pass: !several && !blocking.iter().any(|it| never_allows(it.budget)),
        })
    }

    /// The budgets of a pod by name, if it has any.
    pub fn names(&mut self, pod: &Pod) -> Option<String> {
        let names = named(self.protecting(pod).map(|it| it.budget));
        (!names.is_empty()).then_some(names)
    }
}

fn named<'a>(budgets: impl Iterator<Item = &'a PodDisruptionBudget>) -> String {
    let names = budgets.map(|budget| format!("PodDisruptionBudget {}", budget.name_any()));
    names.collect::<Vec<_>>().join(", ")
}

/// Gardener: a budget is misconfigured that allows nothing although all pods it wants are healthy and
/// none is on its way; what is said of an older generation does not count.
fn never_allows(budget: &PodDisruptionBudget) -> bool {
    let Some(status) = &budget.status else { return false };
    let is_current = status.observed_generation >= budget.metadata.generation;
    let none_disrupted = status.disrupted_pods.as_ref().is_none_or(|pods| pods.is_empty());
    is_current
        && none_disrupted
        && status.expected_pods > 0
        && status.current_healthy >= status.expected_pods
        && status.disruptions_allowed == 0
}
