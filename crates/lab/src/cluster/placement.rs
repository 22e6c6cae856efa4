//! Which node may take which pod: taints, labels, affinity.

use super::object::items;
use serde_json::{Value, json};

/// Why a node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// `spec.unschedulable`.
    Cordoned,
    /// A taint, as `key: value`.
    Taint(String),
    /// Node selector or affinity.
    Labels,
    /// As many pods as the node allows.
    Full,
}

impl Obstacle {
    /// In the words of Kubernetes' scheduler.
    pub fn words(&self) -> String {
        match self {
            Self::Cordoned => "node(s) were unschedulable".to_owned(),
            Self::Taint(taint) => format!("node(s) had untolerated taint {{{taint}}}"),
            Self::Labels => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::Full => "Too many pods".to_owned(),
        }
    }
}

/// Whether one of the tolerations of a pod's spec covers a taint.
fn tolerated(spec: &Value, taint: &Value) -> bool {
    items(&spec["tolerations"]).iter().any(|one| {
        let (key, effect) = (text(&one["key"]), text(&one["effect"]));
        let exists = one["operator"] == "Exists";
        (effect.is_empty() || effect == text(&taint["effect"]))
            && ((key.is_empty() && exists) || key == text(&taint["key"]))
            && (exists || text(&one["value"]) == text(&taint["value"]))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The first thing about a node, its pods apart, that keeps a pod with this spec away.
pub(super) fn obstacle(spec: &Value, node: &Value) -> Option<Obstacle> {
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node["spec"]["unschedulable"] == true && !tolerated(spec, &cordon) {
        return Some(Obstacle::Cordoned);
    }
    if !selected(spec, node) {
        return Some(Obstacle::Labels);
    }
    let mut taints = items(&node["spec"]["taints"]).iter();
    let bad =
        taints.find(|taint| taint["effect"] != "PreferNoSchedule" && !tolerated(spec, taint))?;
    Some(Obstacle::Taint(format!("{}: {}", text(&bad["key"]), text(&bad["value"]))))
}

/// Whether a pod that runs on the node must go: a taint `NoExecute` it does not tolerate.
pub(super) fn is_expelled(spec: &Value, node: &Value) -> bool {
    let mut taints = items(&node["spec"]["taints"]).iter();
    taints.any(|taint| taint["effect"] == "NoExecute" && !tolerated(spec, taint))
}

/// Whether node selector and required affinity of a pod's spec match a node.
pub(super) fn selected(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let wanted = spec["nodeSelector"].as_object().into_iter().flatten();
    if !wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return true;
    }
    items(&required["nodeSelectorTerms"]).iter().any(|term| {
        let (labelled, named) = (items(&term["matchExpressions"]), items(&term["matchFields"]));
        // Kubernetes: an empty term matches nothing.
        !(labelled.is_empty() && named.is_empty())
            && labelled.iter().all(|one| demanded(one, labels.get(text(&one["key"]))))
            && named.iter().all(|one| demanded(one, Some(&node["metadata"]["name"])))
    })
}

fn demanded(demand: &Value, found: Option<&Value>) -> bool {
    let values = items(&demand["values"]);
    let listed = found.is_some_and(|found| values.contains(found));
    let number =
        |value: Option<&Value>| value.and_then(Value::as_str).and_then(|s| s.parse::<i64>().ok());
    let compared = number(found).zip(number(values.first()));
    match text(&demand["operator"]) {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared.is_some_and(|(have, than)| have > than),
        "Lt" => compared.is_some_and(|(have, than)| have < than),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(spec: Value) -> Value {
        json!({"metadata": {"name": "n1", "labels": {"zone": "a", "size": "4"}}, "spec": spec})
    }

    #[test]
    fn taints_keep_pods_away_that_do_not_tolerate_them() {
        let tainted = node(json!({"taints": [
            {"key": "x", "effect": "PreferNoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"},
        ]}));
        assert_eq!(obstacle(&json!({}), &tainted), Some(Obstacle::Taint("k: v".to_owned())));
        let with = |toleration: Value| json!({"tolerations": [toleration]});
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            json!({"key": "k", "value": "v"}),
        ] {
            assert_eq!(obstacle(&with(toleration), &tainted), None);
        }
        let other = with(json!({"key": "k", "value": "w"}));
        assert!(obstacle(&other, &tainted).is_some());
        assert!(!is_expelled(&json!({}), &tainted));
    }

    #[test]
    fn a_cordon_is_tolerated_as_a_taint() {
        let cordoned = node(json!({"unschedulable": true}));
        assert_eq!(obstacle(&json!({}), &cordoned), Some(Obstacle::Cordoned));
        let key = "node.kubernetes.io/unschedulable";
        let spec = json!({"tolerations": [{"key": key, "operator": "Exists"}]});
        assert_eq!(obstacle(&spec, &cordoned), None);
    }

    #[test]
    fn labels_and_names_select() {
        let matches = |spec: Value| selected(&spec, &node(json!({})));
        assert!(matches(json!({"nodeSelector": {"zone": "a"}})));
        assert!(!matches(json!({"nodeSelector": {"zone": "b"}})));
        let affinity = |term: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [term]}}}})
        };
        let one = |key: &str, operator: &str, values: Value| {
            affinity(
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
            )
        };
        assert!(matches(one("zone", "In", json!(["a", "b"]))));
        assert!(!matches(one("zone", "NotIn", json!(["a"]))));
        assert!(matches(one("none", "DoesNotExist", json!([]))));
        assert!(matches(one("size", "Gt", json!(["3"]))));
        let field =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        assert!(matches(affinity(field)));
        assert!(!matches(affinity(json!({}))));
    }
}
