//! User-data for Flatcar's own cloud-init, which knows units but no commands.

use super::cloud_init::WriteFile;
use super::files::{Unit, UnitState, yaml};
use super::{Error, Parts};
use serde::Serialize;

#[derive(Serialize)]
struct CloudConfig<'a> {
    hostname: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ssh_authorized_keys: &'a [String],
    write_files: Vec<WriteFile<'a>>,
    coreos: CoreOs<'a>,
}

#[derive(Serialize)]
struct CoreOs<'a> {
    units: Vec<SystemdUnit<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct SystemdUnit<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enable: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mask: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drop_ins: Vec<DropIn<'a>>,
}

#[derive(Serialize)]
struct DropIn<'a> {
    name: &'static str,
    content: &'a str,
}

pub(super) fn render(machine_name: &str, parts: &Parts) -> Result<Vec<u8>, Error> {
    let config = CloudConfig {
        hostname: machine_name,
        ssh_authorized_keys: &parts.keys,
        write_files: parts.files.iter().map(WriteFile::of).collect(),
        coreos: CoreOs { units: parts.units.iter().map(unit).collect() },
    };
    Ok(format!("#cloud-config\n{}", yaml("the cloud-config", &config)?).into_bytes())
}

fn unit(unit: &Unit) -> SystemdUnit<'_> {
    let whole = matches!(unit.state, UnitState::Enabled | UnitState::Present);
    let drop_in = DropIn { name: "10-drover.conf", content: &unit.content };
    SystemdUnit {
        name: &unit.name,
        enable: unit.state == UnitState::Enabled,
        mask: unit.state == UnitState::Masked,
        // It is masked or enabled from the next boot on; this one has begun already.
        command: match unit.state {
            UnitState::Enabled => Some("start"),
            UnitState::Masked => Some("stop"),
            UnitState::Present | UnitState::DropIn => None,
        },
        content: whole.then_some(&unit.content),
        drop_ins: if unit.state == UnitState::DropIn { vec![drop_in] } else { Vec::new() },
    }
}
