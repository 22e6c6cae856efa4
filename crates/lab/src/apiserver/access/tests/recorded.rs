//! Exchanges about access, eviction and binding recorded from a real API server: the lab answers alike.
//!
//! `recorded.json` holds the steps in order: who sends what, and the answer of the real server, if the step is one of
//! those compared. A refusal is compared whole, another answer in the part that is told. `<<3/metadata/uid>>` stands
//! for a value in the answer to step 3; uids in texts are not compared.

use super::server;
use crate::apiserver::access::User;
use crate::apiserver::{ApiServer, Peer};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use regex::{Captures, Regex};
use serde_json::Value;
use tower::ServiceExt as _;

const STEPS: &str = include_str!("recorded.json");

/// Where `got` does not hold what `want` tells.
fn difference(want: &Value, got: &Value, path: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => want.iter().find_map(|(key, one)| {
            difference(one, got.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
        }),
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            let mut pairs = want.iter().zip(got).enumerate();
            pairs.find_map(|(at, (want, got))| difference(want, got, &format!("{path}[{at}]")))
        }
        _ if want == got || want == "*" => None,
        _ => Some(format!("{path}: want {want}, got {got}")),
    }
}

async fn send(server: &ApiServer, step: &Value, filled: &str) -> (u16, Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups: Vec<String> = step["groups"].as_array().into_iter().flatten().map(text).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let user = match step["user"].as_str() {
        Some(name) => User::new(name, &groups),
        None => User::new("admin", &["system:masters"]),
    };
    let target = text(&step["send"]);
    let (method, path) = target.split_once(' ').expect("method and path");
    let mut request = Request::builder().method(method).uri(path);
    if step["headers"]["Content-Type"].is_null() && !filled.is_empty() {
        request = request.header("Content-Type", "application/json");
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        request = request.header(name, text(value));
    }
    let request = request.body(Full::<bytes::Bytes>::from(filled.to_owned())).expect("a request");
    let answer = server.service(Peer::User(user)).oneshot(request).await.expect("an answer");
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn access_is_granted_and_refused_as_by_a_real_server() {
    let server = server();
    let steps: Vec<Value> = serde_json::from_str(STEPS).expect("steps");
    let known = Regex::new(r"<<(\d+)(/[^>]*)>>").expect("a pattern");
    let uid = Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").expect("a pattern");
    let mut answers: Vec<Value> = Vec::new();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for step in &steps {
        let body = if step["body"].is_null() { String::new() } else { step["body"].to_string() };
        let fill = |found: &Captures<'_>| {
            let at: usize = found[1].parse().expect("a step");
            answers[at].pointer(&found[2]).and_then(Value::as_str).expect("a value").to_owned()
        };
        let (status, answer) = send(&server, step, &known.replace_all(&body, fill)).await;
        let text = uid.replace_all(&answer.to_string(), "UID").into_owned();
        let got: Value = serde_json::from_str(&text).expect("JSON");
        answers.push(answer);
        let want = &step["expect"];
        if want.is_null() {
            assert!(status < 400, "{}: {got}", step["send"]);
            continue;
        }
        compared += 1;
        let told = if want["body"].is_null() { &want["part"] } else { &want["body"] };
        let why = if want["status"] == status {
            difference(told, &got, "")
        } else {
            Some(got.to_string())
        };
        wrong
            .extend(why.map(|why| format!("{} {}: {status}: {why}", step["sample"], step["send"])));
    }
    assert!(compared > 100, "only {compared} exchanges were compared");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
