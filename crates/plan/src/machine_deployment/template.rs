//! When two templates are the same, and what the set of a template is called.

use crate::in_place;
use drover_api::{MachineTemplate, labels};
use serde_json::Value;

/// Whether two templates are the same. Any difference counts, `kubectl.kubernetes.io/restartedAt` too;
/// only the hash label is Drover's own.
pub(super) fn is_same(a: &MachineTemplate, b: &MachineTemplate) -> bool {
    let labels = |template: &MachineTemplate| {
        let mut labels = template.metadata.labels.clone();
        labels.remove(labels::TEMPLATE_HASH);
        labels
    };
    let rest = |template: &MachineTemplate| {
        let mut metadata = template.metadata.clone();
        metadata.labels.clear();
        metadata
    };
    labels(a) == labels(b) && rest(a) == rest(b) && a.spec == b.spec
}

/// A merge patch that brings a set's template to the present one, when they are not the same: the set is of
/// the same servers, and keeps the hash it was named by.
pub(super) fn taken_over(of_set: &MachineTemplate, present: &MachineTemplate) -> Option<Value> {
    if is_same(of_set, present) {
        return None;
    }
    let mut next = present.clone();
    if let Some(hash) = of_set.metadata.labels.get(labels::TEMPLATE_HASH) {
        next.metadata.labels.insert(labels::TEMPLATE_HASH.to_owned(), hash.clone());
    }
    let plain = |it| serde_json::to_value(it).expect("a template is plain data");
    Some(in_place::merge_patch(&plain(of_set), &plain(&next)))
}

/// The value of the label `machine-template-hash`: equal for equal templates and collision counts.
pub(super) fn hash(template: &MachineTemplate, collisions: u32) -> String {
    let value = serde_json::to_value(template).expect("a template is plain data");
    let mut text = String::new();
    write_canonically(&value, &mut text);
    if collisions > 0 {
        text.push_str(&collisions.to_string());
    }
    fnv_1a(text.as_bytes()).to_string()
}

/// The name of the set with this hash, within Kubernetes' alphabet without vowels.
pub(super) fn set_name(deployment: &str, hash: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let suffix = hash.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
    format!("{deployment}-{}", suffix.collect::<String>())
}

fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// With sorted keys, so that the hash does not depend on the order in which a manifest was written.
fn write_canonically(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in fields {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonically(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonically(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}
