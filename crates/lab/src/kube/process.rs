//! A program that runs beside us and writes a log.

use super::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that tell why its program ended.
const TAIL_LINES: usize = 5;

/// A running program. It is killed when this is dropped.
pub struct Process {
    name: &'static str,
    arguments: Vec<String>,
    program: PathBuf,
    log: PathBuf,
    child: Child,
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
        let child = spawn(&program, &log, &arguments)?;
        Ok(Self { name, arguments, program, log, child })
    }

    /// Kills it and starts it anew with the same arguments.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        self.child = spawn(&self.program, &self.log, &self.arguments)?;
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &Path, log: &Path, arguments: &[String]) -> Result<Child, Error> {
    let open = || OpenOptions::new().create(true).append(true).open(log);
    let file =
        |opened: std::io::Result<File>| opened.map_err(|error| Error::File(log.to_owned(), error));
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file(open())?)
        .stderr(file(open())?)
        .spawn()
        .map_err(|error| Error::File(program.to_owned(), error))
}
