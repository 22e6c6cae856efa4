//! User-data for systems that boot with Ignition (specification 3.3).

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
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Replacement>,
}

/// Another configuration that takes the place of this one.
#[derive(Serialize)]
struct Replacement {
    replace: Resource,
}

/// How files are carried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Each by itself.
    Each,
    /// As they are, for the whole to be packed: small files of the same words pack better together.
    Whole,
}

const VERSION: &str = "3.3.0";

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

pub(super) fn render(parts: &Parts, packing: Packing) -> Result<Vec<u8>, Error> {
    let user = User { name: USER, ssh_authorized_keys: &parts.keys };
    let config = Config {
        ignition: Ignition { version: VERSION, config: None },
        passwd: (!parts.keys.is_empty()).then_some(Passwd { users: [user] }),
        storage: Storage { files: parts.files.iter().map(|file| stored(file, packing)).collect() },
        systemd: Systemd { units: parts.units.iter().map(unit).collect() },
    };
    let bytes = json(&config)?;
    if packing == Packing::Each {
        return Ok(bytes);
    }
    let replace = packed(&gzip(&bytes));
    json(&serde_json::json!({
        "ignition": Ignition { version: VERSION, config: Some(Replacement { replace }) },
    }))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|source| Error::Serialise {
        document: "the Ignition configuration",
        source: Box::new(source),
    })
}

fn stored(file: &File, packing: Packing) -> StoredFile<'_> {
    let zipped = gzip(file.content.as_bytes());
    let contents = if packing == Packing::Whole {
        Resource { compression: None, source: format!("data:,{}", escaped(&file.content)) }
    } else if zipped.len() < file.content.len() {
        packed(&zipped)
    } else {
        let source = format!("data:;base64,{}", base64(file.content.as_bytes()));
        Resource { compression: None, source }
    };
    StoredFile { path: &file.path, mode: file.mode, overwrite: true, contents }
}

fn packed(zipped: &[u8]) -> Resource {
    let source = format!("data:;base64,{}", base64(zipped));
    Resource { compression: Some("gzip"), source }
}

/// A text as it may stand in a URL (RFC 2397: all but unreserved characters are escaped).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
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
