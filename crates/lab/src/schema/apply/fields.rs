//! Sets of fields in the form of `fieldsV1`, which is also how they are kept: every operation works
//! on the JSON.
//!
//! A node is a member of the set if it is empty or has the key `.`; other keys are path elements
//! (`f:name`,
//! `k:{"name":"c"}`, `v:"x"`).

use serde_json::{Map, Value};

/// A node of the set: its children, and perhaps the mark of membership.
pub(super) type Node = Map<String, Value>;

/// The mark of a member that has children.
const MEMBER: &str = ".";

fn is_member(node: &Node) -> bool {
    node.is_empty() || node.contains_key(MEMBER)
}

/// A node from its parts; `None` if there is nothing in it.
pub(super) fn seal(member: bool, mut children: Node) -> Option<Value> {
    match (member, children.is_empty()) {
        (false, true) => None,
        (true, false) => {
            children.insert(MEMBER.to_owned(), Value::Object(Node::new()));
            Some(Value::Object(children))
        }
        (true, true) | (false, false) => Some(Value::Object(children)),
    }
}

fn node(value: &Value) -> Option<&Node> {
    value.as_object()
}

/// Takes a node apart: whether it is a member, and its children.
fn open(value: Value) -> (bool, Node) {
    let Value::Object(mut children) = value else { return (false, Node::new()) };
    let member = is_member(&children);
    children.remove(MEMBER);
    (member, children)
}

fn children(set: &Node) -> impl Iterator<Item = (&String, &Value)> {
    set.iter().filter(|(name, _)| *name != MEMBER)
}

/// Adds all of `other` to `set`. Both are roots or both are nodes without their marks.
pub(super) fn union(set: &mut Node, other: &Node) {
    for (name, theirs) in children(other) {
        match set.remove(name) {
            None => {
                set.insert(name.clone(), theirs.clone());
            }
            Some(ours) => {
                let (member, mut below) = open(ours);
                let theirs = node(theirs);
                theirs.into_iter().for_each(|theirs| union(&mut below, theirs));
                let member = member || theirs.is_some_and(is_member);
                set.extend(seal(member, below).map(|sealed| (name.clone(), sealed)));
            }
        }
    }
}

/// Takes all of `other` out of `set`.
pub(super) fn subtract(set: &mut Node, other: &Node) {
    for (name, theirs) in children(other) {
        let Some(ours) = set.remove(name) else { continue };
        let (member, mut below) = open(ours);
        let theirs = node(theirs);
        theirs.into_iter().for_each(|theirs| subtract(&mut below, theirs));
        let member = member && !theirs.is_some_and(is_member);
        set.extend(seal(member, below).map(|sealed| (name.clone(), sealed)));
    }
}

/// What is in both.
pub(super) fn intersection(a: &Node, b: &Node) -> Node {
    let mut out = Node::new();
    for (name, ours) in children(a) {
        let (Some(ours), Some(theirs)) = (node(ours), b.get(name).and_then(node)) else { continue };
        let below = intersection(ours, theirs);
        let sealed = seal(is_member(ours) && is_member(theirs), below);
        out.extend(sealed.map(|sealed| (name.clone(), sealed)));
    }
    out
}

/// Whether the child is a member itself.
pub(super) fn has(set: &Node, element: &str) -> bool {
    set.get(element).and_then(node).is_some_and(is_member)
}

/// What is in the set below a child.
pub(super) fn below<'a>(set: &'a Node, element: &str) -> Option<&'a Node> {
    set.get(element).and_then(node).filter(|node| children(node).next().is_some())
}

/// Takes one path out of the set.
pub(super) fn remove(set: &mut Node, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(ours) = set.remove(*first) else { return };
    let (mut member, mut inner) = open(ours);
    if rest.is_empty() {
        member = false;
    } else {
        remove(&mut inner, rest);
    }
    set.extend(seal(member, inner).map(|sealed| ((*first).to_owned(), sealed)));
}

/// All members as Kubernetes prints paths: `.spec.containers[name="c"].image`.
pub(super) fn paths(set: &Node) -> Vec<String> {
    let mut out = Vec::new();
    collect(set, "", &mut out);
    out
}

fn collect(set: &Node, at: &str, out: &mut Vec<String>) {
    // Members of a level come before what is below its children.
    let level = || {
        children(set).filter_map(|(name, child)| node(child).map(|node| (shown(at, name), node)))
    };
    out.extend(level().filter(|(_, node)| is_member(node)).map(|(path, _)| path));
    level().for_each(|(path, node)| collect(node, &path, out));
}

fn shown(at: &str, element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!("{at}.{name}"),
        Some(("k", keys)) => {
            let keys: Node = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> =
                keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{at}[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("{at}[={value}]"),
        Some(("i", index)) => format!("{at}[{index}]"),
        _ => format!("{at}.{element}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, intersection, paths, remove, subtract, union};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn set(value: Value) -> Node {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn a_member_without_children_survives_the_loss_of_its_children() {
        let mut all = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
        subtract(&mut all, &set(json!({"f:a": {"f:b": {}}, "f:c": {"f:d": {}}})));
        assert_eq!(all, set(json!({"f:a": {}})));
    }

    #[test]
    fn a_child_does_not_make_its_parent_a_member() {
        let mut all = set(json!({"f:a": {"f:b": {}}}));
        union(&mut all, &set(json!({"f:a": {"f:c": {}}})));
        assert_eq!(all, set(json!({"f:a": {"f:b": {}, "f:c": {}}})));
        union(&mut all, &set(json!({"f:a": {}})));
        assert_eq!(all, set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}})));
    }

    #[test]
    fn paths_are_printed_as_kubernetes_does() {
        let all = set(json!({"f:spec": {
            "f:replicas": {}, "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}},
            "f:finalizers": {"v:\"e.x/a\"": {}}}}));
        let expect = [
            ".spec.replicas",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].image",
            ".spec.finalizers[=\"e.x/a\"]",
        ];
        assert_eq!(paths(&all), expect);
    }

    fn any_set() -> impl Strategy<Value = Node> {
        let leaf = Just(json!({}));
        let tree = leaf.prop_recursive(3, 16, 3, |inner| {
            (any::<bool>(), prop::collection::btree_map("f:[a-c]", inner, 1..3)).prop_map(
                |(member, below)| {
                    let below = below.into_iter().collect();
                    super::seal(member, below).expect("it has children")
                },
            )
        });
        prop::collection::btree_map("f:[a-c]", tree, 0..3).prop_map(|m| m.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_algebra_of_sets_holds(a in any_set(), b in any_set()) {
            let both = intersection(&a, &b);
            let mut only_a = a.clone();
            subtract(&mut only_a, &b);
            prop_assert!(intersection(&only_a, &b).is_empty());
            let mut again = only_a.clone();
            union(&mut again, &both);
            prop_assert_eq!(&again, &a);
            let mut all = a.clone();
            union(&mut all, &b);
            subtract(&mut all, &b);
            prop_assert_eq!(all, only_a);
        }

        #[test]
        fn taking_a_path_out_leaves_the_others(a in any_set()) {
            let before = paths(&a);
            if let Some(first) = before.first() {
                let mut left = a.clone();
                let names: Vec<String> = first[1..].split('.').map(|n| format!("f:{n}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                remove(&mut left, &names);
                prop_assert_eq!(paths(&left), before[1..].to_vec());
            }
        }
    }
}
