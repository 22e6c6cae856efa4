//! What a machine makes of its user-data: the files, scripts and units that lead to a running kubelet, or do not.

mod cloud_init;
mod ignition;
mod join;
mod machine;
mod programs;
mod script;
mod shell;
mod systemd;
#[cfg(test)]
mod tests;

pub use join::{Join, Taint};

use base64::Engine as _;
use machine::Machine;
use std::io::Read as _;

/// How a gzip stream begins.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Most bytes that compressed content may unfold to.
const UNPACKED_MAX: u64 = 8 << 20;

/// What came of a boot.
pub struct Boot {
    /// What the machine printed, the last line being why it does not join, if it does not.
    pub console: Vec<String>,
    /// How its kubelet joins a cluster; None when none was started that could.
    pub join: Option<Join>,
}

/// Boots a machine of this name with this user-data and nothing else.
#[must_use]
pub fn boot(user_data: &[u8], host_name: &str) -> Boot {
    let mut machine = Machine::named(host_name);
    let text = String::from_utf8_lossy(&gunzip(user_data.to_vec())).into_owned();
    let prepared = prepare(&mut machine, &text);
    if machine.reboot && machine.kubelet.is_none() {
        machine.started.clear();
        systemd::start_enabled(&mut machine);
    }
    let join = match (prepared, machine.kubelet.clone()) {
        (Err(why), _) => Err(why),
        (Ok(()), None) => Err(why_no_kubelet(&machine)),
        (Ok(()), Some(started)) => join::read(&machine, &started),
    };
    match join {
        Ok(join) => Boot { console: machine.console, join: Some(join) },
        Err(why) => {
            machine.say(why);
            Boot { console: machine.console, join: None }
        }
    }
}

fn prepare(machine: &mut Machine, text: &str) -> Result<(), String> {
    let start = text.trim_start();
    if start.is_empty() {
        return Err("no user-data: nothing installs or starts a kubelet".to_owned());
    }
    machine.os_image = "Ubuntu 24.04 LTS";
    if start.starts_with('{') {
        machine.os_image = "Flatcar Container Linux by Kinvolk";
        let config = serde_json::from_str(start)
            .map_err(|error| format!("Ignition failed: error at {error}"))?;
        return ignition::apply(machine, &config);
    }
    cloud_init::apply(machine, text)
}

/// The nearest cause that can be named for a machine on which no kubelet runs.
fn why_no_kubelet(machine: &Machine) -> String {
    let unit = "kubelet.service";
    if machine.unit(unit).is_none() {
        return "no kubelet runs: there is no kubelet.service".to_owned();
    }
    if machine.masked.contains(unit) {
        return "no kubelet runs: kubelet.service is masked".to_owned();
    }
    let installed = machine
        .files
        .iter()
        .any(|(path, file)| path.ends_with("/kubelet") && file.origin().is_some());
    if !installed {
        return "no kubelet runs: nothing installed a kubelet binary".to_owned();
    }
    if machine.enabled.contains(unit) {
        return "no kubelet runs: kubelet.service is enabled, but nothing started it".to_owned();
    }
    "no kubelet runs: kubelet.service is neither enabled nor started".to_owned()
}

/// Unpacks what is gzip, as cloud-init and Ignition do; anything else stays as it is.
fn gunzip(bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.starts_with(&GZIP_MAGIC) {
        return bytes;
    }
    let mut out = Vec::new();
    let unpacked = flate2::read::MultiGzDecoder::new(&bytes[..]);
    match unpacked.take(UNPACKED_MAX).read_to_end(&mut out) {
        Ok(_) => out,
        Err(_) => bytes,
    }
}

/// Decodes base64 as files of cloud-init and kubeconfigs hold it, line breaks allowed.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    base64::engine::general_purpose::STANDARD.decode(compact).ok()
}
