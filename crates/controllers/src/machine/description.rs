//! Finds out what a machine is to be, and with whose credentials.

use crate::cache::Key;
use crate::context::Context;
use drover_api::{
    CredentialValue, CredentialsSource, DescriptionError, Machine, MachineClass, Reference,
    ReferenceKind, ServerDescription, UserDataSource, class_reference, credentials_of, describe,
};
use drover_provider::Credentials;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Gardener: the key of a class' Secret that holds the user-data.
const USER_DATA: &str = "userData";

/// What a machine's description says, or why it cannot be read.
pub type Described = Result<ServerDescription, String>;

/// Why something that a description refers to could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read {what}")]
    Read { what: String, source: kube::Error },
    #[error("{what} does not exist; create it")]
    Missing { what: String },
    #[error(
        "the manager has no right to read {what}; `drover manifests rbac --credentials-namespace {namespace}` \
         prints what gives it"
    )]
    Forbidden { what: String, namespace: String },
}

impl Error {
    /// Whether the cluster answered, and only somebody who changes it can help.
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// Reads the description. A value that it takes from a Secret or ConfigMap is read live; most
/// descriptions take none, and credentials are read only when the cloud is asked.
///
/// # Errors
/// When the API server does not answer. A description that makes no sense is an answer.
pub async fn read(machine: &Machine, ctx: &Context) -> Result<Described, Error> {
    if let Some(elsewhere) = foreign_class(machine) {
        return Ok(Err(elsewhere));
    }
    let class = class_of(machine, ctx);
    let mut resolved = BTreeMap::new();
    loop {
        let error = match describe(&machine.spec, class.as_deref(), &resolved) {
            Ok(description) => return Ok(Ok(description)),
            Err(error) => error,
        };
        let DescriptionError::Unresolved { field, reference } = &error else {
            return Ok(Err(error.to_string()));
        };
        // Each round resolves one more, so there are no more rounds than references.
        let value = match resolve(reference, ctx).await {
            Ok(value) if !resolved.contains_key(reference) => value,
            Ok(_) | Err(Error::Missing { .. }) => return Ok(Err(error.to_string())),
            Err(unread) if unread.is_answer() => {
                return Ok(Err(format!("{field}: {unread}")));
            }
            Err(unread) => return Err(unread),
        };
        resolved.insert(reference.clone(), value);
    }
}

/// Where the credentials of a machine are, and its region, when no more of its description can be read.
///
/// # Errors
/// When even that cannot be told.
pub fn rest_of(
    machine: &Machine,
    ctx: &Context,
) -> Result<(CredentialsSource, Option<String>), DescriptionError> {
    credentials_of(&machine.spec, class_of(machine, ctx).as_deref())
}

/// Classes are looked up beside their machines: one namespace cannot reach into another.
fn foreign_class(machine: &Machine) -> Option<String> {
    let from = machine.spec.provider_spec.value_from.as_ref()?.machine_class.as_ref()?;
    let (given, own) = (from.namespace.as_ref()?, machine.namespace().unwrap_or_default());
    (*given != own).then(|| {
        format!(
            "spec.providerSpec.valueFrom.machineClass.namespace: {given:?} cannot be used; give {own}, the \
             machine's own, and make the MachineClass there"
        )
    })
}

fn class_of(machine: &Machine, ctx: &Context) -> Option<Arc<MachineClass>> {
    let (_, name) = class_reference(&machine.spec)?;
    ctx.caches.classes.get(&Key::new(machine.namespace().unwrap_or_default(), name))
}

/// The credentials a description names, to be completed where its dialect says so; empty for the manager's own.
///
/// # Errors
/// When a Secret or key it names is not there.
pub async fn credentials(
    source: &CredentialsSource,
    machine: &Machine,
    ctx: &Context,
) -> Result<Credentials, Error> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for secret in &source.secrets {
        let namespace = own_or(secret.namespace.as_deref(), machine);
        found.extend(secret_texts(&namespace, &secret.name, ctx).await?);
    }
    // Gardener: one Secret may hold both. With this alone the manager's own credentials are meant.
    found.remove(USER_DATA);
    for (name, value) in &source.values {
        let text = match value {
            CredentialValue::Inline(text) => text.clone(),
            CredentialValue::Reference(reference) => resolve(reference, ctx).await?,
        };
        found.insert(name.clone(), text);
    }
    let credentials: Credentials = found.into_iter().collect();
    Ok(if source.are_completed { credentials.completed() } else { credentials })
}

/// User-data that somebody else wrote (Gardener), or none when Drover is to write it.
///
/// # Errors
/// When the Secret or its key `userData` is not there.
pub async fn foreign_user_data(
    source: &UserDataSource,
    machine: &Machine,
    ctx: &Context,
) -> Result<Option<String>, Error> {
    let UserDataSource::Secret(secret) = source else { return Ok(None) };
    let namespace = own_or(secret.namespace.as_deref(), machine);
    let mut texts = secret_texts(&namespace, &secret.name, ctx).await?;
    let what = || format!("key {USER_DATA} of Secret {namespace}/{}", secret.name);
    let text = texts.remove(USER_DATA).ok_or_else(|| Error::Missing { what: what() })?;
    Ok(Some(text))
}

fn own_or(namespace: Option<&str>, machine: &Machine) -> String {
    namespace.map_or_else(|| machine.namespace().unwrap_or_default(), str::to_owned)
}

async fn resolve(reference: &Reference, ctx: &Context) -> Result<String, Error> {
    let Reference { kind, namespace, name, key } = reference;
    let found = match kind {
        ReferenceKind::Secret => secret_texts(namespace, name, ctx).await?.remove(key),
        ReferenceKind::ConfigMap => {
            let configs = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
            let found = configs.get_opt(name).await;
            let found = found.map_err(|source| unread(reference, namespace, source))?;
            found.and_then(|config| config.data).and_then(|mut data| data.remove(key))
        }
    };
    found.ok_or_else(|| Error::Missing { what: reference.to_string() })
}

fn unread(what: &impl ToString, namespace: &str, source: kube::Error) -> Error {
    let what = what.to_string();
    match source {
        kube::Error::Api(status) if status.code == 403 => {
            Error::Forbidden { what, namespace: namespace.to_owned() }
        }
        source => Error::Read { what, source },
    }
}

async fn secret_texts(
    namespace: &str,
    name: &str,
    ctx: &Context,
) -> Result<BTreeMap<String, String>, Error> {
    let what = format!("Secret {namespace}/{name}");
    let secrets = Api::<Secret>::namespaced(ctx.client.clone(), namespace);
    let found = secrets.get_opt(name).await.map_err(|source| unread(&what, namespace, source))?;
    let secret = found.ok_or(Error::Missing { what })?;
    let texts = secret.data.unwrap_or_default().into_iter();
    Ok(texts
        .map(|(key, value)| (key, String::from_utf8_lossy(&value.0).trim().to_owned()))
        .collect())
}
