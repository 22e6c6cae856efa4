//! Exchanges recorded from a real API server, sent to the lab's: it must answer alike.
//!
//! `tests/kube/*.json` hold the steps in order. A step is `send` (method and path) with `headers`, `body` (JSON) or
//! `text`, as `user` in `groups` (an administrator unless named), and what the real server answered as `expect`:
//! `status` with the whole `body`, or with the `part` of it that does not depend on controllers and node agents which
//! are not running here. Steps without it prepare the world. `<<3/metadata/uid>>` stands for a value in the answer to
//! step 3 of the file, `<<x*100>>` for a hundred x. A `watch` is open while its `during` steps run.

use bytes::Bytes;
use drover_lab::apiserver::access::User;
use drover_lab::apiserver::{ApiServer, Body, Config, Peer};
use drover_lab::clock::Clock;
use drover_lab::pki::Authority;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

#[derive(Deserialize)]
struct Step {
    send: String,
    user: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    text: Option<String>,
    sample: Option<String>,
    expect: Option<Expected>,
    watch: Option<usize>,
    #[serde(default)]
    during: Vec<Step>,
}

#[derive(Deserialize)]
struct Expected {
    status: u16,
    body: Option<Value>,
    part: Option<Value>,
    #[serde(default)]
    warnings: Vec<String>,
}

struct Answer {
    status: u16,
    warnings: Vec<String>,
    body: Value,
}

/// Texts that differ from run to run, and what stands for them.
struct Veil(Vec<(Regex, &'static str)>);

impl Veil {
    fn new() -> Self {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"(in record|current:) \(?\d+\)?", "$1 N"),
            (r"too old resource version: (\d+) \(\d+\)", "too old resource version: $1 (N)"),
            (r"^\d+[smhd](\d+[smh])?$", "AGE"),
            (r"\b10\.96\.\d+\.\d+\b", "ADDRESS"),
        ];
        Self(rules.map(|(rule, word)| (Regex::new(rule).expect("a rule"), word)).into())
    }

    fn text(&self, text: &str) -> String {
        let hide = |text: String, (rule, word): &(Regex, &str)| {
            rule.replace_all(&text, *word).into_owned()
        };
        self.0.iter().fold(text.to_owned(), hide)
    }

    fn value(&self, value: &Value, field: &str) -> Value {
        const VARYING: [&str; 9] = [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "time",
            "deletionTimestamp",
            "continue",
            "lastTransitionTime",
            "lastUpdateTime",
            "storageVersionHash",
        ];
        match value {
            Value::String(_) if VARYING.contains(&field) => "*".into(),
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list.iter().map(|one| self.value(one, "")).collect(),
            Value::Object(map) => Value::Object(
                map.iter().map(|(key, one)| (key.clone(), self.value(one, key))).collect(),
            ),
            other => other.clone(),
        }
    }
}

/// Where `got` is not as `want`; a part need not tell everything.
fn difference(want: &Value, got: &Value, part: bool, path: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            if let Some(extra) = got.keys().find(|key| !part && !want.contains_key(*key)) {
                return Some(format!("{path}.{extra} should not be there: {}", got[extra]));
            }
            want.iter().find_map(|(key, one)| match got.get(key) {
                Some(found) => difference(one, found, part, &format!("{path}.{key}")),
                None => Some(format!("{path}.{key} is missing: {one}")),
            })
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            let pairs = want.iter().zip(got).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (want, got))| difference(want, got, part, &format!("{path}[{at}]")))
        }
        _ if want == got => None,
        _ => Some(format!("{path}: want {want}, got {got}")),
    }
}

struct World {
    server: ApiServer,
    veil: Veil,
    known: Regex,
    repeated: Regex,
    failures: Vec<String>,
    checked: usize,
}

impl World {
    fn new() -> Self {
        let clock = Clock::start("2026-11-21T11:00:00Z".parse().expect("a time"));
        let pki = Arc::new(Authority::new(&clock));
        Self {
            server: ApiServer::new(Config::new(clock, pki)),
            veil: Veil::new(),
            known: Regex::new(r"<<(\d+)(/[^>]*)>>").expect("a pattern"),
            repeated: Regex::new(r"<<(.)\*(\d+)>>").expect("a pattern"),
            failures: Vec::new(),
            checked: 0,
        }
    }

    /// A text with what it refers to filled in.
    fn filled(&self, text: &str, answers: &[Value]) -> String {
        let text = self.repeated.replace_all(text, |found: &regex::Captures<'_>| {
            found[1].repeat(found[2].parse().expect("a count"))
        });
        let of = |found: &regex::Captures<'_>| {
            let at: usize = found[1].parse().expect("a step");
            let value = answers.get(at).and_then(|answer| answer.pointer(&found[2]));
            value.and_then(Value::as_str).unwrap_or("nothing").to_owned()
        };
        self.known.replace_all(&text, of).into_owned()
    }

    fn fill(&self, value: &Value, answers: &[Value]) -> Value {
        match value {
            Value::String(text) => self.filled(text, answers).into(),
            Value::Array(list) => list.iter().map(|one| self.fill(one, answers)).collect(),
            Value::Object(map) => Value::Object(
                map.iter().map(|(key, one)| (key.clone(), self.fill(one, answers))).collect(),
            ),
            other => other.clone(),
        }
    }

    async fn send(&self, step: &Step, answers: &[Value]) -> Response<Body> {
        let (method, path) = step.send.split_once(' ').expect("method and path");
        let bytes: Bytes = match (&step.body, &step.text) {
            (Some(body), _) => self.fill(body, answers).to_string().into(),
            (None, Some(text)) => self.filled(text, answers).into(),
            (None, None) => Bytes::new(),
        };
        let mut request = Request::builder().method(method).uri(self.filled(path, answers));
        if step.body.is_some() && !step.headers.contains_key("Content-Type") {
            request = request.header("Content-Type", "application/json");
        }
        for (name, value) in &step.headers {
            request = request.header(name, value);
        }
        let groups: Vec<&str> = step.groups.iter().map(String::as_str).collect();
        let user = match &step.user {
            Some(name) => User::new(name, &groups),
            None => User::new("admin", &["system:masters"]),
        };
        let request = request.body(Full::new(bytes)).expect("a request");
        let service = self.server.service(Peer::User(user));
        service.oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    async fn run(&mut self, step: &Step, answers: &mut Vec<Value>) {
        let at = answers.len();
        answers.push(Value::Null);
        let response = self.send(step, answers).await;
        let status = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.filter_map(|text| text.to_str().ok()).map(str::to_owned).collect();
        let body = match step.watch {
            Some(count) if status == 200 => {
                for inner in &step.during {
                    Box::pin(self.run(inner, answers)).await;
                }
                events(response.into_body(), count).await
            }
            _ => {
                let bytes = response.into_body().collect().await.expect("a body").to_bytes();
                let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
                serde_json::from_slice(&bytes).unwrap_or_else(|_| text())
            }
        };
        answers[at] = body.clone();
        if let Some(expected) = &step.expect {
            self.check(step, expected, &Answer { status, warnings, body });
        }
    }

    fn check(&mut self, step: &Step, expected: &Expected, answer: &Answer) {
        self.checked += 1;
        let mut wrong = Vec::new();
        if answer.status != expected.status {
            let text = answer.body.to_string();
            wrong.push(format!("status {} for {}: {text}", answer.status, expected.status));
        }
        if !expected.warnings.is_empty() && answer.warnings != expected.warnings {
            wrong.push(format!("warnings {:?} for {:?}", answer.warnings, expected.warnings));
        }
        let (want, part) = match (&expected.body, &expected.part) {
            (Some(body), _) => (body, false),
            (None, Some(some)) => (some, true),
            (None, None) => (&Value::Null, true),
        };
        if !want.is_null() && wrong.is_empty() {
            let got = self.veil.value(&answer.body, "");
            wrong.extend(difference(want, &got, part, ""));
        }
        let name = step.sample.as_deref().unwrap_or_default();
        self.failures.extend(wrong.into_iter().map(|why| format!("{name}: {}: {why}", step.send)));
    }
}

/// So many events of a watch, or as many as come.
async fn events(mut body: Body, count: usize) -> Value {
    let mut read = Vec::new();
    while read.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(60), body.frame()).await;
        let Ok(Some(Ok(frame))) = next else { break };
        let line = frame.into_data().expect("a line");
        read.push(serde_json::from_slice(&line).expect("an event"));
    }
    Value::Array(read)
}

/// In the order they were recorded: later ones use what earlier ones left.
const CHAPTERS: [(&str, &str); 14] = [
    ("create", include_str!("kube/create.json")),
    ("errors", include_str!("kube/errors.json")),
    ("update", include_str!("kube/update.json")),
    ("patch", include_str!("kube/patch.json")),
    ("ssa", include_str!("kube/ssa.json")),
    ("validation", include_str!("kube/validation.json")),
    ("list", include_str!("kube/list.json")),
    ("table", include_str!("kube/table.json")),
    ("watch", include_str!("kube/watch.json")),
    ("delete", include_str!("kube/delete.json")),
    ("status", include_str!("kube/status.json")),
    ("crds", include_str!("kube/crds.json")),
    ("kinds", include_str!("kube/kinds.json")),
    ("admission", include_str!("kube/admission.json")),
];

#[tokio::test(start_paused = true)]
async fn requests_are_answered_as_by_a_real_server() {
    let mut world = World::new();
    for (name, text) in CHAPTERS {
        let steps: Vec<Step> = serde_json::from_str(text).expect(name);
        let mut answers = Vec::new();
        for step in &steps {
            world.run(step, &mut answers).await;
        }
    }
    assert!(world.checked > 500, "only {} exchanges were compared", world.checked);
    let told = world.failures.join("\n");
    assert!(told.is_empty(), "{} differences:\n{told}", world.failures.len());
}
