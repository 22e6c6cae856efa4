//! Every write to the API server: fenced by what it was planned from, and seen by the cache at once.

use crate::cache::{Cache, Key, Kind};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} {kind} {object}")]
pub struct Error {
    verb: &'static str,
    kind: String,
    object: String,
    source: kube::Error,
}

impl Error {
    pub(crate) fn new(
        verb: &'static str,
        kind: impl Into<String>,
        object: impl ToString,
        source: kube::Error,
    ) -> Self {
        Self { verb, kind: kind.into(), object: object.to_string(), source }
    }
}

/// A namespaced kind that is read and written.
pub trait Written: Kind + Serialize + kube::Resource<Scope = NamespaceResourceScope> {}
impl<K: Kind + Serialize + kube::Resource<Scope = NamespaceResourceScope>> Written for K {}

/// One kind in one place: its client and its cache.
pub struct Writer<'a, K: Written + 'static> {
    client: &'a Client,
    cache: &'a Cache<K>,
}

impl<'a, K: Written> Writer<'a, K> {
    pub fn new(client: &'a Client, cache: &'a Cache<K>) -> Self {
        Self { client, cache }
    }

    fn api(&self, key: &Key) -> Api<K> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn fail(verb: &'static str, key: &Key, source: kube::Error) -> Error {
        Error::new(verb, K::kind(&()), key, source)
    }

    /// Writes the status of an object whose resource version is that of the page it was planned from,
    /// so a plan drawn from a stale page is refused before anything is done by it.
    ///
    /// # Errors
    /// A conflict when the page was stale.
    pub async fn status(&self, object: &K) -> Result<K, Error> {
        let key = Key::of(object);
        let written =
            self.api(&key).replace_status(&key.name, &PostParams::default(), object).await;
        let written = written.map_err(|source| Self::fail("write the status of", &key, source))?;
        self.cache.saw(written.clone());
        Ok(written)
    }

    /// Changes metadata or spec by a merge patch. Put `metadata.resourceVersion` into it for a fence.
    ///
    /// # Errors
    /// When the API server refuses; that the object is gone is one of the reasons.
    pub async fn patch(&self, key: &Key, patch: &Value) -> Result<K, Error> {
        let written =
            self.api(key).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        let written = written.map_err(|source| Self::fail("patch", key, source))?;
        self.cache.saw(written.clone());
        Ok(written)
    }

    /// As [`Writer::patch`]; an object that is gone needs no patch.
    ///
    /// # Errors
    /// When the API server refuses for another reason.
    pub async fn patch_if_there(&self, key: &Key, patch: &Value) -> Result<(), Error> {
        match self.patch(key, patch).await {
            Err(Error { source: kube::Error::Api(status), .. }) if status.code == 404 => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Replaces an object; its resource version is the fence.
    ///
    /// # Errors
    /// A conflict when the page was stale.
    pub async fn replace(&self, object: &K) -> Result<K, Error> {
        let key = Key::of(object);
        let written = self.api(&key).replace(&key.name, &PostParams::default(), object).await;
        let written = written.map_err(|source| Self::fail("replace", &key, source))?;
        self.cache.saw(written.clone());
        Ok(written)
    }

    /// Creates an object under a name that was promised. One that is there already is `None`: an
    /// earlier attempt was answered late or never.
    ///
    /// # Errors
    /// When the API server refuses for another reason.
    pub async fn create(&self, object: &K) -> Result<Option<K>, Error> {
        let key = Key::of(object);
        match self.api(&key).create(&PostParams::default(), object).await {
            Ok(made) => {
                self.cache.saw(made.clone());
                Ok(Some(made))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(source) => Err(Self::fail("create", &key, source)),
        }
    }

    /// Deletes exactly the object that was planned for, unless it changed in the meantime.
    ///
    /// # Errors
    /// When the API server refuses for another reason.
    pub async fn delete_unchanged(&self, key: &Key, object: &K) -> Result<(), Error> {
        let meta = object.meta();
        let only_this_one = Preconditions {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        };
        let ending = delete_if(&self.api(key), key, only_this_one).await?;
        if let Some(ending) = ending {
            self.cache.saw(ending);
        }
        Ok(())
    }

    /// Deletes exactly the object that was planned for. One that is gone, or another of its name, is
    /// success.
    ///
    /// # Errors
    /// When the API server refuses for another reason.
    pub async fn delete(&self, key: &Key, uid: &str) -> Result<(), Error> {
        let ending = delete_exactly(&self.api(key), key, uid).await?;
        // One that its finalizers hold is seen as ending at once, so that it is not deleted again.
        if let Some(ending) = ending {
            self.cache.saw(ending);
        }
        Ok(())
    }
}

/// Deletes the object of this name if it has this UID; what its finalizers hold back is returned.
///
/// # Errors
/// When the API server refuses for another reason than that there is no such object.
pub async fn delete_exactly<K: Kind>(
    api: &Api<K>,
    key: &Key,
    uid: &str,
) -> Result<Option<K>, Error> {
    let only_this_one = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    delete_if(api, key, only_this_one).await
}

async fn delete_if<K: Kind>(
    api: &Api<K>,
    key: &Key,
    conditions: Preconditions,
) -> Result<Option<K>, Error> {
    let only_this_one = DeleteParams { preconditions: Some(conditions), ..DeleteParams::default() };
    match api.delete(&key.name, &only_this_one).await {
        Ok(answer) => Ok(answer.left()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(None),
        Err(source) => Err(Error::new("delete", K::kind(&()), key, source)),
    }
}
