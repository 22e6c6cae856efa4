//! CEL rules of custom resources (`x-kubernetes-validations`), compiled once.

use super::error::{Cause, FieldError};
use super::node::{Arena, Id, Node, Type};
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The functions that every rule may call.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
/// How a text becomes a time; the crate that holds CEL's type of times is no dependency of ours.
static TIMESTAMP: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("timestamp(self)").ok());
/// How a text becomes a duration.
static DURATION: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("duration(self)").ok());

/// The rules of one node.
pub(super) struct Rules(Vec<Rule>);

struct Rule {
    text: String,
    /// As Go prints it in errors.
    shown: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Cause,
    /// Relative to the node, as `.small`.
    field: Option<String>,
    /// Whether it looks at `oldSelf`.
    transition: bool,
    optional_old: bool,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|rule| &rule.text)).finish()
    }
}

impl Rules {
    /// Compiles the rules of a schema; `at` is where they stand, for errors.
    pub(super) fn compile(schema: &Value, at: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let given = schema.get("x-kubernetes-validations")?.as_array()?;
        let mut rules = Vec::new();
        for (i, one) in given.iter().enumerate() {
            let at = format!("{at}.x-kubernetes-validations[{i}]");
            match compile_rule(one, &at) {
                Ok(rule) => rules.push(rule),
                Err(error) => errors.push(error),
            }
        }
        (!rules.is_empty()).then_some(Self(rules))
    }

    pub(super) fn any_transition(&self) -> bool {
        self.0.iter().any(|rule| rule.transition)
    }

    /// Rules that cannot be true or false of the schema's values: those that want a field of a text
    /// or number, and those that give something else than a truth for a sample. Kubernetes' type
    /// checker finds more.
    pub(super) fn check_types(
        &self,
        arena: &Arena,
        node: Id,
        at: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let scalar = match arena.get(node).kind {
            Type::String => Some("string"),
            Type::Integer => Some("int"),
            Type::Number => Some("double"),
            Type::Boolean => Some("bool"),
            _ => None,
        };
        let mut context = FUNCTIONS.new_inner_scope();
        let sample = sample(arena, node, SAMPLE_DEPTH);
        context.add_variable_from_value("self", sample.clone());
        context.add_variable_from_value("oldSelf", sample);
        for (i, rule) in self.0.iter().enumerate() {
            let selected =
                scalar.and_then(|kind| selection(&rule.text).map(|column| (kind, column)));
            // A rule that cannot be evaluated for the sample may well be for a real value.
            let odd = !matches!(rule.program.execute(&context), Err(_) | Ok(Cel::Bool(_)));
            let words = match selected {
                Some((kind, column)) => {
                    let (text, dots) = (&rule.text, ".".repeat(column));
                    let column = column + 1;
                    format!(
                        "compilation failed: ERROR: <input>:1:{column}: type '{kind}' does not support field \
                         selection\n | {text}\n | {dots}^"
                    )
                }
                None if odd => "cel expression must evaluate to a bool".to_owned(),
                None => continue,
            };
            let field = format!("{at}.x-kubernetes-validations[{i}].rule");
            errors.push(FieldError::invalid_text(field, &rule.shown, &words));
        }
    }

    /// Evaluates the rules for a value. A value that did not change is only held to transition
    /// rules.
    pub(super) fn check(
        &self,
        arena: &Arena,
        node: Id,
        (new, old): (&Value, Option<&Value>),
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let unchanged = old == Some(new);
        let due: Vec<&Rule> =
            self.0
                .iter()
                .filter(|rule| {
                    if rule.transition { old.is_some() || rule.optional_old } else { !unchanged }
                })
                .collect();
        if due.is_empty() {
            return;
        }
        let mut context = FUNCTIONS.new_inner_scope();
        context.add_variable_from_value("self", to_cel(arena, Some(node), new));
        let old = old.map(|old| to_cel(arena, Some(node), old));
        context.add_variable_from_value("oldSelf", old.clone().unwrap_or(Cel::Null));
        errors.extend(due.iter().filter_map(|rule| {
            if !rule.optional_old {
                return rule.check(&context, new, path);
            }
            // Kubernetes: with `optionalOldSelf` the rule is also asked of what is new, and sees an optional.
            let old = old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            let mut context = context.new_inner_scope();
            context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            rule.check(&context, new, path)
        }));
    }
}

impl Rule {
    fn check(&self, context: &Context<'_>, value: &Value, path: &str) -> Option<FieldError> {
        let field = format!("{path}{}", self.field.as_deref().unwrap_or_default());
        let field = field.trim_start_matches('.').to_owned();
        match self.program.execute(context) {
            Ok(Cel::Bool(true)) => None,
            Ok(Cel::Bool(false)) => {
                Some(FieldError::of_rule(self.reason, field, value, &self.words(context)))
            }
            Ok(_) => {
                let words = format!("cel expression must evaluate to a bool: {}", self.text);
                Some(FieldError::of_rule(Cause::Invalid, field, value, &words))
            }
            Err(error) => {
                let words = format!("{error} evaluating rule: {}", self.text);
                Some(FieldError::of_rule(Cause::Invalid, field, value, &words))
            }
        }
    }

    fn words(&self, context: &Context<'_>) -> String {
        if let Some(program) = &self.message_program
            && let Ok(Cel::String(text)) = program.execute(context)
            && !text.trim().is_empty()
        {
            return text.trim().to_owned();
        }
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.text))
    }
}

fn compile_rule(given: &Value, at: &str) -> Result<Rule, FieldError> {
    let get = |name: &str| given.get(name).and_then(Value::as_str);
    let text = get("rule").unwrap_or_default().trim().to_owned();
    if text.is_empty() {
        return Err(FieldError::required(format!("{at}.rule"), "rule is not specified"));
    }
    let program = Program::compile(&text).map_err(|error| {
        let words = format!("compilation failed: {error}");
        FieldError::invalid_text(format!("{at}.rule"), &go_rule(given), &words)
    })?;
    let message_program = match get("messageExpression") {
        None => None,
        Some(expression) => Some(Program::compile(expression).map_err(|error| {
            let words = format!("messageExpression compilation failed: {error}");
            FieldError::invalid_text(format!("{at}.messageExpression"), &go_rule(given), &words)
        })?),
    };
    let reason = match get("reason") {
        None | Some("FieldValueInvalid") => Cause::Invalid,
        Some("FieldValueForbidden") => Cause::Forbidden,
        Some("FieldValueRequired") => Cause::Required,
        Some("FieldValueDuplicate") => Cause::Duplicate,
        Some(other) => {
            let known = [
                "FieldValueForbidden",
                "FieldValueInvalid",
                "FieldValueRequired",
                "FieldValueDuplicate",
            ];
            return Err(FieldError::unsupported(format!("{at}.reason"), &other.into(), &known));
        }
    };
    let transition = program.references().has_variable("oldSelf");
    let optional_old = given.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
    Ok(Rule {
        message: get("message").map(|m| m.trim().to_owned()),
        field: get("fieldPath").map(str::to_owned),
        shown: go_rule(given),
        text,
        program,
        message_program,
        reason,
        transition,
        optional_old,
    })
}

/// A rule as Go prints it in errors: in the order of its type's fields, with some characters
/// escaped.
fn go_rule(given: &Value) -> String {
    let text = |name: &str| given.get(name).cloned().unwrap_or_else(|| Value::from(""));
    let other = |name: &str| given.get(name).cloned().unwrap_or(Value::Null);
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        other("reason"),
        text("fieldPath"),
        other("optionalOldSelf"),
    );
    shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Where a rule selects a field of `self` (not calls a function of it), if it does so in its first
/// line.
fn selection(rule: &str) -> Option<usize> {
    let line = rule.lines().next()?;
    line.match_indices("self.").find_map(|(at, _)| {
        let whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'));
        let after = line[at + 5..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        (whole && !after.starts_with('(')).then_some(at + 4)
    })
}

/// Nesting, in levels, down to which a sample has fields.
const SAMPLE_DEPTH: usize = 4;

/// Some value of a schema.
fn sample(arena: &Arena, id: Id, depth: usize) -> Cel {
    let node = arena.get(id);
    match node.kind {
        Type::String => Cel::String(Arc::default()),
        Type::Integer | Type::IntOrString => Cel::Int(1),
        Type::Number => Cel::Float(1.0),
        Type::Boolean => Cel::Bool(true),
        Type::Array => Cel::List(Arc::default()),
        _ => {
            let fields = node.properties.iter().filter(|_| depth > 0).map(|(name, field)| {
                (Key::String(Arc::new(escape(name))), sample(arena, field.node, depth - 1))
            });
            Cel::Map(Map { map: Arc::new(fields.collect()) })
        }
    }
}

/// A value as rules see it: the schema decides on times, durations and the names of fields.
fn to_cel(arena: &Arena, id: Option<Id>, value: &Value) -> Cel {
    let node = id.map(|id| arena.get(id));
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => number(node, n),
        Value::String(s) => text(node, s),
        Value::Array(items) => {
            let of = node.and_then(|n| n.items);
            Cel::List(Arc::new(items.iter().map(|item| to_cel(arena, of, item)).collect()))
        }
        Value::Object(fields) => {
            let map: HashMap<Key, Cel> = fields
                .iter()
                .map(|(name, value)| {
                    let property = node.and_then(|n| n.properties.get(name));
                    let child =
                        property.map(|p| p.node).or_else(|| node.and_then(|n| n.additional));
                    let name = if property.is_some() { escape(name) } else { name.clone() };
                    (Key::String(Arc::new(name)), to_cel(arena, child, value))
                })
                .collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

fn number(node: Option<&Node>, n: &serde_json::Number) -> Cel {
    if node.is_some_and(|node| node.kind == Type::Number) {
        return Cel::Float(n.as_f64().unwrap_or(f64::NAN));
    }
    n.as_i64().map_or_else(|| Cel::Float(n.as_f64().unwrap_or(f64::NAN)), Cel::Int)
}

fn text(node: Option<&Node>, text: &str) -> Cel {
    let plain = Cel::String(Arc::new(text.to_owned()));
    let program = match node.map(|n| n.format.as_str()) {
        Some("date-time") => &*TIMESTAMP,
        Some("duration") => &*DURATION,
        _ => return plain,
    };
    let mut context = FUNCTIONS.new_inner_scope();
    context.add_variable_from_value("self", plain.clone());
    program.as_ref().and_then(|program| program.execute(&context).ok()).unwrap_or(plain)
}

/// A field's name as rules write it. Kubernetes: reserved words and the characters `.`, `-`, `/`
/// and `__`.
fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
