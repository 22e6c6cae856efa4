//! cloud-init: cloud-config, scripts, and MIME archives of both.

use super::machine::{File, Machine};
use super::{decode_base64, gunzip, ignition, systemd};
use serde_json::Value;

/// Does what cloud-init does with user-data; an error ends the boot before anything was done.
pub fn apply(machine: &mut Machine, text: &str) -> Result<(), String> {
    let mut config = serde_json::Map::new();
    let mut scripts = Vec::new();
    take(text, &mut config, &mut scripts)?;
    let config = Value::Object(config);
    set_host_name(machine, &config);
    // Order of cloud-init's modules: bootcmd, write_files, packages, deferred files, runcmd, scripts.
    commands(machine, "bootcmd", &config["bootcmd"])?;
    let none = Vec::new();
    let files = config["write_files"].as_array().unwrap_or(&none);
    let deferred = |file: &Value| file["defer"].as_bool().unwrap_or_default();
    for file in files.iter().filter(|file| !deferred(file)) {
        write_file(machine, file)?;
    }
    for package in config["packages"].as_array().unwrap_or(&none) {
        match package {
            Value::Array(pair) => {
                let pair: Vec<_> = pair.iter().filter_map(Value::as_str).collect();
                install_package(machine, &pair.join("="));
            }
            package => install_package(machine, package.as_str().unwrap_or_default()),
        }
    }
    for file in files.iter().filter(|file| deferred(file)) {
        write_file(machine, file)?;
    }
    if let Some(units) = config["coreos"]["units"].as_array() {
        return coreos_units(machine, units);
    }
    commands(machine, "runcmd", &config["runcmd"])?;
    for (name, script) in scripts {
        machine.script(&name, &script, &[]);
    }
    if config["power_state"]["mode"] == "reboot" {
        machine.reboot = true;
    }
    Ok(())
}

/// Flatcar's own cloud-init: units are all written before any is told what to do, and it knows no commands.
fn coreos_units(machine: &mut Machine, units: &[Value]) -> Result<(), String> {
    machine.os_image = "Flatcar Container Linux by Kinvolk";
    for unit in units {
        ignition::add_unit(machine, unit)?;
    }
    for unit in units {
        let name = unit["name"].as_str().unwrap_or_default();
        if matches!(unit["command"].as_str(), Some("start" | "restart" | "reload-or-restart")) {
            systemd::start(machine, name);
        }
    }
    Ok(())
}

/// Takes one part: what it is shows in its first line.
fn take(
    text: &str,
    config: &mut serde_json::Map<String, Value>,
    scripts: &mut Vec<(String, String)>,
) -> Result<(), String> {
    let first = text.lines().next().unwrap_or_default().trim_end();
    if first.starts_with("#cloud-config") {
        // cloud-init: of two parts with one key the later counts.
        config.extend(parse(text)?);
        Ok(())
    } else if first.starts_with("#!") {
        scripts.push((format!("part-{:03}", scripts.len() + 1), text.to_owned()));
        Ok(())
    } else if is_mime(text) {
        parts(text)?.iter().try_for_each(|part| take(part, config, scripts))
    } else {
        Err(format!(
            "cloud-init: Unhandled non-multipart (text/x-not-multipart) userdata: '{}...'",
            first.chars().take(24).collect::<String>()
        ))
    }
}

/// Whether the text is a MIME message.
pub fn is_mime(text: &str) -> bool {
    let head = text.split("\n\n").next().unwrap_or_default();
    let head = head.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
    head.lines().any(|line| line.starts_with("content-type: multipart/"))
}

fn parse(text: &str) -> Result<serde_json::Map<String, Value>, String> {
    let failed = |why: String| format!("cloud-init: Failed loading yaml blob. {why}");
    // YAML 1.1, as cloud-init reads it: 0644 is a mode.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| failed(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(serde_json::Map::new()),
        _ => Err(failed("the top level is no mapping".to_owned())),
    }
}

fn parts(text: &str) -> Result<Vec<String>, String> {
    let text = text.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let boundary = head
        .replace("\n ", " ")
        .replace("\n\t", " ")
        .split("boundary=")
        .nth(1)
        .map(|rest| {
            rest.trim_start_matches('"').split(['"', ';', '\n']).next().unwrap_or("").to_owned()
        })
        .ok_or("cloud-init: multipart user-data has no boundary")?;
    let mut found = Vec::new();
    for part in body.split(&format!("--{boundary}")).skip(1) {
        if part.starts_with("--") {
            break;
        }
        let (head, body) = part.trim_start_matches('\n').split_once("\n\n").unwrap_or(("", part));
        let coded = head.to_ascii_lowercase();
        found.push(if coded.contains("content-transfer-encoding: base64") {
            let bytes = decode_base64(body).ok_or("cloud-init: a part is no base64")?;
            String::from_utf8_lossy(&gunzip(bytes)).into_owned()
        } else {
            body.trim_start_matches('\n').to_owned()
        });
    }
    Ok(found)
}

fn set_host_name(machine: &mut Machine, config: &Value) {
    let text = |key: &str| config[key].as_str().filter(|name| !name.is_empty());
    let prefers_long = config["prefer_fqdn_over_hostname"].as_bool().unwrap_or_default();
    let Some(name) = (if prefers_long {
        text("fqdn").or(text("hostname"))
    } else {
        text("hostname").or(text("fqdn"))
    }) else {
        return;
    };
    let short = name.split('.').next().unwrap_or(name);
    machine.host_name = if prefers_long { name } else { short }.to_owned();
    let name = format!("{}\n", machine.host_name);
    machine.write("/etc/hostname", File { content: name.into_bytes(), mode: 0o644 });
}

fn write_file(machine: &mut Machine, file: &Value) -> Result<(), String> {
    let Some(path) = file["path"].as_str() else {
        return Err("cloud-init: write_files: a file without path".to_owned());
    };
    let raw = match &file["content"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let encoding = file["encoding"].as_str().unwrap_or("text/plain").to_ascii_lowercase();
    let broken = || format!("cloud-init: write_files: {path}: content is not {encoding}");
    let content = match encoding.as_str() {
        "b64" | "base64" => decode_base64(&raw).ok_or_else(broken)?,
        "gz+b64" | "gzip+b64" | "gz+base64" | "gzip+base64" => {
            let packed = decode_base64(&raw).ok_or_else(broken)?;
            if !packed.starts_with(&super::GZIP_MAGIC) {
                return Err(broken());
            }
            gunzip(packed)
        }
        "gz" | "gzip" => gunzip(raw.into_bytes()),
        _ => raw.into_bytes(),
    };
    let mode = match &file["permissions"] {
        Value::String(octal) => u32::from_str_radix(octal.trim_start_matches("0o"), 8).ok(),
        Value::Number(number) => number.as_u64().and_then(|mode| u32::try_from(mode).ok()),
        _ => None,
    };
    if file["append"].as_bool().unwrap_or_default() {
        machine.append(path, &content);
    } else {
        machine.write(path, File { content, mode: mode.unwrap_or(0o644) });
    }
    Ok(())
}

fn commands(machine: &mut Machine, key: &str, commands: &Value) -> Result<(), String> {
    let Value::Array(commands) = commands else {
        return match commands {
            Value::Null => Ok(()),
            _ => Err(format!("cloud-init: Input to shellify was type '{key}'. Expected list.")),
        };
    };
    let mut script = String::new();
    for command in commands {
        match command {
            Value::String(line) => script.push_str(line),
            Value::Array(words) => {
                let words = words.iter().map(|word| match word {
                    Value::String(word) => format!("'{}'", word.replace('\'', "'\\''")),
                    other => other.to_string(),
                });
                script.push_str(&words.collect::<Vec<_>>().join(" "));
            }
            _ => return Err(format!("cloud-init: {key}: a command is neither text nor a list")),
        }
        script.push('\n');
    }
    machine.script(key, &script, &[]);
    Ok(())
}

/// A package of a kubelet brings the binary and its unit; the version must be told, `kubelet=1.30.3-1.1`.
pub fn install_package(machine: &mut Machine, package: &str) {
    let Some(version) = package.strip_prefix("kubelet=") else { return };
    let version = version.split('-').next().unwrap_or(version);
    let origin = format!("package kubelet v{version}");
    machine.write("/usr/bin/kubelet", File::from_origin(&origin, 0o755));
    let unit = "[Service]\nExecStart=/usr/bin/kubelet\n";
    let unit = File { content: unit.as_bytes().to_vec(), mode: 0o644 };
    machine.write("/usr/lib/systemd/system/kubelet.service", unit);
    // Debian: a package enables its service.
    systemd::enable(machine, "kubelet.service");
}
