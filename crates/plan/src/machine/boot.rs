//! What a machine's server boots with.

use super::Settings;
use crate::bootstrap::{
    self, BootstrapToken, Downloads, Input, KubeletSettings, OperatingSystem, Outside,
};
use crate::node::{self, Wanted};
use drover_api::{Machine, ServerDescription};
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;
use std::{collections::BTreeMap, net::IpAddr};

/// What all machines of a cluster boot with.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// As nodes reach it, such as `https://api.example:6443`.
    pub api_server_url: String,
    /// One or more PEM certificates: all that a node trusts as its API server.
    pub ca_pem: String,
    /// The addresses of the cluster's name service.
    pub dns: Vec<IpAddr>,
    /// Usually `cluster.local`.
    pub domain: String,
    pub kubelet: KubeletSettings,
    pub downloads: Downloads,
    pub outside: Outside,
}

/// The user-data of one machine. `of_pool` are the annotations of its set.
///
/// # Errors
/// When it would be too big, or the machine has no kubelet version.
pub fn user_data(
    machine: &Machine,
    description: &ServerDescription,
    token: BootstrapToken,
    cluster: &Cluster,
    of_pool: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<Vec<u8>, bootstrap::Error> {
    let wanted = Wanted::by(machine, Some(description));
    let startup = settings.startup_taints.iter().map(|key| Taint {
        key: key.clone(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
    let others = wanted.taints.into_iter().filter(|it| !settings.startup_taints.contains(&it.key));
    bootstrap::render(&Input {
        machine_name: node::name_of(machine),
        operating_system: operating_system(description),
        kubelet_version: description.kubelet.as_ref().map(ToString::to_string).unwrap_or_default(),
        ssh_keys: description.ssh_keys.clone(),
        api_server_url: cluster.api_server_url.clone(),
        cluster_ca_pem: cluster.ca_pem.clone(),
        token,
        node_labels: wanted.labels,
        taints: startup.chain(others).collect(),
        cluster_dns: cluster.dns.clone(),
        cluster_domain: cluster.domain.clone(),
        cloud_provider_external: true,
        ip_family: description.ip_family,
        cloud_config: description.cloud_config.clone(),
        kubelet: cluster.kubelet.clone().tuned(of_pool)?.tuned(machine.annotations())?,
        downloads: cluster.downloads.clone(),
        outside: cluster.outside.clone(),
    })
}

fn operating_system(description: &ServerDescription) -> OperatingSystem {
    use drover_api::OperatingSystem as Described;
    match &description.os {
        Described::Ubuntu { dist_upgrade_on_boot } => {
            OperatingSystem::Ubuntu { dist_upgrade: *dist_upgrade_on_boot }
        }
        Described::Flatcar {
            disable_auto_update,
            disable_locksmith_d,
            disable_update_engine,
            provisioning,
        } => OperatingSystem::Flatcar {
            disable_auto_update: *disable_auto_update,
            disable_locksmith: *disable_locksmith_d,
            disable_update_engine: *disable_update_engine,
            provisioning: *provisioning,
        },
    }
}
