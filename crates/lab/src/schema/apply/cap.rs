//! Only so many updates are told apart: the oldest ones are put together.

use super::entries::{Entry, Manager, Operation};
use super::fields;

/// Kubernetes: updates told apart, of all subresources together.
const UPDATES_MAX: usize = 10;
/// Kubernetes: whom the others' fields belong to.
const ANCIENT: &str = "ancient-changes";

/// Puts the oldest updates of each version together until no more than the limit are left.
pub(super) fn forget_ancient(entries: &mut Vec<Entry>) {
    let is_update = |entry: &Entry| entry.manager.operation == Operation::Update;
    let mut left = entries.iter().filter(|entry| is_update(entry)).count();
    if left <= UPDATES_MAX {
        return;
    }
    let (mut updates, mut kept): (Vec<Entry>, Vec<Entry>) =
        std::mem::take(entries).into_iter().partition(is_update);
    updates.sort_by(|a, b| {
        let key = |entry: &Entry| (entry.time.clone(), entry.manager.name.clone());
        key(a).cmp(&key(b))
    });
    // The first update of a version is only replaced when a second one joins it.
    let mut done: Vec<Entry> = Vec::new();
    for update in updates {
        let version = &update.manager.api_version;
        let first = done.iter_mut().find(|one| one.manager.api_version == *version);
        match first {
            Some(first) if left > UPDATES_MAX => {
                first.manager = Manager {
                    name: ANCIENT.to_owned(),
                    operation: Operation::Update,
                    api_version: version.clone(),
                    subresource: String::new(),
                };
                fields::union(&mut first.fields, &update.fields);
                first.time = update.time;
                left -= 1;
            }
            _ => done.push(update),
        }
    }
    kept.extend(done);
    *entries = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(name: &str, version: &str, second: usize) -> Entry {
        let fields = json!({"f:data": {format!("f:{name}"): {}}});
        Entry {
            manager: Manager {
                name: name.to_owned(),
                operation: Operation::Update,
                api_version: version.to_owned(),
                subresource: String::new(),
            },
            time: Some(format!("2026-01-01T00:00:{second:02}Z")),
            fields: fields.as_object().expect("an object").clone(),
        }
    }

    #[test]
    fn the_oldest_of_a_version_are_put_together() {
        let mut entries: Vec<Entry> =
            (0..12).map(|i| entry(&format!("m{i:02}"), "v1", i)).collect();
        entries[1].manager.api_version = "v2".to_owned();
        forget_ancient(&mut entries);
        assert_eq!(entries.len(), UPDATES_MAX);
        let ancient = entries.iter().find(|one| one.manager.name == ANCIENT).expect("one");
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:03Z"));
        let fields = serde_json::Value::Object(ancient.fields.clone());
        assert_eq!(fields, json!({"f:data": {"f:m00": {}, "f:m02": {}, "f:m03": {}}}));
        let mut few: Vec<Entry> = (0..10).map(|i| entry(&format!("m{i:02}"), "v1", i)).collect();
        forget_ancient(&mut few);
        assert!(few.iter().all(|one| one.manager.name != ANCIENT));
    }
}
