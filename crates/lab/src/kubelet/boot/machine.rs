//! The disk of a booting machine and what its boot has done to it so far.

use super::shell;
use super::systemd::Unit;
use std::collections::{BTreeMap, BTreeSet};

/// Begins the content of a file that came from elsewhere; what follows is its origin.
const ORIGIN: &[u8] = b"\0origin ";
/// How deep programs may start programs, in levels.
const DEPTH_MAX: usize = 16;

/// A file on the disk.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// What is in it.
    pub content: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

impl File {
    /// A file whose content is known by its origin alone: an address or a package.
    pub fn from_origin(origin: &str, mode: u32) -> Self {
        Self { content: [ORIGIN, origin.as_bytes()].concat(), mode }
    }

    /// Where the file came from, if it was not written by the user-data.
    pub fn origin(&self) -> Option<String> {
        let origin = self.content.strip_prefix(ORIGIN)?;
        Some(String::from_utf8_lossy(origin).trim_end().to_owned())
    }

    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// A kubelet that was started: the command line it got.
#[derive(Clone, Debug)]
pub struct Started {
    /// The path of the binary.
    pub program: String,
    /// Its arguments, expanded.
    pub arguments: Vec<String>,
}

/// The machine while it boots.
#[derive(Default)]
pub struct Machine {
    pub files: BTreeMap<String, File>,
    pub links: BTreeMap<String, String>,
    pub host_name: String,
    pub masked: BTreeSet<String>,
    pub enabled: BTreeSet<String>,
    pub started: BTreeSet<String>,
    pub kubelet: Option<Started>,
    /// The name of the operating system, as a Node tells it.
    pub os_image: &'static str,
    /// Asked to reboot; enabled units start once more.
    pub reboot: bool,
    /// What the machine printed on its console.
    pub console: Vec<String>,
    depth: usize,
}

impl Machine {
    /// A machine of this name with an empty disk.
    pub fn named(host_name: &str) -> Self {
        Self { host_name: host_name.to_owned(), ..Self::default() }
    }

    /// Prints a line on the console, once: a script that tries again says the same again.
    pub fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        if !self.console.contains(&line) {
            self.console.push(line);
        }
    }

    /// The path with its links followed.
    pub fn resolve(&self, path: &str) -> String {
        let mut path = tidy(path);
        for _ in 0..DEPTH_MAX {
            let link = self.links.iter().find_map(|(link, to)| {
                let rest = path.strip_prefix(link.as_str())?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
            });
            match link {
                Some(next) => path = tidy(&next),
                None => break,
            }
        }
        path
    }

    /// The file at this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.get(&self.resolve(path))
    }

    /// Whether there is a file or a folder with a file in it.
    pub fn exists(&self, path: &str) -> bool {
        let path = self.resolve(path);
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(&path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(k, _)| k.starts_with(&folder))
    }

    /// Puts a file on the disk.
    pub fn write(&mut self, path: &str, file: File) {
        let path = self.resolve(path);
        self.files.insert(path, file);
    }

    /// Adds to a file, or begins it.
    pub fn append(&mut self, path: &str, content: &[u8]) {
        let path = self.resolve(path);
        let file = self.files.entry(path).or_insert(File { content: Vec::new(), mode: 0o644 });
        file.content.extend_from_slice(content);
    }

    /// Runs a script of the disk or a text; the exit status.
    pub fn script(&mut self, name: &str, text: &str, arguments: &[String]) -> i32 {
        self.script_with(name, text, arguments, &BTreeMap::new())
    }

    fn script_with(
        &mut self,
        name: &str,
        text: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> i32 {
        if self.depth >= DEPTH_MAX {
            self.say(format!("{name}: too many levels of programs"));
            return 126;
        }
        let tree = match shell::parse(text) {
            Ok(tree) => tree,
            Err(error) => {
                self.say(format!("{name}: {error}"));
                return 2;
            }
        };
        self.depth += 1;
        let status = super::script::Shell::new(self, name, arguments, environment).run_whole(&tree);
        self.depth -= 1;
        status
    }

    /// Runs the program at this path, as the kernel would; None when there is no such program here.
    pub fn execute(
        &mut self,
        path: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Option<i32> {
        let file = self.file(path)?;
        if file.mode & 0o111 == 0 {
            self.say(format!("{path}: Permission denied"));
            return Some(126);
        }
        let is_kubelet = path.rsplit('/').next() == Some("kubelet");
        if file.origin().is_some() {
            if is_kubelet {
                self.kubelet =
                    Some(Started { program: path.to_owned(), arguments: arguments.to_vec() });
            }
            return Some(0);
        }
        let text = file.text();
        if !text.starts_with("#!") {
            self.say(format!("{path}: Exec format error"));
            return Some(126);
        }
        Some(self.script_with(path, &text, arguments, environment))
    }

    /// A unit with its drop-ins, if the user-data or a package brought one.
    pub fn unit(&self, name: &str) -> Option<Unit> {
        let folders = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];
        let main = folders.iter().find_map(|folder| self.file(&format!("{folder}/{name}")));
        let mut unit = Unit::default();
        if let Some(main) = main {
            unit.add(&main.text());
        }
        let mut drop_ins = BTreeMap::new();
        for folder in folders.iter().rev() {
            let folder = format!("{folder}/{name}.d/");
            for (path, file) in self.files.range(folder.clone()..) {
                let Some(drop_in) = path.strip_prefix(&folder) else { break };
                if drop_in.ends_with(".conf") {
                    drop_ins.insert(drop_in.to_owned(), file.text());
                }
            }
        }
        let known = main.is_some() || (!drop_ins.is_empty() && !name.starts_with("kubelet."));
        for text in drop_ins.values() {
            unit.add(text);
        }
        known.then_some(unit)
    }
}

/// Whether a program would be brought by the system rather than by the user-data.
pub fn of_system(program: &str) -> bool {
    let folders = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"];
    !program.contains('/')
        || folders
            .iter()
            .any(|folder| program.strip_prefix(folder).is_some_and(|base| !base.contains('/')))
}

/// A path without doubled slashes, dots and a slash at its end.
fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
