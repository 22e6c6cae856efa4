//! Which node may take which pod: taints, labels, affinity, ports.

use super::object::items;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Why a node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// `spec.unschedulable`.
    Cordoned,
    /// A taint, as `key: value`.
    Taint(String),
    /// Node selector or affinity.
    Labels,
    /// Another pod has a port of the node that this one wants.
    Ports,
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
            Self::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
            Self::Full => "Too many pods".to_owned(),
        }
    }
}

/// Whether one of the tolerations of a pod's spec covers a taint.
fn tolerated(spec: &Value, taint: &Value) -> bool {
    items(&spec["tolerations"]).iter().any(|one| covers(one, taint))
}

fn covers(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    let exists = toleration["operator"] == "Exists";
    (effect.is_empty() || effect == text(&taint["effect"]))
        && ((key.is_empty() && exists) || key == text(&taint["key"]))
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
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

/// The ports of its node that a pod with this spec takes: protocol, number, address.
fn host_ports(spec: &Value) -> BTreeSet<(&str, i64, &str)> {
    // Kubernetes: an init container holds its ports only while it stays beside the others.
    let stays =
        items(&spec["initContainers"]).iter().filter(|one| one["restartPolicy"] == "Always");
    let all = items(&spec["containers"]).iter().chain(stays);
    let ports = all.flat_map(|container| items(&container["ports"]));
    let taken = ports.filter_map(|port| {
        let number = port["hostPort"].as_i64().filter(|&number| number > 0)?;
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let address = match text(&port["hostIP"]) {
            "" => ANY_ADDRESS,
            address => address,
        };
        Some((protocol, number, address))
    });
    taken.collect()
}

/// Every address of a node.
const ANY_ADDRESS: &str = "0.0.0.0";

/// Whether a pod with this spec takes a port of its node.
pub(super) fn holds_ports(spec: &Value) -> bool {
    !host_ports(spec).is_empty()
}

/// Whether two pods with these specs want the same port of a node.
pub(super) fn ports_clash(spec: &Value, other: &Value) -> bool {
    let wanted = host_ports(spec);
    if wanted.is_empty() {
        return false;
    }
    let taken = host_ports(other);
    wanted.iter().any(|(protocol, number, address)| {
        taken.iter().any(|(other_protocol, other_number, other_address)| {
            let same = (protocol, number) == (other_protocol, other_number);
            let any = [address, other_address].contains(&&ANY_ADDRESS);
            same && (any || address == other_address)
        })
    })
}

/// What a pod with this spec makes of the taints of its node that expel pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It stays.
    Endless,
    /// It stays this many seconds.
    Seconds(i64),
}

/// How long a pod with this spec bears the node's taints `NoExecute`; None when there are none.
pub(super) fn patience(spec: &Value, node: &Value) -> Option<Patience> {
    let taints = items(&node["spec"]["taints"]).iter();
    let expelling: Vec<&Value> = taints.filter(|taint| taint["effect"] == "NoExecute").collect();
    if expelling.is_empty() {
        return None;
    }
    let tolerations = items(&spec["tolerations"]);
    let mut least: Option<i64> = None;
    for taint in expelling {
        // Kubernetes: of several tolerations that cover a taint, the first one counts.
        let Some(covering) = tolerations.iter().find(|one| covers(one, taint)) else {
            return Some(Patience::Seconds(0));
        };
        if let Some(seconds) = covering["tolerationSeconds"].as_i64() {
            let seconds = seconds.max(0);
            least = Some(least.map_or(seconds, |known| known.min(seconds)));
        }
    }
    Some(least.map_or(Patience::Endless, Patience::Seconds))
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

    #[test]
    fn a_port_of_the_node_is_for_one_pod() {
        let pod = |port: Value| json!({"containers": [{"name": "c", "ports": [port]}]});
        let web = pod(json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
        let local = pod(json!({"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"}));
        let other = pod(json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}));
        assert!(ports_clash(&web, &web) && ports_clash(&web, &local) && ports_clash(&local, &web));
        assert!(!ports_clash(&local, &other), "each has an address of its own");
        let udp = pod(json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"}));
        let inside = pod(json!({"containerPort": 80}));
        assert!(!ports_clash(&web, &udp) && !ports_clash(&inside, &inside));
    }

    #[test]
    fn the_shortest_patience_counts() {
        let tainted = node(json!({"taints": [
            {"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"},
            {"key": "c", "effect": "NoSchedule"},
        ]}));
        let with = |tolerations: Value| patience(&json!({"tolerations": tolerations}), &tainted);
        assert_eq!(patience(&json!({}), &node(json!({}))), None);
        assert_eq!(with(json!([])), Some(Patience::Seconds(0)));
        assert_eq!(with(json!([{"operator": "Exists"}])), Some(Patience::Endless));
        let (a, b) = (
            json!({"key": "a", "operator": "Exists", "tolerationSeconds": 30}),
            json!({"key": "b", "operator": "Exists", "tolerationSeconds": 20}),
        );
        assert_eq!(with(json!([&a])), Some(Patience::Seconds(0)), "b is not tolerated");
        assert_eq!(with(json!([a, b])), Some(Patience::Seconds(20)));
    }
}
