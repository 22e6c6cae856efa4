//! The cloud controller manager: Nodes learn what their servers are, and go when their servers are gone.

use crate::client::{ApiError, Client, Informer, PatchKind};
use crate::clock::Pace;
use crate::openstack::nova::{self, Server};
use crate::openstack::{self, Error};
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Kubernetes: the taint that a kubelet sets with `--cloud-provider=external`.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Kubernetes: the taint of a Node whose server is switched off.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The list of servers is never read more often than this.
const LIST_MIN: Duration = Duration::from_secs(2);
/// Nor does reading a long one take more than one part in so many of the time, at whatever pace.
const LIST_SHARE: u32 = 5;
/// Nodes that are written at once.
const WRITES_AT_ONCE: usize = 8;
/// Nodes that are not Ready are compared with their servers this often (Kubernetes: 5 s).
const MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// All Nodes are compared with their servers this often.
const RESYNC_PERIOD: Duration = Duration::from_secs(60);

/// What it works with.
pub struct Config {
    /// Of the cluster; it reads and writes Nodes.
    pub client: Client,
    /// Of the cloud.
    pub cloud: openstack::Client,
    /// The pace at which it looks at the cloud.
    pub pace: Pace,
    /// Whether provider ids name the region: `openstack://REGION/ID` rather than `openstack:///ID`.
    pub regional: bool,
}

struct Manager {
    client: Client,
    cloud: openstack::Client,
    regional: bool,
}

/// Runs until it is stopped.
pub async fn run(config: Config, stop: CancellationToken) {
    let Config { client, cloud, pace, regional } = config;
    let nodes = Informer::start(&client, "/api/v1/nodes");
    let manager = Manager { client, cloud, regional };
    stop.run_until_cancelled(manager.run(nodes, pace)).await;
}

impl Manager {
    async fn run(self, mut nodes: Informer, pace: Pace) {
        nodes.ready().await;
        let mut resync = Instant::now();
        loop {
            let all = nodes.list();
            let urgent = all.iter().any(|node| has_taint(node, UNINITIALIZED));
            let suspect = all.iter().any(|node| !is_ready(node));
            let now = Instant::now();
            let mut read = Duration::ZERO;
            if !all.is_empty() && (urgent || suspect || resync <= now) {
                read = self.compare(&all).await;
            }
            if resync <= now {
                resync = now + pace.of(RESYNC_PERIOD).max(MONITOR_PERIOD);
            }
            let monitor = now + pace.of(MONITOR_PERIOD);
            // Many changes at once are one look; looking is dear, so it is not done for each.
            tokio::time::sleep(pace.of(LIST_MIN).max(read * (LIST_SHARE - 1))).await;
            tokio::select! {
                () = tokio::time::sleep_until(if suspect { monitor } else { resync }) => {}
                () = nodes.changed() => {}
            }
        }
    }

    /// Compares all Nodes with one list of the servers, and tells how long that took to read.
    async fn compare(&self, nodes: &[Arc<Value>]) -> Duration {
        let began = Instant::now();
        let looked = async {
            let servers = nova::servers(&self.cloud).await?;
            Ok::<_, Error>((servers, self.cloud.region().await?))
        };
        let (servers, region) = match looked.await {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!("cloud controller manager: {error}");
                return began.elapsed();
            }
        };
        let read = began.elapsed();
        let by_name: BTreeMap<String, &Server> =
            servers.values().map(|server| (server.name.to_ascii_lowercase(), server)).collect();
        let mut writes = Vec::with_capacity(nodes.len());
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let id = node["spec"]["providerID"].as_str().and_then(|id| id.rsplit('/').next());
            let server = match id {
                Some(id) => servers.get(id),
                None => by_name.get(name).copied(),
            };
            writes.push(self.settle(node, name, id, server, &region));
        }
        stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).collect::<()>().await;
        read
    }

    async fn settle(
        &self,
        node: &Value,
        name: &str,
        id: Option<&str>,
        server: Option<&Server>,
        region: &str,
    ) {
        let done = match (server, id) {
            (Some(server), _) => self.bring_up_to_date(node, name, server, region).await,
            (None, Some(id)) => self.remove(node, name, id).await,
            // A Node that never had a server is not ours to judge.
            (None, None) => Ok(()),
        };
        if let Err(error) = done {
            tracing::debug!(node = name, "cloud controller manager: {error}");
        }
    }

    async fn bring_up_to_date(
        &self,
        node: &Value,
        name: &str,
        server: &Server,
        region: &str,
    ) -> Result<(), ApiError> {
        // Addresses appear in Nova a moment after the ports; a Node without any is no use to anybody.
        if has_taint(node, UNINITIALIZED) && server.internal.is_empty() {
            return Ok(());
        }
        let path = format!("/api/v1/nodes/{name}");
        let addresses = addresses(name, server);
        let mut latest = None;
        if node["status"]["addresses"] != addresses && !server.internal.is_empty() {
            let status = json!({"status": {"addresses": addresses}});
            let path = format!("{path}/status");
            latest = Some(self.client.patch(&path, PatchKind::Merge, &status).await?);
        }
        let change = self.wanted(latest.as_ref().unwrap_or(node), server, region);
        if change.is_empty() {
            return Ok(());
        }
        match self.client.patch(&path, PatchKind::Merge, &change.into()).await {
            // Somebody else wrote between the list and now: once more with what is there.
            Err(error) if error.is_conflict() => {
                let change = self.wanted(&self.client.get(&path).await?, server, region);
                self.client.patch(&path, PatchKind::Merge, &change.into()).await.map(|_| ())
            }
            answer => answer.map(|_| ()),
        }
    }

    /// The merge patch that makes the Node say what its server is; empty when it does.
    fn wanted(&self, node: &Value, server: &Server, region: &str) -> Map<String, Value> {
        let mut labels = Map::new();
        for (key, value) in [
            ("failure-domain.beta.kubernetes.io/region", region),
            ("failure-domain.beta.kubernetes.io/zone", &server.zone),
            ("topology.kubernetes.io/region", region),
            ("topology.kubernetes.io/zone", &server.zone),
            ("beta.kubernetes.io/instance-type", &server.flavor),
            ("node.kubernetes.io/instance-type", &server.flavor),
        ] {
            if has_taint(node, UNINITIALIZED) && !value.is_empty() {
                labels.insert(key.to_owned(), value.into());
            }
        }
        let mut spec = Map::new();
        if node["spec"]["providerID"].is_null() {
            let region = if self.regional { region } else { "" };
            let id = format!("openstack://{region}/{}", server.id);
            spec.insert("providerID".to_owned(), id.into());
        }
        let before = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut taints = before.clone();
        let is_off = server.status == "SHUTOFF";
        taints
            .retain(|taint| taint["key"] != UNINITIALIZED && (is_off || taint["key"] != SHUTDOWN));
        if is_off && !has_taint(node, SHUTDOWN) {
            taints.push(json!({"key": SHUTDOWN, "effect": "NoSchedule"}));
        }
        let mut patch = Map::new();
        let mut metadata = Map::new();
        if taints != before {
            spec.insert("taints".to_owned(), taints.into());
            // The list is written whole: what somebody else added meanwhile must not get lost.
            let version = node["metadata"]["resourceVersion"].clone();
            metadata.insert("resourceVersion".to_owned(), version);
        }
        if !labels.is_empty() {
            metadata.insert("labels".to_owned(), labels.into());
        }
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), spec.into());
        }
        if !metadata.is_empty() {
            patch.insert("metadata".to_owned(), metadata.into());
        }
        patch
    }

    /// Deletes the Node of a server that is really gone: the list may be a moment older than the Node.
    async fn remove(&self, node: &Value, name: &str, id: &str) -> Result<(), ApiError> {
        if !matches!(nova::exists(&self.cloud, id).await, Ok(false)) {
            return Ok(());
        }
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": node["metadata"]["uid"]},
        });
        match self.client.delete(&format!("/api/v1/nodes/{name}"), &options).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

fn addresses(name: &str, server: &Server) -> Value {
    let of = |kind: &str, all: &[std::net::IpAddr]| -> Vec<Value> {
        all.iter().map(|ip| json!({"type": kind, "address": ip.to_string()})).collect()
    };
    let mut addresses = of("InternalIP", &server.internal);
    addresses.extend(of("ExternalIP", &server.external));
    addresses.push(json!({"type": "Hostname", "address": name}));
    addresses.into()
}

fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == *key)
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
