//! The server group that the machines of a cluster share when they name none.
//!
//! MetaKube: without one a cluster gets a group of its own with soft anti-affinity, so that one host that burns takes
//! few nodes along. It is made on first use and goes with the last server. Nova keeps nothing of a group but name and
//! policy: the name holds the cluster's identity and proves that the group is ours.

use crate::{
    cloud::Cloud, fault::Fault, keystone::Service, marks::Marks, session::Call, wire::ServerGroup,
};
use drover_provider::Error;
use http::Method;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, sync::Mutex, time::Duration};
use tokio::time::Instant;

/// Nova: as far apart as there is room.
const POLICY: &str = "soft-anti-affinity";
/// How long a group is used without a look. Who deletes it meanwhile costs one refused create.
const KEPT: Duration = Duration::from_secs(60);
/// How long a cluster does without when its group is full or cannot be had. Nova: by default a group holds ten servers.
const WITHOUT: Duration = Duration::from_secs(600);
/// One look serves all machines that end within this time.
const DROP_REST: Duration = Duration::from_secs(1);

/// The shared group of one cluster.
#[derive(Default)]
pub struct Shared {
    found: crate::flight::Flight<String>,
    dropped: crate::flight::Flight<()>,
    without_until: Mutex<Option<Instant>>,
}

/// The shared groups by the tag of their cluster.
pub type SharedGroups = Mutex<BTreeMap<String, Arc<Shared>>>;

impl Cloud {
    fn group_of(&self, marks: &Marks) -> Arc<Shared> {
        let mut groups = self.groups.lock().expect("nobody panics with this lock");
        groups.entry(marks.cluster_tag.clone()).or_default().clone()
    }

    /// The group of the cluster, made when there is none; `None` while the cloud gives none.
    pub async fn shared_group(&self, marks: &Marks) -> Result<Option<String>, Fault> {
        let shared = self.group_of(marks);
        let without_until = *shared.without_until.lock().expect("nobody panics with this lock");
        if without_until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        match shared.found.get(KEPT, self.find_or_make(&marks.cluster_tag)).await {
            Ok(id) => Ok(Some(id)),
            // Nobody asked for it by name: the machine comes up without.
            Err(fault) if is_withheld(&fault) => {
                self.go_without_group(marks, &Error::from(fault).to_string());
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The cloud would not take another server into the group, or gives none.
    pub fn go_without_group(&self, marks: &Marks, why: &str) {
        tracing::warn!(group = marks.cluster_tag, why, "servers are made without a server group");
        let shared = self.group_of(marks);
        let mut without_until = shared.without_until.lock().expect("nobody panics with this lock");
        *without_until = Some(Instant::now() + WITHOUT);
    }

    /// What was known of the group does not hold any more.
    pub fn forget_group(&self, marks: &Marks) {
        self.groups.lock().expect("nobody panics with this lock").remove(&marks.cluster_tag);
    }

    async fn find_or_make(&self, name: &str) -> Result<String, Fault> {
        if let Some(there) = self.groups_named(name).await?.into_iter().next() {
            return Ok(there.id);
        }
        let call = Call::new(Service::Compute, Method::POST, "/os-server-groups")
            .body(json!({"server_group": {"name": name, "policy": POLICY}}));
        let made: ServerGroup = self.session.create(call, "server_group").await?;
        // Nova takes two groups of one name: of two managers that make one at once, the later gives up its own.
        match self.groups_named(name).await?.into_iter().next() {
            Some(first) if first.id != made.id => {
                self.delete_group(&made.id).await?;
                Ok(first.id)
            }
            _ => Ok(made.id),
        }
    }

    /// Our groups of this name, those in use first.
    async fn groups_named(&self, name: &str) -> Result<Vec<ServerGroup>, Fault> {
        let path = "/os-server-groups";
        let mut found: Vec<ServerGroup> =
            self.session.list(Service::Compute, path, "server_groups", &[]).await?;
        found.retain(|it| it.name == name && it.has_policy(POLICY));
        found.sort_by(|a, b| (a.members.is_empty(), &a.id).cmp(&(b.members.is_empty(), &b.id)));
        Ok(found)
    }

    async fn delete_group(&self, id: &str) -> Result<(), Fault> {
        self.session.delete(Service::Compute, format!("/os-server-groups/{id}")).await
    }

    /// Deletes the cluster's group when its last server is gone. A machine that is about to use it gets a new one.
    pub async fn drop_unused_group(&self, marks: &Marks) -> Result<(), Fault> {
        if !self.snapshot(marks).await?.is_empty() {
            return Ok(());
        }
        let shared = self.group_of(marks);
        self.forget_group(marks);
        let drop_all = async {
            for unused in self.groups_named(&marks.cluster_tag).await? {
                if unused.members.is_empty() {
                    self.delete_group(&unused.id).await?;
                }
            }
            Ok(())
        };
        match shared.dropped.get(DROP_REST, drop_all).await {
            Err(fault) if !fault.is_passing() => {
                // It holds nothing and costs nothing: no reason to keep a machine.
                let why = Error::from(fault).to_string();
                tracing::warn!(group = marks.cluster_tag, why, "an unused server group stays");
                Ok(())
            }
            outcome => outcome,
        }
    }
}

/// A quota of groups, or no right to make one.
fn is_withheld(fault: &Fault) -> bool {
    matches!(Error::from(fault.clone()), Error::QuotaExceeded(_) | Error::Forbidden(_))
}
