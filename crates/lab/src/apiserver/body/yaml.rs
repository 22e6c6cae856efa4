//! YAML 1.1, as the real server reads it: `y` and `on` are booleans, and keys that come twice are told of by line.

use super::Decoded;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::Value;
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What the complaint about keys that come twice begins with; a line for each follows.
const REPEATED: &str = "yaml: unmarshal errors:\n  ";

/// Reads YAML; of keys that come twice the last counts, and one complaint names them all.
pub(in crate::apiserver) fn yaml(body: &[u8]) -> Result<Decoded, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("yaml: {error}"))?;
    if let Ok(object) = read::<Value>(text, DuplicateKeyPolicy::Error) {
        return Ok(Decoded { object, complaints: Vec::new() });
    }
    let object = read::<Value>(text, DuplicateKeyPolicy::LastWins)?;
    let repeats = read::<Repeats>(text, DuplicateKeyPolicy::LastWins)?.0;
    let complaints = match repeats.is_empty() {
        true => Vec::new(),
        false => vec![format!("{REPEATED}{}", repeats.join("\n  "))],
    };
    Ok(Decoded { object, complaints })
}

/// Complaints as warnings, which have one line each.
pub(in crate::apiserver) fn warnings(complaints: Vec<String>) -> Vec<String> {
    let lines = complaints.into_iter().flat_map(|one| {
        let lines = one.strip_prefix(REPEATED).unwrap_or(&one).lines();
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    });
    lines.collect()
}

fn read<'de, T: Deserialize<'de>>(text: &'de str, keys: DuplicateKeyPolicy) -> Result<T, String> {
    let options = serde_saphyr::options! { strict_booleans: false, duplicate_keys: keys };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("yaml: {}", error.to_string().lines().next().unwrap_or_default()))
}

/// The keys of a document that come twice, in Go's words.
struct Repeats(Vec<String>);

impl<'de> Deserialize<'de> for Repeats {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let found = RefCell::new(Vec::new());
        Look(&found).deserialize(source)?;
        Ok(Self(found.into_inner()))
    }
}

/// Looks through a value for keys that come twice.
#[derive(Clone, Copy)]
struct Look<'a>(&'a RefCell<Vec<String>>);

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if seen.contains(&key.value) {
                let line = key.referenced.line();
                let found = format!("line {line}: key {:?} already set in map", key.value);
                self.0.borrow_mut().push(found);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            map.next_value_seed(self)?;
            seen.insert(key.value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_old_kind() {
        let read = yaml(b"name: y\nnumber: 1\n").expect("it is YAML");
        assert_eq!(read.object, serde_json::json!({"name": true, "number": 1}));
    }

    #[test]
    fn keys_that_come_twice_are_told_of_by_line() {
        let read = yaml(b"a: 1\nlist:\n- b: 1\n  b: 2\nc: {}\na: 2\n").expect("it is YAML");
        assert_eq!(read.object["a"], 2);
        assert_eq!(
            warnings(read.complaints),
            ["line 4: key \"b\" already set in map", "line 6: key \"a\" already set in map"]
        );
    }
}
