//! Volumes follow the pods that claim them: attached to the node of a pod, detached when none is left there.
//!
//! Kubernetes' attach-detach controller and a CSI driver's attacher in one. Binding of claims is not here: a
//! claim and its volume name each other from the start.

use super::object::{is_deleting, is_over, is_true, items, meta, node_of};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use crate::clock::Pace;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const VOLUMES: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
/// How long the driver takes to attach or to detach.
const DRIVER_TIME: Duration = Duration::from_secs(4);
/// How long a node that is not ready may keep a volume that no pod of it claims (Kubernetes: 6 min).
const UNMOUNT_MAX: Duration = Duration::from_secs(360);

/// Attaches and detaches volumes.
pub(super) struct Volumes {
    pace: Pace,
    /// Since when a node that is not ready has a volume it has no pod for.
    idle: Mutex<BTreeMap<(String, String), Instant>>,
}

impl Volumes {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, idle: Mutex::default() }
    }

    /// How long it takes until it is attached; nothing when it is.
    async fn attach(&self, hands: &Hands, it: &Value) -> Result<Option<Duration>, ApiError> {
        self.idle().remove(&mark(it));
        if it["status"]["attached"] == true {
            return Ok(None);
        }
        let left = self.left(hands, &it["metadata"]["creationTimestamp"]);
        if left.is_none() {
            let patch = json!({"status": {"attached": true}});
            hands.merge(&address(it), "/status", &patch).await?;
        }
        Ok(left)
    }

    /// Kubernetes: a node must have unmounted it first, which one that is not ready cannot tell.
    async fn detach(&self, hands: &Hands, it: &Value) -> Result<Option<Duration>, ApiError> {
        let is_ready =
            hands.view.get("nodes", "", node(it)).is_some_and(|it| is_true(&it, "Ready"));
        if !is_ready {
            let since = *self.idle().entry(mark(it)).or_insert_with(Instant::now);
            let left = self.pace.of(UNMOUNT_MAX).saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Ok(Some(left));
            }
        }
        hands.delete(&address(it), meta(it, "uid"), "Background").await?;
        Ok(Some(self.pace.of(DRIVER_TIME)))
    }

    /// The driver has detached it: its finalizer goes.
    async fn end(&self, hands: &Hands, it: &Value) -> Result<Option<Duration>, ApiError> {
        let left = self.left(hands, &it["metadata"]["deletionTimestamp"]);
        if left.is_none() {
            self.idle().remove(&mark(it));
            let patch = json!({"metadata": {"finalizers": null}});
            match hands.merge(&address(it), "", &patch).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(left)
    }

    /// What is left of the driver's time.
    fn left(&self, hands: &Hands, since: &Value) -> Option<Duration> {
        let since: Timestamp = since.as_str().and_then(|it| it.parse().ok()).unwrap_or_default();
        let spent = hands.clock.now().duration_since(since);
        let spent = Duration::try_from(spent).unwrap_or_default();
        let left = self.pace.of(DRIVER_TIME).saturating_sub(spent);
        (!left.is_zero()).then_some(left)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Instant>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn concerns(&self, view: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        let mut volume = |name: &str| wake(Address::new(VOLUMES, "", name));
        if change.is_of(VOLUMES) {
            volume(&change.address.name);
        }
        for state in change.states() {
            if change.is_of(ATTACHMENTS) {
                volume(source(state));
            }
            if change.is_of("pods") {
                for claim in claims(state) {
                    if let Some(claim) = view.get(CLAIMS, meta(state, "namespace"), claim) {
                        volume(claim["spec"]["volumeName"].as_str().unwrap_or_default());
                    }
                }
            }
        }
        let ready = |node: &Option<Arc<Value>>| node.as_ref().map(|node| is_true(node, "Ready"));
        if change.is_of("nodes") && ready(&change.before) != ready(&change.now) {
            let all = view.list(ATTACHMENTS);
            all.iter()
                .filter(|it| node(it) == change.address.name)
                .for_each(|it| volume(source(it)));
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(volume) = hands.view.at(at) else { return Ok(Next::Change) };
        let Some(driver) = volume["spec"]["csi"]["driver"].as_str() else {
            return Ok(Next::Change);
        };
        let wanted = wanted(&hands.view, &volume);
        let mut next = None;
        let mut here = BTreeSet::new();
        for attachment in attachments(&hands.view, &at.name) {
            here.insert(node(&attachment).to_owned());
            let left = if is_deleting(&attachment) {
                self.end(hands, &attachment).await?
            } else if wanted.contains(node(&attachment)) {
                self.attach(hands, &attachment).await?
            } else {
                self.detach(hands, &attachment).await?
            };
            next = next.into_iter().chain(left).min();
        }
        let modes = items(&volume["spec"]["accessModes"]);
        let shared = modes.iter().any(|mode| mode.as_str().is_some_and(|it| it.ends_with("Many")));
        for node in wanted.difference(&here) {
            if shared || here.is_empty() {
                hands.create(ATTACHMENTS, "", &attachment(driver, &at.name, node)).await?;
            }
        }
        Ok(next.map_or(Next::Change, Next::After))
    }
}

/// The nodes with a pod that claims the volume.
fn wanted(view: &View, volume: &Value) -> BTreeSet<String> {
    let claim = &volume["spec"]["claimRef"];
    let text = |field: &str| claim[field].as_str().unwrap_or_default();
    let pods = view.within("pods", text("namespace"));
    let users = pods.iter().filter(|pod| !is_over(pod) && claims(pod).any(|it| it == text("name")));
    users.map(|pod| node_of(pod).to_owned()).filter(|node| !node.is_empty()).collect()
}

fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(&pod["spec"]["volumes"]).iter();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

fn attachments(view: &View, volume: &str) -> Vec<Arc<Value>> {
    let mut all = view.list(ATTACHMENTS);
    all.retain(|it| source(it) == volume);
    all
}

fn source(attachment: &Value) -> &str {
    attachment["spec"]["source"]["persistentVolumeName"].as_str().unwrap_or_default()
}

fn node(attachment: &Value) -> &str {
    attachment["spec"]["nodeName"].as_str().unwrap_or_default()
}

fn mark(attachment: &Value) -> (String, String) {
    (source(attachment).to_owned(), node(attachment).to_owned())
}

fn address(attachment: &Value) -> Address {
    Address::new(ATTACHMENTS, "", meta(attachment, "name"))
}

/// Kubernetes: named after a digest of volume, driver and node.
fn attachment(driver: &str, volume: &str, node: &str) -> Value {
    let digest = Sha256::digest(format!("{volume}{driver}{node}"));
    let mut name = "csi-".to_owned();
    for byte in digest {
        // Writing to a text cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {
            "name": name, "finalizers": [format!("external-attacher/{}", driver.replace('.', "-"))],
        },
        "spec": {
            "attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume},
        },
    })
}
