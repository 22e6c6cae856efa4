//! Plays a case: sends its requests in order and keeps what is answered.

use crate::case::{Action, Case, Content, Step};
use crate::fill::Fill;
use crate::world::{Who, World};
use bytes::Bytes;
use drover_lab::dial::Answer as Stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tower::ServiceExt as _;

/// How long a condition may take to come true, and one answer or event to come.
const LIMIT: Duration = Duration::from_secs(180);
/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What a server answered.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

#[derive(Clone)]
pub enum Body {
    Json(Value),
    Text(String),
    /// A watch that is open.
    Open,
}

/// A watch that is open: what has come of the next line.
struct Watch {
    stream: Stream,
    line: Vec<u8>,
}

/// What has happened in a case so far.
pub struct Play<'a> {
    world: &'a World,
    case: &'a Case,
    watches: BTreeMap<String, Watch>,
    pub fill: Fill,
}

impl<'a> Play<'a> {
    pub fn new(world: &'a World, case: &'a Case) -> Self {
        let fill = Fill::new(&case.space);
        Self { world, case, watches: BTreeMap::new(), fill }
    }

    /// All answers in order, or why the case could not be played to its end.
    pub async fn run(&mut self) -> Result<Vec<Answer>, String> {
        self.make_space().await?;
        let mut answers = Vec::new();
        for step in &self.case.steps {
            let answer =
                self.step(step).await.map_err(|why| format!("{}: {why}", step.request()))?;
            if step.given && !(200..300).contains(&answer.status) {
                let told = format!("{} {}", answer.status, answer.body.text());
                return Err(format!("{}: {told}", step.request()));
            }
            if let Some(label) = &step.label {
                self.fill.keep(label, &answer);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// A namespace with what controllers put into every one, so that nothing changes in it by itself.
    async fn make_space(&self) -> Result<(), String> {
        let send = |method: &str, path: String, body: Value| {
            let content = (!body.is_null()).then(|| Bytes::from(body.to_string()));
            self.send(method.to_owned(), path, &Who::Admin, Vec::new(), content)
        };
        let space = &self.case.space;
        let new = json!({"metadata": {"name": space}});
        let made = send("POST", "/api/v1/namespaces".to_owned(), new).await?;
        if made.status != 201 {
            return Err(format!("namespace {space}: {}", made.body.text()));
        }
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{space}/{path}");
            let deadline = tokio::time::Instant::now() + LIMIT;
            while send("GET", path.clone(), Value::Null).await?.status != 200 {
                if tokio::time::Instant::now() > deadline {
                    return Err(format!("{path} does not come"));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Answer, String> {
        let (method, path) = match &step.action {
            Action::Read { watch, events } => {
                let watch = self.watches.get_mut(watch).ok_or("no such watch is open")?;
                let read = watch.read(*events).await;
                let body = Body::Json(Value::Array(read));
                return Ok(Answer { status: 200, headers: HeaderMap::new(), body });
            }
            Action::Send { method, path } => (method.clone(), path.clone()),
        };
        if step.open {
            let response = self.open(step, method, &path).await?;
            let (head, stream) = response.into_parts();
            let label = step.label.clone().ok_or("a watch needs a label")?;
            self.watches.insert(label, Watch { stream, line: Vec::new() });
            let status = head.status.as_u16();
            return Ok(Answer { status, headers: head.headers, body: Body::Open });
        }
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let response = self.open(step, method.clone(), &path).await?;
            let answer = read_all(response).await?;
            // A definition that has just come may be asked too early: clients ask again, too.
            let is_early = answer.status == 503 && answer.headers.contains_key("Retry-After");
            if is_early && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let body = answer.body.value();
            let Some(missing) = step.until.iter().find(|one| !one.holds(answer.status, &body))
            else {
                return Ok(answer);
            };
            if tokio::time::Instant::now() > deadline {
                let told = answer.body.text();
                return Err(format!("never {missing:?}, last: {} {told}", answer.status));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn open(
        &mut self,
        step: &Step,
        method: String,
        path: &str,
    ) -> Result<Response<Stream>, String> {
        let now = self.world.now();
        let path = self.fill.text(path, now)?;
        let content = match &step.content {
            None => None,
            Some(Content::Text(text)) => Some(self.fill.text(text, now)?),
            Some(Content::Json(value)) => Some(self.fill.value(value, now)?.to_string()),
            Some(Content::Merge(base, change)) => {
                let change = self.fill.value(change, now)?;
                Some(self.fill.merged(base, &change)?.to_string())
            }
        };
        let mut headers = Vec::new();
        for (name, value) in &step.headers {
            headers.push((name.clone(), self.fill.text(value, now)?));
        }
        let who = match &step.who {
            Who::Bearer(token) => Who::Bearer(self.fill.text(token, now)?),
            Who::User { name, groups } => Who::User {
                name: self.fill.text(name, now)?,
                groups: groups
                    .iter()
                    .map(|one| self.fill.text(one, now))
                    .collect::<Result<_, _>>()?,
            },
            other => other.clone(),
        };
        self.request(method, path, &who, headers, content.map(Bytes::from)).await
    }

    async fn send(
        &self,
        method: String,
        path: String,
        who: &Who,
        headers: Vec<(String, String)>,
        content: Option<Bytes>,
    ) -> Result<Answer, String> {
        read_all(self.request(method, path, who, headers, content).await?).await
    }

    async fn request(
        &self,
        method: String,
        path: String,
        who: &Who,
        mut headers: Vec<(String, String)>,
        content: Option<Bytes>,
    ) -> Result<Response<Stream>, String> {
        let mut usual = vec![("User-Agent", "case/1"), ("Accept", "application/json")];
        if content.is_some() {
            usual.push(("Content-Type", "application/json"));
        }
        for (name, value) in usual {
            if !headers.iter().any(|(given, _)| given == name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        if let Who::Bearer(token) = who {
            headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        let uri = format!("{}{path}", self.world.url());
        let mut request = Request::builder().method(method.as_str()).uri(uri);
        // A header of no value is one that is left out.
        for (name, value) in headers.iter().filter(|(_, value)| value != "none") {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(content.unwrap_or_default()));
        let request = request.map_err(|error| error.to_string())?;
        let sent = self.world.transport(who).oneshot(request);
        let sent = tokio::time::timeout(LIMIT, sent).await;
        sent.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())
    }
}

async fn read_all(response: Response<Stream>) -> Result<Answer, String> {
    let (head, stream) = response.into_parts();
    let read = tokio::time::timeout(LIMIT, stream.collect()).await;
    let read = read.map_err(|_| "the answer does not end".to_owned())?;
    let bytes = read.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let of_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    let json: Option<Value> = match of_type {
        // Which texts are quoted is for whoever writes YAML.
        Some("application/yaml") => serde_saphyr::from_str(&text).ok(),
        _ => serde_json::from_slice(&bytes).ok(),
    };
    let body = json.map_or(Body::Text(text), Body::Json);
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

impl Watch {
    /// So many events, or all until the server ends the watch.
    async fn read(&mut self, events: Option<usize>) -> Vec<Value> {
        let mut read = Vec::new();
        loop {
            while let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                read.push(serde_json::from_slice(&line).expect("an event is a line of JSON"));
                if Some(read.len()) == events {
                    return read;
                }
            }
            let next = tokio::time::timeout(LIMIT, self.stream.frame()).await;
            let Ok(Some(Ok(frame))) = next else {
                // Not every answer ends its last line.
                read.extend(serde_json::from_slice::<Value>(&self.line).ok());
                self.line.clear();
                return read;
            };
            self.line.extend(frame.into_data().unwrap_or_default());
        }
    }
}

impl Body {
    pub fn value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Text(text) => text.as_str().into(),
            Self::Open => Value::Null,
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Json(value) => value.to_string(),
            Self::Text(text) => text.clone(),
            Self::Open => String::new(),
        }
    }
}
