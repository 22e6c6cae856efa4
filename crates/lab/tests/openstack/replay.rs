//! Exchanges with a real OpenStack, asked again of the simulated one: status, headers, shape, and the text of errors.

use crate::fixture::{Answer, Lab, text};
use drover_lab::cloud::Quotas;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What a real cloud shows and the simulated one does not.
const NOT_SHOWN: [&str; 1] = ["standard_attr_id"];

/// What the simulated cloud shows and the recorded one did not.
const ALSO_SHOWN: [&str; 2] = ["is_default", "tags"];

/// Lists whose length is a matter of what was done before the recording.
const MAY_BE_EMPTY: [&str; 3] = [".tags", ".allowed_address_pairs", ".security_groups"];

/// Names of the recording and what they are here; begins with the demo's own things and learns from every answer.
struct Names(BTreeMap<String, String>);

impl Names {
    async fn of(lab: &Lab) -> Self {
        let yaml = lab.cloud.clouds_yaml();
        let setting = |name: &str| {
            let line = yaml.lines().find_map(|line| line.trim().strip_prefix(name));
            line.unwrap().trim_start_matches(':').trim().to_owned()
        };
        let cluster = "metakube-mmxfcmgjkx";
        let names = [
            ("$project", lab.project.clone()),
            ("$user", lab.user.clone()),
            ("$credential", setting("application_credential_id")),
            ("$secret", setting("application_credential_secret")),
            ("$network", lab.network().await),
            ("$external", lab.id_of("/network/v2.0/networks", "ext-net").await),
            ("$subnet", lab.id_of("/network/v2.0/subnets", cluster).await),
            ("$group", lab.id_of("/network/v2.0/security-groups", cluster).await),
            ("$server_group", lab.id_of("/compute/v2.1/os-server-groups", cluster).await),
            ("$small", lab.id_of("/compute/v2.1/flavors", "m1.small").await),
            ("$kaas", lab.id_of("/compute/v2.1/flavors", "kaas.small").await),
            ("$impossible", lab.id_of("/compute/v2.1/flavors", "m1.impossible").await),
            ("$ubuntu", lab.id_of("/image/v2/images", "Ubuntu Noble 24.04 (2024-08-01)").await),
        ];
        // The longest names first: `$server_group` before `$server`.
        Self(names.map(|(name, id)| (name.to_owned(), id)).into())
    }

    fn here(&self, recorded: &str) -> String {
        let mut here = recorded.to_owned();
        for (name, id) in self.0.iter().rev() {
            here = here.replace(name, id);
        }
        here
    }

    /// Remembers what the recorded ids and addresses of an answer are here.
    fn learn(&mut self, recorded: &Value, here: &Value) {
        match (recorded, here) {
            (Value::Object(recorded), Value::Object(here)) => {
                for (field, value) in recorded {
                    self.learn(value, here.get(field).unwrap_or(&Value::Null));
                }
            }
            (Value::Array(recorded), Value::Array(here)) => {
                recorded.iter().zip(here).for_each(|(recorded, here)| self.learn(recorded, here));
            }
            (Value::String(recorded), Value::String(here)) if recorded != here => {
                let named = Regex::new(
                    r"^([0-9a-f]{32}|[0-9a-f-]{36}|(req-)?[0-9a-f-]{36,40}|fa:16(:[0-9a-f]{2}){4}|[0-9]+(\.[0-9]+){3})$",
                );
                if named.unwrap().is_match(recorded) {
                    self.0.insert(recorded.clone(), here.clone());
                }
            }
            _ => {}
        }
    }
}

/// A text without what differs from run to run: ids, addresses, numbers, and how Python orders a dict.
fn plain(text: &str) -> String {
    let mut plain = text.to_owned();
    for (pattern, word) in [
        (r"Value: \{.*\}\. ", "Value: {}. "),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
        (r"\b[0-9a-f]{32}\b", "ID"),
        (r"fa(:[0-9a-f]{2}){5}", "MAC"),
        (r"[0-9]+", "#"),
    ] {
        plain = Regex::new(pattern).unwrap().replace_all(&plain, word).into_owned();
    }
    plain
}

/// The differences of shape: kinds of values and names of fields.
fn shape(at: &str, recorded: &Value, here: &Value, found: &mut Vec<String>) {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    match (recorded, here) {
        (Value::Object(recorded), Value::Object(here)) => {
            // Free maps: their keys are data.
            if ["metadata", "volume_image_metadata", "properties", "addresses"]
                .iter()
                .any(|free| at.ends_with(free))
            {
                return;
            }
            for (field, value) in recorded {
                match here.get(field) {
                    Some(here) => shape(&format!("{at}.{field}"), value, here, found),
                    None if NOT_SHOWN.iter().any(|name| field.contains(name)) => {}
                    None => found.push(format!("{at}.{field} is missing")),
                }
            }
            let extra = here.keys().filter(|field| !recorded.contains_key(*field));
            let extra = extra.filter(|field| !ALSO_SHOWN.contains(&field.as_str()));
            found.extend(extra.map(|field| format!("{at}.{field} is not in the record")));
        }
        (Value::Array(recorded), Value::Array(here)) => match (recorded.first(), here.first()) {
            (Some(recorded), Some(here)) => shape(&format!("{at}[0]"), recorded, here, found),
            (None, None) => {}
            _ if MAY_BE_EMPTY.iter().any(|field| at.ends_with(field)) => {}
            (Some(_), None) => found.push(format!("{at} is empty, the record is not")),
            (None, Some(_)) => found.push(format!("{at} is not empty, the record is")),
        },
        (Value::Null, _) | (_, Value::Null) => {}
        (recorded, here) if kind(recorded) != kind(here) => {
            found.push(format!("{at} is {}, not {}", kind(here), kind(recorded)));
        }
        _ => {}
    }
}

fn compare(names: &Names, step: &Value, answer: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    if step["status"] != answer.status {
        found.push(format!("status {}, not {}: {}", answer.status, step["status"], answer.body));
        return found;
    }
    for header in step["answer_headers"].as_array().into_iter().flatten() {
        if !answer.headers.contains_key(text(header)) {
            found.push(format!("header {header} is missing"));
        }
    }
    if step["shape"] == false {
        return found;
    }
    let recorded: &Value = &serde_json::from_str(&names.here(&step["answer"].to_string())).unwrap();
    if answer.status < 400 {
        let empty = |value: &Value| value.is_null() || value == "";
        if empty(recorded) != empty(&answer.body) {
            found.push(format!("the body is {}, not {recorded}", answer.body));
        }
        shape("", recorded, &answer.body, &mut found);
    } else {
        let (recorded, here) = (plain(&recorded.to_string()), plain(&answer.body.to_string()));
        if sorted(&recorded) != sorted(&here) {
            found.push(format!("says {here}\n      not {recorded}"));
        }
    }
    found
}

/// The fields of an error in one order.
fn sorted(error: &str) -> String {
    serde_json::from_str::<Value>(&error.replace('#', "0"))
        .map_or_else(|_| error.to_owned(), |error| error.to_string())
}

async fn replay(exchanges: &str) {
    let lab = Lab::with(|config| config.quotas.metadata_items = 128).await;
    let mut names = Names::of(&lab).await;
    let steps: Vec<Value> = serde_json::from_str(exchanges).unwrap();
    let mut report = String::new();
    let mut quotas = serde_json::to_value(Quotas::default()).unwrap();
    for step in &steps {
        if let Some(seconds) = step["wait_seconds"].as_u64() {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            continue;
        }
        if let Some(changes) = step["quotas"].as_object() {
            changes.iter().for_each(|(name, limit)| quotas[name] = limit.clone());
            lab.cloud.set_quotas(serde_json::from_value(quotas.clone()).unwrap());
            continue;
        }
        let answer = ask(&lab, &names, step).await;
        for difference in compare(&names, step, &answer) {
            writeln!(report, "{}: {difference}", step["name"]).unwrap();
        }
        names.learn(&step["answer"], &answer.body);
    }
    assert!(report.is_empty(), "the simulated cloud differs:\n{report}");
}

async fn ask(lab: &Lab, names: &Names, step: &Value) -> Answer {
    let path = names.here(&text(&step["path"]));
    let body = step.get("body").map(|body| match body {
        Value::String(text) => json!(text),
        body => serde_json::from_str(&names.here(&body.to_string())).unwrap(),
    });
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        headers.push((name.clone(), text(value)));
    }
    let name = text(&step["name"]);
    if step["anonymous"] == true {
        headers.push(("x-auth-token".to_owned(), String::new()));
    } else if name.ends_with("bad-token") {
        headers.push(("x-auth-token".to_owned(), "gAAAAABgarbage".to_owned()));
    } else if path.ends_with("/auth/tokens") && step["method"] != "POST" {
        headers.push(("x-subject-token".to_owned(), lab.token.clone()));
    }
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    lab.call(&text(&step["method"]), &path, &headers, body.as_ref()).await
}

#[tokio::test(start_paused = true)]
async fn logins_answer_as_recorded() {
    replay(include_str!("exchanges/login.json")).await;
}

#[tokio::test(start_paused = true)]
async fn lookups_answer_as_recorded() {
    replay(include_str!("exchanges/lookups.json")).await;
}

#[tokio::test(start_paused = true)]
async fn ports_answer_as_recorded() {
    replay(include_str!("exchanges/ports.json")).await;
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_ports_answer_as_recorded() {
    replay(include_str!("exchanges/port-rules.json")).await;
}

#[tokio::test(start_paused = true)]
async fn servers_and_floating_ips_answer_as_recorded() {
    replay(include_str!("exchanges/servers.json")).await;
}

#[tokio::test(start_paused = true)]
async fn refused_and_failed_servers_answer_as_recorded() {
    replay(include_str!("exchanges/server-errors.json")).await;
}

#[tokio::test(start_paused = true)]
async fn volumes_answer_as_recorded() {
    replay(include_str!("exchanges/volumes.json")).await;
}
