//! What every controller is given: where to read, where to write, and by which settings.

use crate::caches::Caches;
use crate::events::{News, Recorder, Tone};
use crate::machine::Minds;
use crate::manager::Settings;
use crate::metrics::Metrics;
use crate::troubles::AllTroubles;
use drover_provider::Clock;
use drover_provider::Provider;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource, ResourceExt};
use semver::Version;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all controllers of one manager.
pub struct Context {
    pub client: Client,
    pub caches: Caches,
    pub provider: Arc<dyn Provider>,
    pub settings: Settings,
    pub clock: Clock,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub troubles: AllTroubles,
    pub minds: Minds,
    /// What the API server last said of its version.
    pub api_server: Mutex<Option<Version>>,
}

impl Context {
    /// Asks the API server for its version. One that does not tell is asked again with the next round; until
    /// then what it said last counts.
    pub async fn learn_version(&self) {
        match self.client.apiserver_version().await {
            Ok(info) => match Version::parse(info.git_version.trim_start_matches('v')) {
                Ok(version) => *self.version() = Some(version),
                Err(error) => {
                    let version = &info.git_version;
                    tracing::warn!(version, %error, "the API server's version cannot be read");
                }
            },
            Err(error) => tracing::warn!(%error, "the API server does not tell its version"),
        }
    }

    /// The API server's version, as far as it told.
    pub fn version(&self) -> MutexGuard<'_, Option<Version>> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what happened to an object as an Event of its controller, if it has one.
    pub fn tell_owner<K: ResourceExt>(&self, object: &K, tone: Tone, reason: &str, note: &str) {
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        let Some(owner) = owner else { return };
        self.recorder.tell(News {
            regarding: ObjectReference {
                api_version: Some(owner.api_version.clone()),
                kind: Some(owner.kind.clone()),
                name: Some(owner.name.clone()),
                namespace: object.namespace(),
                uid: Some(owner.uid.clone()),
                ..ObjectReference::default()
            },
            tone,
            reason: reason.to_owned(),
            action: "Reconcile".to_owned(),
            note: note.to_owned(),
        });
    }

    /// Tells what happened to an object as an Event.
    pub fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        tone: Tone,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.recorder.tell(News {
            regarding: object.object_ref(&()),
            tone,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: note.to_owned(),
        });
    }
}
