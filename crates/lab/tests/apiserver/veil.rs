//! Takes out of answers what must differ from run to run, and nothing else.
//!
//! A uid becomes `<uid 1>`, numbered as they appear in the case, so that the same one is seen to be the same. A
//! resource version becomes `<rv 2>`, its place among all that the case tells, so that their order is kept; that of a
//! list or bookmark, which other cases move too, becomes `<rv 2+>`: it is that of the second or later, and before that
//! of the third.

use crate::case::Case;
use crate::layout;
use crate::play::{Answer, Body};
use crate::point;
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const UID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

/// Texts that differ from run to run, and what stands for them.
const RULES: [(&str, &str); 15] = [
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time with microseconds>"),
    (r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+", "<token>"),
    (r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*", "<PEM>"),
    (r"-----BEGIN [A-Z ]+-----[\s\S]*-----END [A-Z ]+-----\n?", "<PEM>"),
    // Kubernetes: the hash of a pod template is that of a Go value.
    (r#"(ReplicaSet \\?"[a-z0-9-]+-)[a-z0-9]{8,10}\b"#, "$1<hash>"),
    (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<random>"),
    (r#"(resourceVersion\\*"?: ?\\*")\d+"#, "$1<rv>"),
    // The object that an error repeats: its fields come in the order of a Go type.
    (r#"(?s)Invalid value: "\{.*\}": "#, "Invalid value: <object>: "),
    (r"X509SHA256=[0-9a-f]+", "X509SHA256=<hash>"),
    (r"(in record|current:|object meta:) \(?\d+\)?", "$1 <rv>"),
    (r"too old resource version: (\d+) \(\d+\)", "too old resource version: $1 (<rv>)"),
    (r"(Too large resource version: \d+, current:) \d+", "$1 <rv>"),
    (r"\b10\.96\.\d+\.\d+\b", "<service address>"),
    (r"\bv1\.\d\d\.\d+\b", "<version>"),
];

/// What a case's answers have in common: the numbers of its uids and resource versions.
pub struct Veil<'a> {
    case: &'a Case,
    rules: Vec<(Regex, &'static str)>,
    uid: Regex,
    age: Regex,
    uids: BTreeMap<String, usize>,
    versions: BTreeSet<u64>,
    /// Texts of this run, and what stands for them.
    own: Vec<(String, String)>,
}

fn version(object: &Map<String, Value>) -> Option<u64> {
    object.get("resourceVersion")?.as_str()?.parse().ok()
}

impl<'a> Veil<'a> {
    fn new<'r>(case: &'a Case, requests: impl Iterator<Item = (&'r str, &'r str)>) -> Self {
        let rule = |text: &str| Regex::new(text).expect("a rule");
        Self {
            case,
            rules: RULES.map(|(text, word)| (rule(text), word)).into(),
            uid: rule(UID),
            age: rule(r"^\d+[smhd](\d+[smh])?$"),
            uids: BTreeMap::new(),
            versions: BTreeSet::new(),
            own: requests.map(|(text, place)| (text.to_owned(), format!("{{{place}}}"))).collect(),
        }
    }

    /// Numbers what is in a value that is told.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                for found in self.uid.find_iter(text) {
                    let next = self.uids.len() + 1;
                    self.uids.entry(found.as_str().to_owned()).or_insert(next);
                }
            }
            Value::Array(list) => list.iter().for_each(|one| self.learn(one)),
            Value::Object(map) => {
                if map.contains_key("uid") {
                    self.versions.extend(version(map));
                }
                if let (Some(Value::String(name)), Some(Value::String(prefix))) =
                    (map.get("name"), map.get("generateName"))
                {
                    // Kubernetes: five random characters after at most 58.
                    let stem = name.get(..name.len().saturating_sub(5)).unwrap_or_default();
                    if !stem.is_empty() && prefix.starts_with(stem) {
                        self.own.push((name.clone(), format!("{stem}<random>")));
                    }
                }
                map.values().for_each(|one| self.learn(one));
            }
            _ => {}
        }
    }

    fn text(&self, text: &str) -> String {
        let mut veiled = text.to_owned();
        for (real, word) in &self.own {
            veiled = veiled.replace(real, word);
        }
        veiled = veiled.replace(&self.case.space, "{ns}");
        let number = |found: &Captures<'_>| match self.uids.get(&found[0]) {
            Some(number) => format!("<uid {number}>"),
            None => found[0].to_owned(),
        };
        veiled = self.uid.replace_all(&veiled, number).into_owned();
        for (rule, word) in &self.rules {
            veiled = rule.replace_all(&veiled, *word).into_owned();
        }
        veiled
    }

    fn version(&self, own: bool, value: u64) -> String {
        let place = self.versions.range(..=value).count();
        if own { format!("<rv {place}>") } else { format!("<rv {place}+>") }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list.iter().map(|one| self.value(one)).collect(),
            Value::Object(map) => {
                let mut veiled = Map::new();
                for (key, one) in map {
                    let new = match (key.as_str(), one) {
                        ("resourceVersion", Value::String(_)) => match version(map) {
                            Some(number) => self.version(map.contains_key("uid"), number).into(),
                            None => one.clone(),
                        },
                        ("continue", Value::String(text)) if !text.is_empty() => {
                            "<continue>".into()
                        }
                        ("serverAddress", Value::String(_)) => "<address>".into(),
                        ("managedFields", Value::Array(entries)) => self.managers(entries),
                        ("cells", Value::Array(cells)) => {
                            cells.iter().map(|cell| self.cell(cell)).collect()
                        }
                        _ => self.value(one),
                    };
                    veiled.insert(self.text(key), new);
                }
                Value::Object(veiled)
            }
            other => other.clone(),
        }
    }

    /// Kubernetes sorts the entries by their times, which are whole seconds: by chance, here. They are told by name.
    fn managers(&self, entries: &[Value]) -> Value {
        let mut entries: Vec<Value> = entries.iter().map(|one| self.value(one)).collect();
        entries.sort_by_key(|one| {
            ["subresource", "operation", "manager", "apiVersion"].map(|key| one[key].to_string())
        });
        entries.into()
    }

    /// Ages in tables go on while one looks.
    fn cell(&self, cell: &Value) -> Value {
        match cell {
            Value::String(text) if self.age.is_match(text) => "<age>".into(),
            other => self.value(other),
        }
    }
}

/// The headers that clients read, as they are told.
fn headers(answer: &Answer, veil: &Veil<'_>) -> String {
    const TOLD: [&str; 6] =
        ["Warning", "Retry-After", "Allow", "Location", "Www-Authenticate", "Content-Type"];
    let mut told = String::new();
    for name in TOLD {
        for value in answer.headers.get_all(name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            // The lab says so of kinds that it only keeps.
            if value.ends_with("are kept by the lab, and nothing acts on them\"") {
                continue;
            }
            if name != "Content-Type" || value != "application/json" {
                told.push_str(&format!("{name}: {}\n", veil.text(&value)));
            }
        }
    }
    told
}

/// The answers of a case as they stand in its file; None for what only prepares.
pub fn told<'r>(
    case: &Case,
    answers: &[Answer],
    requests: impl Iterator<Item = (&'r str, &'r str)>,
) -> Vec<Option<String>> {
    let mut veil = Veil::new(case, requests);
    let mut bodies = Vec::new();
    for (step, answer) in case.steps.iter().zip(answers) {
        let mut body = answer.body.value();
        if matches!(answer.body, Body::Json(_)) {
            if !step.show.is_empty() && answer.status < 300 {
                let part = |place: &String| Some((place.clone(), point::get(&body, place)?));
                body = Value::Object(step.show.iter().filter_map(part).collect());
            }
            step.hide.iter().for_each(|place| point::remove(&mut body, place));
        }
        if !step.given {
            veil.learn(&body);
        }
        bodies.push(body);
    }
    let tell = |((step, answer), body): ((&crate::case::Step, &Answer), Value)| {
        if step.given {
            return None;
        }
        let mut text = format!("=> {}\n{}", answer.status, headers(answer, &veil));
        match &answer.body {
            Body::Json(_) => text.push_str(&layout::pretty(&veil.value(&body))),
            Body::Text(plain) => {
                let plain = veil.text(plain);
                text.extend(plain.lines().map(|line| format!("| {line}\n")));
            }
            Body::Open => {}
        }
        Some(text.trim_end().to_owned())
    };
    case.steps.iter().zip(answers).zip(bodies).map(tell).collect()
}
