//! A namespace that goes takes everything in it along.

use super::object::{is_deleting, items};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;

/// The finalizer of namespaces.
const FINALIZER: &str = "kubernetes";
/// How soon what is left is looked for again if nothing is seen to go (Kubernetes: about 15 s).
const RECHECK: Duration = Duration::from_secs(15);

/// Empties namespaces that were told to go.
pub(super) struct Namespaces;

/// Whether a namespace is to be emptied.
fn waits(namespace: &Value) -> bool {
    is_deleting(namespace)
        && items(&namespace["spec"]["finalizers"]).iter().any(|one| one == FINALIZER)
}

impl Namespaces {
    async fn empty(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(namespace) = hands.view.at(at).filter(|namespace| waits(namespace)) else {
            return Ok(Next::Change);
        };
        let mut collections: Vec<(String, String)> =
            vec![("events".to_owned(), format!("/api/v1/namespaces/{}/events", at.name))];
        for resource in hands.view.resources().iter().filter(|one| one.namespaced) {
            let name = format!("{}.{}", resource.plural, resource.group());
            collections.push((name, resource.collection(&at.name)));
        }
        let mut left = Vec::new();
        for (name, path) in collections {
            // Read, not remembered: what was made a moment ago must not be overlooked.
            let found = match hands.client.get(&path).await {
                Ok(list) => items(&list["items"]).len(),
                Err(error) if error.is_not_found() => 0,
                Err(error) => return Err(error),
            };
            if found == 0 {
                continue;
            }
            hands.client.delete(&path, &Value::Null).await?;
            let list = hands.client.get(&path).await?;
            if !items(&list["items"]).is_empty() {
                left.push((name, items(&list["items"]).len()));
            }
        }
        if left.is_empty() {
            let mut done = (*namespace).clone();
            done["spec"]["finalizers"] = json!([]);
            let path = format!("{}/finalize", hands.path(at)?);
            hands.client.replace(&path, &done).await?;
            return Ok(Next::Change);
        }
        let status = remaining(&namespace, &left, &hands.stamp());
        if namespace["status"] != status {
            hands.merge(at, "/status", &json!({"status": status})).await?;
        }
        Ok(Next::After(RECHECK))
    }
}

/// The status that tells what is left.
fn remaining(namespace: &Value, left: &[(String, usize)], now: &str) -> Value {
    let told: Vec<String> =
        left.iter().map(|(name, count)| format!("{name} has {count} resource instances")).collect();
    let message = format!("Some resources are remaining: {}", told.join(", "));
    let known = items(&namespace["status"]["conditions"])
        .iter()
        .find(|one| one["type"] == "NamespaceContentRemaining" && one["status"] == "True");
    let since = known.map_or_else(|| now.into(), |one| one["lastTransitionTime"].clone());
    json!({"phase": "Terminating", "conditions": [{
        "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
        "message": message, "lastTransitionTime": since,
    }]})
}

impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        "namespaces"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        let is_told = |one: &Value| waits(one);
        if change.is_of("namespaces") {
            let before = change.before.as_deref().is_some_and(is_told);
            if !before && change.now.as_deref().is_some_and(is_told) {
                wake(change.address.clone());
            }
            return;
        }
        let home = &change.address.namespace;
        let going = change.now.is_none() && !home.is_empty();
        if going && view.get("namespaces", "", home).as_deref().is_some_and(is_told) {
            wake(Address::new("namespaces", "", home));
        }
    }

    fn sync<'a>(
        &'a self,
        hands: &'a Hands,
        address: &'a Address,
    ) -> BoxFuture<'a, Result<Next, ApiError>> {
        self.empty(hands, address).boxed()
    }
}
