//! Whether a Node is well, in its own words.

use crate::reason::Reason;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::ResourceExt;
use std::sync::Arc;

/// Most bytes that are quoted of a Node.
const QUOTE_MAX: usize = 160;

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|it| it.type_ == type_)
}

/// Of these conditions the first that the Node has and that is not False. Gardener: one that the Node does
/// not report says nothing.
#[must_use]
pub fn illness<'a>(node: &Node, types: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let ill = |type_: &str| condition(node, type_).filter(|it| it.status != "False");
    let found = types.into_iter().map(str::trim).find_map(ill)?;
    let what = format!("the node has {} {}", found.type_, found.status);
    Some(quoting(&what, found.message.as_deref()))
}

/// Why the Node is not Ready.
#[must_use]
pub fn complaint(node: &Node) -> String {
    let words = condition(node, "Ready").and_then(|it| it.message.as_deref());
    quoting(Reason::NodeNotReady.sentence(), words)
}

fn quoting(what: &str, words: Option<&str>) -> String {
    let words = words.unwrap_or_default().trim();
    if words.is_empty() {
        return what.to_owned();
    }
    if words.len() <= QUOTE_MAX {
        return format!("{what}: {words}");
    }
    let end = (0..=QUOTE_MAX).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
    format!("{what}: {}...", &words[..end])
}

/// The first critical pod of these, by name, that is not Ready.
#[must_use]
pub fn awaited_pod(pods: &[Arc<Pod>]) -> Option<String> {
    let waits = pods.iter().filter(|pod| super::is_critical(pod) && !crate::drain::is_ready(pod));
    let name =
        |pod: &Arc<Pod>| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    waits.map(name).min()
}

/// Kubernetes writes memory as a plain number or with one of its units; in whole GB, rounded.
#[must_use]
pub fn gigabytes(quantity: &str) -> Option<u32> {
    const UNITS: [(&str, f64); 7] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("", 1.0),
    ];
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((quantity.strip_suffix(name)?, unit)))?;
    let bytes: f64 = number.parse::<f64>().ok()? * unit;
    Some((bytes / 1_073_741_824.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn node(conditions: serde_json::Value) -> Node {
        from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn only_the_listed_conditions_make_a_node_ill() {
        let listed = || ["DiskPressure", " KernelDeadlock"];
        for (type_, status, ill) in [
            ("DiskPressure", "True", true),
            ("KernelDeadlock", "Unknown", true),
            ("DiskPressure", "False", false),
            ("MemoryPressure", "True", false),
        ] {
            let node = node(json!([{"type": type_, "status": status, "message": "full"}]));
            let found = illness(&node, listed());
            assert_eq!(found.is_some(), ill, "{type_} {status}: {found:?}");
        }
        let full = node(json!([{"type": "DiskPressure", "status": "True", "message": "full"}]));
        assert_eq!(illness(&full, listed()).unwrap(), "the node has DiskPressure True: full");
    }

    #[test]
    fn a_long_complaint_is_cut_at_a_character() {
        let node = node(json!([{"type": "Ready", "status": "False", "message": "ä".repeat(200)}]));
        let said = complaint(&node);
        assert!(said.starts_with("the node is not ready: ää") && said.ends_with("ä..."), "{said}");
        assert!(said.len() < 200, "{}", said.len());
    }

    #[test]
    fn memory_is_read_in_every_unit_kubelets_write() {
        for (text, gigabytes_) in [
            ("16393260Ki", Some(16)),
            ("8Gi", Some(8)),
            ("4294967296", Some(4)),
            ("8G", Some(7)),
            ("x", None),
        ] {
            assert_eq!(gigabytes(text), gigabytes_, "{text}");
        }
    }
}
