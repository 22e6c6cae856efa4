//! Aggregated ClusterRoles: their rules are those of all roles that their selectors find.

use super::object::{items, meta};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use crate::schema::selector::LabelSelector;
use serde_json::{Value, json};

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// Keeps the rules of aggregated roles.
pub(super) struct Aggregation;

/// Whether an aggregated role takes its rules from another.
fn takes_from(role: &Value, other: &Value) -> bool {
    meta(role, "name") != meta(other, "name")
        && items(&role["aggregationRule"]["clusterRoleSelectors"]).iter().any(|selector| {
            LabelSelector::from_object(selector)
                .is_ok_and(|selector| selector.matches(&other["metadata"]["labels"]))
        })
}

impl Controller for Aggregation {
    fn name(&self) -> &'static str {
        "role aggregation"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if !change.is_of(ROLES) {
            return;
        }
        let aggregates = |role: &Value| role["aggregationRule"].is_object();
        if change.now.as_deref().is_some_and(aggregates) {
            wake(change.address.clone());
        }
        for role in view.list(ROLES).iter().filter(|role| aggregates(role)) {
            if change.states().any(|other| takes_from(role, other)) {
                wake(Address::new(ROLES, "", meta(role, "name")));
            }
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(role) = hands.view.at(at) else { return Ok(Next::Change) };
        let mut rules: Vec<Value> = Vec::new();
        for other in hands.view.list(ROLES).iter().filter(|other| takes_from(&role, other)) {
            for rule in items(&other["rules"]) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        // The order of before is kept where only the order differs.
        let known = items(&role["rules"]);
        let same = known.len() == rules.len() && rules.iter().all(|rule| known.contains(rule));
        if !same {
            hands.merge(at, "", &json!({"rules": rules})).await?;
        }
        Ok(Next::Change)
    }
}
