//! Approval of certificate requests: what the subresources of a request may change, and when.

use crate::apiserver::{ApiServer, Request, Status};
use crate::schema::FieldError;
use serde_json::{Value, json};

/// Completes and checks a change through `approval` or `status`: each keeps what is the other's.
///
/// Who may approve or sign is for `access::admit` to say.
pub fn before_update(
    server: &ApiServer,
    request: &Request,
    old: &Value,
    new: &mut Value,
) -> Result<(), Status> {
    let decides = |one: &Value| one["type"] == "Approved" || one["type"] == "Denied";
    match request.subresource.as_str() {
        "approval" => {
            let conditions = list(new);
            new["status"] = old["status"].clone();
            put(new, conditions);
        }
        "status" => {
            // Kubernetes: what was decided is not for the signer to change.
            let mut conditions: Vec<Value> = list(old).into_iter().filter(decides).collect();
            conditions.extend(list(new).into_iter().filter(|one| !decides(one)));
            put(new, conditions);
        }
        _ => return Ok(()),
    }
    stamp(new, old, &server.stamp());
    let mut errors = mistakes(old, new);
    if request.subresource == "status" {
        errors.extend(certificate_mistake(old, new));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = &request.kind;
    Err(Status::invalid(&kind.group, &kind.kind, &request.name, &errors))
}

fn list(object: &Value) -> Vec<Value> {
    object["status"]["conditions"].as_array().cloned().unwrap_or_default()
}

fn put(object: &mut Value, conditions: Vec<Value>) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !conditions.is_empty() {
        object["status"]["conditions"] = Value::Array(conditions);
    } else if let Some(status) = object["status"].as_object_mut() {
        status.remove("conditions");
    }
}

/// Conditions without times get now, or the times of before when nothing changed.
fn stamp(new: &mut Value, old: &Value, now: &str) {
    let before = list(old);
    let Some(conditions) = new["status"]["conditions"].as_array_mut() else { return };
    for condition in conditions {
        let known = before.iter().find(|one| one["type"] == condition["type"]);
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].is_null() {
                let was = known.map(|one| one[field].clone()).filter(|time| !time.is_null());
                condition[field] = was.unwrap_or_else(|| now.into());
            }
        }
    }
}

fn mistakes(old: &Value, new: &Value) -> Vec<FieldError> {
    const FIELD: &str = "status.conditions";
    let (was, now) = (list(old), list(new));
    let has = |list: &[Value], name: &str| list.iter().any(|one| one["type"] == name);
    let mut errors = Vec::new();
    for (index, condition) in now.iter().enumerate() {
        let status = &condition["status"];
        let final_word =
            matches!(condition["type"].as_str(), Some("Approved" | "Denied" | "Failed"));
        if final_word && status != "True" {
            let field = format!("{FIELD}[{index}].status");
            errors.push(FieldError::unsupported(field, status, &["True"]));
        }
    }
    if has(&now, "Approved") && has(&now, "Denied") {
        let given = if has(&was, "Denied") { "Approved" } else { "Denied" };
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid(FIELD, &json!(given), why));
    }
    for kept in ["Approved", "Denied", "Failed"] {
        if has(&was, kept) && !has(&now, kept) {
            let why = format!("updates may not remove a condition of type {kept:?}");
            errors.push(FieldError::forbidden(FIELD, &why));
        }
    }
    errors
}

/// Kubernetes: a certificate is PEM, and stays once it is there.
fn certificate_mistake(old: &Value, new: &Value) -> Option<FieldError> {
    use base64::Engine as _;
    const FIELD: &str = "status.certificate";
    let of =
        |object: &Value| object["status"]["certificate"].as_str().unwrap_or_default().to_owned();
    let (was, now) = (of(old), of(new));
    if was == now {
        return None;
    }
    if !was.is_empty() {
        let why = "updates may not modify existing certificate content";
        return Some(FieldError::forbidden(FIELD, why));
    }
    let pem = base64::engine::general_purpose::STANDARD.decode(&now).unwrap_or_default();
    let blocks = crate::dial::certificates(&String::from_utf8_lossy(&pem));
    blocks.is_err().then(|| {
        let why = "must contain at least one CERTIFICATE PEM block";
        FieldError::invalid(FIELD, &json!("<certificate data>"), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kinds: &[&str]) -> Value {
        let all: Vec<Value> =
            kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        json!({"status": {"conditions": all}})
    }

    fn told(old: &[&str], new: &[&str]) -> Vec<String> {
        mistakes(&with(old), &with(new)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_decision_stays() {
        assert!(told(&[], &["Approved"]).is_empty());
        let text = "status.conditions: Invalid value: \"Approved\": Approved and Denied conditions are mutually exclusive";
        assert_eq!(told(&["Denied"], &["Denied", "Approved"]), [text]);
        let text =
            "status.conditions: Forbidden: updates may not remove a condition of type \"Denied\"";
        assert_eq!(told(&["Denied"], &[]), [text]);
    }

    #[test]
    fn times_move_only_with_a_change() {
        let mut old = with(&["Approved"]);
        stamp(&mut old, &json!({}), "t1");
        let mut new = with(&["Approved", "Failed"]);
        stamp(&mut new, &old, "t2");
        assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "t1");
        assert_eq!(new["status"]["conditions"][1]["lastUpdateTime"], "t2");
    }
}
