//! The garbage collector: what nobody owns any more goes, in the order its owners asked for.

use super::object::{has_finalizer, is_deleting, items, meta, owners};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Value, json};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Collects what lost its owners, and carries out foreground and orphaning deletions.
pub(super) struct Collector;

/// How it stands with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It exists.
    Solid,
    /// It is gone, or another of that name took its place.
    Gone,
    /// It goes as soon as its dependents have gone.
    Waiting,
}

/// What to do with an object, by its owners.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    /// Some owners are left: the others are taken out of the list.
    Unlink(Vec<String>),
    /// No owner is left.
    Delete(&'static str),
}

/// Decides by the state of each owner (uid and how it stands).
fn fate(object: &Value, states: &[(String, Owner)], has_dependents: bool) -> Fate {
    if states.is_empty() || states.iter().all(|(_, state)| *state == Owner::Solid) {
        return Fate::Keep;
    }
    if states.iter().any(|(_, state)| *state == Owner::Solid) {
        let lost = states.iter().filter(|(_, state)| *state != Owner::Solid);
        return Fate::Unlink(lost.map(|(uid, _)| uid.clone()).collect());
    }
    // Kubernetes: what is deleted for an owner that waits, waits for its own dependents too.
    let waits = states.iter().any(|(_, state)| *state == Owner::Waiting) && has_dependents;
    Fate::Delete(if has_finalizer(object, ORPHAN) {
        "Orphan"
    } else if waits || has_finalizer(object, FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    })
}

impl Collector {
    async fn orphan(&self, hands: &Hands, at: &Address, object: &Value) -> Result<(), ApiError> {
        let uid = meta(object, "uid");
        for (dependent, one) in hands.view.dependents(uid) {
            unlink(hands, &dependent, &one, &[uid.to_owned()]).await?;
        }
        finish(hands, at, object, ORPHAN).await
    }
}

/// Whether a dependent holds up the deletion of its owner.
fn blocks(dependent: &Value, uid: &str) -> bool {
    owners(dependent).iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}

/// How it stands with an owner. That it is gone is believed only if it was seen to go, or the server says so.
async fn state_of(hands: &Hands, owner: &Value, namespace: &str) -> Result<Owner, ApiError> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let uid = text("uid");
    if let Some((_, found)) = hands.view.by_uid(uid) {
        let home = meta(&found, "namespace");
        if home.is_empty() || home == namespace {
            let waits = is_deleting(&found) && has_finalizer(&found, FOREGROUND);
            return Ok(if waits { Owner::Waiting } else { Owner::Solid });
        }
        return Ok(Owner::Gone);
    }
    if hands.view.was_deleted(uid) {
        return Ok(Owner::Gone);
    }
    // Kubernetes: an owner of a kind that is not served is unknown, not gone.
    let Some(resource) = hands.view.resource_of(text("apiVersion"), text("kind")) else {
        return Ok(Owner::Solid);
    };
    let home = if resource.namespaced { namespace } else { "" };
    let path = format!("{}/{}", resource.collection(home), text("name"));
    match hands.client.get(&path).await {
        Ok(found) if meta(&found, "uid") == uid => Ok(Owner::Solid),
        Ok(_) => Ok(Owner::Gone),
        Err(error) if error.is_not_found() => Ok(Owner::Gone),
        Err(error) => Err(error),
    }
}

/// Takes owners out of an object's list.
async fn unlink(
    hands: &Hands,
    at: &Address,
    object: &Value,
    lost: &[String],
) -> Result<(), ApiError> {
    let stays = |owner: &&Value| !lost.iter().any(|uid| owner["uid"] == uid.as_str());
    let kept: Vec<&Value> = owners(object).iter().filter(stays).collect();
    let metadata = &object["metadata"];
    let patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": kept,
    }});
    settled(hands.merge(at, "", &patch).await)
}

/// Takes a finalizer away.
async fn finish(hands: &Hands, at: &Address, object: &Value, name: &str) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    let kept: Vec<&Value> =
        items(&metadata["finalizers"]).iter().filter(|one| *one != name).collect();
    let patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": kept,
    }});
    let path = hands.path(at)?;
    // The answer may be the last state of what is gone now: it is not for the view.
    let done = hands.client.patch(&path, crate::client::PatchKind::Merge, &patch).await;
    settled(done.map(|_| ()))
}

/// That an object is gone is what was wanted.
fn settled(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

impl Controller for Collector {
    fn name(&self) -> &'static str {
        "garbage collector"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        match &change.now {
            None => {
                if let Some(object) = &change.before {
                    view.dependents(meta(object, "uid")).into_iter().for_each(|(at, _)| wake(at));
                    // An owner may have waited for just this one.
                    owners(object)
                        .iter()
                        .filter_map(|owner| view.by_uid(owner["uid"].as_str().unwrap_or_default()))
                        .filter(|(_, owner)| is_deleting(owner))
                        .for_each(|(at, _)| wake(at));
                }
            }
            Some(object) => {
                let before = change.before.as_deref();
                let began = is_deleting(object) && !before.is_some_and(is_deleting);
                if began {
                    view.dependents(meta(object, "uid")).into_iter().for_each(|(at, _)| wake(at));
                }
                let lists = before.map(owners) != Some(owners(object));
                let held = has_finalizer(object, FOREGROUND) || has_finalizer(object, ORPHAN);
                if (lists && !owners(object).is_empty()) || (is_deleting(object) && held) {
                    wake(change.address.clone());
                }
                // A dependent that no longer blocks may free its owner.
                for owner in before.filter(|_| lists).map(owners).unwrap_or_default() {
                    let uid = owner["uid"].as_str().unwrap_or_default();
                    view.by_uid(uid)
                        .filter(|(_, owner)| is_deleting(owner))
                        .into_iter()
                        .for_each(|(at, _)| wake(at));
                }
            }
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(object) = hands.view.at(at) else { return Ok(Next::Change) };
        let uid = meta(&object, "uid");
        if is_deleting(&object) {
            if has_finalizer(&object, ORPHAN) {
                self.orphan(hands, at, &object).await?;
            } else if has_finalizer(&object, FOREGROUND) {
                let mut left = hands.view.dependents(uid);
                left.retain(|(_, one)| blocks(one, uid));
                if left.is_empty() {
                    finish(hands, at, &object, FOREGROUND).await?;
                }
            }
            return Ok(Next::Change);
        }
        let mut states = Vec::new();
        for owner in owners(&object) {
            let state = state_of(hands, owner, meta(&object, "namespace")).await?;
            states.push((owner["uid"].as_str().unwrap_or_default().to_owned(), state));
        }
        let has_dependents = !hands.view.dependents(uid).is_empty();
        match fate(&object, &states, has_dependents) {
            Fate::Keep => {}
            Fate::Unlink(lost) => unlink(hands, at, &object, &lost).await?,
            Fate::Delete(policy) => hands.delete(at, uid, policy).await?,
        }
        Ok(Next::Change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates() {
        let plain = json!({"metadata": {}});
        let of = |states: &[Owner], dependents| {
            let states: Vec<_> =
                states.iter().enumerate().map(|(i, state)| (i.to_string(), *state)).collect();
            fate(&plain, &states, dependents)
        };
        assert_eq!(of(&[], true), Fate::Keep);
        assert_eq!(of(&[Owner::Solid, Owner::Solid], true), Fate::Keep);
        assert_eq!(of(&[Owner::Solid, Owner::Gone], true), Fate::Unlink(vec!["1".to_owned()]));
        assert_eq!(of(&[Owner::Gone], true), Fate::Delete("Background"));
        assert_eq!(of(&[Owner::Waiting, Owner::Gone], true), Fate::Delete("Foreground"));
        assert_eq!(of(&[Owner::Waiting], false), Fate::Delete("Background"));
        let orphaning = json!({"metadata": {"finalizers": ["orphan"]}});
        let gone = [("u".to_owned(), Owner::Gone)];
        assert_eq!(fate(&orphaning, &gone, true), Fate::Delete("Orphan"));
    }
}
