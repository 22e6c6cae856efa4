//! A case: calls to a cloud, each with the answer that real services gave.
//!
//! `METHOD SERVICE[@VERSION] PATH [Header=Value..] [BODY] [-> NAME]` is a call; a line that begins with two blanks goes on with the one
//! before. `-> NAME` keeps the id of the thing in the answer (`-> NAME=field`: that field) as `$NAME`. `2x` before it sends it so
//! often at once; answers are in order of status. `as NAME` says who calls from there on. `until SERVICE PATH STATUS[/TASK]` waits. Lines
//! that begin with `<` are what was answered, those with `~` the states that a wait saw. `#` and what follows is for people.

use regex::{Captures, Regex};
use serde_json::Value;
use std::fmt::Write as _;

/// A call.
#[derive(Clone, Debug)]
pub struct Ask {
    pub times: usize,
    pub method: String,
    pub service: String,
    pub version: Option<String>,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    /// A variable and the field of the thing that it gets.
    pub keep: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    As(String),
    Ask(Ask),
    Until { service: String, path: String, status: String },
}

/// A step as it is written, and what was recorded for it.
#[derive(Clone, Debug)]
pub struct Line {
    pub number: usize,
    pub text: String,
    pub step: Option<Step>,
    pub recorded: Vec<String>,
}

/// The lines of a case; comments and empty ones have no step.
pub fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, text) in text.lines().enumerate() {
        let last = lines.last_mut();
        if text.starts_with("< ") || text.starts_with("~ ") {
            last.expect("an answer has a call").recorded.push(text[2..].to_owned());
        } else if text.starts_with("  ") {
            let call = &mut last.expect("a continued line has a first one").text;
            write!(call, "\n{text}").expect("a string takes all");
        } else {
            let text = text.to_owned();
            lines.push(Line { number: number + 1, text, step: None, recorded: Vec::new() });
        }
    }
    for line in &mut lines {
        if !line.text.is_empty() && !line.text.starts_with('#') {
            let joined: Vec<&str> = line.text.lines().map(str::trim).collect();
            line.step = Some(step(&joined.join(" ")));
        }
    }
    lines
}

/// The case as it is written down.
pub fn write(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", line.text).expect("a string takes all");
        let mark = if matches!(line.step, Some(Step::Until { .. })) { '~' } else { '<' };
        for recorded in &line.recorded {
            writeln!(text, "{mark} {recorded}").expect("a string takes all");
        }
    }
    text
}

fn step(line: &str) -> Step {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["as", who] => Step::As(who.to_owned()),
        ["until", service, path, status] => Step::Until {
            service: service.to_owned(),
            path: path.to_owned(),
            status: status.to_owned(),
        },
        _ => Step::Ask(ask(line)),
    }
}

fn ask(line: &str) -> Ask {
    let (times, line) = match line.split_once("x ") {
        Some((times, rest)) if times.len() == 1 => (times.parse().expect("a number"), rest),
        _ => (1, line),
    };
    let (line, keep) = match line.rsplit_once(" -> ") {
        Some((line, keep)) => {
            let (name, field) = keep.split_once('=').unwrap_or((keep, "id"));
            (line, Some((name.to_owned(), field.to_owned())))
        }
        None => (line, None),
    };
    let begin = [" {", " \"", " ["].iter().filter_map(|mark| line.find(mark)).min();
    let (head, body) =
        begin.map_or((line, None), |at| (&line[..at], Some(line[at + 1..].to_owned())));
    let mut words = head.split(' ');
    let mut word = || words.next().unwrap_or_else(|| panic!("too short: {line}")).to_owned();
    let (method, service, path) = (word(), word(), word());
    let (service, version) = match service.split_once('@') {
        Some((service, version)) => (service.to_owned(), Some(version.to_owned())),
        None => (service, None),
    };
    let headers = words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("no header: {line}"));
        (name.to_owned(), value.replace('+', " "))
    });
    Ask { times, method, service, version, path, headers: headers.collect(), body, keep }
}

/// `${x*256}` written out; with `#` for the number of each, in a list: `${"t#"*3}`.
pub fn expand(text: &str) -> String {
    let repeated = Regex::new(r"\$\{(.*?)\*(\d+)\}").expect("a pattern");
    let expanded = repeated.replace_all(text, |found: &Captures<'_>| {
        let times: usize = found[2].parse().expect("a number");
        let all: Vec<String> =
            (0..times).map(|number| found[1].replace('#', &number.to_string())).collect();
        all.join(if found[1].contains('#') { ", " } else { "" })
    });
    expanded.into_owned()
}

/// The things of an answer: itself, what is in it, and what is in its lists.
pub fn things(body: &Value) -> impl Iterator<Item = &Value> {
    let inner = body.as_object().into_iter().flat_map(|object| object.values());
    inner.flat_map(|value| match value {
        Value::Array(list) => list.iter().collect::<Vec<_>>(),
        other => vec![other],
    })
}
