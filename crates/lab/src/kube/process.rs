//! A program that runs beside us and writes a log.

use super::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that tell why its program ended.
const TAIL_LINES: usize = 5;

/// A running program. It is killed when this is dropped, and when we are killed.
pub struct Process {
    name: &'static str,
    arguments: Vec<String>,
    program: PathBuf,
    log: PathBuf,
    child: Child,
    guard: Option<Guard>,
}

impl Process {
    /// Starts the program of this name in `folder`; its output is added to `NAME.log` in `logs`.
    pub fn start(
        name: &'static str,
        folder: &Path,
        logs: &Path,
        arguments: Vec<String>,
    ) -> Result<Self, Error> {
        let program = folder.join(name);
        let log = logs.join(format!("{name}.log"));
        let (child, guard) = spawn(&program, &log, &arguments)?;
        Ok(Self { name, arguments, program, log, child, guard: Some(guard) })
    }

    /// Kills it and starts it anew with the same arguments.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        let (child, guard) = spawn(&self.program, &self.log, &self.arguments)?;
        (self.child, self.guard) = (child, Some(guard));
        Ok(())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program's error if it ended by itself, with what it said last.
    pub fn check(&mut self) -> Result<(), Error> {
        let waited = self.child.try_wait().map_err(|error| Error::File(self.log.clone(), error))?;
        let Some(status) = waited else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        Err(Error::Ended { name: self.name, status, log: self.log.clone(), tail })
    }

    /// Sends it a signal; nothing happens when it has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Only "no such process" can happen here, and then there is nobody to hear it.
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it at once and waits until it is gone.
    fn kill(&mut self) {
        self.guard = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends a program when we end without a chance to: it reads from a pipe that nobody writes to and that closes with us.
struct Guard(Child);

impl Guard {
    fn of(child: &Child) -> std::io::Result<Self> {
        let guard = Command::new("/bin/sh")
            .args(["-c", r#"read -r _; kill -9 "$1""#, "guard", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(guard))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // First of all: waiting closes the pipe.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(program: &Path, log: &Path, arguments: &[String]) -> Result<(Child, Guard), Error> {
    let open = || OpenOptions::new().create(true).append(true).open(log);
    let file =
        |opened: std::io::Result<File>| opened.map_err(|error| Error::File(log.to_owned(), error));
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file(open())?)
        .stderr(file(open())?)
        .spawn();
    let mut child = started.map_err(|error| Error::File(program.to_owned(), error))?;
    match Guard::of(&child) {
        Ok(guard) => Ok((child, guard)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(Error::File(PathBuf::from("/bin/sh"), error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_program_does_not_outlive_whoever_started_it() {
        let logs = std::env::temp_dir();
        let arguments = vec!["600".to_owned()];
        let mut sleep = Process::start("sleep", Path::new("/bin"), &logs, arguments);
        let sleep = sleep.as_mut().expect("it starts");
        sleep.check().expect("it runs");
        // What the system does to our end of the pipe when we are killed.
        sleep.guard.as_mut().and_then(|guard| guard.0.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(60);
        while sleep.check().is_ok() {
            assert!(Instant::now() < deadline, "it still runs");
            std::thread::yield_now();
        }
        let _ = std::fs::remove_file(logs.join("sleep.log"));
    }
}
