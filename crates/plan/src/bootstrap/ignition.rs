//! User-data for systems that boot with Ignition (specification 3.4).

use super::files::{File, Unit, UnitState, base64, gzip};
use super::{Error, Parts};
use serde::Serialize;

/// Flatcar: the user that may log in.
const USER: &str = "core";

#[derive(Serialize)]
struct Config<'a> {
    ignition: Ignition,
    #[serde(skip_serializing_if = "Option::is_none")]
    passwd: Option<Passwd<'a>>,
    storage: Storage<'a>,
    systemd: Systemd<'a>,
}

#[derive(Serialize)]
struct Ignition {
    version: &'static str,
}

#[derive(Serialize)]
struct Passwd<'a> {
    users: [User<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct User<'a> {
    name: &'static str,
    ssh_authorized_keys: &'a [String],
}

#[derive(Serialize)]
struct Storage<'a> {
    files: Vec<StoredFile<'a>>,
}

#[derive(Serialize)]
struct StoredFile<'a> {
    path: &'a str,
    mode: u32,
    overwrite: bool,
    contents: Resource,
}

#[derive(Serialize)]
struct Resource {
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'static str>,
    source: String,
}

#[derive(Serialize)]
struct Systemd<'a> {
    units: Vec<SystemdUnit<'a>>,
}

#[derive(Serialize)]
struct SystemdUnit<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enabled: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mask: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropins: Vec<DropIn<'a>>,
}

#[derive(Serialize)]
struct DropIn<'a> {
    name: &'static str,
    contents: &'a str,
}

pub(super) fn render(parts: &Parts) -> Result<Vec<u8>, Error> {
    let user = User { name: USER, ssh_authorized_keys: &parts.keys };
    let config = Config {
        ignition: Ignition { version: "3.4.0" },
        passwd: (!parts.keys.is_empty()).then_some(Passwd { users: [user] }),
        storage: Storage { files: parts.files.iter().map(stored).collect() },
        systemd: Systemd { units: parts.units.iter().map(unit).collect() },
    };
    serde_json::to_vec(&config).map_err(|source| Error::Serialise {
        document: "the Ignition configuration",
        source: Box::new(source),
    })
}

fn stored(file: &File) -> StoredFile<'_> {
    let packed = gzip(&file.content);
    let smaller = packed.len() < file.content.len();
    let bytes = if smaller { &packed[..] } else { file.content.as_bytes() };
    StoredFile {
        path: &file.path,
        mode: file.mode,
        overwrite: true,
        contents: Resource {
            compression: smaller.then_some("gzip"),
            source: format!("data:;base64,{}", base64(bytes)),
        },
    }
}

fn unit(unit: &Unit) -> SystemdUnit<'_> {
    let whole = matches!(unit.state, UnitState::Enabled | UnitState::Present);
    let drop_in = DropIn { name: "10-drover.conf", contents: &unit.content };
    SystemdUnit {
        name: &unit.name,
        enabled: unit.state == UnitState::Enabled,
        mask: unit.state == UnitState::Masked,
        contents: whole.then_some(&unit.content),
        dropins: if unit.state == UnitState::DropIn { vec![drop_in] } else { Vec::new() },
    }
}
