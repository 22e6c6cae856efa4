//! The compiled form of a schema: an arena of nodes, so that a recursive schema needs no special
//! care.

use super::rules::Rules;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Index of a node in its arena.
pub(super) type Id = usize;

/// The JSON type a node allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// Kubernetes' quantity: a string, or a number.
    Quantity,
}

/// How a list merges (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List {
    Atomic,
    Set,
    /// With its keys and, where a key has one, its default.
    Map(Vec<Key>),
}

/// A key of a list map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub name: String,
    pub default: Option<Value>,
}

/// A property of an object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub node: Id,
    pub default: Option<Value>,
}

/// What a value must keep to beyond its type.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub minimum: Option<Value>,
    pub maximum: Option<Value>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Regex>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub enumeration: Vec<Value>,
    pub required: Vec<String>,
    pub all_of: Vec<Id>,
    pub any_of: Vec<Id>,
    pub one_of: Vec<Id>,
    pub not: Option<Id>,
}

/// One schema, compiled.
#[derive(Debug)]
pub(super) struct Node {
    pub kind: Type,
    pub format: String,
    /// Last part of the Go type's name with its package, as `v1.PodSpec`; empty for what has no
    /// name.
    pub go: String,
    pub nullable: bool,
    /// Unknown fields stay.
    pub preserve: bool,
    pub embedded: bool,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    pub properties: BTreeMap<String, Field>,
    /// Schema of the values of a map.
    pub additional: Option<Id>,
    pub items: Option<Id>,
    pub list: List,
    /// Lists that strategic merge patches merge; with the key unless the elements are primitive.
    pub patch_merge: bool,
    pub patch_key: String,
    pub limits: Option<Box<Limits>>,
    pub rules: Option<Box<Rules>>,
    /// There is a rule here or further down.
    pub rules_below: bool,
    /// There is a rule that looks at `oldSelf` here or further down.
    pub transitions_below: bool,
    /// Fields that the Go type always has; an empty list or text in them is kept.
    pub required: Vec<String>,
}

impl Node {
    pub(super) fn new(kind: Type) -> Self {
        Self {
            kind,
            format: String::new(),
            go: String::new(),
            nullable: false,
            preserve: false,
            embedded: false,
            atomic: false,
            properties: BTreeMap::new(),
            additional: None,
            items: None,
            list: List::Atomic,
            patch_merge: false,
            patch_key: String::new(),
            limits: None,
            rules: None,
            rules_below: false,
            transitions_below: false,
            required: Vec::new(),
        }
    }

    /// Whether values of any shape may stand below: a map without a schema, or one that keeps
    /// unknown fields.
    pub(super) fn untyped(&self) -> bool {
        self.kind == Type::Any
            || (self.kind == Type::Object
                && self.properties.is_empty()
                && self.additional.is_none())
    }
}

/// All nodes of a schema.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pub nodes: Vec<Node>,
    pub settled: Settled,
}

/// Values that may stay as they are. Most updates leave a spec alone, and its rules about changes
/// give the same answer every time; this spares asking them.
#[derive(Debug, Default)]
pub(super) struct Settled(Mutex<BTreeSet<(Id, u64)>>);

impl Settled {
    /// Values remembered at most; beyond, all are forgotten.
    const MOST: usize = 16_384;

    /// Whether `check` finds nothing wrong with an unchanged value.
    pub(super) fn is_fine(&self, id: Id, value: &Value, check: impl FnOnce() -> bool) -> bool {
        let mut hasher = DefaultHasher::new();
        digest(value, &mut hasher);
        let key = (id, hasher.finish());
        if self.known().contains(&key) {
            return true;
        }
        let fine = check();
        if fine {
            let mut known = self.known();
            if known.len() >= Self::MOST {
                known.clear();
            }
            known.insert(key);
        }
        fine
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<(Id, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(b) => b.hash(hasher),
        Value::Number(n) => n.hash(hasher),
        Value::String(text) => text.hash(hasher),
        Value::Array(items) => {
            hasher.write_usize(items.len());
            items.iter().for_each(|item| digest(item, hasher));
        }
        Value::Object(fields) => {
            hasher.write_usize(fields.len());
            for (name, value) in fields {
                name.hash(hasher);
                digest(value, hasher);
            }
        }
    }
}

impl Arena {
    pub(super) fn get(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }
}

/// Builds nodes from OpenAPI v3 with `$ref`s.
pub(super) struct Builtins<'a> {
    components: &'a Map<String, Value>,
    named: BTreeMap<String, Id>,
    pub arena: Arena,
}

impl<'a> Builtins<'a> {
    pub(super) fn new(components: &'a Map<String, Value>) -> Self {
        Self { components, named: BTreeMap::new(), arena: Arena::default() }
    }

    /// The node of a schema of that name.
    pub(super) fn named(&mut self, name: &str) -> Id {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = self.arena.push(Node::new(Type::Any));
        self.named.insert(name.to_owned(), id);
        if let Some(schema) = self.components.get(name) {
            let mut node = self.convert(schema);
            node.go = go_name(name);
            self.arena.nodes[id] = node;
        }
        id
    }

    fn node(&mut self, schema: &Value) -> Id {
        let target = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"));
        if let Some(name) = target.and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap_or(name).to_owned();
            return self.named(&name);
        }
        let node = self.convert(schema);
        self.arena.push(node)
    }

    fn convert(&mut self, schema: &Value) -> Node {
        let mut node = Node::new(kind_of(schema));
        read_shape(&mut node, schema);
        node.required = texts(schema.get("required"));
        for (name, property) in
            schema.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let child = self.node(property);
            let default = property.get("default").cloned();
            node.properties.insert(name.clone(), Field { node: child, default });
        }
        node.items = schema.get("items").map(|items| self.node(items));
        node.additional =
            schema.get("additionalProperties").filter(|a| a.is_object()).map(|a| self.node(a));
        // Go keeps what it has no type for.
        node.preserve |=
            node.kind == Type::Object && node.properties.is_empty() && node.additional.is_none();
        node.list = self.list_type(schema, node.items);
        node
    }

    fn list_type(&self, schema: &Value, items: Option<Id>) -> List {
        list_type(&self.arena, schema, items)
    }
}

/// The list type of an array schema whose element node is built already.
pub(super) fn list_type(arena: &Arena, schema: &Value, items: Option<Id>) -> List {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => List::Set,
        Some("map") => {
            let fields = items.map(|id| &arena.get(id).properties);
            let keys = texts(schema.get("x-kubernetes-list-map-keys")).into_iter().map(|name| {
                let default = fields.and_then(|f| f.get(&name)).and_then(|f| f.default.clone());
                // A number or text without a default of its own carries its zero value, which is no
                // key.
                let default = default.filter(|d| *d != json!("") && *d != json!(0));
                Key { name, default }
            });
            List::Map(keys.collect())
        }
        _ => List::Atomic,
    }
}

/// `v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn go_name(name: &str) -> String {
    let mut parts = name.rsplit('.');
    let last = parts.next().unwrap_or_default();
    parts.next().map_or_else(|| last.to_owned(), |package| format!("{package}.{last}"))
}

/// The JSON type a schema asks for.
pub(super) fn kind_of(schema: &Value) -> Type {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    if flag("x-kubernetes-int-or-string") || schema.get("format") == Some(&json!("int-or-string")) {
        return Type::IntOrString;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ if schema.get("oneOf") == Some(&json!([{"type": "string"}, {"type": "number"}])) => {
            Type::Quantity
        }
        _ => Type::Any,
    }
}

/// What a node takes from its own schema alone.
pub(super) fn read_shape(node: &mut Node, schema: &Value) {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    node.format = text("format");
    node.nullable = flag("nullable");
    node.preserve = flag("x-kubernetes-preserve-unknown-fields");
    node.embedded = flag("x-kubernetes-embedded-resource");
    node.atomic = text("x-kubernetes-map-type") == "atomic";
    node.patch_merge = text("x-kubernetes-patch-strategy").split(',').any(|one| one == "merge");
    node.patch_key = text("x-kubernetes-patch-merge-key");
}

/// A list of texts.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    let all = value.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Metadata of objects, which custom resources share with built-in kinds.
pub(super) fn object_meta() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "format": "int64"});
    let time = json!({"$ref": "#/components/schemas/meta.v1.Time"});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({
        "meta.v1.Time": {"type": "string", "format": "date-time"},
        "meta.v1.FieldsV1": {"type": "object"},
        "meta.v1.ObjectMeta": {"type": "object", "properties": {
            "annotations": map, "labels": map, "name": text, "generateName": text, "namespace": text, "uid": text,
            "resourceVersion": text, "selfLink": text, "generation": number, "deletionGracePeriodSeconds": number,
            "creationTimestamp": time, "deletionTimestamp": time,
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "ownerReferences": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "items": {"$ref": "#/components/schemas/meta.v1.OwnerReference"}},
            "managedFields": {
                "type": "array", "items": {"$ref": "#/components/schemas/meta.v1.ManagedFieldsEntry"}}}},
        "meta.v1.OwnerReference": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}}},
        "meta.v1.ManagedFieldsEntry": {"type": "object", "properties": {
            "apiVersion": text, "fieldsType": text, "manager": text, "operation": text, "subresource": text,
            "time": time, "fieldsV1": {"$ref": "#/components/schemas/meta.v1.FieldsV1"}}}})
}
