//! The programs that scripts of a node call, reduced to what they leave on the disk.
//!
//! A program that is not known here succeeds and does nothing: what a node needs is judged by the
//! files and units that are there at the end.

use super::machine::{File, Machine};
use super::script::{Shell, Stop, glob};
use super::{cloud_init, systemd};
use base64::Engine as _;

/// Runs a program or a builtin; its exit status.
pub fn run(
    shell: &mut Shell<'_>,
    name: &str,
    arguments: &[String],
    stdin: &str,
    out: &mut String,
) -> Result<i32, Stop> {
    let first = arguments.first().map_or("", String::as_str);
    let operands = || arguments.iter().filter(|word| !word.starts_with('-')).cloned();
    match name.rsplit('/').next().unwrap_or(name) {
        "exit" => return Err(Stop::Exit(first.parse().unwrap_or(0))),
        "return" => return Err(Stop::Return(first.parse().unwrap_or(0))),
        "break" => return Err(Stop::Break),
        "continue" => return Err(Stop::Continue),
        "false" => return Ok(1),
        "set" => set(shell, arguments),
        "shift" if !shell.arguments.is_empty() => {
            shell.arguments.remove(0);
        }
        "unset" => {
            shell.variables.remove(first);
        }
        "[" | "test" | "[[" => return Ok(i32::from(!test(shell.machine, arguments))),
        "echo" => {
            let words = operands().collect::<Vec<_>>().join(" ");
            out.push_str(&words);
            out.push('\n');
        }
        "printf" => printf(arguments, out),
        "source" | "." => return source(shell, first, stdin, out),
        "exec" | "command" | "nohup" | "sudo" | "env" | "nice" | "time" | "timeout" | "retry" => {
            return wrapped(shell, name, arguments, stdin, out);
        }
        "sh" | "bash" => return interpreter(shell, arguments),
        "systemctl" => return Ok(systemctl(shell.machine, arguments)),
        "hostnamectl" => {
            if let Some(at) = arguments.iter().position(|a| a == "set-hostname" || a == "hostname")
            {
                shell.machine.host_name = arguments.get(at + 1).cloned().unwrap_or_default();
            }
        }
        "hostname" => out.push_str(&format!("{}\n", shell.machine.host_name)),
        "uname" => out.push_str(if first == "-m" { "x86_64\n" } else { "Linux\n" }),
        "dpkg" if first == "--print-architecture" => out.push_str("amd64\n"),
        "reboot" => shell.machine.reboot = true,
        "curl" | "wget" => return Ok(fetch(shell.machine, arguments, out)),
        "apt-get" | "apt" | "dnf" | "yum" => install_packages(shell.machine, arguments),
        "base64" => return Ok(decode(arguments, stdin, out)),
        _ => return Ok(on_files(shell.machine, name, arguments, stdin, out)),
    }
    Ok(0)
}

/// The programs that only move files about.
fn on_files(
    machine: &mut Machine,
    name: &str,
    arguments: &[String],
    stdin: &str,
    out: &mut String,
) -> i32 {
    let operands: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    match name.rsplit('/').next().unwrap_or(name) {
        "touch" => {
            for path in operands {
                machine.append(path, b"");
            }
        }
        "cat" => {
            if operands.is_empty() {
                out.push_str(stdin);
            }
            for path in operands {
                let Some(file) = machine.file(path) else {
                    machine.say(format!("cat: {path}: No such file or directory"));
                    return 1;
                };
                out.push_str(&file.text());
            }
        }
        "tee" => {
            let append = arguments.iter().any(|word| word == "-a" || word == "--append");
            for path in operands {
                if !append {
                    machine.write(path, File { content: Vec::new(), mode: 0o644 });
                }
                machine.append(path, stdin.as_bytes());
            }
            out.push_str(stdin);
        }
        "cut" | "awk" | "grep" | "sed" | "tr" | "head" | "tail" | "jq" => out.push_str(stdin),
        "chmod" => chmod(machine, &operands),
        "cp" | "mv" | "install" | "ln" => return copy(machine, name, arguments),
        "rm" => {
            for path in operands {
                let path = machine.resolve(path);
                let folder = format!("{path}/");
                machine.files.retain(|file, _| *file != path && !file.starts_with(&folder));
            }
        }
        "tar" => extract(machine, arguments, stdin),
        _ => {}
    }
    0
}

fn set(shell: &mut Shell<'_>, arguments: &[String]) {
    for argument in arguments {
        if let Some(flags) = argument.strip_prefix('-') {
            shell.errexit |= flags.contains('e') && !flags.starts_with('-');
        } else if let Some(flags) = argument.strip_prefix('+') {
            shell.errexit &= !flags.contains('e');
        } else if argument == "errexit" {
            shell.errexit = true;
        }
    }
}

fn test(machine: &Machine, words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words = match words.split_last() {
        Some((&("]" | "]]"), words)) => words,
        _ => &words[..],
    };
    match *words {
        ["!", ref rest @ ..] => {
            !test(machine, &rest.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        }
        ["-f" | "-e" | "-s" | "-r", path] => machine.exists(path),
        // Folders are not kept: one that a system has, or that has a file in it, is there.
        ["-d", path] => machine.exists(path),
        ["-x", path] => machine.file(path).is_some_and(|file| file.mode & 0o111 != 0),
        ["-L" | "-h", path] => machine.links.contains_key(path),
        ["-n", text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [left, "=" | "==", right] => glob(right, left),
        [left, "!=", right] => !glob(right, left),
        [left, operator, right] => match (left.parse::<i64>(), right.parse::<i64>()) {
            (Ok(left), Ok(right)) => match operator {
                "-eq" => left == right,
                "-ne" => left != right,
                "-lt" => left < right,
                "-le" => left <= right,
                "-gt" => left > right,
                "-ge" => left >= right,
                _ => false,
            },
            _ => false,
        },
        [text] => !text.is_empty(),
        _ => false,
    }
}

fn printf(arguments: &[String], out: &mut String) {
    let Some((format, values)) = arguments.split_first() else { return };
    let format = format.replace("\\n", "\n").replace("\\t", "\t");
    let mut values = values.iter();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('%', Some('s' | 'd')) => {
                chars.next();
                out.push_str(values.next().map_or("", String::as_str));
            }
            ('%', Some('%')) => {
                chars.next();
                out.push('%');
            }
            (c, _) => out.push(c),
        }
    }
}

fn source(shell: &mut Shell<'_>, path: &str, stdin: &str, out: &mut String) -> Result<i32, Stop> {
    let Some(file) = shell.machine.file(path) else {
        shell.machine.say(format!("{path}: No such file or directory"));
        return Ok(1);
    };
    let text = file.text();
    match super::shell::parse(&text) {
        Ok(tree) => shell.run(&tree, stdin, out).map(|()| 0),
        Err(error) => {
            shell.machine.say(format!("{path}: {error}"));
            Ok(2)
        }
    }
}

/// A program that runs another: options and settings before it are skipped.
fn wrapped(
    shell: &mut Shell<'_>,
    name: &str,
    arguments: &[String],
    stdin: &str,
    out: &mut String,
) -> Result<i32, Stop> {
    let mut rest = arguments;
    if name == "command" && rest.first().is_some_and(|word| word == "-v") {
        return Ok(0);
    }
    while let Some((word, after)) = rest.split_first() {
        let is_time = name == "timeout" && word.starts_with(|c: char| c.is_ascii_digit());
        if !(word.starts_with('-') || is_time || (name == "env" && word.contains('='))) {
            break;
        }
        rest = after;
    }
    let mut status = 0;
    if !rest.is_empty() {
        status = shell.nested(rest, stdin, out)?;
    }
    if name == "exec" { Err(Stop::Exit(status)) } else { Ok(status) }
}

fn interpreter(shell: &mut Shell<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let mut rest = arguments;
    while let Some((word, after)) = rest.split_first() {
        match word.as_str() {
            word if word.starts_with('-') && word.ends_with('c') => {
                let Some((script, arguments)) = after.split_first() else { return Ok(2) };
                let arguments = arguments.get(1..).unwrap_or_default();
                return Ok(shell.machine.script("bash", script, arguments));
            }
            word if word.starts_with('-') => rest = after,
            path => {
                let Some(file) = shell.machine.file(path) else {
                    shell.machine.say(format!("bash: {path}: No such file or directory"));
                    return Ok(127);
                };
                let text = file.text();
                return Ok(shell.machine.script(path, &text, after));
            }
        }
    }
    Ok(0)
}

fn systemctl(machine: &mut Machine, arguments: &[String]) -> i32 {
    let now = arguments.iter().any(|word| word == "--now");
    let mut words = arguments.iter().filter(|word| !word.starts_with('-')).map(String::as_str);
    let verb = words.next().unwrap_or_default();
    let mut status = 0;
    for name in words {
        let name = systemd::full_name(name);
        let done = match verb {
            "start" => systemd::start(machine, &name),
            "restart" | "reload-or-restart" | "try-restart" => {
                machine.started.remove(&name);
                systemd::start(machine, &name)
            }
            "enable" | "reenable" => match systemd::enable(machine, &name) {
                0 if now => systemd::start(machine, &name),
                status => status,
            },
            "mask" => {
                machine.masked.insert(name);
                0
            }
            "unmask" => {
                machine.masked.remove(&name);
                0
            }
            "disable" | "stop" => {
                if verb == "disable" {
                    machine.enabled.remove(&name);
                }
                if name == "kubelet.service" && (now || verb == "stop") {
                    machine.kubelet = None;
                    machine.started.remove(&name);
                }
                0
            }
            "is-active" => i32::from(!machine.started.contains(&name)) * 3,
            "is-enabled" => i32::from(!machine.enabled.contains(&name)),
            _ => 0,
        };
        status = if done == 0 { status } else { done };
    }
    if verb == "reboot" {
        machine.reboot = true;
    }
    status
}

/// Options of curl and wget that take the next word as their value.
const FETCH_VALUES: [&str; 14] = [
    "-H",
    "--header",
    "-d",
    "--data",
    "--retry",
    "--retry-delay",
    "--retry-max-time",
    "--max-time",
    "--connect-timeout",
    "--cacert",
    "-X",
    "--request",
    "-m",
    "--timeout",
];

fn fetch(machine: &mut Machine, arguments: &[String], out: &mut String) -> i32 {
    let (mut target, mut own_name) = (None, false);
    let mut address = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let short = word.starts_with('-') && !word.starts_with("--");
        if FETCH_VALUES.contains(&word.as_str()) {
            words.next();
        } else if word == "--output"
            || word == "--output-document"
            || (short && word.ends_with(['o']))
        {
            target = words.next().cloned();
        } else if let Some(path) = word.strip_prefix("--output=") {
            target = Some(path.to_owned());
        } else if short && word.ends_with('O') {
            // wget's -O names the file, curl's takes the name of the address.
            own_name = true;
        } else if word.contains("://") {
            address = Some(word.clone());
        } else if own_name && address.is_none() && target.is_none() && !word.starts_with('-') {
            target = Some(word.clone());
        }
    }
    let Some(address) = address else {
        machine.say("curl: no URL specified");
        return 2;
    };
    let Some(host) = address.split("://").nth(1).filter(|rest| !rest.starts_with('/')) else {
        machine.say(format!("curl: (3) URL rejected: {address}"));
        return 3;
    };
    let last = host.rsplit('/').next().unwrap_or(host).to_owned();
    let file = File::from_origin(&address, 0o644);
    match target.or(own_name.then_some(last)) {
        Some(path) if path != "-" => machine.write(&path, file),
        _ => out.push_str(&file.text()),
    }
    0
}

/// Packages bring their kubelet with its version, `kubelet=1.30.3-1.1`; others bring what nobody looks at.
fn install_packages(machine: &mut Machine, arguments: &[String]) {
    if arguments.iter().any(|word| word == "install") {
        for package in arguments {
            cloud_init::install_package(machine, package);
        }
    }
}

fn decode(arguments: &[String], stdin: &str, out: &mut String) -> i32 {
    if !arguments.iter().any(|word| word.starts_with("-d") || word == "--decode") {
        out.push_str(&base64::engine::general_purpose::STANDARD.encode(stdin));
        return 0;
    }
    match super::decode_base64(stdin) {
        Some(bytes) => {
            out.push_str(&String::from_utf8_lossy(&bytes));
            0
        }
        None => 1,
    }
}

fn chmod(machine: &mut Machine, operands: &[&String]) {
    let executable = operands.iter().any(|word| word.contains("+x"));
    let octal = operands.first().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    for path in operands.iter().filter(|word| word.contains('/') || !word.contains('+')) {
        let path = machine.resolve(path);
        if let Some(file) = machine.files.get_mut(&path) {
            file.mode = octal.unwrap_or(if executable { file.mode | 0o111 } else { file.mode });
        }
    }
}

fn copy(machine: &mut Machine, name: &str, arguments: &[String]) -> i32 {
    let mut mode = (name == "install").then_some(0o755);
    let (mut paths, mut folder, mut creates_folders) = (Vec::new(), None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" | "--mode" => mode = words.next().and_then(|m| u32::from_str_radix(m, 8).ok()),
            "-o" | "-g" | "--owner" | "--group" => _ = words.next(),
            "-t" => folder = words.next().cloned(),
            "-d" if name == "install" => creates_folders = true,
            flag if flag.starts_with("-m") => mode = u32::from_str_radix(&flag[2..], 8).ok(),
            flag if flag.starts_with('-') => {}
            path => paths.push(path.to_owned()),
        }
    }
    if creates_folders {
        return 0;
    }
    let target = folder.or_else(|| paths.pop());
    let Some(target) = target.filter(|_| !paths.is_empty()) else { return 1 };
    let into = paths.len() > 1 || target.ends_with('/') || is_folder(machine, &target);
    for from in paths {
        let base = from.rsplit('/').next().unwrap_or(&from);
        let to =
            if into { format!("{}/{base}", target.trim_end_matches('/')) } else { target.clone() };
        if name == "ln" {
            machine.links.insert(to, from);
            continue;
        }
        let Some(file) = machine.file(&from).cloned() else {
            machine.say(format!("{name}: cannot stat '{from}': No such file or directory"));
            return 1;
        };
        if name == "mv" {
            let from = machine.resolve(&from);
            machine.files.remove(&from);
        }
        machine.write(&to, File { mode: mode.unwrap_or(file.mode), ..file });
    }
    0
}

/// Folders that every system has, and those with files in them.
fn is_folder(machine: &Machine, path: &str) -> bool {
    const OF_SYSTEM: [&str; 6] =
        ["/usr/bin", "/usr/local/bin", "/opt/bin", "/etc", "/opt/cni/bin", "/tmp"];
    let path = machine.resolve(path);
    OF_SYSTEM.contains(&path.as_str())
        || (machine.exists(&path) && !machine.files.contains_key(&path))
}

/// An archive brings what such archives hold; which one it is shows in where it came from.
fn extract(machine: &mut Machine, arguments: &[String], stdin: &str) {
    let (mut archive, mut folder) = (None, "/".to_owned());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "-C" || word == "--directory" {
            folder = words.next().cloned().unwrap_or_default();
        } else if let Some(path) = word.strip_prefix("--directory=") {
            path.clone_into(&mut folder);
        } else if word == "--file" || (!word.starts_with("--") && word.ends_with('f')) {
            archive = words.next().cloned();
        }
    }
    let file = match archive.filter(|path| path != "-") {
        Some(path) => machine.file(&path).cloned(),
        None => Some(File { content: stdin.as_bytes().to_vec(), mode: 0o644 }),
    };
    let Some(origin) = file.and_then(|file| file.origin()) else { return };
    let inside: &[&str] = match origin.as_str() {
        name if name.contains("cni-plugins") => &["bridge", "host-local", "loopback", "portmap"],
        name if name.contains("crictl") => &["crictl"],
        name if name.contains("kubernetes-node") => &["kubernetes/node/bin/kubelet"],
        name if name.contains("containerd") => &["bin/containerd", "bin/ctr"],
        _ => &[],
    };
    for name in inside {
        machine.write(&format!("{folder}/{name}"), File::from_origin(&origin, 0o755));
    }
}
