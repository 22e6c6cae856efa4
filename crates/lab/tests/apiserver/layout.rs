//! JSON for the eye: what fits into a line stays on it.

use serde_json::Value;

/// Columns of a line.
const WIDTH: usize = 120;
const INDENT: usize = 2;

fn flat(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            let inner: Vec<String> = list.iter().map(flat).collect();
            format!("[{}]", inner.join(", "))
        }
        Value::Object(map) => {
            let pair = |(key, one): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), flat(one))
            };
            let inner: Vec<String> = map.iter().map(pair).collect();
            format!("{{{}}}", inner.join(", "))
        }
        other => other.to_string(),
    }
}

fn lay(value: &Value, depth: usize, used: usize, text: &mut String) {
    let line = flat(value);
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(list) => list.iter().map(|one| (String::new(), one)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, one)| (format!("{}: ", Value::from(key.as_str())), one)).collect()
        }
        _ => Vec::new(),
    };
    if inner.is_empty() || used + line.chars().count() <= WIDTH {
        text.push_str(&line);
        return;
    }
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    text.push(open);
    let last = inner.len() - 1;
    for (at, (key, one)) in inner.into_iter().enumerate() {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', depth + INDENT));
        text.push_str(&key);
        lay(one, depth + INDENT, depth + INDENT + key.chars().count() + 1, text);
        if at < last {
            text.push(',');
        }
    }
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', depth));
    text.push(close);
}

/// The value in as few lines as fit.
pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    lay(value, 0, 0, &mut text);
    text
}

#[test]
fn what_does_not_fit_is_broken_and_reads_back_the_same() {
    let long = "x".repeat(70);
    let value = serde_json::json!({"a": {"b": [1, 2]}, "c": [long, long]});
    let text = pretty(&value);
    assert_eq!(text.lines().count(), 7, "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
}
