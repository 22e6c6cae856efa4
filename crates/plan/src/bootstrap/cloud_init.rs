//! User-data for systems that boot with cloud-init.

use super::files::{File, UnitState, base64, gzip, yaml};
use super::{Error, Parts};
use serde::Serialize;

/// Files longer than this many bytes are compressed; below it the words stay readable.
const PLAIN_BYTES_MAX: usize = 1024;

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
    write_files: Vec<WriteFile<'a>>,
    runcmd: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct WriteFile<'a> {
    path: String,
    owner: &'static str,
    permissions: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    content: std::borrow::Cow<'a, str>,
}

pub(super) fn render(
    machine_name: &str,
    parts: &Parts,
    dist_upgrade: bool,
) -> Result<Vec<u8>, Error> {
    let unit_files = parts.units.iter().filter_map(|unit| match unit.state {
        UnitState::Enabled | UnitState::Present => {
            Some(write_file(format!("/etc/systemd/system/{}", unit.name), 0o644, &unit.content))
        }
        UnitState::DropIn => Some(write_file(
            format!("/etc/systemd/system/{}.d/10-drover.conf", unit.name),
            0o644,
            &unit.content,
        )),
        UnitState::Masked => None,
    });
    let files = parts
        .files
        .iter()
        .map(|File { path, mode, content }| write_file(path.clone(), *mode, content));
    let config = CloudConfig {
        hostname: machine_name,
        prefer_fqdn_over_hostname: true,
        ssh_authorized_keys: &parts.keys,
        ssh_pwauth: false,
        package_upgrade: dist_upgrade,
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

fn write_file(path: String, mode: u32, content: &str) -> WriteFile<'_> {
    let plain = content.len() <= PLAIN_BYTES_MAX;
    WriteFile {
        path,
        owner: "root:root",
        permissions: format!("{mode:04o}"),
        encoding: (!plain).then_some("gz+b64"),
        content: if plain { content.into() } else { base64(&gzip(content)).into() },
    }
}
