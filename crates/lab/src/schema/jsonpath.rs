//! The JSONPath subset of printer columns, scale paths and selectable fields.

use serde_json::Value;

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// Negative counts from the end.
    Index(i64),
    All,
    /// Elements whose value at a path equals a text.
    Where(Vec<Step>, Value),
}

/// Every value that `path` (as `.spec.replicas`) names in `object`, in order. A path that cannot be
/// read names nothing.
///
/// Known are `.a`, `['a.b']`, `[0]`, `[-1]`, `[*]`, `[?(@.x=="y")]` and `\.` for a dot in a name.
#[must_use]
pub fn find<'a>(path: &str, object: &'a Value) -> Vec<&'a Value> {
    parse(path).map(|steps| follow(&steps, object)).unwrap_or_default()
}

/// Whether a path can be read.
#[must_use]
pub fn is_valid(path: &str) -> bool {
    path.starts_with(['.', '[']) && parse(path).is_some()
}

fn follow<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| step.apply(value)).collect();
    }
    found
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(i), Value::Array(items)) => {
                let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *i < 0 { count + i } else { *i };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(fields)) => fields.values().collect(),
            (Self::Where(path, wanted), Value::Array(items)) => {
                items.iter().filter(|item| follow(path, item).contains(&wanted)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
    rest = rest.strip_prefix('$').unwrap_or(rest);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, end) = name(after);
            match name.as_str() {
                "" if after.starts_with('[') => {}
                "" if after.is_empty() && steps.is_empty() => {}
                "" => return None,
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Field(name)),
            }
            rest = &after[end..];
        } else {
            let end = closing(rest)?;
            steps.push(bracket(rest.get(1..end)?.trim())?);
            rest = &rest[end + 1..];
        }
    }
    Some(steps)
}

/// The name at the start of a text, unescaped, and where it ends.
fn name(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, at),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            _ => name.push(c),
        }
    }
    (name, text.len())
}

/// Where the bracket that a text begins with is closed.
fn closing(text: &str) -> Option<usize> {
    if !text.starts_with('[') {
        return None;
    }
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(inner) {
        return Some(Step::Field(name));
    }
    if let Some(condition) = inner.strip_prefix("?(").and_then(|c| c.strip_suffix(')')) {
        let (path, wanted) = condition.split_once("==")?;
        let path = parse(path.trim().strip_prefix('@')?)?;
        let wanted = wanted.trim();
        let wanted =
            quoted(wanted).map(Value::String).or_else(|| serde_json::from_str(wanted).ok())?;
        return Some(Step::Where(path, wanted));
    }
    inner.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<String> {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    inner('\'').or_else(|| inner('"')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{find, is_valid};
    use serde_json::{Value, json};

    fn check(path: &str, expect: &Value) {
        let object = json!({
            "spec": {"size": 3, "list": [{"key": "a", "value": 1}, {"key": "b", "value": 2}], "a.b": "dotted"},
            "metadata": {"annotations": {"foo.bar/x": "y"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(json!(find(path, &object)), *expect, "{path}");
    }

    #[test]
    fn paths_of_columns() {
        check(".spec.size", &json!([3]));
        check("{.spec.size}", &json!([3]));
        check(".spec.list[0].value", &json!([1]));
        check(".spec.list[-1].key", &json!(["b"]));
        check(".spec.list[*].key", &json!(["a", "b"]));
        check(".spec.list[?(@.key==\"b\")].value", &json!([2]));
        check(".status.conditions[?(@.type=='Ready')].status", &json!(["True"]));
        check(".spec['a.b']", &json!(["dotted"]));
        check(".metadata.annotations.foo\\.bar/x", &json!(["y"]));
        check(".spec.none.deeper", &json!([]));
        check("spec[", &json!([]));
    }

    #[test]
    fn unreadable_paths() {
        assert!(is_valid(".spec.replicas"));
        assert!(!is_valid("spec.replicas"));
        assert!(!is_valid(".spec["));
        assert!(!is_valid(".spec..x"));
    }
}
