//! systemd, as far as a boot needs it: units, their drop-ins, and what starting one leads to.

use super::machine::{Machine, of_system};
use std::collections::BTreeMap;

/// A unit's settings by section and key, in order; a list is emptied by an empty value.
#[derive(Default)]
pub struct Unit {
    settings: BTreeMap<(String, String), Vec<String>>,
}

impl Unit {
    /// Adds a unit file or a drop-in.
    pub fn add(&mut self, text: &str) {
        let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
        let mut section = String::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with(['#', ';']) || line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                let values =
                    self.settings.entry((section.clone(), key.trim().to_owned())).or_default();
                match value.trim() {
                    "" => values.clear(),
                    value => values.push(value.to_owned()),
                }
            }
        }
    }

    fn all(&self, section: &str, key: &str) -> &[String] {
        self.settings.get(&(section.to_owned(), key.to_owned())).map_or(&[], Vec::as_slice)
    }
}

/// Starts a unit and what it wants; the exit status of `systemctl start`.
pub fn start(machine: &mut Machine, name: &str) -> i32 {
    let name = full_name(name);
    if machine.masked.contains(&name) {
        machine.say(format!("Failed to start {name}: Unit {name} is masked."));
        return 1;
    }
    let Some(unit) = machine.unit(&name) else {
        // A system brings units that the user-data says nothing of; a kubelet it does not bring.
        if name.starts_with("kubelet.") {
            machine.say(format!("Failed to start {name}: Unit {name} not found."));
            return 5;
        }
        return 0;
    };
    if !machine.started.insert(name.clone()) {
        return 0;
    }
    for relation in ["Requires", "Wants", "BindsTo"] {
        for other in unit.all("Unit", relation).iter().flat_map(|names| names.split_whitespace()) {
            if start(machine, other) != 0 && relation != "Wants" {
                machine.say(format!("Dependency failed for {name}."));
                return 1;
            }
        }
    }
    for key in ["ConditionPathExists", "ConditionFileNotEmpty", "ConditionFirstBoot"] {
        for path in unit.all("Unit", key) {
            let (wanted, path) = match path.strip_prefix('!') {
                Some(path) => (false, path),
                None => (true, path.as_str()),
            };
            if key != "ConditionFirstBoot" && machine.exists(path) != wanted {
                machine.say(format!("Condition check resulted in {name} being skipped."));
                return 0;
            }
        }
    }
    let status = run(machine, &name, &unit);
    if status != 0 {
        machine.started.remove(&name);
    }
    status
}

/// Enables a unit; the exit status of `systemctl enable`.
pub fn enable(machine: &mut Machine, name: &str) -> i32 {
    let name = full_name(name);
    if name.starts_with("kubelet.") && machine.unit(&name).is_none() {
        machine.say(format!("Failed to enable unit: Unit file {name} does not exist."));
        return 1;
    }
    machine.enabled.insert(name);
    0
}

/// Starts what is enabled, as at the end of a boot.
pub fn start_enabled(machine: &mut Machine) {
    for name in machine.enabled.clone() {
        start(machine, &name);
    }
}

/// A name with `.service` where it has no kind.
pub fn full_name(name: &str) -> String {
    const KINDS: [&str; 7] =
        [".service", ".socket", ".target", ".timer", ".mount", ".path", ".slice"];
    if KINDS.iter().any(|kind| name.ends_with(kind)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

fn run(machine: &mut Machine, name: &str, unit: &Unit) -> i32 {
    let environment = match environment(machine, name, unit) {
        Ok(environment) => environment,
        Err(status) => return status,
    };
    for key in ["ExecStartPre", "ExecStart", "ExecStartPost"] {
        for line in unit.all("Service", key) {
            let bare = line.trim_start_matches(['-', '@', ':', '+', '!']);
            let ignored = line[..line.len() - bare.len()].contains('-');
            let words = split(bare, &environment, &machine.host_name);
            let Some((program, arguments)) = words.split_first() else { continue };
            let status = execute(machine, name, program, arguments, &environment);
            if status != 0 && !ignored {
                machine.say(format!(
                    "{name}: Main process exited, code=exited, status={status}; \
                     Failed with result 'exit-code'."
                ));
                return status;
            }
        }
    }
    0
}

fn execute(
    machine: &mut Machine,
    unit: &str,
    program: &str,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
) -> i32 {
    if let Some(status) = machine.execute(program, arguments, environment) {
        return status;
    }
    let base = program.rsplit('/').next().unwrap_or(program);
    if base == "kubelet" || !of_system(program) {
        machine.say(format!(
            "{unit}: Unable to locate executable '{program}': No such file or directory"
        ));
        return 203;
    }
    // A program of the system: what the scripts know of it, they know.
    let mut line = base.to_owned();
    for argument in arguments {
        line.push_str(&format!(" '{}'", argument.replace('\'', "'\\''")));
    }
    machine.script(unit, &line, &[])
}

fn environment(
    machine: &mut Machine,
    name: &str,
    unit: &Unit,
) -> Result<BTreeMap<String, String>, i32> {
    let mut all = BTreeMap::new();
    for line in unit.all("Service", "Environment") {
        let pairs = split(line, &BTreeMap::new(), &machine.host_name);
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        all.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    for path in unit.all("Service", "EnvironmentFile") {
        let (optional, path) = match path.strip_prefix('-') {
            Some(path) => (true, path),
            None => (false, path.as_str()),
        };
        let Some(file) = machine.file(path) else {
            if optional {
                continue;
            }
            machine.say(format!("{name}: Failed to load environment files: {path}: No such file"));
            return Err(1);
        };
        let text = file.text();
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        all.extend(pairs.map(|(k, v)| (k.to_owned(), v.trim_matches(['"', '\'']).to_owned())));
    }
    Ok(all)
}

/// Splits a command line as systemd does: quotes, `$NAME` as words, `${NAME}` in place, `%H`.
fn split(line: &str, environment: &BTreeMap<String, String>, host_name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' | '\'' if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && quote.is_none() => words.extend(word.take()),
            '%' if chars.peek() == Some(&'H') => {
                chars.next();
                word.get_or_insert_default().push_str(host_name);
            }
            '$' if chars.peek() == Some(&'{') => {
                chars.next();
                let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
                let value = environment.get(&name).map_or("", String::as_str);
                word.get_or_insert_default().push_str(value);
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let expand = |word: String| match word.strip_prefix('$').map(|name| environment.get(name)) {
        Some(value) => {
            value.map_or("", String::as_str).split_whitespace().map(str::to_owned).collect()
        }
        None => vec![word],
    };
    words.into_iter().flat_map(expand).collect()
}
