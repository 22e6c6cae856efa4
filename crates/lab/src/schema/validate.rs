//! Validation of custom resources: types, limits, lists and rules, in the words of Kubernetes.

use super::Inner;
use super::builtin::meta;
use super::error::{Cause, FieldError};
use super::format;
use super::node::{Arena, Id, Limits, List, Node, Type};
use serde_json::Value;

/// A value and, on an update, what stood in its place.
type Pair<'a> = (&'a Value, Option<&'a Value>);

/// Everything that is wrong with a custom resource.
pub(super) fn custom_resource(inner: &Inner, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = meta::validate(new, old, &meta::subdomain);
    structure(&inner.arena, inner.root, (new, old), "", &mut errors);
    lists(&inner.arena, inner.root, (new, old), "", &mut errors);
    if !inner.arena.get(inner.root).rules_below {
        return errors;
    }
    if errors.iter().any(|error| blocks_rules(error.reason)) {
        errors.push(FieldError {
            reason: Cause::Invalid,
            field: "<nil>".to_owned(),
            message: "Invalid value: null: some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation"
                .to_owned(),
        });
    } else {
        rules(&inner.arena, inner.root, (new, old), "", &mut errors);
    }
    errors
}

/// Kubernetes: rules may rely on types, required fields and sizes, so they are not evaluated
/// without these.
fn blocks_rules(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NotSupported
            | Cause::Required
            | Cause::TooLong
            | Cause::TooMany
            | Cause::TypeInvalid
    )
}

/// The path of a field, or of an entry of a map.
///
/// Kubernetes: schemas tell of `map.key`, its rules and checks of lists of `map[key]`.
fn at(path: &str, name: &str, entry: bool) -> String {
    if entry { format!("{path}[{name}]") } else { join(path, name) }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What stood at the place of an element of a list before; only the keys of a list map can tell.
fn old_element<'a>(node: &Node, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let List::Map(keys) = &node.list else { return None };
    old?.as_array()?
        .iter()
        .find(|one| keys.iter().all(|key| one.get(&key.name) == item.get(&key.name)))
}

/// Types and limits, without rules. What did not change is not held against an update.
pub(super) fn structure(
    arena: &Arena,
    id: Id,
    (new, old): Pair,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(new) {
        return;
    }
    let node = arena.get(id);
    if new.is_null() && (node.nullable || node.kind == Type::Any) {
        return;
    }
    let fits = check_type(node, new, path, errors);
    if let Some(limits) = &node.limits {
        junctions(arena, limits, new, path, errors);
        if fits {
            check_limits(limits, new, path, errors);
        }
    }
    match new {
        Value::Object(fields) if fits => {
            if node.embedded {
                for name in ["apiVersion", "kind"] {
                    if new.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                        errors.push(FieldError::required(join(path, name), ""));
                    }
                }
            }
            for (name, value) in fields {
                let child = node.properties.get(name).map(|f| f.node).or(node.additional);
                // Metadata has been looked at by its own rules, where it is the object's.
                if let Some(child) = child.filter(|_| !(path.is_empty() && name == "metadata")) {
                    let before = old.and_then(|old| old.get(name));
                    structure(arena, child, (value, before), &join(path, name), errors);
                }
            }
            // Kubernetes: what is missing is told of after what is wrong.
            let required = node.limits.iter().flat_map(|limits| &limits.required);
            let missing = required.filter(|name| !fields.contains_key(*name));
            errors.extend(missing.map(|name| FieldError::required(join(path, name), "")));
        }
        Value::Array(items) if fits => {
            let Some(child) = node.items else { return };
            for (i, item) in items.iter().enumerate() {
                let before = old_element(node, item, old);
                structure(arena, child, (item, before), &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

/// Whether the value has the node's type; if not, says so.
fn check_type(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let whole =
        |v: &Value| v.is_i64() || v.is_u64() || v.as_f64().is_some_and(|f| f.fract() == 0.0);
    let (fits, wanted) = match node.kind {
        Type::Any => (true, ""),
        Type::Object => (value.is_object(), "object"),
        Type::Array => (value.is_array(), "array"),
        Type::String => (value.is_string(), "string"),
        Type::Boolean => (value.is_boolean(), "boolean"),
        Type::Number => (value.is_number(), "number"),
        Type::Integer => (value.is_number() && whole(value), "integer"),
        Type::IntOrString => {
            (value.is_string() || (value.is_number() && whole(value)), "integer,string")
        }
        Type::Quantity => (value.is_string() || value.is_number(), "string,number"),
    };
    if !fits {
        let actual = type_name(value);
        let words = format!("{path} in body must be of type {wanted}: {actual:?}");
        errors.push(FieldError::wrong_type(path, &actual.into(), &words));
    }
    if node.kind == Type::Integer && value.is_number() {
        check_integer(node, value, fits, path, errors);
    }
    if let Value::String(text) = value
        && fits
        && !format::fits(&node.format, text)
    {
        let words = format!("{path} in body must be of type {}: {text:?}", node.format);
        errors.push(FieldError::wrong_type(path, value, &words));
    }
    fits
}

fn check_integer(node: &Node, value: &Value, fits: bool, path: &str, errors: &mut Vec<FieldError>) {
    let within = match node.format.as_str() {
        "int32" => {
            value.as_f64().is_some_and(|f| f >= f64::from(i32::MIN) && f <= f64::from(i32::MAX))
        }
        _ => true,
    };
    if fits && within {
        return;
    }
    let kind = match node.format.as_str() {
        "int32" | "int64" => format!("with format {}", node.format),
        _ => "(default format)".to_owned(),
    };
    errors.push(nowhere(&format!("Checked value must be of type integer {kind} in {path}")));
}

/// An error that Kubernetes' schema validation gives without a field.
fn nowhere(words: &str) -> FieldError {
    FieldError {
        reason: Cause::Invalid,
        field: "<nil>".to_owned(),
        message: format!("Invalid value: \"\": {words}"),
    }
}

/// The JSON type of a value as Kubernetes names it.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_limits(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => check_text(limits, value, text, path, errors),
        Value::Number(_) => check_number(limits, value, path, errors),
        Value::Array(items) => {
            let count = items.len() as u64;
            if let Some(least) = limits.min_items.filter(|least| count < *least) {
                let words = format!("{path} in body should have at least {least} items");
                errors.push(FieldError::invalid(path, &count.into(), &words));
            }
            if let Some(most) = limits.max_items.filter(|most| count > *most) {
                errors.push(FieldError::too_many(path, count, most));
            }
            if limits.unique_items
                && items.iter().enumerate().any(|(i, item)| items[..i].contains(item))
            {
                let words = format!("{path} in body shouldn't contain duplicates");
                errors.push(FieldError::invalid(path, value, &words));
            }
        }
        Value::Object(fields) => {
            let count = fields.len() as u64;
            if let Some(least) = limits.min_properties.filter(|least| count < *least) {
                let words = format!("{path} in body should have at least {least} properties");
                errors.push(FieldError::invalid(path, &count.into(), &words));
            }
            if let Some(most) = limits.max_properties.filter(|most| count > *most) {
                errors.push(FieldError::too_many(path, count, most));
            }
        }
        _ => {}
    }
    if !limits.enumeration.is_empty() && !limits.enumeration.contains(value) {
        let known: Vec<String> = limits.enumeration.iter().map(plain).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        errors.push(FieldError::unsupported(path, value, &known));
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn check_text(
    limits: &Limits,
    value: &Value,
    text: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let length = text.chars().count() as u64;
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    }
    if let Some(least) = limits.min_length.filter(|least| length < *least) {
        let words = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, value, &words));
        return;
    }
    if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let words = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, value, &words));
    }
}

fn check_number(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else { return };
    if let Some(of) = limits.multiple_of {
        if number == 0.0 {
            // Kubernetes' schema library mistakes the value for the factor here.
            let words = format!("factor MultipleOf declared for {path} must be positive: {value}");
            errors.push(FieldError::invalid(path, value, &words));
        } else if (number / of).fract().abs() > 1e-9 {
            let words = format!("{path} in body should be a multiple of {of}");
            errors.push(FieldError::invalid(path, value, &words));
        }
    }
    if let Some(most) = &limits.maximum {
        let bound = most.as_f64().unwrap_or(f64::INFINITY);
        if number > bound || (limits.exclusive_maximum && number >= bound) {
            let than = if limits.exclusive_maximum { "less than" } else { "less than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                &format!("{path} in body should be {than} {most}"),
            ));
        }
    }
    if let Some(least) = &limits.minimum {
        let bound = least.as_f64().unwrap_or(f64::NEG_INFINITY);
        if number < bound || (limits.exclusive_minimum && number <= bound) {
            let than =
                if limits.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                &format!("{path} in body should be {than} {least}"),
            ));
        }
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
fn junctions(
    arena: &Arena,
    limits: &Limits,
    value: &Value,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let try_one = |id: &Id| {
        let mut found = Vec::new();
        structure(arena, *id, (value, None), path, &mut found);
        found
    };
    if !limits.any_of.is_empty() {
        let found: Vec<_> = limits.any_of.iter().map(try_one).collect();
        if found.iter().all(|one| !one.is_empty()) {
            errors.push(nowhere(&format!("{path:?} must validate at least one schema (anyOf)")));
            errors.extend(found.into_iter().next().unwrap_or_default());
        }
    }
    if !limits.one_of.is_empty() {
        let found: Vec<_> = limits.one_of.iter().map(try_one).collect();
        let valid = found.iter().filter(|one| one.is_empty()).count();
        let words = format!("{path:?} must validate one and only one schema (oneOf). Found");
        if valid == 0 {
            errors.push(nowhere(&format!("{words} none valid")));
            errors.extend(found.into_iter().next().unwrap_or_default());
        } else if valid > 1 {
            errors.push(nowhere(&format!("{words} {valid} valid alternatives")));
        }
    }
    let found: Vec<_> = limits.all_of.iter().map(try_one).collect();
    if found.iter().any(|one| !one.is_empty()) {
        errors.push(nowhere(&format!("{path:?} must validate all the schemas (allOf)")));
        errors.extend(found.into_iter().flatten());
    }
    if limits.not.as_ref().is_some_and(|id| try_one(id).is_empty()) {
        errors.push(nowhere(&format!("{path:?} must not validate the schema (not)")));
    }
}

/// Elements that stand twice in a list that is a set or a map.
fn lists(arena: &Arena, id: Id, (new, old): Pair, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(new) {
        return;
    }
    let node = arena.get(id);
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                let child = node.properties.get(name).map(|f| f.node).or(node.additional);
                // Kubernetes: the lists of an object's own metadata are not looked at.
                let own = path.is_empty() && name == "metadata";
                if let Some(child) =
                    child.filter(|child| !own && arena.get(*child).kind != Type::String)
                {
                    let before = old.and_then(|old| old.get(name));
                    let place = at(path, name, !node.properties.contains_key(name));
                    lists(arena, child, (value, before), &place, errors);
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let at = format!("{path}[{i}]");
                match &node.list {
                    List::Set if items[..i].contains(item) => {
                        errors.push(FieldError::duplicate(&at, item))
                    }
                    List::Map(keys) => {
                        let key = |one: &Value| -> Vec<Value> {
                            keys.iter()
                                .map(|k| {
                                    one.get(&k.name)
                                        .or(k.default.as_ref())
                                        .cloned()
                                        .unwrap_or_default()
                                })
                                .collect()
                        };
                        let own = key(item);
                        if items[..i].iter().any(|one| key(one) == own) {
                            let names = keys.iter().map(|k| k.name.clone());
                            let shown: serde_json::Map<_, _> =
                                names.zip(own).filter(|(_, v)| !v.is_null()).collect();
                            errors.push(FieldError::duplicate(&at, &Value::Object(shown)));
                        }
                    }
                    _ => {}
                }
                if let Some(child) =
                    node.items.filter(|child| arena.get(*child).kind != Type::String)
                {
                    lists(arena, child, (item, old_element(node, item, old)), &at, errors);
                }
            }
        }
        _ => {}
    }
}

/// The rules of the node and of everything below.
fn rules(arena: &Arena, id: Id, pair: Pair, path: &str, errors: &mut Vec<FieldError>) {
    let node = arena.get(id);
    let (new, old) = pair;
    let unchanged = old == Some(new);
    if !node.rules_below || new.is_null() || (unchanged && !node.transitions_below) {
        return;
    }
    if unchanged {
        arena.settled.is_fine(id, new, || {
            let before = errors.len();
            evaluate(arena, id, pair, path, errors);
            errors.len() == before
        });
    } else {
        evaluate(arena, id, pair, path, errors);
    }
}

fn evaluate(arena: &Arena, id: Id, (new, old): Pair, path: &str, errors: &mut Vec<FieldError>) {
    let node = arena.get(id);
    if let Some(rules) = &node.rules {
        rules.check(arena, id, (new, old), path, errors);
    }
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                let child = node.properties.get(name).map(|f| f.node).or(node.additional);
                if let Some(child) = child {
                    if !arena.get(child).rules_below {
                        continue;
                    }
                    let before = old.and_then(|old| old.get(name));
                    let place = at(path, name, !node.properties.contains_key(name));
                    rules(arena, child, (value, before), &place, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = node.items else { return };
            for (i, item) in items.iter().enumerate() {
                rules(
                    arena,
                    child,
                    (item, old_element(node, item, old)),
                    &format!("{path}[{i}]"),
                    errors,
                );
            }
        }
        _ => {}
    }
}
