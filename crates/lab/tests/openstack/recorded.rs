//! Asks a cloud what `cases/` say, and compares the answers with those of the real services: all of them but ids, times and addresses.

use crate::home::Home;
use crate::script::{self, Ask, Line, Step};
use crate::side::{Answer, Side};
use futures::StreamExt as _;
use http::Request;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the network, the group and the rest of what is there at the beginning.
const CLUSTER: &str = "metakube-mmxfcmgjkx";
/// Headers that clients read; the first ones with their value.
const VALUES: [&str; 4] = ["content-type", "openstack-api-version", "retry-after", "vary"];
const NAMES: [&str; 5] = [
    "location",
    "x-openstack-request-id",
    "x-compute-request-id",
    "x-subject-token",
    "www-authenticate",
];

/// Fields whose values say nothing about the cloud.
const CHANCE: [&str; 10] = [
    "adminPass",
    "secret",
    "audit_ids",
    "checksum",
    "fingerprint",
    "hostId",
    "os_hash_value",
    "OS-EXT-AZ:availability_zone",
    "revision_number",
    "provider:segmentation_id",
];
/// Where the lab's cloud is known to answer otherwise; a place that is mended leaves the list.
const KNOWN: &str = include_str!("known.txt");
/// Cases that are asked of real services at once: most of their time they wait.
const AT_ONCE: usize = 4;
/// How long a wait lasts at most.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a wait looks: soon enough for all states on the way to be recorded.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same where only the last state counts: real services take long over each answer.
const GLANCE_EVERY: Duration = Duration::from_millis(250);

/// One run of one case.
struct Run<'a> {
    side: &'a Side,
    tokens: BTreeMap<String, String>,
    who: String,
    names: BTreeMap<String, String>,
    plain: Plain,
}

/// Takes out of a text what differs from run to run.
struct Plain(Vec<(Regex, &'static str)>);

impl Plain {
    fn new() -> Self {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
            (r"\b[0-9a-f]{32}\b", "<hex>"),
            (r"\bfa:16(:[0-9a-f]{2}){4}\b", "<mac>"),
            (r"\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d\.\d{6}", "<date>${1}<time>.000000"),
            (r"\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d", "<date>${1}<time>"),
            (r"\b(192\.168|100\.6[4-9]|100\.[7-9]\d|100\.1[0-2]\d)(\.\d{1,3}){2}\b", "<ip>"),
            (r"gAAAA[\w=-]+", "<token>"),
            // Of a case's own user and project.
            (r"\bdrover-[0-9a-f]{8}\b", "drover"),
            (r"^compute:az-[12]$", "compute:nova"),
            // Who comes second to a volume may have read its status before the first changed it.
            (r"(to reserve, but the current status is) \w+", "$1 <status>"),
            // How Python happens to order a dict.
            (r"Value: \{.*\}\. ", "Value: {}. "),
        ];
        Self(rules.map(|(pattern, word)| (Regex::new(pattern).unwrap(), word)).into())
    }

    fn of(&self, text: &str) -> String {
        let step = |text: String, (pattern, word): &(Regex, &str)| {
            pattern.replace_all(&text, *word).into_owned()
        };
        ordered(self.0.iter().fold(text.to_owned(), step))
    }
}

/// Nova lists what it would have taken in the order of a set.
fn ordered(text: String) -> String {
    let Some((head, rest)) = text.split_once(" is not one of [") else { return text };
    let Some((list, tail)) = rest.split_once(']') else { return text };
    let mut list: Vec<&str> = list.split(", ").collect();
    list.sort_unstable();
    format!("{head} is not one of [{}]{tail}", list.join(", "))
}

impl<'a> Run<'a> {
    async fn new(side: &'a Side) -> Self {
        let mut run = Self {
            side,
            tokens: BTreeMap::from([
                ("nobody".into(), String::new()),
                ("garbage".into(), "gAAAAnope".into()),
            ]),
            who: "drover".to_owned(),
            names: BTreeMap::new(),
            plain: Plain::new(),
        };
        let mut names = BTreeMap::new();
        for cloud in ["drover", "admin", "drover-appcred"] {
            let (token, project, user) = side.log_in(cloud).await;
            run.tokens.insert(cloud.to_owned(), token);
            if cloud == "drover" {
                names.extend([("project".to_owned(), project), ("user".to_owned(), user)]);
            }
        }
        for (name, cloud, setting) in [
            ("login", "drover", "username"),
            ("password", "drover", "password"),
            ("credential", "drover-appcred", "application_credential_id"),
            ("secret", "drover-appcred", "application_credential_secret"),
        ] {
            names.insert(name.to_owned(), side.setting(cloud, setting));
        }
        names.insert("region".to_owned(), side.region());
        names.extend(side.roots.iter().map(|(name, root)| (format!("{name}_url"), root.clone())));
        for (name, service, path, wanted) in [
            ("network", "network", "/networks", CLUSTER),
            ("external", "network", "/networks", "ext-net"),
            ("subnet", "network", "/subnets", CLUSTER),
            ("external_subnet", "network", "/subnets", "ext-subnet"),
            ("router", "network", "/routers", CLUSTER),
            ("group", "network", "/security-groups", CLUSTER),
            ("default_group", "network", "/security-groups", "default"),
            ("server_group", "compute", "/os-server-groups", CLUSTER),
            ("small", "compute", "/flavors", "m1.small"),
            ("medium", "compute", "/flavors", "m1.medium"),
            ("kaas", "compute", "/flavors", "kaas.small"),
            ("impossible", "compute", "/flavors", "m1.impossible"),
            ("ubuntu", "image", "/images", "Ubuntu Noble 24.04 (2024-08-01)"),
            ("flatcar", "image", "/images", "Flatcar Stable 3975.2.1"),
        ] {
            let list = run.ask(&get(service, path)).await.body;
            let found = script::things(&list).find(|it| it["name"] == wanted);
            let found = found.unwrap_or_else(|| panic!("{path} has no {wanted}: {list}"));
            names.insert(name.to_owned(), found["id"].as_str().unwrap().to_owned());
        }
        names.insert("absent".to_owned(), "3f6d5b1c-0404-4404-8404-404040404040".to_owned());
        run.names = names;
        run
    }

    /// With the values of variables, the longest names first.
    fn fill(&self, text: &str) -> String {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut text = script::expand(text);
        for (name, value) in names {
            text = text.replace(&format!("${name}"), value);
        }
        text.replace("$token", &self.tokens[&self.who])
    }

    /// With the names of variables, the longest values first, and without what differs from run to run.
    fn blank(&self, text: &str) -> String {
        let mut names: Vec<_> = self.names.iter().filter(|(_, value)| !value.is_empty()).collect();
        names.sort_by_key(|(name, value)| (std::cmp::Reverse(value.len()), (*name).clone()));
        let mut text = text.to_owned();
        for (name, value) in names {
            // These can be everyday words.
            if !["login", "password"].contains(&name.as_str()) {
                text = text.replace(value, &format!("${name}"));
            }
        }
        self.plain.of(&text)
    }

    fn blank_json(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                // Neutron: the number of a row in its database. Glance: what the client that uploaded left behind.
                let kept = fields.iter().filter(|(key, _)| {
                    *key != "standard_attr_id" && !key.starts_with("owner_specified")
                });
                let mut kept: Value = kept
                    .map(|(key, value)| (self.blank(key), self.blank_json(key, value)))
                    .collect();
                // Nova: whether its cache was emptied before it was gone, or given up, is chance.
                let is_over = kept["status"] == "DELETED" || kept["fault"].is_object();
                if is_over && kept["addresses"].is_object() {
                    kept["addresses"] = Value::Object(Default::default());
                }
                kept
            }
            Value::Array(list) => {
                let mut list: Vec<Value> =
                    list.iter().map(|value| self.blank_json(key, value)).collect();
                // No service promises an order unless asked for one.
                list.sort_by_cached_key(Value::to_string);
                list.into()
            }
            // Secrets, digests, and what depends on which host was free or on what was done before.
            Value::String(text) if CHANCE.contains(&key) && !text.is_empty() => "<any>".into(),
            Value::Number(_) if CHANCE.contains(&key) => "<any>".into(),
            Value::String(text) => self.blank(text).into(),
            other => other.clone(),
        }
    }

    async fn ask(&self, ask: &Ask) -> Answer {
        let version = match ask.service.as_str() {
            "compute" => "/v2.1",
            "network" => "/v2.0",
            "image" => "/v2",
            _ => "/v3",
        };
        let path = self.fill(&ask.path);
        let path = path
            .strip_prefix('/')
            .filter(|it| it.starts_with('/'))
            .map_or_else(|| format!("{version}{path}"), str::to_owned);
        let mut request = Request::builder().method(ask.method.as_str()).uri(path);
        // As all clients say; some errors are plain text otherwise.
        request = request.header("accept", "application/json");
        let token = &self.tokens[&self.who];
        if !token.is_empty() {
            request = request.header("x-auth-token", token);
        }
        if let Some(version) = &ask.version {
            let service = if ask.service == "volume" { "volume" } else { "compute" };
            request = request.header("openstack-api-version", format!("{service} {version}"));
        }
        for (name, value) in &ask.headers {
            request = request.header(name, self.fill(value));
        }
        let mut body = ask.body.as_ref().map(|body| self.fill(body)).unwrap_or_default();
        if let Some(text) = body.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            body = text.to_owned();
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
            self.side.prepare(&serde_json::from_str(&body).unwrap_or_default());
        }
        self.side.send(&ask.service, request.body(body).unwrap()).await
    }

    /// An answer as one line.
    fn line(&self, answer: &Answer) -> String {
        let mut line = answer.status.to_string();
        for name in VALUES {
            let all = answer.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let value = all.collect::<Vec<_>>().join(", ");
            if !value.is_empty() && value != "application/json" {
                line = format!("{line} {name}={}", value.replace(' ', "+"));
            }
        }
        for name in NAMES.iter().filter(|name| answer.headers.contains_key(**name)) {
            line = format!("{line} {name}");
        }
        if answer.body.is_null() {
            line
        } else {
            format!("{line} {}", self.blank_json("", &answer.body))
        }
    }

    async fn step(&mut self, step: &Step) -> Vec<String> {
        match step {
            Step::As(who) => {
                if who == "spare" {
                    let (token, ..) = self.side.log_in("drover").await;
                    self.tokens.insert(who.clone(), token);
                }
                self.who.clone_from(who);
                Vec::new()
            }
            Step::Until { service, path, status } => vec![self.until(service, path, status).await],
            Step::Ask(ask) => {
                let all = (0..ask.times).map(|_| self.ask(ask));
                let mut answers = futures::future::join_all(all).await;
                answers.sort_by_key(|answer| answer.status);
                if let Some((name, field)) = &ask.keep {
                    let thing = script::things(&answers[0].body).find(|it| it.get(field).is_some());
                    let value = thing.and_then(|it| it[field].as_str());
                    // Without it the calls that name it fail, and say so.
                    self.names.insert(name.clone(), value.unwrap_or("nothing").to_owned());
                }
                answers.iter().map(|answer| self.line(answer)).collect()
            }
        }
    }

    async fn until(&self, service: &str, path: &str, status: &str) -> String {
        let ask = Ask {
            version: (service == "compute").then(|| "2.90".to_owned()),
            ..get(service, path)
        };
        let all_count = !self.side.is_real() || is_recording();
        let pause = if all_count { LOOK_EVERY } else { GLANCE_EVERY };
        let mut seen: Vec<String> = Vec::new();
        let begin = tokio::time::Instant::now();
        while begin.elapsed() < PATIENCE {
            let answer = self.ask(&ask).await;
            let thing = script::things(&answer.body).next().cloned().unwrap_or_default();
            let task = thing.get("OS-EXT-STS:task_state").map(|task| task.as_str().unwrap_or("-"));
            let mut now =
                if answer.status == 404 { "404" } else { thing["status"].as_str().unwrap_or("?") }
                    .to_owned();
            let done = now == status && task.is_none_or(|task| task == "-");
            if let Some(task) = task {
                now = format!("{now}/{task}");
            }
            let done = done || now == status || answer.status == 404;
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            if done {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        seen.join(" ")
    }
}

fn get(service: &str, path: &str) -> Ask {
    Ask {
        times: 1,
        method: "GET".to_owned(),
        service: service.to_owned(),
        version: None,
        path: path.to_owned(),
        headers: Vec::new(),
        body: None,
        keep: None,
    }
}

/// What differs between two answers, told by the place.
fn differ(at: &str, recorded: &Value, here: &Value, found: &mut Vec<String>) {
    match (recorded, here) {
        (Value::Object(recorded), Value::Object(here)) => {
            for (field, value) in recorded {
                match here.get(field) {
                    Some(here) => differ(&format!("{at}.{field}"), value, here, found),
                    None => found.push(format!("{at}.{field} is missing, recorded {value}")),
                }
            }
            let more = here.iter().filter(|(field, _)| !recorded.contains_key(*field));
            found.extend(
                more.map(|(field, value)| format!("{at}.{field} is not recorded: {value}")),
            );
        }
        (Value::Array(recorded), Value::Array(here)) if recorded.len() == here.len() => {
            for (number, (recorded, here)) in recorded.iter().zip(here).enumerate() {
                differ(&format!("{at}[{number}]"), recorded, here, found);
            }
        }
        (recorded, here) if recorded != here => {
            found.push(format!("{at} is {here}, recorded {recorded}"))
        }
        _ => {}
    }
}

/// What differs between what was recorded for a step and what is answered now.
fn compare(line: &Line, now: &[String], real: bool) -> Vec<String> {
    let mut found = Vec::new();
    if line.recorded.len() != now.len() {
        return vec!["was never recorded".to_owned()];
    }
    if let Some(Step::Until { .. }) = line.step {
        let (recorded, now) = (way(&line.recorded[0]), way(&now[0]));
        if !(within(&recorded, &now)
            || within(&now, &recorded)
            || real && recorded.last() == now.last())
        {
            found.push(format!("went {now:?}, recorded {recorded:?}"));
        }
        return found;
    }
    for (recorded, now) in line.recorded.iter().zip(now) {
        let (recorded_head, recorded_body) = split(recorded);
        let (head, body) = split(now);
        if recorded_head != head {
            found.push(format!("answers {head}, recorded {recorded_head}"));
        }
        if recorded_head.get(..3) == head.get(..3) {
            differ("", &recorded_body, &body, &mut found);
        } else {
            found.push(format!("says {body}"));
        }
    }
    found
}

/// The states that a wait saw. Nova looks at volumes and networks at once: which of the two is seen is chance.
fn way(seen: &str) -> Vec<String> {
    let mut way: Vec<String> =
        seen.split(' ').map(|state| state.replace("block_device_mapping", "networking")).collect();
    way.dedup();
    way
}

/// Whether some states are among others in their order and end alike: a wait may begin late and miss what is quick.
fn within(some: &[String], all: &[String]) -> bool {
    let mut left = all.iter();
    some.last() == all.last() && some.iter().all(|state| left.any(|it| it == state))
}

fn split(line: &str) -> (&str, Value) {
    let at = [" {", " \"", " ["].iter().filter_map(|mark| line.find(mark)).min();
    at.map_or((line, Value::Null), |at| {
        (&line[..at], serde_json::from_str(&line[at + 1..]).unwrap())
    })
}

/// Runs a case; what differs, and its lines with the answers of now.
async fn run(side: &Side, lines: &[Line]) -> (Vec<String>, Vec<Line>) {
    let (mut found, mut anew) = (Vec::new(), Vec::new());
    let mut run = Run::new(side).await;
    for line in lines {
        let mut new = line.clone();
        if let Some(step) = &line.step {
            new.recorded = run.step(step).await;
            let differences = compare(line, &new.recorded, side.is_real());
            if differences.is_empty() {
                // What a wait saw differs by chance: it is not worth a change.
                new.recorded.clone_from(&line.recorded);
            }
            found.extend(differences.into_iter().map(|it| format!("{}: {it}", line.number)));
        }
        anew.push(new);
    }
    (found, anew)
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openstack/cases");
    let all =
        std::fs::read_dir(folder).expect("there are cases").map(|entry| entry.unwrap().path());
    let wanted = std::env::var("DROVER_CASE").unwrap_or_default();
    let mut all: Vec<PathBuf> =
        all.filter(|path| path.to_string_lossy().contains(&wanted)).collect();
    all.sort();
    all
}

fn is_recording() -> bool {
    std::env::var("DROVER_RECORD").is_ok()
}

/// All cases in order, each with what differs and its lines with the answers of now.
async fn ask_all(yaml: Option<&str>) -> Vec<(PathBuf, Vec<String>, Vec<Line>)> {
    let read = |path: PathBuf| {
        let lines = script::parse(&std::fs::read_to_string(&path).unwrap());
        (path, lines)
    };
    let mut all: Vec<_> = cases().into_iter().map(read).collect();
    // The longest first, so that none begins when the others end.
    all.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.len()));
    let asked = all.into_iter().map(async |(path, lines)| {
        let Some(yaml) = yaml else {
            let (found, anew) = run(&Side::lab(), &lines).await;
            return (path, found, anew);
        };
        let mut side = Side::real(yaml);
        let home = Home::build(&mut side, CLUSTER).await;
        let (found, anew) = run(&side, &lines).await;
        home.leave(&side).await;
        (path, found, anew)
    });
    // Each has a project of its own, so that they do not see each other.
    let at_once = if yaml.is_some() { AT_ONCE } else { 1 };
    let mut asked: Vec<_> = futures::stream::iter(asked).buffer_unordered(at_once).collect().await;
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    asked
}

/// With `DROVER_TEST_CLOUDS` of the real services, else of the lab's cloud; with `DROVER_RECORD` the answers are written down.
#[test]
fn the_recorded_exchanges_are_answered_alike() {
    let yaml =
        std::env::var("DROVER_TEST_CLOUDS").ok().map(|path| std::fs::read_to_string(path).unwrap());
    let record = is_recording();
    assert!(
        !record || yaml.is_some(),
        "only real services are worth recording: give DROVER_TEST_CLOUDS"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(yaml.is_none())
        .build()
        .unwrap();
    let asked = runtime.block_on(ask_all(yaml.as_deref()));
    let (mut report, mut exchanges) = (Vec::new(), 0);
    for (path, found, anew) in asked {
        if record {
            std::fs::write(&path, script::write(&anew)).unwrap();
        }
        exchanges += anew.iter().filter(|line| !line.recorded.is_empty()).count();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        report.extend(found.into_iter().map(|difference| format!("{name}:{difference}")));
    }
    println!("{exchanges} exchanges");
    if yaml.is_none() && std::env::var("DROVER_CASE").is_err() {
        let differing = report.iter().map(|line| place(line));
        let mut left: Vec<&str> = KNOWN.lines().filter(|line| !line.starts_with('#')).collect();
        let new: Vec<&str> = differing
            .filter(|place| match left.iter().position(|it| it == place) {
                Some(at) => {
                    left.remove(at);
                    false
                }
                None => true,
            })
            .collect();
        assert!(
            new.is_empty(),
            "differs, and is not in known.txt:\n{}\n\nof:\n{}",
            new.join("\n"),
            report.join("\n")
        );
        if !left.is_empty() {
            println!("in known.txt, and differs no more:\n{}", left.join("\n"));
        }
        return;
    }
    assert!(record || report.is_empty(), "{} differences:\n{}", report.len(), report.join("\n"));
}

/// Where a difference is: case, line, and the field or the word `answers`, `says` or `went`.
fn place(difference: &str) -> &str {
    let mut blanks = difference.match_indices(' ').map(|(at, _)| at);
    blanks.nth(1).map_or(difference, |end| &difference[..end])
}
