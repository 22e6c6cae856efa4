//! Foreign clients tell the same story on the lab as on a real control plane, and see in both what a user expects.
//!
//! The programs of `tools/clients` assert for themselves and print what they saw, line by line; the lines of both
//! worlds are compared. `make clients` builds what they need; without it, one line says what was not run.

use drover_lab::clock::{Clock, Pace};
use drover_lab::kube::{Assets, ControlPlane, Options};
use drover_lab::kubeconfig::Access;
use drover_lab::kubelet::idle::{self, Nodes};
use drover_lab::world::{Own, Plane};
use jiff::Timestamp;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// How long one program may take; on two quiet cores they take up to half a minute, and what waits in one tells
/// for what after four.
const PROGRAM_MAX: Duration = Duration::from_secs(900);
/// How many times faster than life pods start and stop in both worlds.
const PACE: Pace = Pace(20.0);
/// What of both transcripts is shown around the first line that differs.
const CONTEXT: usize = 3;

/// The programs: what `make clients` builds for it, and the command below `tools/clients` or in that folder.
const PROGRAMS: [(&str, &str); 10] = [
    ("kubectl", "kubectl/objects.sh"),
    ("kubectl", "kubectl/custom.sh"),
    ("kubectl", "kubectl/access.sh"),
    ("kubectl", "kubectl/nodes.sh"),
    ("helm", "helm/release.sh"),
    ("go", "go typed"),
    ("go", "go informers"),
    ("go", "go election"),
    ("go", "go manager"),
    ("venv/complete", "venv/bin/python python/client.py"),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/clients")
}

/// Written past the macros, whose output the test runner keeps to itself when a test passes.
fn tell(line: std::fmt::Arguments) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

struct Program {
    command: &'static str,
    /// Where what was built is.
    tools: PathBuf,
}

struct Transcript {
    text: String,
    is_good: bool,
    took: Duration,
}

/// The programs whose client is there; one line tells of the others.
async fn programs() -> Vec<Program> {
    let asked = Command::new(sources().join("setup.sh")).arg("where").output().await;
    let folder = asked.expect("bash runs").stdout;
    let tools = PathBuf::from(String::from_utf8_lossy(&folder).trim());
    let (there, missing): (Vec<_>, Vec<_>) =
        PROGRAMS.into_iter().partition(|(needs, _)| tools.join(needs).exists());
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|(_, command)| *command).collect();
        tell(format_args!(
            "NOT RUN: {} programs of clients ({}); `make clients` builds them (needs Go, Python 3 and a network)",
            missing.len(),
            names.join(", ")
        ));
    }
    there.into_iter().map(|(_, command)| Program { command, tools: tools.clone() }).collect()
}

impl Program {
    async fn run(&self, room: &Path) -> Transcript {
        let mut words = self.command.split(' ');
        let first = words.next().expect("a command");
        let built = self.tools.join(first);
        let program = if first.ends_with(".sh") { sources().join(first) } else { built };
        let path = std::env::var("PATH").unwrap_or_default();
        let begun = Instant::now();
        let running = Command::new(program)
            .args(words)
            .current_dir(sources())
            .env("PATH", format!("{}:{path}", self.tools.display()))
            .env("KUBECONFIG", room.join("kubeconfig"))
            .env("KUBECACHEDIR", room.join("cache"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // Nothing of who runs the tests: kubectl has preferences in a file, translations, and times of a zone.
            .env("HOME", room)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PROGRAM_MAX, running).await;
        let output = output.unwrap_or_else(|_| panic!("{} takes for ever", self.command));
        let output = output.expect("the program runs");
        let text = [output.stdout, output.stderr].concat();
        Transcript {
            text: String::from_utf8_lossy(&text).into_owned(),
            is_good: output.status.success(),
            took: begun.elapsed(),
        }
    }
}

/// A folder of one world, removed at its end.
struct Room(PathBuf);

impl Room {
    fn new(world: &str) -> Self {
        let name = format!("drover-clients-{world}-{}", std::process::id());
        let room = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&room).expect("a folder");
        Self(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs all programs, one after the other, against an API server with two nodes.
async fn run_all(programs: &[Program], access: &Access, room: &Room) -> Vec<Transcript> {
    let config = idle::Config { count: 2, name: "node".to_owned(), pace: PACE, seed: 1 };
    let nodes = Nodes::start(access, config).await.expect("two nodes are Ready");
    std::fs::write(room.0.join("kubeconfig"), access.kubeconfig()).expect("a kubeconfig");
    let mut transcripts = Vec::new();
    for program in programs {
        transcripts.push(program.run(&room.0).await);
    }
    nodes.stop().await;
    transcripts
}

async fn on_lab(programs: &[Program]) -> Vec<Transcript> {
    let room = Room::new("lab");
    let own = Own {
        address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        clock: Clock::start(Timestamp::now()),
        pace: PACE,
        seed: 1,
        watch_history: None,
    };
    let plane = Plane::own(own).await.expect("the lab's API server");
    let transcripts = run_all(programs, &plane.access(), &room).await;
    plane.stop().await;
    transcripts
}

/// As [`on_lab`], with what the lab's cluster has from its start; None without a real control plane.
async fn on_kube(programs: &[Program]) -> Option<Vec<Transcript>> {
    let assets = Assets::for_suite("clients", programs.len())?;
    let room = Room::new("kube");
    let files = room.0.join("control-plane");
    let real = ControlPlane::start(&assets, &files, &Options::default()).await.expect("it starts");
    let plane = Plane::foreign(real.admin_access()).await.expect("it takes the first objects");
    let transcripts = run_all(programs, &plane.access(), &room).await;
    plane.stop().await;
    Some(transcripts)
}

/// Where two transcripts part.
fn difference(lab: &str, kube: &str) -> Option<String> {
    let (lab, kube): (Vec<&str>, Vec<&str>) = (lab.lines().collect(), kube.lines().collect());
    let at = (0..lab.len().max(kube.len())).find(|at| lab.get(*at) != kube.get(*at))?;
    let mut text = String::new();
    for (world, lines) in [("lab", lab), ("kube", kube)] {
        let _ = writeln!(text, "--- {world}, line {}", at + 1);
        for line in lines.iter().take(at + CONTEXT).skip(at.saturating_sub(CONTEXT)) {
            let _ = writeln!(text, "{line}");
        }
    }
    Some(text)
}

fn end_of(transcript: &Transcript) -> String {
    let lines: Vec<&str> = transcript.text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// What is wrong with a program's two runs; empty when nothing is.
fn judge(program: &Program, lab: &Transcript, kube: Option<&Transcript>) -> String {
    let (name, mut wrong) = (program.command, String::new());
    for (world, transcript) in [("lab", Some(lab)), ("kube", kube)] {
        let Some(transcript) = transcript else { continue };
        println!("{name} on {world}: {:.1} s", transcript.took.as_secs_f64());
        if !transcript.is_good {
            let _ = writeln!(wrong, "{name} failed on {world}:\n{}\n", end_of(transcript));
        }
    }
    if let Some(apart) = kube.and_then(|kube| difference(&lab.text, &kube.text)) {
        let _ = writeln!(wrong, "{name} differs:\n{apart}");
    }
    wrong
}

#[tokio::test]
async fn foreign_clients_see_the_same_in_both_worlds() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut programs = programs().await;
    let mut wrong = String::new();
    // A real server leaves some things to chance and load: what differs twice, in new worlds, is a difference.
    for _ in 0..2 {
        wrong.clear();
        let (lab, kube) = tokio::join!(on_lab(&programs), on_kube(&programs));
        let mut doubtful = Vec::new();
        for (at, program) in programs.into_iter().enumerate() {
            let found = judge(&program, &lab[at], kube.as_ref().map(|all| &all[at]));
            if !found.is_empty() {
                wrong.push_str(&found);
                doubtful.push(program);
            }
        }
        if doubtful.is_empty() {
            return;
        }
        tell(format_args!("at first, or for good:\n{wrong}"));
        programs = doubtful;
    }
    panic!("{wrong}");
}
