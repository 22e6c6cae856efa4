//! A program beside us: what it takes of memory and processor (Linux: `/proc/PID`).

use anyhow::Context;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Linux: clock ticks in a second of `/proc/PID/stat`.
const TICKS: f64 = 100.0;

/// A running manager. It is killed when this is dropped.
pub struct Program(Child);

impl Program {
    /// `drover manager` with its default flags, and these files.
    pub fn manager(binary: &Path, kubeconfig: &Path, clouds: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::create(kubeconfig.with_file_name("manager.log"))?;
        let mut command = Command::new(binary);
        command.args(["manager", "--kubeconfig"]).arg(kubeconfig);
        command.env("OS_CLIENT_CONFIG_FILE", clouds).env("OS_CLOUD", "drover");
        // As in a Pod, whose name outlives its containers.
        command.env("POD_NAME", "drover-0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        Ok(Self(child))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Resident memory in MiB.
pub fn resident_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Seconds of processor time so far, in user and kernel mode.
pub fn processor_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field is the program's name in brackets and may hold spaces.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks =
        after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}
