//! Objects under a schema: what differs, what is set, what remains. The rules are those of
//! Kubernetes' structured merge.

use super::fields::{self, Node as Set};
use crate::schema::node::{Arena, Id, List, Node, Type};
use serde_json::{Map, Value};

/// Metadata that belongs to the server and that nobody owns.
pub(super) const SERVER_META: [&str; 10] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
    "deletionGracePeriodSeconds",
];

/// How a value merges.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// As a whole.
    Leaf,
    /// By key.
    Map,
    /// By element.
    List(&'a List),
}

/// A place in the schema; `None` where the schema says nothing.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub arena: &'a Arena,
    pub node: Option<&'a Node>,
}

impl<'a> Place<'a> {
    pub(super) fn new(arena: &'a Arena, id: Id) -> Self {
        Self { arena, node: Some(arena.get(id)) }
    }

    fn at(self, id: Option<Id>) -> Self {
        Self { arena: self.arena, node: id.map(|id| self.arena.get(id)) }
    }

    pub(super) fn field(self, name: &str) -> Self {
        let Some(node) = self.node else { return self };
        self.at(node.properties.get(name).map(|field| field.node).or(node.additional))
    }

    fn element(self) -> Self {
        self.node.map_or(self, |node| self.at(node.items))
    }

    /// Whether the schema names this field of the map.
    fn declares(self, name: &str) -> bool {
        self.node.is_some_and(|node| node.properties.contains_key(name))
    }

    pub(super) fn shape(self, value: &Value) -> Shape<'a> {
        let Some(node) = self.node else {
            return if value.is_object() { Shape::Map } else { Shape::Leaf };
        };
        match (node.kind, value) {
            (Type::Object, Value::Object(_) | Value::Null) if !node.atomic => Shape::Map,
            (Type::Array, Value::Array(_) | Value::Null) if node.list != List::Atomic => {
                Shape::List(&node.list)
            }
            (Type::Any, Value::Object(_)) => Shape::Map,
            _ => Shape::Leaf,
        }
    }
}

/// The path element of a list's element; `None` for one without its keys.
fn element_of(list: &List, item: &Value) -> Option<String> {
    let List::Map(keys) = list else { return Some(format!("v:{item}")) };
    let mut found = Map::new();
    for key in keys {
        let value = item.get(&key.name).filter(|v| !v.is_null()).or(key.default.as_ref());
        found.extend(value.map(|value| (key.name.clone(), value.clone())));
    }
    (!found.is_empty()).then(|| format!("k:{}", Value::Object(found)))
}

/// The path elements of a list; `None` where one has no keys.
fn elements(list: &List, value: Option<&Value>) -> Option<Vec<String>> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| element_of(list, item)).collect()
}

fn is_blank(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// What a write changed.
#[derive(Debug, Default)]
pub(super) struct Diff {
    /// New or changed.
    pub set: Set,
    pub removed: Set,
}

#[derive(Default)]
struct Change {
    set: Option<Value>,
    removed: Option<Value>,
}

impl Change {
    fn whole(old: Option<&Value>, new: Option<&Value>) -> Self {
        let member = || fields::seal(true, Set::new());
        if new.is_none() && old.is_some() {
            Self { set: None, removed: member() }
        } else {
            Self { set: member(), removed: None }
        }
    }
}

/// What differs between two objects, but for what the server keeps in their metadata.
pub(super) fn compare(place: Place, old: &Value, new: &Value) -> Diff {
    let mut diff = Diff::default();
    let names = keys(Some(old), Some(new));
    for name in names.into_iter().filter(|name| *name != "apiVersion" && *name != "kind") {
        let (before, after) = (old.get(name), new.get(name));
        let change = if name == "metadata" {
            let mut change = map(place.field(name), before, after, &SERVER_META);
            // Nobody owns `metadata` itself.
            for side in [&mut change.set, &mut change.removed] {
                *side = side.take().and_then(|side| {
                    let mut set = Set::from_iter([("f:metadata".to_owned(), side)]);
                    fields::remove(&mut set, &["f:metadata"]);
                    set.remove("f:metadata")
                });
            }
            change
        } else {
            differ(place.field(name), before, after)
        };
        let element = format!("f:{name}");
        diff.set.extend(change.set.map(|set| (element.clone(), set)));
        diff.removed.extend(change.removed.map(|set| (element, set)));
    }
    diff
}

fn differ(place: Place, old: Option<&Value>, new: Option<&Value>) -> Change {
    if old == new {
        return Change::default();
    }
    let Some(sample) = new.or(old) else { return Change::default() };
    let blank = is_blank(old) && is_blank(new);
    match place.shape(sample) {
        Shape::Map if !blank => map(place, old, new, &[]),
        Shape::List(kind) if !blank => list(place, kind, old, new),
        _ => Change::whole(old, new),
    }
}

/// The names of the fields of both, each once, in order.
fn keys<'a>(old: Option<&'a Value>, new: Option<&'a Value>) -> Vec<&'a str> {
    let names = |value: Option<&'a Value>| {
        value.and_then(Value::as_object).map(|o| o.keys().map(String::as_str))
    };
    let mut all: Vec<&str> =
        names(old).into_iter().flatten().chain(names(new).into_iter().flatten()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn map(place: Place, old: Option<&Value>, new: Option<&Value>, skip: &[&str]) -> Change {
    let (mut set, mut removed) = (Set::new(), Set::new());
    for name in keys(old, new).into_iter().filter(|name| !skip.contains(name)) {
        let before = old.and_then(|old| old.get(name));
        let after = new.and_then(|new| new.get(name));
        let change = differ(place.field(name), before, after);
        if change.set.is_some() || change.removed.is_some() {
            let element = format!("f:{name}");
            removed.extend(change.removed.map(|one| (element.clone(), one)));
            set.extend(change.set.map(|one| (element, one)));
        }
    }
    Change { set: fields::seal(old.is_none(), set), removed: fields::seal(new.is_none(), removed) }
}

fn list(place: Place, kind: &List, old: Option<&Value>, new: Option<&Value>) -> Change {
    let (Some(before), Some(after)) = (elements(kind, old), elements(kind, new)) else {
        return Change::whole(old, new);
    };
    let (mut set, mut removed) = (Set::new(), Set::new());
    let mut all: Vec<&String> = before.iter().chain(&after).collect();
    all.sort_unstable();
    all.dedup();
    for element in all {
        let places = |list: &[String]| -> Vec<usize> {
            list.iter().enumerate().filter(|(_, one)| *one == element).map(|(i, _)| i).collect()
        };
        let (was, is) = (places(&before), places(&after));
        let mut change = match (was.len(), is.len()) {
            (0..=1, 0..=1) => differ_element(place.element(), first(old, &was), first(new, &is)),
            (2.., 2..) => {
                let same = was.len() == is.len()
                    && was.iter().zip(&is).all(|(w, i)| first(old, &[*w]) == first(new, &[*i]));
                if same { Change::default() } else { Change::whole(None, new) }
            }
            (2.., _) => {
                let mut change = differ_element(place.element(), None, first(new, &is));
                change.removed = fields::seal(true, Set::new());
                change
            }
            _ => {
                let mut change = differ_element(place.element(), first(old, &was), None);
                change.set = fields::seal(true, Set::new());
                change
            }
        };
        set.extend(change.set.take().map(|one| (element.clone(), one)));
        removed.extend(change.removed.take().map(|one| (element.clone(), one)));
    }
    Change { set: fields::seal(old.is_none(), set), removed: fields::seal(new.is_none(), removed) }
}

/// The element of a list at the first of some places.
fn first<'a>(list: Option<&'a Value>, places: &[usize]) -> Option<&'a Value> {
    places.first().and_then(|at| list?.get(*at))
}

fn differ_element(place: Place, old: Option<&Value>, new: Option<&Value>) -> Change {
    if old.is_none() && new.is_none() { Change::default() } else { differ(place, old, new) }
}

/// The fields an object sets, but for those nobody owns.
pub(super) fn set_of(place: Place, object: &Value) -> Set {
    let mut set = Set::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let place = place.field("metadata");
                let mut below = Set::new();
                for (name, value) in value.as_object().into_iter().flatten() {
                    if !SERVER_META.contains(&name.as_str()) {
                        below.extend(field_set(place, name, value));
                    }
                }
                set.extend(fields::seal(false, below).map(|one| ("f:metadata".to_owned(), one)));
            }
            _ => set.extend(field_set(place, name, value)),
        }
    }
    set
}

fn field_set(place: Place, name: &str, value: &Value) -> Option<(String, Value)> {
    let empty_map = value.as_object().is_some_and(Map::is_empty);
    let member = value.is_null() || empty_map || !place.declares(name);
    let (own, below) = value_set(place.field(name), value);
    fields::seal(member || own, below).map(|set| (format!("f:{name}"), set))
}

/// Whether the value is a field of its own, and what it sets below.
fn value_set(place: Place, value: &Value) -> (bool, Set) {
    let mut below = Set::new();
    match (place.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            below.extend(fields.iter().filter_map(|(name, value)| field_set(place, name, value)));
            (false, below)
        }
        (Shape::List(kind), Value::Array(items)) => {
            let Some(elements) = elements(kind, Some(value)) else { return (true, below) };
            for (element, item) in elements.iter().zip(items) {
                let twice = below.contains_key(element);
                let inner = if twice { Set::new() } else { value_set(place.element(), item).1 };
                below.extend(fields::seal(true, inner).map(|set| (element.clone(), set)));
            }
            (false, below)
        }
        (Shape::Map | Shape::List(_), _) => (false, below),
        (Shape::Leaf, _) => (true, below),
    }
}

/// The object that comes of laying `new` over `old`.
pub(super) fn merge(place: Place, old: Option<&Value>, new: Option<&Value>) -> Value {
    let (Some(before), Some(after)) = (old, new) else {
        return new.or(old).cloned().unwrap_or(Value::Null);
    };
    if is_blank(old) && is_blank(new) {
        return after.clone();
    }
    match (place.shape(after), before, after) {
        (Shape::Map, Value::Object(before), Value::Object(after)) => {
            let mut out = before.clone();
            for (name, value) in after {
                out.insert(name.clone(), merge(place.field(name), before.get(name), Some(value)));
            }
            Value::Object(out)
        }
        (Shape::List(kind), Value::Array(before), Value::Array(after)) => {
            merge_lists(place.element(), kind, before, after)
                .map_or_else(|| new.cloned().unwrap_or_default(), Value::Array)
        }
        _ => after.clone(),
    }
}

/// Elements of both keep the order of `new`; those of `old` alone stay where they were relative to
/// the shared ones.
fn merge_lists(place: Place, kind: &List, old: &[Value], new: &[Value]) -> Option<Vec<Value>> {
    let before: Vec<String> =
        old.iter().map(|item| element_of(kind, item)).collect::<Option<_>>()?;
    let after: Vec<String> =
        new.iter().map(|item| element_of(kind, item)).collect::<Option<_>>()?;
    // An element that stands twice has nothing to be merged with.
    let counterpart = |element: &String| {
        let mut places =
            before.iter().enumerate().filter(|(_, one)| *one == element).map(|(i, _)| i);
        places.next().filter(|_| places.next().is_none()).map(|i| &old[i])
    };
    let merged = |at: usize| merge(place, counterpart(&after[at]), Some(&new[at]));
    let mut shared = after.iter().filter(|element| before.contains(element));
    let mut next_shared = shared.next();
    let mut taken: Vec<&String> = Vec::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < before.len() || r < after.len() {
        if l < before.len() && r < after.len() {
            if before[l] == after[r] {
                taken.push(&before[l]);
                out.push(merged(r));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if after.contains(&before[l]) && next_shared.is_some_and(|next| *next != before[l]) {
                l += 1;
                continue;
            }
        }
        if l < before.len() {
            if !after.contains(&before[l]) {
                out.push(old[l].clone());
                l += 1;
                continue;
            }
            if taken.contains(&&before[l]) {
                l += 1;
            }
        }
        if r < after.len() {
            taken.push(&after[r]);
            out.push(merged(r));
            if next_shared == Some(&after[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    Some(out)
}

/// The object without the fields of a set; maps and lists that lose everything vanish.
pub(super) fn without(place: Place, value: &Value, set: &Set) -> Option<Value> {
    match (place.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| {
                    let element = format!("f:{name}");
                    let kept = kept(place.field(name), value, set, &element)?;
                    Some((name.clone(), kept))
                })
                .collect();
            (!kept.is_empty() || fields.is_empty()).then_some(Value::Object(kept))
        }
        (Shape::List(kind), Value::Array(items)) => {
            let Some(elements) = elements(kind, Some(value)) else { return Some(value.clone()) };
            let left: Vec<Value> = items
                .iter()
                .zip(&elements)
                .filter_map(|(item, element)| kept(place.element(), item, set, element))
                .collect();
            (!left.is_empty() || items.is_empty()).then_some(Value::Array(left))
        }
        _ => Some(value.clone()),
    }
}

fn kept(place: Place, value: &Value, set: &Set, element: &str) -> Option<Value> {
    if fields::has(set, element) {
        return None;
    }
    match fields::below(set, element) {
        Some(below) => without(place, value, below),
        None => Some(value.clone()),
    }
}

/// The set with every field that the schema names made a member where something below it is one.
pub(super) fn with_parents(place: Place, set: &Set) -> Set {
    let mut out = Set::new();
    for (element, below) in set.iter().filter(|(element, _)| *element != ".") {
        let Some(inner) = below.as_object() else { continue };
        let name = element.strip_prefix("f:");
        let child = name.map_or_else(|| place.element(), |name| place.field(name));
        let member = fields::has(set, element) || name.is_some_and(|name| place.declares(name));
        out.extend(
            fields::seal(member, with_parents(child, inner)).map(|one| (element.clone(), one)),
        );
    }
    out
}

/// What keeps an applied configuration from being an object of its schema, each with its path.
pub(super) fn errors(place: Place, value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(node) = place.node else { return };
    if value.is_null() {
        return;
    }
    let wanted = match (node.kind, value) {
        (Type::Object, Value::Object(fields)) => {
            for (name, value) in fields {
                let at = format!("{path}.{name}");
                if place.declares(name) || node.additional.is_some() {
                    errors(place.field(name), value, &at, found);
                } else if !node.preserve && !node.untyped() {
                    found.push(format!("{at}: field not declared in schema"));
                }
            }
            return;
        }
        (Type::Array, Value::Array(items)) => {
            list_errors(place, node, items, path, found);
            return;
        }
        (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Integer | Type::Number, Value::Number(_))
        | (Type::Any, _)
        | (Type::IntOrString | Type::Quantity, Value::Number(_) | Value::String(_)) => return,
        (Type::Object, _) => "map",
        (Type::Array, _) => "list",
        (Type::String, _) => "string",
        (Type::Boolean, _) => "boolean",
        (Type::Integer | Type::Number, _) => "numeric (int or float)",
        (Type::IntOrString | Type::Quantity, _) => "scalar",
    };
    found.push(format!("{path}: expected {wanted}, got &value.valueUnstructured{{Value:{value}}}"));
}

fn list_errors(place: Place, node: &Node, items: &[Value], path: &str, found: &mut Vec<String>) {
    let mut seen: Vec<String> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let mut at = format!("{path}[{i}]");
        if node.list != List::Atomic {
            let Some(element) = element_of(&node.list, item) else {
                found.push(format!(
                    "{path}: element {i}: associative list with keys has an element that omits all keys {:?} \
                     (and doesn't have default values for any of the keys)",
                    key_names(&node.list)
                ));
                continue;
            };
            let shown =
                fields::paths(&Set::from_iter([(element.clone(), Value::Object(Set::new()))]))
                    .concat();
            if seen.contains(&element) {
                found.push(format!("{path}: duplicate entries for key {shown}"));
                continue;
            }
            at = format!("{path}{shown}");
            seen.push(element);
        }
        errors(place.element(), item, &at, found);
    }
}

fn key_names(list: &List) -> Vec<&str> {
    match list {
        List::Map(keys) => keys.iter().map(|key| key.name.as_str()).collect(),
        _ => Vec::new(),
    }
}
