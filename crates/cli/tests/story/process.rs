//! The binary as a child process that says when it is ready, and ends when it is asked to.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a part may take to end in order, on a busy machine and with servers that it takes along.
const END_MAX: Duration = Duration::from_secs(300);

/// A running `drover`, asked to end when dropped.
pub struct Drover {
    process: Child,
    pub data: PathBuf,
    /// What it said until it was ready.
    pub said: Vec<String>,
}

impl Drover {
    /// Starts it with `--data` of its own; it is ready when it has named the file with which to reach it.
    pub fn start(name: &str, args: &[&str]) -> Self {
        let data = scratch(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        let (process, said) =
            started(command.args(args).arg("--data").arg(&data).stdout(Stdio::piped()));
        Self { process, data, said }
    }

    /// Asks it to end, and tells how it ended.
    pub fn stop(mut self) -> Option<i32> {
        interrupt(&mut self.process)
    }
}

impl Drop for Drover {
    fn drop(&mut self) {
        // In order, so that what it started ends with it.
        if matches!(self.process.try_wait(), Ok(None)) {
            let pid = self.process.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
        }
        if ended(&mut self.process).is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// An empty folder's path for this name and process.
pub fn scratch(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Starts a command with piped output and waits until it says how it is reached; what it said till then.
pub fn started(command: &mut Command) -> (Child, Vec<String>) {
    let mut process = command.spawn().expect("the binary starts");
    let stdout = process.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut said = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        said.push(line);
        if said
            .last()
            .is_some_and(|line| line.starts_with("export OS_") || line.starts_with("export KUBE"))
        {
            break;
        }
    }
    let is_ready = said.last().is_some_and(|line| line.starts_with("export "));
    assert!(is_ready, "it ended before it said how it is reached: {said:?}");
    // Somebody must go on reading, or the process stops when the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    (process, said)
}

/// Asks a process to end as Ctrl-C does, and tells how it ended.
pub fn interrupt(process: &mut Child) -> Option<i32> {
    let pid = process.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(sent.success());
    ended(process).expect("it ends in time").code()
}

/// How it ended, if it did in time.
fn ended(process: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + END_MAX;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().expect("a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// A file that is there and that nobody but its owner may read.
pub fn assert_secret(path: &Path) {
    let metadata =
        std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{}", path.display());
}
