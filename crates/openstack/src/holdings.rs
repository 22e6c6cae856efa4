//! All that carries a cluster's mark, for whoever sweeps up.

use crate::{cloud::Cloud, fault::Fault, marks, wire};
use drover_provider::{Holding, Owner};

/// Servers, ports, floating IPs and volumes of a cluster, in order. Only what names its owner: a tag
/// alone proves nothing.
pub async fn list(cloud: &Cloud, cluster: &str) -> Result<Vec<Holding>, Fault> {
    let tag = marks::cluster_tag(cluster);
    let mut found = Vec::new();
    let mut add = |kind: &str, id: &str, owner: Option<Owner>, created: &str| {
        found.extend(owner.filter(|owner| owner.cluster == cluster).map(|owner| Holding {
            kind: kind.to_owned(),
            id: id.to_owned(),
            owner,
            created: wire::time(created),
        }));
    };
    for it in cloud.servers(&[&tag]).await?.iter().filter(|it| !it.is_gone()) {
        add("server", &it.id, marks::owner_in(&it.metadata, &it.name), &it.created);
    }
    for it in cloud.ports(("tags", &tag)).await? {
        add("port", &it.id, marks::owner_of(&it.description, &it.name), &it.created_at);
    }
    for it in cloud.floating_ips(&[("tags", &tag)]).await? {
        add("floatingip", &it.id, marks::owner_of(&it.description, ""), &it.created_at);
    }
    for it in cloud.volumes(&marks::cluster_filter(cluster)).await? {
        add("volume", &it.id, marks::owner_in(&it.metadata, &it.name), &it.created_at);
    }
    found.sort();
    Ok(found)
}
