//! Server-side apply, and the managedFields of every other write.

mod cap;
mod client_side;
mod entries;
mod fields;
mod typed;

use super::Schema;
use entries::{Entry, Manager, Operation};
use serde_json::{Value, json};
use typed::Place;

/// The manager of what stood in an object before its fields were managed.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes what, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// Of the object as written, `group/version`.
    pub api_version: &'a str,
    /// `status` and the like.
    pub subresource: Option<&'a str>,
    /// Time of the write.
    pub now: jiff::Timestamp,
}

impl Writer<'_> {
    fn manager(&self, operation: Operation) -> Manager {
        Manager {
            name: self.manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.unwrap_or_default().to_owned(),
        }
    }
}

/// Why an applied configuration was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// 409, reason `Conflict`: others own fields that the configuration sets to something else.
    #[error("{}", entries::explain(causes))]
    Conflicts {
        /// `reason: FieldManagerConflict`, `message`, `field` of each, as in `details.causes` of
        /// the Status.
        causes: Vec<Value>,
    },
    /// 500 without a reason: the configuration does not fit the schema.
    #[error("{0}")]
    Typed(String),
    /// 400, reason `BadRequest`: the configuration carries managedFields.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
}

/// Applies `config` to `live`: the merged object with its new managedFields. A merged object equal
/// to `live` (but for managedFields) means that nothing was applied; times stay as they are then.
/// Defaults are the caller's to fill in afterwards. Fields the endpoint does not write (status at
/// the object itself, all but status at `/status`) must have been taken out of `config` before.
///
/// # Errors
/// Conflicts without `force`, and a configuration that does not fit the schema.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    ctx: &Writer,
    force: bool,
) -> Result<Value, ApplyError> {
    if config["metadata"].get("managedFields").is_some_and(|given| !given.is_null()) {
        return Err(ApplyError::ManagedFields);
    }
    let place = Place::new(&schema.0.arena, schema.0.root);
    check_typed(place, config, ctx)?;
    let empty = json!({});
    let live = live.unwrap_or(&empty);
    let mut entries = entries::read(&live["metadata"]["managedFields"]).unwrap_or_default();
    if entries.is_empty() {
        entries.extend(unmanaged(schema, live, ctx));
    }

    let me = ctx.manager(Operation::Apply);
    let mut merged = typed::merge(place, Some(live), Some(config));
    let own = typed::set_of(place, config);
    let last = entries.iter().find(|entry| entry.manager == me).map(|entry| entry.fields.clone());
    let time =
        entries.iter().find(|entry| entry.manager == me).and_then(|entry| entry.time.clone());
    entries.retain(|entry| entry.manager != me);
    entries.push(Entry { manager: me.clone(), time, fields: own });
    if let Some(last) = last.filter(|last| !last.is_empty()) {
        merged = drop_abandoned(place, merged, &last, &entries);
    }

    let diff = typed::compare(place, live, &merged);
    let mut claimed = diff.set.clone();
    fields::subtract(&mut claimed, &client_side::handed_over(place, live, ctx));
    let conflicts = entries::conflicts(&entries, &me, &claimed);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts { causes: conflicts });
    }
    for entry in entries.iter_mut().filter(|entry| entry.manager != me) {
        fields::subtract(&mut entry.fields, &diff.set);
        fields::subtract(&mut entry.fields, &diff.removed);
    }
    let changed = !diff.set.is_empty() || !diff.removed.is_empty();
    // Kubernetes: who applies what is there already has no time.
    for entry in entries.iter_mut().filter(|entry| changed && entry.manager == me) {
        entry.time = Some(entries::time(ctx.now));
    }
    entries::write(&mut merged, entries);
    client_side::follow(&mut merged, config, ctx);
    Ok(merged)
}

fn check_typed(place: Place, config: &Value, ctx: &Writer) -> Result<(), ApplyError> {
    let mut found = Vec::new();
    typed::errors(place, config, "", &mut found);
    if found.is_empty() {
        return Ok(());
    }
    let text =
        |name: &str| config["metadata"].get(name).and_then(Value::as_str).unwrap_or_default();
    let version = if ctx.api_version.contains('/') {
        ctx.api_version.to_owned()
    } else {
        format!("/{}", ctx.api_version)
    };
    let kind = config.get("kind").and_then(Value::as_str).unwrap_or_default();
    let all = match &found[..] {
        [one] => one.clone(),
        many => format!(
            "errors:\n{}",
            many.iter().map(|e| format!("  {e}")).collect::<Vec<_>>().join("\n")
        ),
    };
    Err(ApplyError::Typed(format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={kind}): {all}",
        text("namespace"),
        text("name"),
    )))
}

/// The owner of what stands in an object whose fields were never managed.
fn unmanaged(schema: &Schema, live: &Value, ctx: &Writer) -> Option<Entry> {
    let place = Place::new(&schema.0.arena, schema.0.root);
    if live.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let fields = typed::compare(place, &schema.0.zero, live).set;
    let manager = Manager {
        name: BEFORE_FIRST_APPLY.to_owned(),
        operation: Operation::Update,
        api_version: ctx.api_version.to_owned(),
        subresource: String::new(),
    };
    (!fields.is_empty()).then(|| Entry { manager, time: Some(entries::time(ctx.now)), fields })
}

/// Takes out what the manager applied last time, does not apply any more, and nobody else owns.
fn drop_abandoned(place: Place, merged: Value, last: &fields::Node, entries: &[Entry]) -> Value {
    let last = typed::with_parents(place, last);
    let without =
        |set: &fields::Node| typed::without(place, &merged, set).unwrap_or_else(|| json!({}));
    let all = typed::with_parents(place, &typed::set_of(place, &merged));

    // What is left without all that was applied last time, and with what anybody owns.
    let bare = without(&last);
    let mut kept = typed::with_parents(place, &typed::set_of(place, &bare));
    let mut owned = fields::Node::new();
    for entry in entries {
        fields::union(&mut owned, &entry.fields);
    }
    fields::union(&mut kept, &typed::with_parents(place, &owned));
    let mut gone = all.clone();
    fields::subtract(&mut gone, &kept);
    let owned_left = without(&gone);

    // What nobody owns stays unless it was applied last time.
    let mut gone = all;
    fields::subtract(&mut gone, &typed::with_parents(place, &typed::set_of(place, &owned_left)));
    let mut gone = fields::intersection(&gone, &last);
    // The name is in every configuration, though nobody owns it: metadata never goes as a whole.
    if let Some(Value::Object(metadata)) = gone.get_mut("f:metadata") {
        metadata.remove(".");
        if metadata.is_empty() {
            gone.remove("f:metadata");
        }
    }
    without(&gone)
}

/// Writes managedFields of an update (create, PUT or patch) into `new`: what changed since `old`
/// belongs to the writer.
///
/// Kubernetes: managedFields given in `new` count unless they cannot be read or the write goes to a
/// subresource; an empty list forgets them all, and an object without any stays so until something
/// is applied. Comes after defaulting and before admission, whose changes nobody owns.
pub fn track(schema: &Schema, old: Option<&Value>, new: &mut Value, ctx: &Writer) {
    let given =
        new.get_mut("metadata").and_then(|meta| meta.get_mut("managedFields")).map(Value::take);
    let live = old.map_or(&Value::Null, |old| &old["metadata"]["managedFields"]);
    let reset = ctx.subresource.is_none() && given.as_ref().is_some_and(entries::is_reset);
    let mut entries = if reset {
        Vec::new()
    } else {
        let given = given.filter(|_| ctx.subresource.is_none());
        let given = given.and_then(|given| entries::read(&given)).filter(|given| !given.is_empty());
        given.or_else(|| entries::read(live)).unwrap_or_default()
    };
    if entries.is_empty() && (old.is_some() || reset) {
        entries::write(new, entries);
        return;
    }
    let place = Place::new(&schema.0.arena, schema.0.root);
    let diff = typed::compare(place, old.unwrap_or(&schema.0.zero), new);
    if !diff.set.is_empty() || !diff.removed.is_empty() {
        for entry in &mut entries {
            fields::subtract(&mut entry.fields, &diff.set);
            fields::subtract(&mut entry.fields, &diff.removed);
        }
    }
    if !diff.set.is_empty() {
        let me = ctx.manager(Operation::Update);
        let time = Some(entries::time(ctx.now));
        match entries.iter_mut().find(|entry| entry.manager == me) {
            Some(entry) => {
                fields::union(&mut entry.fields, &diff.set);
                entry.time = time;
            }
            None => entries.push(Entry { manager: me, time, fields: diff.set }),
        }
    }
    cap::forget_ancient(&mut entries);
    entries::write(new, entries);
}

#[cfg(test)]
mod tests;
