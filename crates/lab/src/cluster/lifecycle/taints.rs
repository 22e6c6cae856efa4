//! Which taints a Node's conditions call for, and when there are too many sick nodes to expel pods.

use super::ready;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Kubernetes: the taint that goes with `spec.unschedulable`.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// A condition, its status, and the taint that goes with it (Kubernetes: `nodeConditionToTaintKeyStatusMap`).
const OF_CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// Kubernetes: --unhealthy-zone-threshold, in percent of a zone's nodes.
const SICK_SHARE: usize = 55;
/// Kubernetes: so many sick nodes at the least make a zone sick.
const SICK_MIN: usize = 3;
/// Kubernetes: --large-cluster-size-threshold; only in larger zones pods go on being expelled, slowly.
const LARGE: usize = 50;

/// How widely nodes are sick: when most are, the network is to blame rather than they.
#[derive(Debug, Default)]
pub(super) struct Outage {
    everywhere: bool,
    zones: BTreeSet<String>,
}

impl Outage {
    pub(super) fn of(nodes: &[Arc<Value>]) -> Self {
        let mut zones: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for node in nodes {
            let (all, well) = zones.entry(zone(node)).or_default();
            *all += 1;
            *well += usize::from(ready(node) == Some("True"));
        }
        let everywhere = !nodes.is_empty() && zones.values().all(|(_, well)| *well == 0);
        let partly = |(all, well): (usize, usize)| {
            let sick = all - well;
            let most = well > 0 && sick >= SICK_MIN && sick * 100 >= all * SICK_SHARE;
            most && all <= LARGE
        };
        let zones = zones.into_iter().filter(|(_, counts)| partly(*counts)).map(|(name, _)| name);
        Self { everywhere, zones: zones.collect() }
    }
}

/// Kubernetes: region and zone together.
fn zone(node: &Value) -> String {
    let label = |name: &str| node["metadata"]["labels"][name].as_str().unwrap_or_default();
    format!("{}/{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

/// The taints a Node should have; None when it has them.
pub(super) fn settled(node: &Value, outage: &Outage, now: Timestamp) -> Option<Vec<Value>> {
    let before = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let wanted = wanted(node);
    let expelling = match ready(node) {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    };
    let expelling = expelling.filter(|_| !outage.everywhere);
    let mut taints = before.clone();
    taints.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        match taint["effect"].as_str().unwrap_or_default() {
            "NoSchedule" if key == CORDON || OF_CONDITIONS.iter().any(|one| one.2 == key) => {
                wanted.contains(&key)
            }
            "NoExecute" if key == NOT_READY || key == UNREACHABLE => expelling == Some(key),
            _ => true,
        }
    });
    // In a sick zone nothing is added, unless one reason gives way to the other.
    let is_held = outage.zones.contains(&zone(node));
    let swaps = before.iter().any(|one| one["effect"] == "NoExecute" && !taints.contains(one));
    let expelling = expelling.filter(|_| !is_held || swaps);
    let all = wanted.iter().map(|key| (*key, "NoSchedule"));
    for (key, effect) in all.chain(expelling.map(|key| (key, "NoExecute"))) {
        if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
            let since = crate::kubelet::seconds(now);
            taints.push(json!({"key": key, "effect": effect, "timeAdded": since}));
        }
    }
    (taints != before).then_some(taints)
}

/// The taints `NoSchedule` that conditions and a cordon call for.
fn wanted(node: &Value) -> Vec<&'static str> {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_conditions = OF_CONDITIONS.iter().filter(|(kind, status, _)| {
        conditions.iter().any(|one| one["type"] == *kind && one["status"] == *status)
    });
    let cordon = (node["spec"]["unschedulable"] == true).then_some(CORDON);
    of_conditions.map(|(_, _, key)| *key).chain(cordon).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, taints: Value) -> Value {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        json!({"spec": {"taints": taints}, "status": {"conditions": conditions}})
    }

    fn keys(node: &Value, outage: &Outage) -> Vec<String> {
        let taints = settled(node, outage, Timestamp::UNIX_EPOCH);
        let taints = taints.unwrap_or_else(|| vec![json!("as it was")]);
        let name = |one: &Value| match one["key"].as_str() {
            Some(key) => {
                let short = key.trim_start_matches("node.kubernetes.io/");
                format!("{short}:{}", one["effect"].as_str().unwrap_or_default())
            }
            None => one.as_str().unwrap_or_default().to_owned(),
        };
        taints.iter().map(name).collect()
    }

    #[test]
    fn taints_follow_conditions_and_the_cordon() {
        let own = json!([{"key": "own", "effect": "NoExecute"}]);
        let calm = Outage::default();
        assert_eq!(keys(&node("True", own.clone()), &calm), ["as it was"]);
        let unknown = keys(&node("Unknown", own), &calm);
        assert_eq!(unknown, ["own:NoExecute", "unreachable:NoSchedule", "unreachable:NoExecute"]);
        let was = json!([{"key": UNREACHABLE, "effect": "NoExecute"}]);
        let again = keys(&node("False", was), &calm);
        assert_eq!(again, ["not-ready:NoSchedule", "not-ready:NoExecute"]);
        let mut cordoned = node("True", json!([{"key": NOT_READY, "effect": "NoSchedule"}]));
        cordoned["spec"]["unschedulable"] = true.into();
        assert_eq!(keys(&cordoned, &calm), ["unschedulable:NoSchedule"]);
    }

    #[test]
    fn nobody_is_expelled_while_most_nodes_are_sick() {
        let nodes = |well: usize, sick: usize| -> Vec<Arc<Value>> {
            let all = [("True", well), ("Unknown", sick)];
            let all = all.iter().flat_map(|(ready, count)| std::iter::repeat_n(*ready, *count));
            all.map(|ready| Arc::new(node(ready, Value::Null))).collect()
        };
        let of = |well, sick| keys(&node("Unknown", Value::Null), &Outage::of(&nodes(well, sick)));
        let only = ["unreachable:NoSchedule"];
        let both = ["unreachable:NoSchedule", "unreachable:NoExecute"];
        assert_eq!(of(0, 1), only, "all are sick");
        assert_eq!(of(1, 2), both, "two sick nodes are not many");
        assert_eq!(of(2, 3), only);
        assert_eq!(of(3, 3), both, "half of them are not most");
        assert_eq!(of(20, 40), both, "the zone is large");
    }
}
