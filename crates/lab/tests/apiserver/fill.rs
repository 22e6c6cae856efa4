//! What placeholders in requests stand for.
//!
//! `{ns}` is the case's namespace, `{one/metadata/uid}` a value in the answer to the step `one`, `{one etag}` a header
//! of it, `{in 60s}` a time, `{repeat x 100}` a hundred x, and `{csr CN=n O=g DNS=a IP=1.2.3.4}` a request for a
//! certificate, in base64.

use crate::play::{Answer, Body};
use crate::point;
use base64::Engine as _;
use drover_lab::pki;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

pub struct Fill {
    space: String,
    pattern: Regex,
    answers: BTreeMap<String, (Value, HeaderMap)>,
    /// Requests for certificates that were made, by the placeholder.
    requests: BTreeMap<String, String>,
}

impl Fill {
    pub fn new(space: &str) -> Self {
        let pattern =
            r"\{(ns|in -?\d+s|repeat \S \d+|csr [^}]+|[a-z][a-z0-9-]*(?: etag|/[^}\s]+))\}";
        Self {
            space: space.to_owned(),
            pattern: Regex::new(pattern).expect("a pattern"),
            answers: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    /// Keeps an answer under its label.
    pub fn keep(&mut self, label: &str, answer: &Answer) {
        if !matches!(answer.body, Body::Open) {
            let kept = (answer.body.value(), answer.headers.clone());
            self.answers.insert(label.to_owned(), kept);
        }
    }

    /// Requests for certificates that were made, and the placeholder of each.
    pub fn requests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requests.iter().map(|(place, text)| (text.as_str(), place.as_str()))
    }

    fn one(&mut self, place: &str, now: Timestamp) -> Result<String, String> {
        if place == "ns" {
            return Ok(self.space.clone());
        }
        if let Some(seconds) = place.strip_prefix("in ").and_then(|rest| rest.strip_suffix('s')) {
            let seconds: i64 = seconds.parse().map_err(|_| format!("{place}: no seconds"))?;
            let then = now + SignedDuration::from_secs(seconds);
            return Ok(then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        if let Some((text, count)) =
            place.strip_prefix("repeat ").and_then(|rest| rest.split_once(' '))
        {
            return Ok(text.repeat(count.parse().map_err(|_| format!("{place}: no count"))?));
        }
        if place.starts_with("csr ") {
            let made = self.requests.entry(place.to_owned()).or_insert_with(|| request(place));
            return Ok(made.clone());
        }
        let (label, rest) =
            place.find([' ', '/']).map(|at| place.split_at(at)).ok_or("no such placeholder")?;
        let answer = self.answers.get(label).ok_or_else(|| format!("no answer of {label}"))?;
        if rest == " etag" {
            let etag = answer.1.get("etag").and_then(|value| value.to_str().ok());
            return etag.map(str::to_owned).ok_or_else(|| format!("{label} has no ETag"));
        }
        match point::get(&answer.0, rest) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Ok(other.to_string()),
            None => Err(format!("{place} is not in the answer")),
        }
    }

    pub fn text(&mut self, text: &str, now: Timestamp) -> Result<String, String> {
        let pattern = self.pattern.clone();
        let (mut filled, mut from) = (String::new(), 0);
        for found in pattern.captures_iter(text) {
            let whole = found.get(0).expect("a match");
            filled.push_str(&text[from..whole.start()]);
            filled.push_str(&self.one(&found[1], now)?);
            from = whole.end();
        }
        Ok(filled + &text[from..])
    }

    pub fn value(&mut self, value: &Value, now: Timestamp) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.text(text, now)?.into(),
            Value::Array(list) => {
                list.iter().map(|one| self.value(one, now)).collect::<Result<_, _>>()?
            }
            Value::Object(map) => {
                let mut filled = serde_json::Map::new();
                for (key, one) in map {
                    filled.insert(self.text(key, now)?, self.value(one, now)?);
                }
                Value::Object(filled)
            }
            other => other.clone(),
        })
    }

    /// An earlier answer with a merge patch applied.
    pub fn merged(&self, label: &str, change: &Value) -> Result<Value, String> {
        let (answer, _) = self.answers.get(label).ok_or_else(|| format!("no answer of {label}"))?;
        let mut merged = answer.clone();
        json_patch::merge(&mut merged, change);
        Ok(merged)
    }
}

/// A request for a certificate of what the placeholder names, in base64.
fn request(place: &str) -> String {
    let of = |key: &str| -> Vec<&str> {
        let fields = place.split(' ').filter_map(|field| field.split_once('='));
        fields.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
    };
    let name = of("CN").first().copied().unwrap_or_default();
    let addresses: Vec<_> =
        of("IP").into_iter().map(|address| address.parse().expect("an address")).collect();
    let (pem, _key) = pki::request(name, &of("O"), &of("DNS"), &addresses);
    base64::engine::general_purpose::STANDARD.encode(pem)
}
