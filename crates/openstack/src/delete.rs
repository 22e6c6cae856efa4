//! Deleting all of a machine, from wherever the last call came to.
//!
//! The server first, and nothing else before it is gone; then what it leaves behind: ports, floating
//! IP, volumes. Each is read anew before it is deleted, and only what carries both marks is.

use crate::{
    cloud::Cloud,
    fault::Fault,
    floating, instance,
    marks::Marks,
    parameters::Parameters,
    promise::{self, Deeds, Standing},
    recall::{Recall, VOLUMES},
    wire::{Server, Volume},
};
use drover_provider::{Deleted, Error};
use http::StatusCode;
use std::time::Duration;

/// How soon something that is being deleted is looked at again.
const GONE_POLL: Duration = Duration::from_secs(2);
/// How often floating IPs are looked for: the last look is to find nothing.
const FLOATING_IP_LOOKS: usize = 4;
/// After this long a deletion that shows no end is asked for again.
const DELETE_AGAIN: Duration = Duration::from_secs(60);

/// One call of `delete`.
pub struct Deletion<'a> {
    pub cloud: &'a Cloud,
    pub deeds: &'a Deeds,
    pub marks: Marks,
    /// `None` when they cannot be read any more: then everything is looked for.
    pub parameters: Option<Parameters>,
    pub recall: Recall,
    pub machine: String,
}

impl Deletion<'_> {
    /// Goes as far as it can without waiting.
    pub async fn run(self) -> Result<Deleted, Error> {
        if let Some(waiting) = self.server().await? {
            return Ok(waiting);
        }
        if let Some(waiting) = self.fence() {
            return Ok(waiting);
        }
        // While something may still come of a lost create, a look that finds nothing is what counts.
        if self.ports().await? && self.may_come_late() {
            self.ports().await?;
        }
        // After the ports: without its port no floating IP of a lost create can come into being.
        if self.may_have_floating_ip() {
            for _ in 0..FLOATING_IP_LOOKS {
                if !floating::give_back(self.cloud, &self.marks).await? {
                    break;
                }
            }
        }
        if self.may_have_volumes()
            && let Some(waiting) = self.volumes().await?
        {
            return Ok(waiting);
        }
        if self.parameters.as_ref().is_none_or(|it| it.server_group.is_none()) {
            self.cloud.drop_unused_group(&self.marks).await?;
        }
        self.deeds.forget(&self.machine);
        Ok(Deleted::Gone)
    }

    async fn server(&self) -> Result<Option<Deleted>, Error> {
        if let Some(deleted_at) = self.deeds.deleted_at(&self.machine) {
            let snapshot = self.cloud.snapshot(&self.marks).await?;
            let left = snapshot.of(&self.marks).next().map(|it| it.id.clone());
            return match left {
                _ if snapshot.began <= deleted_at => Ok(Some(waiting("the server to go"))),
                Some(id) => {
                    if deleted_at.elapsed() > DELETE_AGAIN {
                        self.deeds.delete_again(&self.machine);
                    }
                    Ok(Some(waiting(&format!("server {id} to go"))))
                }
                None => Ok(None),
            };
        }
        let mut servers = self.listed().await?;
        if let Some(id) = &self.recall.server {
            // Tags can be taken off a server; its id stays.
            if !servers.iter().any(|it| it.id == *id) {
                let known = self.cloud.server(id).await?;
                servers.extend(known.filter(|it| self.marks.on_server(it)));
            }
        }
        if let Some(odd) = servers.iter().find(|it| !self.marks.on_server(it)) {
            return Err(instance::unclear(odd));
        }
        let Some(first) = servers.first() else { return Ok(None) };
        let waits_for = format!("server {} to go", first.id);
        for server in &servers {
            self.delete_server(server).await?;
        }
        self.deeds.deleted(&self.machine);
        Ok(Some(waiting(&waits_for)))
    }

    /// The machine's servers, out of the list that all share if it shows any: a hundred machines that go at once ask
    /// once. That it shows none proves nothing.
    async fn listed(&self) -> Result<Vec<Server>, Fault> {
        let snapshot = self.cloud.snapshot(&self.marks).await?;
        let posted_at = self.deeds.posted_at(&self.machine);
        if posted_at.is_none_or(|posted| snapshot.began > posted) {
            let shown: Vec<Server> = snapshot.of(&self.marks).cloned().collect();
            if !shown.is_empty() {
                return Ok(shown);
            }
        }
        self.cloud.servers_of(&self.marks).await
    }

    async fn delete_server(&self, server: &Server) -> Result<(), Fault> {
        match server.status.as_str() {
            // Ports stay bound until it is gone for good.
            "SOFT_DELETED" => self.cloud.delete_server_now(&server.id).await,
            "DELETED" => Ok(()),
            _ => self.cloud.delete_server(&server.id).await,
        }
    }

    /// A create that was promised and never heard of again may still bring a server.
    fn fence(&self) -> Option<Deleted> {
        let promised_at = self.recall.promised_at.max(self.deeds.sent_at(&self.machine))?;
        let seen = self.recall.server.is_some() || self.deeds.deleted_at(&self.machine).is_some();
        let now = self.cloud.session.now();
        if seen || self.deeds.standing(&self.machine, promised_at, now) != Standing::Unsure {
            return None;
        }
        let left = promise::fence_left(promised_at, now);
        (!left.is_zero()).then(|| Deleted::Waiting {
            waits_for: "a create that may still be under way to show".into(),
            after: left,
        })
    }

    /// Whether a port may still come into being of which nobody was told: no longer when the fence of the last promise
    /// has passed.
    fn may_come_late(&self) -> bool {
        let promised_at = self.recall.promised_at.max(self.deeds.sent_at(&self.machine));
        let now = self.cloud.session.now();
        promised_at.is_none_or(|at| !promise::fence_left(at, now).is_zero())
    }

    /// Whether there was anything to delete.
    async fn ports(&self) -> Result<bool, Error> {
        let ports = self.cloud.ports_of(&self.marks).await?;
        for port in &ports {
            // Deleting a port in use succeeds and cuts off whoever uses it.
            if !port.device_id.is_empty() {
                let user = self.cloud.server(&port.device_id).await?;
                if let Some(user) = user.filter(|it| !it.is_gone()) {
                    return Err(Error::Conflict(format!(
                        "port {} is in use by server {} ({}), which is not this machine's; detach it",
                        port.id, user.id, user.name
                    )));
                }
            }
            self.cloud.delete_port(&port.id).await?;
        }
        Ok(!ports.is_empty())
    }

    fn may_have_floating_ip(&self) -> bool {
        self.recall.floating_address.is_some()
            || self.parameters.as_ref().is_none_or(|it| it.floating_ip_pool.is_some())
    }

    fn may_have_volumes(&self) -> bool {
        self.recall.notes.contains_key(VOLUMES)
            || self
                .parameters
                .as_ref()
                .is_none_or(|it| it.root_volume.is_some() || !it.additional_volumes.is_empty())
    }

    /// Cinder deletes in its own time: gone is what is not listed any more.
    async fn volumes(&self) -> Result<Option<Deleted>, Fault> {
        let volumes = self.cloud.volumes_of(&self.marks).await?;
        for volume in &volumes {
            self.delete_volume(volume).await?;
        }
        Ok(volumes
            .first()
            .map(|it| waiting(&format!("volume {} to go, it is {}", it.id, it.status))))
    }

    async fn delete_volume(&self, volume: &Volume) -> Result<(), Fault> {
        if matches!(volume.status.as_str(), "deleting" | "in-use" | "attaching" | "detaching") {
            return Ok(());
        }
        match self.cloud.delete_volume(&volume.id).await {
            // Not yet: it is being made, or changed its status since.
            Err(fault) if fault.status() == Some(StatusCode::BAD_REQUEST) => Ok(()),
            outcome => outcome,
        }
    }
}

fn waiting(waits_for: &str) -> Deleted {
    Deleted::Waiting { waits_for: waits_for.to_owned(), after: GONE_POLL }
}
