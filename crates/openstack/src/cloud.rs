//! One project of one cloud, as a node provider uses it: each call by its name.

use crate::{
    fault::Fault,
    flight::Flight,
    group::SharedGroups,
    keystone::Service,
    lookup::Lookups,
    marks::{self, Marks},
    session::{Call, Session},
    wire::{FloatingIp, Port, Server, Volume},
};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// How old the shared list of servers may be: one call a second for all machines that build.
const SNAPSHOT_KEPT: Duration = Duration::from_secs(1);
/// How long a floating IP that was picked is left alone: until every list shows what became of it.
const PICK_KEPT: Duration = Duration::from_secs(10);

/// How long a cloud's extensions are believed to stay what they are.
const EXTENSIONS_KEPT: Duration = Duration::from_hours(1);

/// All servers of a cluster at one moment.
pub struct Snapshot {
    /// Before the cloud was asked.
    pub began: Instant,
    servers: Vec<Server>,
}

impl Snapshot {
    /// The servers that carry a machine's marks, or half of them.
    pub fn of<'a>(&'a self, marks: &'a Marks) -> impl Iterator<Item = &'a Server> {
        self.servers.iter().filter(|it| marks.on_server(it) || marks.half_on_server(it))
    }

    /// Whether the cluster has no server that is not gone.
    pub fn is_empty(&self) -> bool {
        self.servers.iter().all(Server::is_gone)
    }
}

/// Where a floating IP is to lead, and what is to be said of it.
pub struct Lead<'a> {
    pub to: Option<&'a str>,
    pub description: &'a str,
}

type Snapshots = BTreeMap<String, Arc<Flight<Arc<Snapshot>>>>;
type Idle = BTreeMap<String, Arc<Flight<Arc<Vec<FloatingIp>>>>>;

/// A session, its look-ups and its lists.
pub struct Cloud {
    pub session: Session,
    pub lookups: Lookups,
    pub groups: SharedGroups,
    snapshots: Mutex<Snapshots>,
    /// Floating IPs that lead nowhere, by their pool.
    idle: Mutex<Idle>,
    /// Which of them this process is about to use, since when.
    picked: Mutex<BTreeMap<String, Instant>>,
    born_tagged: Flight<bool>,
}

impl Cloud {
    #[must_use]
    pub fn new(session: Session, lookups: Lookups) -> Self {
        Self {
            session,
            lookups,
            groups: Mutex::default(),
            snapshots: Mutex::default(),
            idle: Mutex::default(),
            picked: Mutex::default(),
            born_tagged: Flight::default(),
        }
    }

    /// All servers of a machine's cluster, at most a second old.
    pub async fn snapshot(&self, marks: &Marks) -> Result<Arc<Snapshot>, Fault> {
        let flight = {
            let mut all = self.snapshots.lock().expect("nobody panics with this lock");
            all.entry(marks.cluster_tag.clone()).or_default().clone()
        };
        let fetch = async {
            let began = Instant::now();
            let servers = self.servers(&[&marks.cluster_tag]).await?;
            Ok(Arc::new(Snapshot { began, servers }))
        };
        flight.get(SNAPSHOT_KEPT, fetch).await
    }

    /// The servers of one machine, asked for now.
    pub async fn servers_of(&self, marks: &Marks) -> Result<Vec<Server>, Fault> {
        let mut servers = self.servers(&[&marks.cluster_tag, &marks.machine_tag]).await?;
        servers.retain(|it| marks.on_server(it) || marks.half_on_server(it));
        Ok(servers)
    }

    /// The servers with all these tags. A filter that a cloud ignores would show foreign ones: whoever
    /// takes from this list looks at each.
    pub async fn servers(&self, tags: &[&str]) -> Result<Vec<Server>, Fault> {
        let tags = tags.join(",");
        self.session.list(Service::Compute, "/servers/detail", "servers", &[("tags", &tags)]).await
    }

    pub async fn server(&self, id: &str) -> Result<Option<Server>, Fault> {
        self.session.fetch(Service::Compute, &format!("/servers/{id}"), "server").await
    }

    pub async fn delete_server(&self, id: &str) -> Result<(), Fault> {
        self.session.delete(Service::Compute, format!("/servers/{id}")).await
    }

    /// Ends a delayed deletion (Nova: SOFT_DELETED, with `reclaim_instance_interval`).
    pub async fn delete_server_now(&self, id: &str) -> Result<(), Fault> {
        let path = format!("/servers/{id}/action");
        let call = Call::new(Service::Compute, Method::POST, path);
        self.session.send(&call.body(json!({"forceDelete": null}))).await.map(drop)
    }

    pub async fn attach(&self, server: &str, volume: &str) -> Result<(), Fault> {
        let path = format!("/servers/{server}/os-volume_attachments");
        let body = json!({"volumeAttachment": {"volumeId": volume}});
        self.session
            .send(&Call::new(Service::Compute, Method::POST, path).body(body))
            .await
            .map(drop)
    }

    /// Neutron's ports by one exact filter.
    pub async fn ports(&self, filter: (&str, &str)) -> Result<Vec<Port>, Fault> {
        self.session.list(Service::Network, "/ports", "ports", &[filter]).await
    }

    /// The ports of one machine, the oldest first.
    pub async fn ports_of(&self, marks: &Marks) -> Result<Vec<Port>, Fault> {
        let mut ports = self.ports(("description", &marks.description)).await?;
        ports.retain(|it| marks.on_port(it));
        ports.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        Ok(ports)
    }

    /// The floating IPs of one machine, allocated for it or borrowed.
    pub async fn floating_ips_of(&self, marks: &Marks) -> Result<Vec<FloatingIp>, Fault> {
        let either = [("description", &*marks.description), ("description", &*marks.loan)];
        let mut found = self.floating_ips(&either).await?;
        found.retain(|it| marks.on_floating_ip(it) || marks.on_loan(it));
        Ok(found)
    }

    /// The floating IPs of a pool that lead nowhere, at most a second old.
    pub async fn idle_floating_ips(&self, network: &str) -> Result<Arc<Vec<FloatingIp>>, Fault> {
        let flight = {
            let mut all = self.idle.lock().expect("nobody panics with this lock");
            all.entry(network.to_owned()).or_default().clone()
        };
        let filter = [("floating_network_id", network), ("status", "DOWN")];
        let fetch = async { self.floating_ips(&filter).await.map(Arc::new) };
        flight.get(SNAPSHOT_KEPT, fetch).await
    }

    /// Whether this floating IP is the caller's to try: two machines of one process need not run into each other.
    pub fn picks(&self, id: &str) -> bool {
        let mut picked = self.picked.lock().expect("nobody panics with this lock");
        picked.retain(|_, since| since.elapsed() < PICK_KEPT);
        picked.insert(id.to_owned(), Instant::now()).is_none()
    }

    /// Leads a floating IP somewhere, unless it was changed since it was seen.
    pub async fn lead(&self, seen: &FloatingIp, lead: Lead<'_>) -> Result<FloatingIp, Fault> {
        let Lead { to, description } = lead;
        let body = json!({"floatingip": {"port_id": to, "description": description}});
        let call = Call::new(Service::Network, Method::PUT, format!("/floatingips/{}", seen.id));
        let call = call.body(body).if_revision(seen.revision_number);
        self.session.create(call, "floatingip").await
    }

    /// Whether ports take their tags at create. Neutron: with an extension driver that few clouds have; without it
    /// they are accepted and dropped.
    pub async fn ports_are_born_tagged(&self) -> bool {
        let path = "/extensions/tag-ports-during-bulk-creation";
        let fetch = async {
            let found = self.session.fetch::<Value>(Service::Network, path, "extension").await;
            // A cloud that does not tell has its ports tagged after the create, which is right everywhere.
            Ok(found.is_ok_and(|extension| extension.is_some()))
        };
        self.born_tagged.get(EXTENSIONS_KEPT, fetch).await.unwrap_or(false)
    }

    pub async fn delete_port(&self, id: &str) -> Result<(), Fault> {
        self.session.delete(Service::Network, format!("/ports/{id}")).await
    }

    /// Floating IPs by exact filters; of two with one name either will do.
    pub async fn floating_ips(&self, filters: &[(&str, &str)]) -> Result<Vec<FloatingIp>, Fault> {
        self.session.list(Service::Network, "/floatingips", "floatingips", filters).await
    }

    pub async fn create_floating_ip(&self, body: Value) -> Result<FloatingIp, Fault> {
        let call = Call::new(Service::Network, Method::POST, "/floatingips");
        self.session.create(call.body(json!({"floatingip": body})), "floatingip").await
    }

    pub async fn delete_floating_ip(&self, id: &str) -> Result<(), Fault> {
        self.session.delete(Service::Network, format!("/floatingips/{id}")).await
    }

    /// Replaces the tags of a port or floating IP. `kind` is Neutron's plural.
    pub async fn tag(&self, kind: &str, id: &str, tags: &[String]) -> Result<(), Fault> {
        let call = Call::new(Service::Network, Method::PUT, format!("/{kind}/{id}/tags"));
        self.session.send(&call.body(json!({"tags": tags}))).await.map(drop)
    }

    pub async fn volume(&self, id: &str) -> Result<Option<Volume>, Fault> {
        self.session.fetch(Service::Volume, &format!("/volumes/{id}"), "volume").await
    }

    /// The volumes with this metadata (Cinder takes JSON); none when the cloud has no volumes at all.
    pub async fn volumes(&self, metadata: &str) -> Result<Vec<Volume>, Fault> {
        if !self.session.has(Service::Volume).await? {
            return Ok(Vec::new());
        }
        let pairs = [("metadata", metadata)];
        self.session.list(Service::Volume, "/volumes/detail", "volumes", &pairs).await
    }

    /// The volumes of one machine, the oldest first.
    pub async fn volumes_of(&self, marks: &Marks) -> Result<Vec<Volume>, Fault> {
        let mut volumes = self.volumes(&marks.volume_filter()).await?;
        volumes.retain(|it| marks.on_volume(it));
        volumes.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        Ok(volumes)
    }

    pub async fn delete_volume(&self, id: &str) -> Result<(), Fault> {
        self.session.delete(Service::Volume, format!("/volumes/{id}")).await
    }
}

/// Which of its machine's volumes a volume is, and its id.
#[must_use]
pub fn by_slot(volumes: &[Volume]) -> BTreeMap<String, String> {
    let mut slots = BTreeMap::new();
    for volume in volumes {
        if let Some(slot) = marks::slot(volume) {
            slots.entry(slot.to_owned()).or_insert_with(|| volume.id.clone());
        }
    }
    slots
}
