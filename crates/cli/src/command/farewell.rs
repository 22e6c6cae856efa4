//! The end of a world whose servers would outlive the only API server that knows of them.

use super::narrate::say;
use anyhow::bail;
use drover_api::{Machine, MachineDeployment, MachineSet};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// How long the machines may take to go.
const GONE_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Deletes every pool, set and machine, and waits until their servers are gone.
///
/// # Errors
/// When some are left in the cloud, by their names.
pub async fn take_servers_along(admin: &Client, cloud: &str) -> anyhow::Result<()> {
    let machines = Api::<Machine>::all(admin.clone());
    let everything = ListParams::default();
    if machines.list(&everything).await?.items.is_empty()
        && Api::<MachineDeployment>::all(admin.clone()).list(&everything).await?.items.is_empty()
    {
        return Ok(());
    }
    say(&format!(
        "\n# deletes what was made in {cloud}, for nothing else knows of it; Ctrl-C leaves it there"
    ))?;
    let until = Instant::now() + GONE_MAX;
    loop {
        // Again and again: a set may have made a machine meanwhile.
        delete_all::<MachineDeployment>(admin).await;
        delete_all::<MachineSet>(admin).await;
        delete_all::<Machine>(admin).await;
        let left = machines.list(&everything).await?.items;
        if left.is_empty() {
            return say("  nothing is left");
        }
        if Instant::now() > until {
            let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
            bail!("servers of these machines may be left in {cloud}: {}", names.join(", "));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn delete_all<K>(admin: &Client)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    // What does not succeed now is tried again.
    let Ok(all) = Api::<K>::all(admin.clone()).list(&ListParams::default()).await else { return };
    for object in all.items.iter().filter(|it| it.meta().deletion_timestamp.is_none()) {
        let namespace = object.namespace().unwrap_or_default();
        let there = Api::<K>::namespaced(admin.clone(), &namespace);
        let _ = there.delete(&object.name_any(), &DeleteParams::default()).await;
    }
}
