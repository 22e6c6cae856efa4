//! User-data for systems that boot with cloud-init.

use super::files::{File, UnitState, yaml};
use super::{Error, Parts};
use serde::Serialize;

#[derive(Serialize)]
struct CloudConfig<'a> {
    hostname: &'a str,
    /// cloud-init: a name with dots is cut at the first one without this.
    prefer_fqdn_over_hostname: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ssh_authorized_keys: &'a [String],
    ssh_pwauth: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    package_upgrade: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    package_reboot_if_required: bool,
    write_files: Vec<WriteFile<'a>>,
    runcmd: Vec<Vec<String>>,
}

#[derive(Serialize)]
pub(super) struct WriteFile<'a> {
    path: String,
    owner: &'static str,
    permissions: String,
    content: &'a str,
}

impl<'a> WriteFile<'a> {
    pub fn of(file: &'a File) -> Self {
        Self::new(file.path.clone(), file.mode, &file.content)
    }

    fn new(path: String, mode: u32, content: &'a str) -> Self {
        Self { path, owner: "root:root", permissions: format!("{mode:04o}"), content }
    }
}

pub(super) fn render(
    machine_name: &str,
    parts: &Parts,
    dist_upgrade: bool,
) -> Result<Vec<u8>, Error> {
    let unit_files = parts.units.iter().filter_map(|unit| match unit.state {
        UnitState::Enabled | UnitState::Present => {
            Some(WriteFile::new(format!("/etc/systemd/system/{}", unit.name), 0o644, &unit.content))
        }
        UnitState::DropIn => Some(WriteFile::new(
            format!("/etc/systemd/system/{}.d/10-drover.conf", unit.name),
            0o644,
            &unit.content,
        )),
        UnitState::Masked => None,
    });
    let files = parts.files.iter().map(WriteFile::of);
    let config = CloudConfig {
        hostname: machine_name,
        prefer_fqdn_over_hostname: true,
        ssh_authorized_keys: &parts.keys,
        ssh_pwauth: false,
        package_upgrade: dist_upgrade,
        package_reboot_if_required: dist_upgrade,
        write_files: files.chain(unit_files).collect(),
        runcmd: commands(parts),
    };
    Ok(format!("#cloud-config\n{}", yaml("the cloud-config", &config)?).into_bytes())
}

/// What makes systemd take note of the units. Nothing here waits: cloud-init itself is a unit, and
/// one that waits for another may wait for itself.
fn commands(parts: &Parts) -> Vec<Vec<String>> {
    let systemctl = |words: &[&str]| {
        std::iter::once("systemctl").chain(words.iter().copied()).map(str::to_owned).collect()
    };
    let mut commands: Vec<Vec<String>> = vec![systemctl(&["daemon-reload"])];
    commands.extend(parts.units.iter().filter_map(|unit| match unit.state {
        UnitState::Enabled => Some(systemctl(&["enable", "--now", "--no-block", &unit.name])),
        UnitState::Masked => Some(systemctl(&["mask", "--now", &unit.name])),
        UnitState::Present | UnitState::DropIn => None,
    }));
    commands
}
