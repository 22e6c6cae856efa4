//! Schemas of custom resource definitions: what makes one structural, and its compilation.

use super::error::FieldError;
use super::node::{self, Arena, Builtins, Field, Id, Limits, Node, Type};
use super::rules::Rules;
use super::validate;
use regex::Regex;
use serde_json::{Value, json};

/// Nesting of a schema, in levels, beyond which it is refused.
const MAX_DEPTH: usize = 64;

/// Compiles an `openAPIV3Schema`; field paths of errors are relative to it.
pub(super) fn compile(schema: &Value) -> Result<(Arena, Id), Vec<FieldError>> {
    let mut errors = Vec::new();
    match schema.get("type").and_then(Value::as_str) {
        None | Some("") => {
            errors.push(FieldError::required("type", "must not be empty at the root"))
        }
        Some("object") => {}
        Some(other) => {
            errors.push(FieldError::invalid("type", &other.into(), "must be object at the root"))
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let meta = node::object_meta();
    let mut builtins = Builtins::new(meta.as_object().expect("the metadata schema is an object"));
    let meta = builtins.named("meta.v1.ObjectMeta");
    let text = builtins.arena.push(Node::new(Type::String));
    let mut builder = Builder { arena: builtins.arena, meta, text, errors };
    let root = builder.build(schema, "", 0);
    builder.root_fields(root);
    for error in &mut builder.errors {
        error.field = error.field.trim_start_matches('.').to_owned();
    }
    if builder.errors.is_empty() { Ok((builder.arena, root)) } else { Err(builder.errors) }
}

struct Builder {
    arena: Arena,
    meta: Id,
    text: Id,
    errors: Vec<FieldError>,
}

impl Builder {
    fn root_fields(&mut self, root: Id) {
        let (meta, text) = (self.meta, self.text);
        let node = &mut self.arena.nodes[root];
        for (name, id) in [("apiVersion", text), ("kind", text), ("metadata", meta)] {
            node.properties.insert(name.to_owned(), Field { node: id, default: None });
        }
    }

    fn build(&mut self, schema: &Value, at: &str, depth: usize) -> Id {
        if depth > MAX_DEPTH {
            self.errors.push(FieldError::forbidden(at, "the schema is nested too deeply"));
            return self.text;
        }
        self.check_structure(schema, at);
        let mut node = Node::new(node::kind_of(schema));
        node::read_shape(&mut node, schema);
        node.rules = Rules::compile(schema, at, &mut self.errors).map(Box::new);
        self.children(&mut node, schema, at, depth);
        node.list = node::list_type(&self.arena, schema, node.items);
        node.limits = self.limits(schema, at, depth);
        if node.embedded {
            for (name, id) in
                [("apiVersion", self.text), ("kind", self.text), ("metadata", self.meta)]
            {
                node.properties.entry(name.to_owned()).or_insert(Field { node: id, default: None });
            }
        }
        self.mark_rules(&mut node);
        let id = self.arena.push(node);
        if let Some(rules) = &self.arena.get(id).rules {
            rules.check_types(&self.arena, id, at, &mut self.errors);
        }
        id
    }

    fn children(&mut self, node: &mut Node, schema: &Value, at: &str, depth: usize) {
        for (name, property) in
            schema.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let child_at = format!("{at}.properties[{name}]");
            let child = self.build(property, &child_at, depth + 1);
            let default = property.get("default").cloned();
            if let Some(default) = &default {
                self.check_default(child, default, &child_at);
            }
            node.properties.insert(name.clone(), Field { node: child, default });
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            node.items = Some(self.build(items, &format!("{at}.items"), depth + 1));
        }
        match schema.get("additionalProperties") {
            Some(additional @ Value::Object(_)) => {
                let at = format!("{at}.additionalProperties");
                node.additional = Some(self.build(additional, &at, depth + 1));
            }
            Some(Value::Bool(true)) => node.preserve = true,
            _ => {}
        }
    }

    fn mark_rules(&self, node: &mut Node) {
        let below: Vec<Id> = node
            .properties
            .values()
            .map(|f| f.node)
            .chain(node.items)
            .chain(node.additional)
            .collect();
        node.rules_below =
            node.rules.is_some() || below.iter().any(|id| self.arena.get(*id).rules_below);
        node.transitions_below = node.rules.as_ref().is_some_and(|rules| rules.any_transition())
            || below.iter().any(|id| self.arena.get(*id).transitions_below);
    }

    fn check_default(&mut self, child: Id, default: &Value, at: &str) {
        let mut found = Vec::new();
        validate::structure(&self.arena, child, (default, None), "", &mut found);
        for mut error in found {
            error.field = format!("{at}.default{}", prefixed(&error.field));
            self.errors.push(error);
        }
    }

    fn check_structure(&mut self, schema: &Value, at: &str) {
        let any_shape = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]
            .iter()
            .any(|flag| schema.get(*flag) == Some(&json!(true)));
        match schema.get("type").and_then(Value::as_str) {
            None | Some("") if !any_shape => {
                let what = if at.ends_with(".items") {
                    "must not be empty for specified array items"
                } else {
                    "must not be empty for specified object fields"
                };
                self.errors.push(FieldError::required(format!("{at}.type"), what));
            }
            Some("array") if schema.get("items").is_none() => {
                self.errors.push(FieldError::required(format!("{at}.items"), "must be specified"));
            }
            Some(kind @ ("array" | "boolean" | "integer" | "number" | "object" | "string")) => {
                let _ = kind;
            }
            Some(other) if !other.is_empty() => {
                let known = ["array", "boolean", "integer", "number", "object", "string"];
                self.errors.push(FieldError::unsupported(
                    format!("{at}.type"),
                    &other.into(),
                    &known,
                ));
            }
            _ => {}
        }
        let filled =
            |name: &str| schema.get(name).and_then(Value::as_object).is_some_and(|o| !o.is_empty());
        let open = schema.get("additionalProperties").is_some_and(|a| *a != json!(false));
        if filled("properties") && open {
            let what = "additionalProperties and properties are mutual exclusive";
            self.errors.push(FieldError::forbidden(format!("{at}.additionalProperties"), what));
        }
        if schema.get("$ref").is_some() {
            self.errors.push(FieldError::forbidden(format!("{at}.$ref"), "$ref is not supported"));
        }
        if schema.get("uniqueItems") == Some(&json!(true)) {
            let what =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(format!("{at}.uniqueItems"), what));
        }
        self.check_list(schema, at);
    }

    fn check_list(&mut self, schema: &Value, at: &str) {
        let keys = node::texts(schema.get("x-kubernetes-list-map-keys"));
        let is_map = schema.get("x-kubernetes-list-type") == Some(&json!("map"));
        let at_keys = format!("{at}.x-kubernetes-list-map-keys");
        if is_map && keys.is_empty() {
            let what = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(at_keys, what));
        } else if is_map {
            let items = schema.pointer("/items/properties");
            if keys.iter().any(|key| items.and_then(|i| i.get(key)).is_none()) {
                let what = "entries must all be names of item properties";
                self.errors.push(FieldError::invalid(at_keys, &json!(keys), what));
            }
        } else if !keys.is_empty() {
            let what = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(FieldError::required(format!("{at}.x-kubernetes-list-type"), what));
        }
    }

    fn limits(&mut self, schema: &Value, at: &str, depth: usize) -> Option<Box<Limits>> {
        let number = |name: &str| schema.get(name).filter(|v| v.is_number()).cloned();
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let limits = Limits {
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: schema.get("multipleOf").and_then(Value::as_f64),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: self.pattern(schema, at),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            required: node::texts(schema.get("required")),
            all_of: self.branches(schema, "allOf", at, depth),
            any_of: self.branches(schema, "anyOf", at, depth),
            one_of: self.branches(schema, "oneOf", at, depth),
            not: schema.get("not").map(|not| self.branch(not, &format!("{at}.not"), depth)),
        };
        const SAYS: [&str; 17] = [
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "enum",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        SAYS.iter().any(|word| schema.get(*word).is_some()).then(|| Box::new(limits))
    }

    fn pattern(&mut self, schema: &Value, at: &str) -> Option<Regex> {
        let text = schema.get("pattern").and_then(Value::as_str)?;
        Regex::new(text)
            .map_err(|error| {
                let why = error.to_string();
                let why =
                    why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let words = format!(
                    "must be a valid regular expression, but isn't: error parsing regexp: {why}"
                );
                self.errors.push(FieldError::invalid(
                    format!("{at}.pattern"),
                    &text.into(),
                    &words,
                ));
            })
            .ok()
    }

    fn branches(&mut self, schema: &Value, word: &str, at: &str, depth: usize) -> Vec<Id> {
        let given = schema.get(word);
        // Kubernetes lets int-or-string spell out its two types.
        if node::kind_of(schema) == Type::IntOrString
            && given == Some(&json!([{"type": "integer"}, {"type": "string"}]))
        {
            return Vec::new();
        }
        let all = given.and_then(Value::as_array).into_iter().flatten().enumerate();
        all.map(|(i, branch)| self.branch(branch, &format!("{at}.{word}[{i}]"), depth)).collect()
    }

    /// A schema inside `allOf`, `anyOf`, `oneOf` or `not`: it may limit values, not describe new
    /// fields.
    fn branch(&mut self, schema: &Value, at: &str, depth: usize) -> Id {
        if depth > MAX_DEPTH {
            self.errors.push(FieldError::forbidden(at, "the schema is nested too deeply"));
            return self.text;
        }
        if schema.get("type").is_some() {
            self.errors.push(FieldError::forbidden(
                format!("{at}.type"),
                "must be empty to be structural",
            ));
        }
        for word in ["default", "additionalProperties", "nullable", "x-kubernetes-list-type"] {
            if schema.get(word).is_some() {
                let error = FieldError::forbidden(
                    format!("{at}.{word}"),
                    "must be undefined to be structural",
                );
                self.errors.push(error);
            }
        }
        let mut node = Node::new(node::kind_of(schema));
        node::read_shape(&mut node, schema);
        node.preserve = true;
        node.nullable = true;
        for (name, property) in
            schema.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let child = self.branch(property, &format!("{at}.properties[{name}]"), depth + 1);
            node.properties.insert(name.clone(), Field { node: child, default: None });
        }
        if let Some(items) = schema.get("items") {
            node.items = Some(self.branch(items, &format!("{at}.items"), depth + 1));
        }
        node.limits = self.limits(schema, at, depth + 1);
        self.arena.push(node)
    }
}

/// A relative path behind another.
fn prefixed(path: &str) -> String {
    if path.is_empty() || path.starts_with('[') { path.to_owned() } else { format!(".{path}") }
}
