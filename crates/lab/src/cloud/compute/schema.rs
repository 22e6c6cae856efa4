//! The first look at `POST /servers`: forms, lengths and unknown names, refused in Nova's words.

use crate::cloud::http::{Call, Reply, fault, is_uuid};
use base64::Engine as _;
use serde_json::{Map, Value};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Nova: characters of a name, a metadata key or value, a description.
const TEXT_MAX: usize = 255;
/// Nova: characters of base64.
const USER_DATA_MAX: usize = 65_535;
/// Nova: tags of one server.
pub(super) const TAGS_MAX: usize = 50;
/// Nova: characters of a tag.
const TAG_MAX: usize = 60;

/// Fields of a server with the microversion that brought them.
const FIELDS: [(&str, u16); 22] = [
    ("name", 1),
    ("flavorRef", 1),
    ("imageRef", 1),
    ("adminPass", 1),
    ("metadata", 1),
    ("networks", 1),
    ("OS-DCF:diskConfig", 1),
    ("accessIPv4", 1),
    ("accessIPv6", 1),
    ("availability_zone", 1),
    ("block_device_mapping", 1),
    ("block_device_mapping_v2", 1),
    ("config_drive", 1),
    ("key_name", 1),
    ("min_count", 1),
    ("max_count", 1),
    ("return_reservation_id", 1),
    ("security_groups", 1),
    ("user_data", 1),
    ("description", 19),
    ("tags", 52),
    ("hostname", 90),
];

/// `Invalid input for field/attribute name. Value: .. '..' is too long`.
pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Reply {
    let plain = match value {
        Value::String(text) => text.clone(),
        other => python(other),
    };
    fault(400, format!("Invalid input for field/attribute {field}. Value: {plain}. {why}"))
}

/// A value as Python writes it, which is how Nova quotes what it refuses.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::String(text) => format!("'{}'", text.replace('\'', "\\'")),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("'{name}': {}", python(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// The body of a write.
pub(super) fn body(call: &Call) -> Result<Value, Reply> {
    call.json().map_err(|_| fault(400, "Malformed request body"))
}

/// Checks the whole body of `POST /servers`.
pub(super) fn server(call: &Call, body: &Value) -> Result<(), Reply> {
    let Some(server) = body.get("server") else {
        return Err(fault(400, "'server' is a required property"));
    };
    let Some(fields) = server.as_object() else {
        let why = format!("{} is not of type 'object'", python(server));
        return Err(invalid("server", server, &why));
    };
    let mut required = vec!["name", "flavorRef"];
    if call.minor >= 37 {
        required.push("networks");
    }
    if let Some(missing) = required.into_iter().find(|name| !fields.contains_key(*name)) {
        return Err(invalid("server", server, &format!("'{missing}' is a required property")));
    }
    let known =
        |name: &str| FIELDS.iter().any(|(field, since)| *field == name && call.minor >= *since);
    if let Some(extra) = fields.keys().find(|name| !known(name)) {
        let why = format!("Additional properties are not allowed ('{extra}' was unexpected)");
        return Err(invalid("server", server, &why));
    }
    texts(fields)?;
    counts(fields)?;
    access(fields)?;
    references(fields, body)?;
    if let Some(user_data) = fields.get("user_data") {
        check_user_data(user_data)?;
    }
    if let Some(metadata) = fields.get("metadata") {
        check_metadata(metadata)?;
    }
    if let Some(tags) = fields.get("tags") {
        check_tags(tags)?;
    }
    Ok(())
}

fn too_long(field: &str, value: &Value) -> Reply {
    invalid(field, value, &format!("{} is too long", python(value)))
}

fn texts(fields: &Map<String, Value>) -> Result<(), Reply> {
    for field in ["name", "description", "key_name", "availability_zone", "hostname"] {
        let Some(value) = fields.get(field).filter(|value| !value.is_null()) else { continue };
        let Some(text) = value.as_str() else {
            return Err(invalid(
                field,
                value,
                &format!("{} is not of type 'string'", python(value)),
            ));
        };
        if text.is_empty() && field == "name" {
            return Err(invalid(field, value, "'' should be non-empty"));
        }
        if text.chars().count() > TEXT_MAX {
            return Err(too_long(field, value));
        }
    }
    check_name(fields["name"].as_str().unwrap_or_default())
}

fn counts(fields: &Map<String, Value>) -> Result<(), Reply> {
    for field in ["min_count", "max_count"] {
        let Some(value) = fields.get(field) else { continue };
        let number = || value.as_str().and_then(|text| text.parse().ok());
        let Some(number) = value.as_i64().or_else(number) else {
            let why = format!("{} is not of type 'integer', 'string'", python(value));
            return Err(invalid(field, value, &why));
        };
        if number < 1 {
            let why = format!("{} is less than the minimum of 1", python(value));
            return Err(invalid(field, value, &why));
        }
    }
    Ok(())
}

/// Checks the addresses that clients note down for themselves.
pub(super) fn access(fields: &Map<String, Value>) -> Result<(), Reply> {
    for (field, kind) in [("accessIPv4", "ipv4"), ("accessIPv6", "ipv6")] {
        let Some(value) = fields.get(field).filter(|value| !value.is_null()) else { continue };
        let text = value.as_str().unwrap_or_default();
        let right = if kind == "ipv4" {
            text.parse::<Ipv4Addr>().is_ok()
        } else {
            text.parse::<Ipv6Addr>().is_ok()
        };
        if !right {
            let why = format!("{} is not a '{kind}'", python(value));
            return Err(invalid(field, value, &why));
        }
    }
    Ok(())
}

/// Nova: printable, nothing beyond the basic plane, no blank at the ends.
pub(super) fn check_name(name: &str) -> Result<(), Reply> {
    let printable = |one: char| !one.is_control() && u32::from(one) <= 0xffff;
    if name.chars().all(printable) && name.trim() == name && !name.is_empty() {
        return Ok(());
    }
    let message = "An invalid 'name' value was provided. The name must be: printable characters. Can not start or end \
                   with whitespace.";
    Err(fault(400, message))
}

fn references(fields: &Map<String, Value>, body: &Value) -> Result<(), Reply> {
    let no_schema = |field: &str, value: &Value| {
        invalid(
            field,
            value,
            &format!("{} is not valid under any of the given schemas", python(value)),
        )
    };
    if let Some(image) = fields.get("imageRef")
        && !image.as_str().is_some_and(|image| image.is_empty() || is_uuid(image))
    {
        return Err(no_schema("imageRef", image));
    }
    let group = hinted_group(body);
    if !group.is_null() && !group.as_str().is_some_and(is_uuid) {
        return Err(no_schema("group", group));
    }
    for disk in
        fields.get("block_device_mapping_v2").and_then(Value::as_array).into_iter().flatten()
    {
        block_device(disk)?;
        if let Some(size) = disk.get("volume_size")
            && size
                .as_i64()
                .or_else(|| size.as_str().and_then(|size| size.parse().ok()))
                .is_none_or(|size| size < 1)
        {
            let why = format!("{} is less than the minimum of 1", python(size));
            return Err(invalid("volume_size", size, &why));
        }
    }
    match fields.get("networks") {
        Some(Value::Array(networks)) => networks.iter().try_for_each(network),
        Some(Value::String(word)) if word == "auto" || word == "none" => Ok(()),
        Some(other) => Err(no_schema("networks", other)),
        None => Ok(()),
    }
}

/// Nova: the words that a block device may use.
fn block_device(disk: &Value) -> Result<(), Reply> {
    for (field, words) in [
        ("source_type", ["volume", "image", "snapshot", "blank"].as_slice()),
        ("destination_type", &["local", "volume"]),
    ] {
        let Some(value) = disk.get(field) else { continue };
        if !words.iter().any(|word| value == word) {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            let why = format!("{} is not one of [{}]", python(value), words.join(", "));
            return Err(invalid(field, value, &why));
        }
    }
    Ok(())
}

/// The server group of the scheduler hints, which have two names.
pub(super) fn hinted_group(body: &Value) -> &Value {
    let hints = body.get("os:scheduler_hints").or_else(|| body.get("OS-SCH-HNT:scheduler_hints"));
    hints.map_or(&Value::Null, |hints| &hints["group"])
}

fn network(network: &Value) -> Result<(), Reply> {
    for (field, value) in network.as_object().into_iter().flatten() {
        let right = match field.as_str() {
            "uuid" | "port" => value.as_str().is_some_and(is_uuid),
            "fixed_ip" => value.as_str().is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok()),
            "tag" => value.is_string(),
            _ => false,
        };
        if !right && !value.is_null() {
            let kind = if field == "fixed_ip" { "ipv4" } else { "uuid" };
            return Err(invalid(field, value, &format!("{} is not a '{kind}'", python(value))));
        }
    }
    Ok(())
}

fn check_user_data(value: &Value) -> Result<(), Reply> {
    let Some(text) = value.as_str() else {
        return Err(invalid(
            "user_data",
            value,
            &format!("{} is not of type 'string'", python(value)),
        ));
    };
    if base64::engine::general_purpose::STANDARD.decode(text).is_err() {
        return Err(invalid("user_data", value, &format!("{} is not a 'base64'", python(value))));
    }
    if text.len() > USER_DATA_MAX {
        return Err(too_long("user_data", value));
    }
    Ok(())
}

/// Checks an object of metadata.
pub(super) fn check_metadata(metadata: &Value) -> Result<(), Reply> {
    let Some(items) = metadata.as_object() else {
        return Err(invalid(
            "metadata",
            metadata,
            &format!("{} is not of type 'object'", python(metadata)),
        ));
    };
    for (key, value) in items {
        let legal = |one: char| one.is_ascii_alphanumeric() || "-_:. ".contains(one);
        if key.is_empty() || key.len() > TEXT_MAX || !key.chars().all(legal) {
            let why =
                format!("'{key}' does not match any of the regexes: '^[a-zA-Z0-9-_:. ]{{1,255}}$'");
            return Err(invalid("metadata", metadata, &why));
        }
        let Some(text) = value.as_str() else {
            return Err(invalid(key, value, &format!("{} is not of type 'string'", python(value))));
        };
        if text.chars().count() > TEXT_MAX {
            return Err(too_long(key, value));
        }
    }
    Ok(())
}

/// Checks a list of tags.
pub(super) fn check_tags(tags: &Value) -> Result<(), Reply> {
    let Some(all) = tags.as_array() else {
        return Err(invalid("tags", tags, &format!("{} is not of type 'array'", python(tags))));
    };
    if all.len() > TAGS_MAX {
        return Err(too_long("tags", tags));
    }
    all.iter().enumerate().try_for_each(|(at, tag)| check_tag(&at.to_string(), tag))
}

/// Checks one tag.
pub(super) fn check_tag(field: &str, tag: &Value) -> Result<(), Reply> {
    let text = tag.as_str().unwrap_or_default();
    if text.is_empty() {
        return Err(invalid(field, tag, "'' is too short"));
    }
    if text.chars().count() > TAG_MAX {
        return Err(too_long(field, tag));
    }
    if text.contains([',', '/']) {
        return Err(invalid(field, tag, &format!("'{text}' does not match '^[^,/]*$'")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_quoted_as_python_does() {
        let value = json!({"a": [1, true, null, "x"], "b": "it's"});
        assert_eq!(python(&value), "{'a': [1, True, None, 'x'], 'b': \"it's\"}");
    }

    #[test]
    fn names_are_printable_and_trimmed() {
        assert!(check_name("nöde-☃").is_ok());
        for bad in ["", " a", "a ", "a\nb", "a\u{7}", "a\u{1f600}"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
