//! Tells in what an answer differs from the recorded one.

use serde_json::Value;

/// Each place where `got` is not as `want`.
fn differences(want: &Value, got: &Value, path: &str, found: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (key, one) in want {
                let path = format!("{path}/{key}");
                match got.get(key) {
                    Some(other) => differences(one, other, &path, found),
                    None => found.push(format!("{path} is missing: {one}")),
                }
            }
            let extra = got.iter().filter(|(key, _)| !want.contains_key(*key));
            found.extend(extra.map(|(key, one)| format!("{path}/{key} should not be: {one}")));
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (at, (want, got)) in want.iter().zip(got).enumerate() {
                differences(want, got, &format!("{path}/{at}"), found);
            }
        }
        _ if want == got => {}
        _ => found.push(format!("{path}: want {want}, got {got}")),
    }
}

/// The lines before the body, and the body when it is JSON.
fn split(answer: &str) -> (Vec<&str>, Value) {
    let at = answer.lines().position(|line| line.starts_with(['{', '[', '"']));
    let lines: Vec<&str> = answer.lines().collect();
    let (head, body) = lines.split_at(at.unwrap_or(lines.len()));
    (head.to_vec(), serde_json::from_str(&body.join("\n")).unwrap_or_default())
}

/// In what the answer differs from the recorded one; nothing when it does not.
pub fn answers(want: &str, got: &str) -> Vec<String> {
    if want == got {
        return Vec::new();
    }
    if want.is_empty() {
        return vec!["no answer is recorded: make record-kube".to_owned()];
    }
    let ((want_head, want_body), (got_head, got_body)) = (split(want), split(got));
    let mut found = Vec::new();
    if want_head != got_head {
        found.push(format!("want {}, got {}", want_head.join(" "), got_head.join(" ")));
        if want_head.first() != got_head.first() {
            found.push(format!("it says {}", got_body["message"]));
            return found;
        }
    }
    differences(&want_body, &got_body, "", &mut found);
    if found.is_empty() {
        found.push("its text was edited by hand: make record-kube".to_owned());
    }
    found
}

#[test]
fn a_changed_answer_is_told_by_its_place() {
    let want = "=> 200\n{\"a\": {\"b\": 1}, \"c\": [1]}";
    let got = "=> 200\n{\"a\": {\"b\": 2}, \"d\": 1}";
    let told = ["/a/b: want 1, got 2", "/c is missing: [1]", "/d should not be: 1"];
    assert_eq!(answers(want, got), told);
    assert_eq!(answers("=> 200\n{}", "=> 409\n{\"message\": \"no\"}").len(), 2);
    assert_eq!(
        answers("=> 200\n{}", "=> 200\n{ }"),
        ["its text was edited by hand: make record-kube"]
    );
}
