//! Installs Drover's kinds and rights, as a user would with `drover manifests`.

use anyhow::Context;
use drover_controllers::rbac;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// How long a new kind may take to be served, and a new right to be granted.
const EFFECT_MAX: Duration = Duration::from_secs(60);
/// How often it is tried whether a new right is granted.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// Applies kinds and rights; when this returns the kinds are served.
pub async fn kinds_and_rights(admin: &Client) -> anyhow::Result<()> {
    let apply = PatchParams::apply("drover-dev").force();
    let mut kinds = Vec::new();
    for crd in drover_api::crds() {
        let version = crd.spec.versions.first().map(|version| version.name.as_str());
        let kind = GroupVersionKind::gvk(
            &crd.spec.group,
            version.unwrap_or_default(),
            &crd.spec.names.kind,
        );
        kinds.push(ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural));
        apply_object(admin, &serde_json::to_value(&crd)?, &apply).await?;
    }
    for object in rbac::objects(&[]) {
        apply_object(admin, &object, &apply).await?;
    }
    for kind in kinds {
        until_served(admin, &kind).await?;
    }
    Ok(())
}

/// Kubernetes: a new kind is established, and then refuses with 429 until its cache is filled.
async fn until_served(admin: &Client, kind: &ApiResource) -> anyhow::Result<()> {
    let all = Api::<DynamicObject>::all_with(admin.clone(), kind);
    let until = Instant::now() + EFFECT_MAX;
    loop {
        match all.list(&ListParams::default().limit(1)).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => {
                return Err(error).with_context(|| format!("listing {}", kind.plural));
            }
            Err(_) => tokio::time::sleep(TRY_EVERY).await,
        }
    }
}

async fn apply_object(admin: &Client, object: &Value, apply: &PatchParams) -> anyhow::Result<()> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let kind = GroupVersionKind::gvk(group, version, text("/kind"));
    let resource = ApiResource::from_gvk(&kind);
    let api = match text("/metadata/namespace") {
        "" => Api::<DynamicObject>::all_with(admin.clone(), &resource),
        namespace => Api::namespaced_with(admin.clone(), namespace, &resource),
    };
    let name = text("/metadata/name");
    let applied = api.patch(name, apply, &Patch::Apply(object)).await;
    applied.map(drop).with_context(|| format!("applying {} {name}", text("/kind")))
}

/// Waits until the manager's rights have come into effect (Kubernetes: the authorizer watches its roles).
pub async fn until_granted(manager: &Client) -> anyhow::Result<()> {
    let until = Instant::now() + EFFECT_MAX;
    loop {
        match super::manager::cluster_id(manager).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(TRY_EVERY).await,
        }
    }
}
