//! Making a server, from wherever the last call came to.
//!
//! Promise, ports, volumes, server, and what is fastened to it once it runs. Every step looks for what
//! an earlier call may have made before it makes anything.

use crate::{
    cloud::Cloud,
    fault::{self, Fault},
    finish, instance,
    keystone::Service,
    lookup::Resolved,
    marks::{self, Marks},
    parameters::Parameters,
    place, ports,
    promise::{self, Deeds, Standing},
    recall::{self, Recall},
    session::Call,
    wire::Server,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use drover_provider::{Created, Error, Instance, Order, PLACE};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// How soon a server that builds is looked at again; the look is shared by all.
pub const BUILD_POLL: Duration = Duration::from_secs(2);
/// How often the list is looked at while it is unsure whether a server was made.
const FENCE_POLL: Duration = Duration::from_secs(5);

/// One call of `create`.
pub struct Creation<'a> {
    pub cloud: &'a Cloud,
    pub deeds: &'a Deeds,
    pub order: &'a Order,
    pub marks: Marks,
    pub parameters: Parameters,
    pub recall: Recall,
    /// What this process knows the machine by.
    pub machine: String,
}

impl Creation<'_> {
    /// Goes as far as it can without waiting.
    pub async fn run(mut self) -> Result<Created, Error> {
        // A caller that reads a stale copy of its memory must not make this process promise twice.
        let sent_at = self.deeds.sent_at(&self.machine);
        let Some(promised_at) = self.recall.promised_at.max(sent_at) else {
            // Whatever the cloud cannot fulfil is better known before anything is promised.
            self.recall.notes = self.notes(&self.resolve().await?).await?;
            let snapshot = self.cloud.snapshot(&self.marks).await?;
            if let Some(server) = sole(snapshot.of(&self.marks), &self.marks)? {
                // The caller lost its memory, such as a status that somebody wiped.
                self.recall.promised_at = Some(self.cloud.session.now());
                return self.follow(&server).await;
            }
            return Ok(self.promise(true));
        };
        let now = self.cloud.session.now();
        match self.deeds.standing(&self.machine, promised_at, now) {
            Standing::Open => self.build(promised_at).await,
            Standing::Void => Ok(self.promise(false)),
            Standing::Unsure => self.look(promised_at, now).await,
        }
    }

    fn promise(&mut self, newborn: bool) -> Created {
        let now = self.cloud.session.now();
        self.deeds.promise(&self.machine, now, newborn);
        self.recall.promised_at = Some(now);
        self.recall.server = None;
        Created::Record(self.recall.write())
    }

    pub fn waiting(&self, waits_for: impl Into<String>, after: Duration) -> Created {
        Created::Waiting { memory: self.recall.write(), waits_for: waits_for.into(), after }
    }

    async fn resolve(&self) -> Result<Resolved, Fault> {
        self.cloud.lookups.resolve(&self.cloud.session, &self.parameters).await
    }

    /// What is written down before anything is made: what was resolved, and where to look for it when the description
    /// or the credentials say something else one day.
    async fn notes(&self, resolved: &Resolved) -> Result<BTreeMap<String, String>, Fault> {
        let mut notes = resolved.notes();
        let slots: Vec<String> =
            self.wanted_volumes(resolved).into_iter().map(|(slot, _)| slot).collect();
        // Of an earlier description there may be some, too.
        let volumes = (!slots.is_empty()).then(|| slots.join(", "));
        let volumes = volumes.or_else(|| self.recall.notes.get(recall::VOLUMES).cloned());
        notes.extend(volumes.map(|volumes| (recall::VOLUMES.to_owned(), volumes)));
        notes.insert(PLACE.to_owned(), place::of(&self.cloud.session).await?);
        Ok(notes)
    }

    /// A server was asked for, here or elsewhere: what came of it?
    async fn look(&mut self, promised_at: Timestamp, now: Timestamp) -> Result<Created, Error> {
        let snapshot = self.cloud.snapshot(&self.marks).await?;
        if let Some(server) = sole(snapshot.of(&self.marks), &self.marks)? {
            return self.follow(&server).await;
        }
        if let Some(id) = self.recall.server.clone() {
            if self.deeds.is_cleared(&self.machine, &id) {
                return Ok(self.promise(false));
            }
            let posted_at = self.deeds.posted_at(&self.machine);
            if posted_at.is_some_and(|posted| snapshot.began <= posted) {
                return Ok(self.waiting(format!("server {id} to be listed"), BUILD_POLL));
            }
            // The list may lag; the server itself does not.
            return match self.cloud.server(&id).await? {
                Some(server) if self.marks.on_server(&server) && !server.is_gone() => {
                    self.follow(&server).await
                }
                _ => Err(Error::ServerFailed(format!("server {id} is gone before it came up"))),
            };
        }
        let left = promise::fence_left(promised_at, now);
        if !left.is_zero() {
            let after = left.min(FENCE_POLL);
            return match self.deeds.failure(&self.machine) {
                // Nothing came of it so far: the failure stands.
                Some(Error::Unavailable { message, .. }) => {
                    Err(Error::Unavailable { message, retry_after: Some(after) })
                }
                Some(failure) => Err(failure),
                None => Ok(self.waiting("a create that may still be under way to show", after)),
            };
        }
        let found = self.cloud.servers_of(&self.marks).await?;
        match sole(found.iter(), &self.marks)? {
            Some(server) => self.follow(&server).await,
            None => Ok(self.promise(false)),
        }
    }

    /// The promise is ours and fresh: makes what is missing and then the server.
    async fn build(&mut self, promised_at: Timestamp) -> Result<Created, Error> {
        let not_after = promise::last_moment(promised_at);
        match self.assemble(not_after).await {
            Ok(created) => Ok(created),
            // The window closed while something else took its time: nothing was sent.
            Err(Fault::Unsent { .. }) if self.cloud.session.now() >= not_after => {
                Ok(self.promise(false))
            }
            Err(fault) => {
                if matches!(fault.status().map(|it| it.as_u16()), Some(400 | 404 | 409)) {
                    self.cloud.lookups.forget();
                }
                Err(fault.into())
            }
        }
    }

    async fn assemble(&mut self, not_after: Timestamp) -> Result<Created, Fault> {
        let resolved = self.resolve().await?;
        let notes = self.notes(&resolved).await?;
        if !notes.iter().all(|(key, note)| self.recall.notes.get(key) == Some(note)) {
            // A name means something else by now. It is written down before anything is made of it.
            self.recall.notes = notes;
            return Ok(self.promise(false));
        }
        let ports = match ports::ensure(self, &resolved, not_after).await? {
            ports::Ports::There(ports) => ports,
            ports::Ports::Held { port, by } => {
                let waits_for = format!("port {port} to be let go by server {by}");
                return Ok(self.waiting(waits_for, BUILD_POLL));
            }
        };
        self.recall.port = ports.first().cloned();
        let volumes = self.volumes(&resolved, not_after).await?;
        if let Some(root) = volumes.get(marks::ROOT)
            && let Some(status) = self.not_yet_available(root).await?
        {
            let waits_for = format!("volume {root} to be available, it is {status}");
            return Ok(self.waiting(waits_for, BUILD_POLL));
        }
        let group = self.group(&resolved).await?;
        let body = self.server_body(&resolved, &ports, volumes.get(marks::ROOT), group.as_deref());
        let call = Call::new(Service::Compute, Method::POST, "/servers");
        self.deeds.sending(&self.machine);
        let posted: Result<Server, Fault> =
            self.cloud.session.create(call.body(body).not_after(not_after), "server").await;
        match posted {
            Ok(server) => {
                self.deeds.posted(&self.machine);
                let waits_for = format!("server {} to be built", server.id);
                self.recall.server = Some(server.id);
                Ok(self.waiting(waits_for, BUILD_POLL))
            }
            Err(fault) => {
                if fault.surely_nothing_done() {
                    self.deeds.refused(&self.machine);
                } else {
                    self.deeds.failed(&self.machine, fault.clone().into());
                }
                if resolved.server_group.is_none() && self.loses_group(&fault) {
                    return Ok(self.promise(false));
                }
                Err(self.with_field(fault))
            }
        }
    }

    /// The server group: the one that was ordered, else the one that the cluster shares.
    async fn group(&mut self, resolved: &Resolved) -> Result<Option<String>, Fault> {
        if let Some(ordered) = &resolved.server_group {
            return Ok(Some(ordered.clone()));
        }
        let shared = self.cloud.shared_group(&self.marks).await?;
        if let Some(id) = &shared {
            self.recall.notes.insert("serverGroup".to_owned(), id.clone());
        }
        Ok(shared)
    }

    /// Whether it is the shared group that the create failed for. The next has another group, or none.
    fn loses_group(&mut self, fault: &Fault) -> bool {
        let Fault::Answered(refusal) = fault else { return false };
        let says = |part: &str| refusal.message.contains(part);
        let (is_gone, is_full) = (says("Instance group"), says("servers in group"));
        if is_gone {
            self.cloud.forget_group(&self.marks);
        } else if is_full {
            self.cloud.go_without_group(&self.marks, &refusal.message);
        }
        self.recall.notes.remove("serverGroup");
        is_gone || is_full
    }

    /// Nova, Cinder: the refusal of a zone, a key pair or a type of volumes does not say of which field.
    fn with_field(&self, mut fault: Fault) -> Fault {
        let Parameters { availability_zone, key_name, root_volume, .. } = &self.parameters;
        let Fault::Answered(refusal) = &mut fault else { return fault };
        if let Some(zone) = availability_zone
            && refusal.message.contains("availability zone")
        {
            let given = format!(": availabilityZone {zone:?}; give a zone of the region");
            refusal.message.push_str(&given);
        } else if let Some(key) = key_name
            && refusal.message.contains("key_name")
        {
            let given = format!(": keyName {key:?}; give a key pair of the user who logs in");
            refusal.message.push_str(&given);
        } else if let Some(kind) = root_volume.as_ref().and_then(|root| root.volume_type.as_ref())
            && refusal.message.to_lowercase().contains("volume type")
        {
            let given = format!(
                ": volumeType {kind:?} of the root disk; give one of `openstack volume type list`"
            );
            refusal.message.push_str(&given);
        }
        fault
    }

    /// The volumes by slot, made where they are missing.
    async fn volumes(
        &self,
        resolved: &Resolved,
        not_after: Timestamp,
    ) -> Result<BTreeMap<String, String>, Fault> {
        let wanted = self.wanted_volumes(resolved);
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        if let Some(known) = self.deeds.volumes(&self.machine) {
            return Ok(known);
        }
        let mut found = BTreeMap::new();
        if self.deeds.is_touched(&self.machine) {
            found = crate::cloud::by_slot(&self.cloud.volumes_of(&self.marks).await?);
        }
        for (slot, body) in wanted {
            if found.contains_key(&slot) {
                continue;
            }
            self.deeds.touch(&self.machine);
            let call = Call::new(Service::Volume, Method::POST, "/volumes")
                .body(json!({"volume": body}))
                .not_after(not_after);
            let made = self.cloud.session.create(call, "volume").await;
            let volume: crate::wire::Volume = made.map_err(|fault| self.with_field(fault))?;
            found.insert(slot, volume.id);
        }
        self.deeds.set_volumes(&self.machine, found.clone());
        Ok(found)
    }

    fn wanted_volumes(&self, resolved: &Resolved) -> Vec<(String, Value)> {
        let name = &self.order.claim.owner.name;
        let body = |slot: &str, size: u32, kind: Option<&String>, image: Option<&String>| {
            let mut body = json!({
                "name": format!("{name}-{slot}"),
                "size": size,
                "metadata": self.marks.volume_metadata(slot),
            });
            if let Some(kind) = kind {
                body["volume_type"] = kind.as_str().into();
            }
            if let Some(image) = image {
                body["imageRef"] = image.as_str().into();
            }
            (slot.to_owned(), body)
        };
        let root = self.parameters.root_volume.iter().map(|it| {
            body(marks::ROOT, it.size_gib, it.volume_type.as_ref(), Some(&resolved.image))
        });
        let more = self.parameters.additional_volumes.iter();
        let more = more.map(|it| body(&it.name, it.size_gib, it.volume_type.as_ref(), None));
        root.chain(more).collect()
    }

    /// The status of a volume that cannot be used yet.
    async fn not_yet_available(&self, id: &str) -> Result<Option<String>, Fault> {
        let volume = self.cloud.volume(id).await?;
        let status = volume.map_or_else(|| "gone".to_owned(), |volume| volume.status);
        match status.as_str() {
            "available" => Ok(None),
            "error" | "error_deleting" | "deleting" | "gone" => Err(Fault::Setup(
                Error::ServerFailed(format!("volume {id} cannot be booted from: it is {status}")),
            )),
            _ => Ok(Some(status)),
        }
    }

    fn server_body(
        &self,
        resolved: &Resolved,
        ports: &[String],
        root: Option<&String>,
        group: Option<&str>,
    ) -> Value {
        let parameters = &self.parameters;
        let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port})).collect();
        let mut server = json!({
            "name": self.order.claim.owner.name,
            "flavorRef": resolved.flavor,
            "networks": ports,
            "user_data": STANDARD.encode(&self.order.user_data.0),
            "metadata": self.marks.metadata(&parameters.metadata),
            "tags": self.marks.tags(&parameters.tags),
        });
        match root {
            Some(volume) => {
                server["block_device_mapping_v2"] = json!([{
                    "boot_index": 0, "uuid": volume, "source_type": "volume",
                    "destination_type": "volume", "delete_on_termination": true,
                }]);
            }
            None => server["imageRef"] = resolved.image.as_str().into(),
        }
        if let Some(zone) = &parameters.availability_zone {
            server["availability_zone"] = zone.as_str().into();
        }
        if let Some(key) = &parameters.key_name {
            server["key_name"] = key.as_str().into();
        }
        if let Some(drive) = parameters.config_drive {
            server["config_drive"] = drive.into();
        }
        let mut body = json!({"server": server});
        if let Some(group) = group {
            body["os:scheduler_hints"] = json!({"group": group});
        }
        body
    }

    /// There is a server: is it ready?
    async fn follow(&mut self, server: &Server) -> Result<Created, Error> {
        let id = &server.id;
        self.recall.server = Some(id.clone());
        if self.deeds.is_cleared(&self.machine, id) {
            return Ok(self.waiting(format!("failed server {id} to go"), BUILD_POLL));
        }
        if server.is_deleting() {
            return Err(Error::ServerFailed(format!("server {id} is being deleted")));
        }
        match server.status.as_str() {
            "ERROR" => {
                let error = fault::of_server(id, Some(&server.fault.message));
                self.clear(id, &error).await?;
                Err(error)
            }
            "BUILD" => {
                let task =
                    if server.task_state.is_empty() { "building" } else { &server.task_state };
                Ok(self.waiting(format!("server {id} to be built, it is {task}"), BUILD_POLL))
            }
            _ => {
                if let Some(waiting) = finish::finish(self, server).await? {
                    return Ok(waiting);
                }
                let instance = self.instance(server);
                Ok(Created::Done { memory: self.recall.write(), instance })
            }
        }
    }

    /// A server that found no room will not find any later. It is deleted, so that the next call tries
    /// again with a new one: the machine waits, it has not failed.
    async fn clear(&self, id: &str, error: &Error) -> Result<(), Fault> {
        if !matches!(error, Error::Exhausted(_) | Error::QuotaExceeded(_)) {
            return Ok(());
        }
        let live = self.cloud.server(id).await?;
        if live.is_some_and(|it| self.marks.on_server(&it) && it.status == "ERROR") {
            self.cloud.delete_server(id).await?;
            self.deeds.cleared(&self.machine, id);
        }
        Ok(())
    }

    fn instance(&self, server: &Server) -> Instance {
        let mut instance = instance::of(server, Some(&self.parameters));
        let address = self.recall.floating_address.as_ref().and_then(|it| it.parse().ok());
        instance::add_external(&mut instance, address);
        instance
    }
}

/// The one server of a machine.
///
/// # Errors
/// [`Error::ServerFailed`] for two, so that all are deleted; [`Error::Conflict`] when tags and metadata
/// disagree, for then nobody knows whose it is.
fn sole<'a>(
    found: impl Iterator<Item = &'a Server>,
    marks: &Marks,
) -> Result<Option<Server>, Error> {
    let found: Vec<&Server> = found.filter(|it| !it.is_gone()).collect();
    if let Some(odd) = found.iter().find(|it| !marks.on_server(it)) {
        return Err(instance::unclear(odd));
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let ids: Vec<&str> = several.iter().map(|it| it.id.as_str()).collect();
            Err(Error::ServerFailed(format!("there are several servers: {}", ids.join(", "))))
        }
    }
}
