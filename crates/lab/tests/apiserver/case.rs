//! A case as it stands in its file: requests with the answers that the real server gave.

use crate::point::Condition;
use crate::world::Who;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One behaviour: a file.
pub struct Case {
    /// Area and name, as `watch/label-enters`.
    pub name: String,
    /// What `{ns}` stands for: the namespace of this case, and part of the names of what is in none.
    pub space: String,
    path: PathBuf,
    title: String,
    pub steps: Vec<Step>,
    own: usize,
}

/// One request, or one look at a watch that is open.
#[derive(Clone)]
pub struct Step {
    pub label: Option<String>,
    /// It prepares the case: it must succeed, what it answers is not told.
    pub given: bool,
    pub action: Action,
    pub who: Who,
    pub headers: Vec<(String, String)>,
    /// The request is repeated until its answer is so.
    pub until: Vec<Condition>,
    /// The answer is a watch that stays open.
    pub open: bool,
    /// The parts of the answer that are told; all when empty.
    pub show: Vec<String>,
    /// The parts of the answer that are not told: a controller's or the machine's.
    pub hide: Vec<String>,
    pub content: Option<Content>,
    /// The answer as it was recorded.
    pub answer: String,
    source: Vec<String>,
}

#[derive(Clone)]
pub enum Action {
    Send { method: String, path: String },
    Read { watch: String, events: Option<usize> },
}

#[derive(Clone)]
pub enum Content {
    Json(Value),
    /// A merge patch onto the answer of an earlier step.
    Merge(String, Value),
    /// As it stands.
    Text(String),
}

/// The lines of `text` in blocks, which blank lines part.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let parted = lines.split(|line| line.trim().is_empty());
    parted.filter(|block| !block.is_empty()).map(<[&str]>::to_vec).collect()
}

impl Case {
    /// Reads a file. `include NAME` stands for the steps of `given/NAME.http`.
    pub fn read(root: &Path, path: &Path) -> Self {
        let relative = path.strip_prefix(root).expect("below the cases").with_extension("");
        let name = relative.display().to_string();
        let text = std::fs::read_to_string(path).expect("a case is UTF-8");
        let mut title = String::new();
        let (mut steps, mut own) = (Vec::new(), Vec::new());
        for block in blocks(&text) {
            if block[0].starts_with('#') {
                title = block.join("\n");
                assert!(own.is_empty(), "{name}: the title stands first");
            } else if let Some(shared) = block[0].strip_prefix("include ") {
                assert!(own.is_empty(), "{name}: includes stand first");
                title = format!("{title}\n\n{}", block[0]);
                let path = root.join("given").join(format!("{shared}.http"));
                let text = std::fs::read_to_string(&path).expect("an included file");
                let shared = blocks(&text).into_iter().filter(|block| !block[0].starts_with('#'));
                steps.extend(shared.map(|block| Step::read(&block, &name)));
            } else {
                own.push(Step::read(&block, &name));
            }
        }
        assert!(title.starts_with("# "), "{name}: a case begins with `# ` and what it shows");
        let space = name.replace('/', "-");
        assert!(space.len() < 50, "{name} is too long for the name of a namespace");
        let count = own.len();
        steps.extend(own);
        Self { name, space, path: path.to_owned(), title, steps, own: count }
    }

    /// Writes the file anew with these answers, one for each step.
    pub fn write(&self, answers: &[Option<String>]) {
        let mut text = format!("{}\n", self.title);
        let skipped = self.steps.len() - self.own;
        for (step, answer) in self.steps.iter().zip(answers).skip(skipped) {
            text.push('\n');
            for line in &step.source {
                text.push_str(line);
                text.push('\n');
            }
            if let Some(answer) = answer {
                text.push_str(answer);
                text.push('\n');
            }
        }
        std::fs::write(&self.path, text).expect("a case can be written");
    }

    /// The requests and looks whose answers are compared.
    pub fn exchanges(&self) -> usize {
        self.steps.iter().filter(|step| !step.given).count()
    }
}

fn is_header(line: &str) -> bool {
    let name = line.split(": ").next().unwrap_or_default();
    line.contains(": ")
        && name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '-')
}

fn read_action(line: &str, case: &str) -> (Option<String>, bool, Action) {
    let (label, rest) = match line.split_once(": ") {
        Some((label, rest)) if !label.contains(' ') => (Some(label.to_owned()), rest),
        _ => (None, line),
    };
    let (given, rest) = match rest.strip_prefix("given ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (word, rest) = rest.split_once(' ').unwrap_or_else(|| panic!("{case}: {line}"));
    let action = if word == "read" {
        let (watch, many) = rest.split_once(' ').expect("a watch and how many events");
        let events = match many {
            "to its end" => None,
            many => Some(many.parse().expect("a number of events, or `to its end`")),
        };
        Action::Read { watch: watch.to_owned(), events }
    } else {
        Action::Send { method: word.to_owned(), path: rest.to_owned() }
    };
    (label, given, action)
}

fn read_content(lines: &[&str], case: &str) -> Option<Content> {
    let first = lines.first()?;
    if first.starts_with('|') {
        let bare = lines.iter().map(|line| line.get(2..).unwrap_or_default());
        return Some(Content::Text(bare.collect::<Vec<_>>().join("\n")));
    }
    let parse = |text: &str| {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{case}: {error}: {text}"))
    };
    let text = lines.join("\n");
    if let Some((base, change)) = text.strip_prefix('{').and_then(|rest| rest.split_once("} + "))
        && base.chars().all(|one| one.is_ascii_alphanumeric() || one == '-')
    {
        return Some(Content::Merge(base.to_owned(), parse(change)));
    }
    Some(Content::Json(parse(&text)))
}

impl Step {
    fn read(block: &[&str], case: &str) -> Self {
        let end = block.iter().position(|line| line.starts_with("=> ")).unwrap_or(block.len());
        let (source, answer) = block.split_at(end);
        let (label, given, action) = read_action(source[0], case);
        let mut step = Self {
            label,
            given,
            action,
            who: Who::Admin,
            headers: Vec::new(),
            until: Vec::new(),
            open: false,
            show: Vec::new(),
            hide: Vec::new(),
            content: None,
            answer: answer.join("\n"),
            source: source.iter().map(|&line| line.to_owned()).collect(),
        };
        let mut at = 1;
        while let Some(line) = source.get(at).filter(|line| step.take(line)) {
            assert!(!line.is_empty());
            at += 1;
        }
        step.content = read_content(&source[at..], case);
        step
    }

    /// Whether the line is one of those between the request and its body.
    fn take(&mut self, line: &str) -> bool {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        if let Some(who) = Who::read(line) {
            self.who = who;
        } else if let Some(condition) = line.strip_prefix("until ") {
            self.until.push(Condition::read(condition));
        } else if let Some(parts) = line.strip_prefix("show ") {
            self.show.extend(words(parts));
        } else if let Some(parts) = line.strip_prefix("hide ") {
            self.hide.extend(words(parts));
        } else if line == "open" {
            self.open = true;
        } else if is_header(line) {
            let (name, value) = line.split_once(": ").expect("a header");
            self.headers.push((name.to_owned(), value.to_owned()));
        } else {
            return false;
        }
        true
    }

    /// The request in one line.
    pub fn request(&self) -> &str {
        &self.source[0]
    }
}
