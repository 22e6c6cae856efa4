//! Runs a shell script against the disk of a booting machine.

use super::machine::{File, Machine, of_system};
use super::programs;
use super::shell::{self, Node, Piece, Redirect, Word};
use std::collections::BTreeMap;

/// Most commands of one script, so that an endless loop ends.
const STEPS_MAX: usize = 20_000;
/// Most rounds of one loop: what has not happened by then never does here.
const ROUNDS_MAX: usize = 10;
/// Most functions that call each other.
const CALLS_MAX: usize = 32;

/// Why a script does not go on with its next command.
pub enum Stop {
    /// `exit`, or a failure under `set -e`.
    Exit(i32),
    /// `return`.
    Return(i32),
    /// `break`.
    Break,
    /// `continue`.
    Continue,
}

/// A running script.
pub struct Shell<'m> {
    pub machine: &'m mut Machine,
    pub variables: BTreeMap<String, Vec<String>>,
    functions: BTreeMap<String, Node>,
    pub arguments: Vec<String>,
    name: String,
    pub errexit: bool,
    /// How many conditions surround the command: in one, a failure is an answer.
    guards: usize,
    status: i32,
    steps: usize,
    calls: usize,
}

impl<'m> Shell<'m> {
    /// A shell about to run a script.
    pub fn new(
        machine: &'m mut Machine,
        name: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Self {
        let variables =
            environment.iter().map(|(name, value)| (name.clone(), vec![value.clone()])).collect();
        Self {
            machine,
            variables,
            functions: BTreeMap::new(),
            arguments: arguments.to_vec(),
            name: name.to_owned(),
            errexit: false,
            guards: 0,
            status: 0,
            steps: 0,
            calls: 0,
        }
    }

    /// Runs the whole script; its exit status. What it prints is the console's.
    pub fn run_whole(&mut self, tree: &Node) -> i32 {
        let mut out = String::new();
        let end = self.run(tree, "", &mut out);
        for line in out.lines().filter(|line| !line.trim().is_empty() && !line.contains('\0')) {
            self.machine.say(line);
        }
        match end {
            Err(Stop::Exit(status) | Stop::Return(status)) => status,
            _ => self.status,
        }
    }

    /// Runs a node; `self.status` is its exit status.
    pub fn run(&mut self, node: &Node, stdin: &str, out: &mut String) -> Result<(), Stop> {
        match node {
            Node::List(nodes) => nodes.iter().try_for_each(|node| self.run(node, stdin, out)),
            Node::Simple { sets, words, redirects } => {
                self.simple(sets, words, redirects, stdin, out)
            }
            Node::Redirected { node, redirects } => {
                self.redirected(redirects, stdin, out, |shell, stdin, out| {
                    shell.run(node, stdin, out)
                })
            }
            Node::Pipe(nodes) => self.pipe(nodes, stdin, out),
            Node::And(left, right) | Node::Or(left, right) => {
                self.guarded(left, stdin, out)?;
                let wants_success = matches!(node, Node::And(..));
                if (self.status == 0) == wants_success {
                    self.run(right, stdin, out)
                } else {
                    Ok(())
                }
            }
            Node::Not(inner) => {
                self.guarded(inner, stdin, out)?;
                self.status = i32::from(self.status == 0);
                Ok(())
            }
            Node::If { arms, otherwise } => {
                for (condition, body) in arms {
                    self.guarded(condition, stdin, out)?;
                    if self.status == 0 {
                        return self.run(body, stdin, out);
                    }
                }
                self.status = 0;
                otherwise.as_ref().map_or(Ok(()), |body| self.run(body, stdin, out))
            }
            Node::Case { word, arms } => {
                let value = self.expand(word)?.join(" ");
                for (patterns, body) in arms {
                    for pattern in patterns {
                        if glob(&self.expand(pattern)?.join(" "), &value) {
                            return self.run(body, stdin, out);
                        }
                    }
                }
                Ok(())
            }
            Node::For { name, words, body } => {
                for value in self.expand_all(words)? {
                    self.variables.insert(name.clone(), vec![value]);
                    match self.run(body, stdin, out) {
                        Err(Stop::Break) => break,
                        Err(Stop::Continue) | Ok(()) => {}
                        Err(stop) => return Err(stop),
                    }
                }
                Ok(())
            }
            Node::While { until, condition, body } => {
                self.repeat(*until, condition, body, stdin, out)
            }
            Node::Function { name, body } => {
                self.functions.insert(name.clone(), (**body).clone());
                Ok(())
            }
        }
    }

    fn guarded(&mut self, node: &Node, stdin: &str, out: &mut String) -> Result<(), Stop> {
        self.guards += 1;
        let end = self.run(node, stdin, out);
        self.guards -= 1;
        end
    }

    fn repeat(
        &mut self,
        until: bool,
        condition: &Node,
        body: &Node,
        stdin: &str,
        out: &mut String,
    ) -> Result<(), Stop> {
        for _ in 0..ROUNDS_MAX {
            self.guarded(condition, stdin, out)?;
            if (self.status == 0) == until {
                self.status = 0;
                return Ok(());
            }
            match self.run(body, stdin, out) {
                Err(Stop::Break) => return Ok(()),
                Err(Stop::Continue) | Ok(()) => {}
                Err(stop) => return Err(stop),
            }
        }
        self.machine.say(format!("{}: still trying after {ROUNDS_MAX} rounds", self.name));
        Err(Stop::Exit(1))
    }

    fn pipe(&mut self, nodes: &[Node], stdin: &str, out: &mut String) -> Result<(), Stop> {
        let mut input = stdin.to_owned();
        for (i, node) in nodes.iter().enumerate() {
            if i + 1 == nodes.len() {
                return self.run(node, &input, out);
            }
            let mut between = String::new();
            self.guarded(node, &input, &mut between)?;
            input = between;
        }
        Ok(())
    }

    fn simple(
        &mut self,
        sets: &[(String, Word)],
        words: &[Word],
        redirects: &[Redirect],
        stdin: &str,
        out: &mut String,
    ) -> Result<(), Stop> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            self.machine.say(format!("{}: more than {STEPS_MAX} commands", self.name));
            return Err(Stop::Exit(1));
        }
        self.status = 0;
        for (name, value) in sets {
            let value = match &value[..] {
                [Piece::Array(words)] => self.expand_all(words)?,
                _ => vec![self.expand(value)?.join(" ")],
            };
            self.variables.insert(name.clone(), value);
        }
        let words = self.expand_all(words)?;
        self.redirected(redirects, stdin, out, |shell, stdin, out| shell.call(&words, stdin, out))?;
        if self.status != 0 && self.errexit && self.guards == 0 {
            self.machine.say(format!(
                "{}: `{}` failed with status {}",
                self.name,
                words.first().map_or("", String::as_str),
                self.status
            ));
            return Err(Stop::Exit(self.status));
        }
        Ok(())
    }

    /// Runs a command of these words: a function, a file of the disk, or a program that is known.
    pub fn call(&mut self, words: &[String], stdin: &str, out: &mut String) -> Result<(), Stop> {
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        if let Some(body) = self.functions.get(name).cloned() {
            if self.calls == CALLS_MAX {
                self.machine.say(format!("{name}: more than {CALLS_MAX} nested calls"));
                return Err(Stop::Exit(1));
            }
            self.calls += 1;
            let before = std::mem::replace(&mut self.arguments, arguments.to_vec());
            let end = self.run(&body, stdin, out);
            self.arguments = before;
            self.calls -= 1;
            return match end {
                Err(Stop::Return(status)) => {
                    self.status = status;
                    Ok(())
                }
                end => end,
            };
        }
        let environment: BTreeMap<String, String> = self
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), value.first().cloned().unwrap_or_default()))
            .collect();
        let path = if name.contains('/') { Some(name.clone()) } else { self.in_path(name) };
        if let Some(path) = path
            && let Some(status) = self.machine.execute(&path, arguments, &environment)
        {
            self.status = status;
            return Ok(());
        }
        if !of_system(name) {
            self.machine.say(format!("{name}: No such file or directory"));
            self.status = 127;
            return Ok(());
        }
        self.status = programs::run(self, name, arguments, stdin, out)?;
        Ok(())
    }

    /// Runs a command on behalf of another; its exit status.
    pub fn nested(&mut self, words: &[String], stdin: &str, out: &mut String) -> Result<i32, Stop> {
        self.call(words, stdin, out)?;
        Ok(self.status)
    }

    fn in_path(&self, name: &str) -> Option<String> {
        let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/opt/bin"];
        let mut paths = folders.iter().map(|folder| format!("{folder}/{name}"));
        paths.find(|path| self.machine.file(path).is_some())
    }

    fn redirected(
        &mut self,
        redirects: &[Redirect],
        stdin: &str,
        out: &mut String,
        body: impl FnOnce(&mut Self, &str, &mut String) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut input = stdin.to_owned();
        let mut target = None;
        for redirect in redirects {
            match redirect {
                Redirect::Out { to, append } => {
                    target = Some((self.expand(to)?.join(" "), *append));
                }
                Redirect::Aside => {}
                Redirect::In(from) => {
                    let path = self.expand(from)?.join(" ");
                    let Some(file) = self.machine.file(&path) else {
                        self.machine.say(format!("{path}: No such file or directory"));
                        self.status = 1;
                        return Ok(());
                    };
                    input = file.text();
                }
                Redirect::Here(text) => input = self.expand(text)?.join(" "),
            }
        }
        let Some((path, append)) = target else { return body(self, &input, out) };
        let mut captured = String::new();
        let end = body(self, &input, &mut captured);
        if !path.starts_with("/dev/") {
            if append {
                self.machine.append(&path, captured.as_bytes());
            } else {
                let mode = self.machine.file(&path).map_or(0o644, |file| file.mode);
                self.machine.write(&path, File { content: captured.into_bytes(), mode });
            }
        }
        end
    }

    /// Expands words to fields.
    fn expand_all(&mut self, words: &[Word]) -> Result<Vec<String>, Stop> {
        let mut fields = Vec::new();
        for word in words {
            fields.extend(self.expand(word)?);
        }
        Ok(fields)
    }

    fn expand(&mut self, word: &Word) -> Result<Vec<String>, Stop> {
        let mut fields: Vec<String> = Vec::new();
        let mut open: Option<String> = None;
        for piece in word {
            let (values, quoted) = match piece {
                Piece::Text(text) => {
                    open.get_or_insert_default().push_str(text);
                    continue;
                }
                Piece::Array(words) => (self.expand_all(words)?, true),
                Piece::Variable { name, fallback, quoted } => {
                    let value = self.variable(name);
                    match (value.concat().is_empty(), fallback) {
                        (true, Some(fallback)) => (self.expand(fallback)?, *quoted),
                        _ => (value, *quoted),
                    }
                }
                Piece::Command { script, quoted } => (vec![self.capture(script)?], *quoted),
            };
            let values: Vec<String> = if quoted {
                values
            } else {
                values
                    .iter()
                    .flat_map(|value| value.split_whitespace())
                    .map(str::to_owned)
                    .collect()
            };
            for (i, value) in values.into_iter().enumerate() {
                if i > 0 {
                    fields.extend(open.take());
                }
                open.get_or_insert_default().push_str(&value);
            }
        }
        fields.extend(open);
        Ok(fields)
    }

    fn capture(&mut self, script: &str) -> Result<String, Stop> {
        let mut out = String::new();
        match shell::parse(script) {
            Ok(tree) => match self.run(&tree, "", &mut out) {
                Ok(()) | Err(Stop::Return(_) | Stop::Break | Stop::Continue) => {}
                Err(Stop::Exit(status)) => self.status = status,
            },
            Err(error) => {
                self.machine.say(format!("{}: {error}", self.name));
                self.status = 2;
            }
        }
        Ok(out.trim_end_matches('\n').to_owned())
    }

    fn variable(&self, name: &str) -> Vec<String> {
        match name {
            "@" | "*" => return self.arguments.clone(),
            "#" => return vec![self.arguments.len().to_string()],
            "?" => return vec![self.status.to_string()],
            "0" => return vec![self.name.clone()],
            _ => {}
        }
        if let Ok(number) = name.parse::<usize>() {
            return vec![self.arguments.get(number - 1).cloned().unwrap_or_default()];
        }
        if let Some(array) = name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")) {
            return self.variables.get(array).cloned().unwrap_or_default();
        }
        let host_name = || Some(&self.machine.host_name).filter(|_| name == "HOSTNAME").cloned();
        let value = self.variables.get(name).and_then(|value| value.first().cloned());
        vec![value.or_else(host_name).unwrap_or_default()]
    }
}

/// Whether a pattern with `*` and `?` fits a text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut chars = pattern.chars();
    match chars.next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            text.char_indices().map(|(i, _)| i).chain([text.len()]).any(|i| glob(rest, &text[i..]))
        }
        Some(c) => {
            let mut text = text.chars();
            text.next().is_some_and(|first| c == '?' || c == first)
                && glob(chars.as_str(), text.as_str())
        }
    }
}
