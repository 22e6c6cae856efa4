//! Strategic merge: maps merge, lists merge by key where the schema says so.

use super::PatchError;
use crate::schema::Schema;
use crate::schema::node::{Arena, Id, Node};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

pub(super) fn merge(schema: &Schema, doc: Object, patch: Object) -> Result<Object, PatchError> {
    Merge { arena: &schema.0.arena }.map(Some(schema.0.root), doc, patch)
}

struct Merge<'a> {
    arena: &'a Arena,
}

impl<'a> Merge<'a> {
    fn child(&self, node: Option<Id>, name: &str) -> Option<Id> {
        let node = self.arena.get(node?);
        node.properties.get(name).map(|field| field.node).or(node.additional)
    }

    fn node(&self, id: Option<Id>) -> Option<&'a Node> {
        id.map(|id| self.arena.get(id))
    }

    fn map(
        &self,
        id: Option<Id>,
        mut doc: Object,
        mut patch: Object,
    ) -> Result<Object, PatchError> {
        if let Some(directive) = patch.get(PATCH) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(PATCH);
                    Ok(patch)
                }
                Some("delete") => Ok(Object::new()),
                Some("merge") => {
                    patch.remove(PATCH);
                    self.map(id, doc, patch)
                }
                _ => Err(unknown_directive(directive, &patch)),
            };
        }
        retain(&mut doc, &mut patch)?;
        self.ordered_lists(id, &mut doc, &mut patch)?;
        for (name, value) in patch {
            if let Some(list) = name.strip_prefix(DELETE) {
                if let (Some(Value::Array(kept)), Value::Array(gone)) = (doc.get_mut(list), &value)
                {
                    kept.retain(|item| !gone.contains(item));
                }
                continue;
            }
            let child = self.child(id, &name);
            let merged = match (doc.remove(&name), value) {
                (_, Value::Null) => continue,
                (Some(Value::Object(old)), Value::Object(new)) => {
                    Value::Object(self.map(child, old, new)?)
                }
                (Some(Value::Array(old)), Value::Array(new)) => {
                    Value::Array(self.list(child, old, new)?)
                }
                (_, value) => without_directives(value),
            };
            doc.insert(name, merged);
        }
        Ok(doc)
    }

    /// Lists whose order the patch gives (`$setElementOrder`), with or without changes to them.
    fn ordered_lists(
        &self,
        id: Option<Id>,
        doc: &mut Object,
        patch: &mut Object,
    ) -> Result<(), PatchError> {
        let names: Vec<String> =
            patch.keys().filter(|name| name.starts_with(ORDER)).cloned().collect();
        for directive in names {
            let Some(Value::Array(order)) = patch.remove(&directive) else {
                return Err(PatchError::internal(format!("{directive} must be a list")));
            };
            let name = &directive[ORDER.len()..];
            let child = self.child(id, name);
            let key = self.node(child).map(|n| n.patch_key.as_str()).unwrap_or_default();
            let old = match doc.remove(name) {
                Some(Value::Array(old)) => Some(old),
                Some(other) => {
                    doc.insert(name.to_owned(), other);
                    continue;
                }
                None => None,
            };
            let new = match patch.remove(name) {
                Some(Value::Array(new)) => Some(new),
                Some(other) => {
                    // Null or another type replaces the list; there is no order to keep.
                    patch.insert(name.to_owned(), other);
                    continue;
                }
                None => None,
            };
            let before = old.clone().unwrap_or_default();
            let merged = match (old, new) {
                (None, None) => continue,
                (Some(old), None) => old,
                (None, Some(new)) => new.into_iter().map(without_directives).collect(),
                (Some(old), Some(new)) => self.list(child, old, new)?,
            };
            doc.insert(name.to_owned(), Value::Array(arrange(merged, &order, &before, key)));
        }
        Ok(())
    }

    fn list(
        &self,
        id: Option<Id>,
        old: Vec<Value>,
        new: Vec<Value>,
    ) -> Result<Vec<Value>, PatchError> {
        let Some(node) = self.node(id).filter(|node| node.patch_merge) else { return Ok(new) };
        let key = node.patch_key.as_str();
        let before = old.clone();
        if !old.iter().chain(&new).any(Value::is_object) {
            let mut merged: Vec<Value> = Vec::new();
            for item in old.into_iter().chain(new.iter().cloned()) {
                if !merged.contains(&item) {
                    merged.push(item);
                }
            }
            return Ok(arrange(merged, &new, &before, ""));
        }
        if key.is_empty() {
            return Err(PatchError::internal("cannot merge lists without merge key".to_owned()));
        }
        let (mut merged, new) = directives(old, new, key)?;
        let order = new.clone();
        for item in new {
            let Value::Object(item) = item else { return Err(no_key(&item, key)) };
            let Some(wanted) = item.get(key).cloned() else {
                return Err(no_key(&Value::Object(item), key));
            };
            let place = merged.iter().position(|one| one.get(key) == Some(&wanted));
            match place {
                Some(at) => {
                    let Value::Object(old) = merged[at].take() else { continue };
                    merged[at] = Value::Object(self.map(node.items, old, item)?);
                }
                None => merged.push(without_directives(Value::Object(item))),
            }
        }
        Ok(arrange(merged, &order, &before, key))
    }
}

/// Elements that are commands: `$patch: delete` takes the element away, `$patch: replace` the whole
/// list.
fn directives(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in new {
        match item.get(PATCH).map(|d| d.as_str().unwrap_or_default()) {
            None => plain.push(item),
            Some("delete") => {
                let Some(wanted) = item.get(key) else { return Err(no_key(&item, key)) };
                old.retain(|one| one.get(key) != Some(wanted));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch".to_owned();
                return Err(PatchError::internal(message));
            }
            Some(_) => {
                let item = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(&item[PATCH], &item));
            }
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (old, plain) })
}

fn unknown_directive(directive: &Value, patch: &Object) -> PatchError {
    let kind = go_text(directive);
    PatchError::internal(format!(
        "unknown patch type: {kind} in map: {}",
        go_text(&Value::Object(patch.clone()))
    ))
}

fn no_key(item: &Value, key: &str) -> PatchError {
    PatchError::internal(format!(
        "map: {} does not contain declared merge key: {key}",
        go_text(item)
    ))
}

/// A value as Go's `%v` prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let all: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", all.join(" "))
        }
        other => other.to_string(),
    }
}

/// `$retainKeys`: of the map, only these keys stay.
fn retain(doc: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN) else { return Ok(()) };
    let Value::Array(keys) = keys else {
        return Err(PatchError::internal(format!("{RETAIN} must be a list")));
    };
    let kept = |name: &String| keys.iter().any(|key| key.as_str() == Some(name));
    if patch.iter().any(|(name, value)| !value.is_null() && !name.starts_with('$') && !kept(name)) {
        let message = "patch contains fields not in the retainKeys list".to_owned();
        return Err(PatchError::internal(message));
    }
    doc.retain(|name, _| kept(name));
    Ok(())
}

/// Nulls and directives mean nothing where there is nothing to merge with.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => {
            fields.retain(|name, value| !name.starts_with('$') && !value.is_null());
            Value::Object(
                fields.into_iter().map(|(name, value)| (name, without_directives(value))).collect(),
            )
        }
        Value::Array(items) => {
            let kept = items.into_iter().filter(|item| item.get(PATCH).is_none());
            Value::Array(kept.map(without_directives).collect())
        }
        other => other,
    }
}

/// Elements of `order` come in its order; the others keep their place relative to those they stood
/// before.
fn arrange(merged: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let same =
        |a: &Value, b: &Value| if key.is_empty() { a == b } else { a.get(key) == b.get(key) };
    let place = |list: &[Value], item: &Value| list.iter().position(|one| same(one, item));
    let (mut ours, mut theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(order, item).is_some());
    ours.sort_by_key(|item| place(order, item));
    theirs.sort_by_key(|item| place(before, item));
    let mut out = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        let take_theirs = match (theirs.peek(), ours.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(theirs), Some(ours)) => place(before, theirs)
                .zip(place(before, ours))
                .is_some_and(|(theirs, ours)| theirs < ours),
        };
        out.extend(if take_theirs { theirs.next() } else { ours.next() });
    }
    out
}
