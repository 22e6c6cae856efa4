//! Bodies in Kubernetes' protobuf, which typed clients such as `kubectl create` and `drain` send, read as the JSON they mean.
//!
//! Answers are JSON: those clients accept it beside protobuf.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The media type.
pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// What each body begins with (Kubernetes: `runtime/serializer/protobuf`).
const MAGIC: &[u8] = b"k8s\0";

/// All messages: the field numbers of `k8s.io/api` 0.36, which only ever adds to them.
const MESSAGES: &str = include_str!("data/protobuf.txt");

/// Reads a body.
///
/// # Errors
/// Says what cannot be read when it is cut, of an unknown kind or no protobuf at all.
pub(super) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or("it does not begin with the prefix k8s")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Payload::Bytes(bytes)) => {
                (api_version, kind) = (text_in(bytes, 1)?, text_in(bytes, 2)?);
            }
            (2, Payload::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = match kind.as_str() {
        // Every group takes the same options.
        "DeleteOptions" => "meta.DeleteOptions".to_owned(),
        _ => format!("{api_version}.{kind}"),
    };
    let mut object = message(&name, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// What a field holds on the wire.
enum Payload<'a> {
    Number(u64),
    Real(f64),
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    fn bytes(&self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Real(_) => Err("a number where bytes belong".to_owned()),
        }
    }

    /// Negative numbers are written in two's complement of 64 bits.
    fn number(&self) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(number.cast_signed()),
            Self::Bytes(_) | Self::Real(_) => Err("no whole number where one belongs".to_owned()),
        }
    }

    /// A JSON number as Go writes it: without a point where it is whole.
    fn real(&self) -> Result<Value, String> {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "whole and small as just seen")]
            Self::Real(real) if real.fract() == 0.0 && real.abs() < 1e15 => {
                Ok((*real as i64).into())
            }
            Self::Real(real) => Ok((*real).into()),
            Self::Number(_) | Self::Bytes(_) => Err("no real number where one belongs".to_owned()),
        }
    }
}

/// The fields of a message, with their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self) -> Option<(u64, Payload<'a>)> {
        let tag = self.varint()?;
        let payload = match tag & 7 {
            0 => Payload::Number(self.varint()?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Payload::Real(f64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Payload::Bytes(bytes)
            }
            // No message of Kubernetes' built-in kinds has numbers of 32 bits or groups.
            _ => return None,
        };
        Some((tag >> 3, payload))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Payload<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let taken = self.take().ok_or_else(|| "it is cut or malformed".to_owned());
        if taken.is_err() {
            self.0 = &[];
        }
        Some(taken)
    }
}

/// Finds name and type of a field in a message's line.
fn field_of(line: &'static str, number: u64) -> Option<(&'static str, &'static str)> {
    line.split(", ").find_map(|field| {
        let mut words = field.split(' ');
        (words.next()?.parse::<u64>().ok()? == number).then_some((words.next()?, words.next()?))
    })
}

fn message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let line = MESSAGES
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| format!("no kind {name} is known"))?
        .trim_start();
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, payload) = field?;
        // Kubernetes: a field that a newer client knows is passed over.
        let Some((name, kind)) = field_of(line, number) else { continue };
        if name == "~" {
            object.extend(message(kind, payload.bytes()?)?);
        } else if let Some(item) = kind.strip_prefix("[]") {
            let list = object.entry(name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value(item, &payload)?);
            }
        } else if let Some(item) = kind.strip_prefix("{}") {
            let (key, value) = entry(item, payload.bytes()?)?;
            let map = object.entry(name).or_insert_with(|| json!({}));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, value);
            }
        } else if let Some(kind) = kind.strip_prefix('*') {
            object.insert(name.to_owned(), value(kind, &payload)?);
        } else {
            let value = value(kind, &payload)?;
            let zero = match kind {
                "string" => value == "",
                "bool" => value == false,
                "int" => value == 0,
                _ => value.is_null(),
            };
            if !zero {
                object.insert(name.to_owned(), value);
            }
        }
    }
    Ok(object)
}

fn entry(kind: &str, bytes: &[u8]) -> Result<(String, Value), String> {
    let (mut key, mut held) = (String::new(), Value::Null);
    for field in Fields(bytes) {
        match field? {
            (1, payload) => key = text(payload.bytes()?)?,
            (2, payload) => held = value(kind, &payload)?,
            _ => {}
        }
    }
    Ok((key, held))
}

/// The JSON of one value; null for a time that is not set.
fn value(kind: &str, payload: &Payload<'_>) -> Result<Value, String> {
    Ok(match kind {
        "bool" => Value::Bool(payload.number()? != 0),
        "int" => payload.number()?.into(),
        "string" => text(payload.bytes()?)?.into(),
        "bytes" => STANDARD.encode(payload.bytes()?).into(),
        "quantity" => text_in(payload.bytes()?, 1)?.into(),
        "time" => moment(payload.bytes()?, "%Y-%m-%dT%H:%M:%SZ")?,
        "microtime" => moment(payload.bytes()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        "intorstring" => match number_in(payload.bytes()?, 1)? {
            0 => number_in(payload.bytes()?, 2)?.into(),
            _ => text_in(payload.bytes()?, 3)?.into(),
        },
        "texts" => {
            let all = Fields(payload.bytes()?).map(|field| text(field?.1.bytes()?));
            all.collect::<Result<Vec<_>, _>>()?.into()
        }
        "double" => payload.real()?,
        "schemaorbool" | "schemaorlist" | "schemaortexts" => schema_or(kind, payload.bytes()?)?,
        "raw" => {
            let json = text_in(payload.bytes()?, 1)?;
            serde_json::from_str(&json).map_err(|error| error.to_string())?
        }
        _ => Value::Object(message(kind, payload.bytes()?)?),
    })
}

/// The schema in one of the places where JSON Schema also takes a bool or a list.
fn schema_or(kind: &str, bytes: &[u8]) -> Result<Value, String> {
    const SCHEMA: &str = "apiextensions.k8s.io/v1.JSONSchemaProps";
    let (mut schema, mut allows, mut list) = (None, false, Vec::new());
    for field in Fields(bytes) {
        match (field?, kind) {
            ((1, payload), "schemaorbool") => allows = payload.number()? != 0,
            ((2, payload), "schemaorbool") | ((1, payload), _) => {
                schema = Some(value(SCHEMA, &payload)?);
            }
            ((2, payload), "schemaorlist") => list.push(value(SCHEMA, &payload)?),
            ((2, payload), _) => list.push(text(payload.bytes()?)?.into()),
            _ => {}
        }
    }
    let other = if kind == "schemaorbool" { allows.into() } else { Value::Array(list) };
    Ok(schema.unwrap_or(other))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a string is not UTF-8".to_owned())
}

fn text_in(message: &[u8], wanted: u64) -> Result<String, String> {
    let mut found = String::new();
    for field in Fields(message) {
        let (number, payload) = field?;
        if number == wanted {
            found = text(payload.bytes()?)?;
        }
    }
    Ok(found)
}

fn number_in(message: &[u8], wanted: u64) -> Result<i64, String> {
    let mut found = 0;
    for field in Fields(message) {
        let (number, payload) = field?;
        if number == wanted {
            found = payload.number()?;
        }
    }
    Ok(found)
}

fn moment(bytes: &[u8], form: &str) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(number_in(bytes, 2)?).unwrap_or(0);
    let time = Timestamp::new(number_in(bytes, 1)?, nanos).map_err(|error| error.to_string())?;
    Ok(time.strftime(form).to_string().into())
}

#[cfg(test)]
mod tests;
