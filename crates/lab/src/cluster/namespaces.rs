//! A namespace that goes takes everything in it along.

use super::object::{condition, is_deleting, items};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

/// What is left in a namespace after everything in it was told to go.
#[derive(Default)]
struct Left {
    /// Instances by resource, as `pods.` or `deployments.apps`.
    instances: BTreeMap<String, usize>,
    /// Instances by the finalizer they wait for.
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn count(&mut self, name: &str, objects: &[Value]) {
        if objects.is_empty() {
            return;
        }
        self.instances.insert(name.to_owned(), objects.len());
        for finalizer in objects.iter().flat_map(|one| items(&one["metadata"]["finalizers"])) {
            let finalizer = finalizer.as_str().unwrap_or_default().to_owned();
            *self.finalizers.entry(finalizer).or_default() += 1;
        }
    }
}

impl Namespaces {
    /// Writes how far it is, if that is new.
    async fn tell(
        &self,
        hands: &Hands,
        at: &Address,
        namespace: &Value,
        left: &Left,
    ) -> Result<(), ApiError> {
        let status = progress(namespace, left, &hands.stamp());
        if namespace["status"] != status {
            hands.merge(at, "/status", &json!({"status": status})).await?;
        }
        Ok(())
    }
}

/// Tells the objects of a collection to go, and gives those that stay for now.
async fn drain(hands: &Hands, path: &str) -> Result<Vec<Value>, ApiError> {
    // Read, not remembered: what was made a moment ago must not be overlooked.
    let found = async || match hands.client.get(path).await {
        Ok(list) => Ok(items(&list["items"]).to_vec()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    if found().await?.is_empty() {
        return Ok(Vec::new());
    }
    hands.client.delete(path, &Value::Null).await?;
    found().await
}

/// The status that tells how far it is: Kubernetes' five conditions, each with what is well or what is missing.
fn progress(namespace: &Value, left: &Left, now: &str) -> Value {
    let told = |some: &BTreeMap<String, usize>, link: &str| {
        let all: Vec<String> = some
            .iter()
            .map(|(name, count)| format!("{name} {link} {count} resource instances"))
            .collect();
        all.join(", ")
    };
    let remaining = (!left.instances.is_empty()).then(|| {
        let which = told(&left.instances, "has");
        ("SomeResourcesRemain", format!("Some resources are remaining: {which}"))
    });
    let waiting = (!left.finalizers.is_empty()).then(|| {
        let which = told(&left.finalizers, "in");
        let text = format!("Some content in the namespace has finalizers remaining: {which}");
        ("SomeFinalizersRemain", text)
    });
    let well = |what, reason, text: &str| (what, None, (reason, text.to_owned()));
    let conditions = [
        well(
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        well(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        well(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            remaining,
            ("ContentRemoved", "All content successfully removed".to_owned()),
        ),
        (
            "NamespaceFinalizersRemaining",
            waiting,
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        ),
    ];
    let conditions: Vec<Value> = conditions
        .into_iter()
        .map(|(what, bad, good)| {
            let status = if bad.is_some() { "True" } else { "False" };
            let (reason, message) = bad.unwrap_or(good);
            let known = condition(namespace, what).filter(|one| one["status"] == status);
            let since = known.map_or_else(|| now.into(), |one| one["lastTransitionTime"].clone());
            json!({
                "type": what, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since,
            })
        })
        .collect();
    json!({"phase": "Terminating", "conditions": conditions})
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

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(namespace) = hands.view.at(at).filter(|namespace| waits(namespace)) else {
            return Ok(Next::Change);
        };
        let mut left = Left::default();
        // Kubernetes' OrderedNamespaceDeletion: pods go while what they may need is still there.
        let pods = format!("/api/v1/namespaces/{}/pods", at.name);
        left.count("pods.", &drain(hands, &pods).await?);
        if !left.instances.is_empty() {
            self.tell(hands, at, &namespace, &Left::default()).await?;
            return Ok(Next::After(RECHECK));
        }
        let mut collections: Vec<(String, String)> =
            vec![("events.".to_owned(), format!("/api/v1/namespaces/{}/events", at.name))];
        for resource in hands.view.resources().iter().filter(|one| one.namespaced) {
            let name = format!("{}.{}", resource.plural, resource.group());
            collections.push((name, resource.collection(&at.name)));
        }
        for (name, path) in collections {
            left.count(&name, &drain(hands, &path).await?);
        }
        self.tell(hands, at, &namespace, &left).await?;
        if left.instances.is_empty() {
            let path = hands.path(at)?;
            let mut done = hands.client.get(&path).await?;
            done["spec"]["finalizers"] = json!([]);
            hands.client.replace(&format!("{path}/finalize"), &done).await?;
            return Ok(Next::Change);
        }
        Ok(Next::After(RECHECK))
    }
}
