//! Ignition: files, links and units of a first boot.

use super::machine::{File, Machine};
use super::{decode_base64, gunzip, systemd};
use serde_json::Value;

/// Does what Ignition does; an error leaves the machine in its emergency shell.
pub fn apply(machine: &mut Machine, config: &Value) -> Result<(), String> {
    let version = config["ignition"]["version"].as_str().unwrap_or_default();
    if !version.starts_with("3.") && !version.starts_with("2.") {
        return Err(format!("Ignition failed: unsupported config version \"{version}\""));
    }
    let replace = &config["ignition"]["config"]["replace"];
    if replace["source"].is_string() {
        let text = resource(replace).map_err(|why| format!("Ignition failed: replace: {why}"))?;
        let other = serde_json::from_slice(&text)
            .map_err(|error| format!("Ignition failed: replace: error at {error}"))?;
        return apply(machine, &other);
    }
    let none = Vec::new();
    for file in config["storage"]["files"].as_array().unwrap_or(&none) {
        write(machine, file)?;
    }
    for link in config["storage"]["links"].as_array().unwrap_or(&none) {
        let (Some(path), Some(target)) = (link["path"].as_str(), link["target"].as_str()) else {
            return Err("Ignition failed: a link without path or target".to_owned());
        };
        machine.links.insert(path.to_owned(), target.to_owned());
    }
    for unit in config["systemd"]["units"].as_array().unwrap_or(&none) {
        add_unit(machine, unit)?;
    }
    if let Some(file) = machine.file("/etc/hostname") {
        let name = file.text();
        name.trim().clone_into(&mut machine.host_name);
    }
    systemd::start_enabled(machine);
    Ok(())
}

fn write(machine: &mut Machine, file: &Value) -> Result<(), String> {
    let Some(path) = file["path"].as_str().filter(|path| path.starts_with('/')) else {
        return Err(format!("Ignition failed: path {} is not absolute", file["path"]));
    };
    let mode = file["mode"].as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
    let contents = &file["contents"];
    if contents.is_object() {
        let content =
            resource(contents).map_err(|why| format!("Ignition failed: {path}: {why}"))?;
        machine.write(path, File { content, mode });
    }
    if let Value::Array(more) = &file["append"] {
        for contents in more {
            let content =
                resource(contents).map_err(|why| format!("Ignition failed: {path}: {why}"))?;
            machine.append(path, &content);
        }
    }
    Ok(())
}

fn resource(contents: &Value) -> Result<Vec<u8>, String> {
    let source = contents["source"].as_str().unwrap_or("data:,");
    let Some(data) = source.strip_prefix("data:") else {
        return Err(format!("source {source} cannot be fetched here"));
    };
    let (kind, data) = data.split_once(',').ok_or("data URL without a comma")?;
    let bytes = if kind.ends_with(";base64") {
        // Percent signs may stand for the characters that a URL does not like.
        decode_base64(&String::from_utf8_lossy(&percent(data))).ok_or("data URL is no base64")?
    } else {
        percent(data)
    };
    match contents["compression"].as_str() {
        Some("gzip") if !bytes.starts_with(&super::GZIP_MAGIC) => Err("content is not gzip".into()),
        Some("gzip") => Ok(gunzip(bytes)),
        Some("") | None => Ok(bytes),
        Some(other) => Err(format!("unsupported compression \"{other}\"")),
    }
}

fn percent(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let code = (bytes[i] == b'%')
            .then(|| text.get(i + 1..i + 3).and_then(|code| u8::from_str_radix(code, 16).ok()))
            .flatten();
        out.push(code.unwrap_or(bytes[i]));
        i += if code.is_some() { 3 } else { 1 };
    }
    out
}

/// Adds a unit in the words of Ignition, or in those of Flatcar's cloud-init.
pub fn add_unit(machine: &mut Machine, unit: &Value) -> Result<(), String> {
    let Some(name) = unit["name"].as_str() else {
        return Err("Ignition failed: a unit without name".to_owned());
    };
    let text = |text: &str| File { content: text.as_bytes().to_vec(), mode: 0o644 };
    let contents =
        |of: &Value| of["contents"].as_str().or(of["content"].as_str()).map(str::to_owned);
    if let Some(contents) = contents(unit) {
        machine.write(&format!("/etc/systemd/system/{name}"), text(&contents));
    }
    let drop_ins = unit["dropins"].as_array().or(unit["drop-ins"].as_array());
    for drop_in in drop_ins.unwrap_or(&Vec::new()) {
        let (Some(file), Some(contents)) = (drop_in["name"].as_str(), contents(drop_in)) else {
            continue;
        };
        machine.write(&format!("/etc/systemd/system/{name}.d/{file}"), text(&contents));
    }
    if unit["mask"].as_bool().unwrap_or_default() {
        machine.masked.insert(name.to_owned());
    }
    match unit["enabled"].as_bool().or(unit["enable"].as_bool()) {
        Some(true) => {
            systemd::enable(machine, name);
        }
        Some(false) => {
            machine.enabled.remove(name);
        }
        None => {}
    }
    Ok(())
}
