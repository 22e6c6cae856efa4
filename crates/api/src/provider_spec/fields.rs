//! Reads an object field by field and refuses what nobody asked for.

use super::{CredentialValue, DescriptionError, Reference, ReferenceKind};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What the references of a description resolve to.
pub type Resolved = BTreeMap<Reference, String>;

/// An object that is being read.
pub struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    resolved: &'a Resolved,
    asked: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    pub fn open(
        path: &str,
        value: &'a Value,
        resolved: &'a Resolved,
    ) -> Result<Self, DescriptionError> {
        let map = value.as_object().ok_or_else(|| invalid(path, value, "give an object"))?;
        Ok(Self { path: path.to_owned(), map, resolved, asked: BTreeSet::new() })
    }

    /// Where a field is, for an error.
    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// The field as it was written; null counts as absent.
    pub fn raw(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.insert(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A text, given or referred to; an empty one counts as absent.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, DescriptionError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let path = self.path(name);
        let text = match variable(&path, value)? {
            CredentialValue::Inline(text) => text,
            CredentialValue::Reference(reference) => match self.resolved.get(&reference) {
                Some(text) => text.clone(),
                None => return Err(DescriptionError::Unresolved { field: path, reference }),
            },
        };
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    pub fn required(
        &mut self,
        name: &'static str,
        way_out: &'static str,
    ) -> Result<String, DescriptionError> {
        let text = self.text(name)?;
        text.ok_or_else(|| DescriptionError::Missing { field: self.path(name), way_out })
    }

    /// A text that is secret: kept as it was written, never resolved here and never in an error.
    pub fn secret(
        &mut self,
        name: &'static str,
    ) -> Result<Option<CredentialValue>, DescriptionError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let read = variable(&self.path(name), value)?;
        let empty = matches!(&read, CredentialValue::Inline(text) if text.is_empty());
        Ok((!empty).then_some(read))
    }

    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, DescriptionError> {
        const WAY_OUT: &str = "give true or false";
        match self.raw(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value @ Value::Object(_)) => match self.text(name)?.as_deref() {
                None => Ok(None),
                Some("true") => Ok(Some(true)),
                Some("false") => Ok(Some(false)),
                Some(_) => Err(invalid(&self.path(name), value, WAY_OUT)),
            },
            Some(value) => Err(invalid(&self.path(name), value, WAY_OUT)),
        }
    }

    /// A whole number from 1 up.
    pub fn count(
        &mut self,
        name: &'static str,
        way_out: &'static str,
    ) -> Result<Option<u32>, DescriptionError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        match count.filter(|count| *count > 0) {
            Some(count) => Ok(Some(count)),
            None => Err(invalid(&self.path(name), value, way_out)),
        }
    }

    /// A list of texts; empty ones are dropped.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, DescriptionError> {
        let mut texts = vec![];
        for (path, value) in self.items(name)? {
            let CredentialValue::Inline(text) = variable(&path, value)? else {
                return Err(invalid(&path, value, "give a text"));
            };
            texts.push(text.trim().to_owned());
        }
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }

    /// The items of a list with their paths.
    pub fn items(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<(String, &'a Value)>, DescriptionError> {
        let Some(value) = self.raw(name) else { return Ok(vec![]) };
        let path = self.path(name);
        let items = value.as_array().ok_or_else(|| invalid(&path, value, "give a list"))?;
        Ok(items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
    }

    /// The objects of a list.
    pub fn objects(&mut self, name: &'static str) -> Result<Vec<Fields<'a>>, DescriptionError> {
        let items = self.items(name)?;
        items.iter().map(|(path, item)| Fields::open(path, item, self.resolved)).collect()
    }

    /// An object of texts.
    pub fn map(
        &mut self,
        name: &'static str,
    ) -> Result<BTreeMap<String, String>, DescriptionError> {
        let Some(value) = self.raw(name) else { return Ok(BTreeMap::new()) };
        let path = self.path(name);
        let map = value.as_object().ok_or_else(|| invalid(&path, value, "give an object"))?;
        map.iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) => Ok((key.clone(), text.to_owned())),
                None => Err(invalid(&format!("{path}.{key}"), value, "give a text, in quotes")),
            })
            .collect()
    }

    pub fn object(&mut self, name: &'static str) -> Result<Option<Fields<'a>>, DescriptionError> {
        let (path, resolved) = (self.path(name), self.resolved);
        self.raw(name).map(|value| Fields::open(&path, value, resolved)).transpose()
    }

    /// Refuses a field nobody asked for.
    pub fn close(self) -> Result<(), DescriptionError> {
        let Some(stranger) = self.map.keys().find(|key| !self.asked.contains(key.as_str())) else {
            return Ok(());
        };
        let known: Vec<&str> = self.asked.iter().copied().collect();
        let nearest = known.iter().copied().min_by_key(|name| distance(name, stranger));
        let way_out = match nearest.filter(|name| distance(name, stranger) <= 3) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("known are {}", known.join(", ")),
        };
        Err(DescriptionError::Unknown { field: self.path(stranger), way_out })
    }
}

/// The error for a value that is not what its field wants.
pub fn invalid(field: &str, value: &Value, way_out: &'static str) -> DescriptionError {
    const SHOWN_MAX: usize = 80;
    let mut shown = value.to_string();
    if let Some((end, _)) = shown.char_indices().nth(SHOWN_MAX) {
        shown.truncate(end);
        shown.push_str("..");
    }
    DescriptionError::Invalid { field: field.to_owned(), value: shown, way_out }
}

/// A text, or where to find it. MetaKube: a "ConfigVar". The value itself is never part of an error:
/// it may be a password.
fn variable(path: &str, value: &Value) -> Result<CredentialValue, DescriptionError> {
    let wrong = |way_out| DescriptionError::Unusable { field: path.to_owned(), way_out };
    match value {
        Value::String(text) => Ok(CredentialValue::Inline(text.clone())),
        Value::Object(map) => {
            let known = ["value", "secretKeyRef", "configMapKeyRef"];
            if let Some(stranger) = map.keys().find(|key| !known.contains(&key.as_str())) {
                return Err(DescriptionError::Unknown {
                    field: format!("{path}.{stranger}"),
                    way_out: format!("known are {}", known.join(", ")),
                });
            }
            for (field, kind) in [
                ("secretKeyRef", ReferenceKind::Secret),
                ("configMapKeyRef", ReferenceKind::ConfigMap),
            ] {
                let part = |name: &str| {
                    let text = map.get(field)?.get(name)?.as_str()?;
                    (!text.is_empty()).then(|| text.to_owned())
                };
                let reference = || {
                    let (namespace, name, key) = (part("namespace")?, part("name")?, part("key")?);
                    Some(Reference { kind, namespace, name, key })
                };
                if let Some(reference) = reference() {
                    return Ok(CredentialValue::Reference(reference));
                }
                if map.get(field).is_some_and(|it| it.as_object().is_some_and(|it| !it.is_empty()))
                    && !map.contains_key("value")
                {
                    return Err(wrong("the reference needs namespace, name and key"));
                }
            }
            match map.get("value") {
                None | Some(Value::Null) => Ok(CredentialValue::Inline(String::new())),
                Some(Value::String(text)) => Ok(CredentialValue::Inline(text.clone())),
                Some(Value::Bool(flag)) => Ok(CredentialValue::Inline(flag.to_string())),
                Some(_) => Err(wrong("value must be a text")),
            }
        }
        _ => Err(wrong("give a text, or an object with secretKeyRef or configMapKeyRef")),
    }
}

/// How many letters must change to make one word the other; case does not count.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
