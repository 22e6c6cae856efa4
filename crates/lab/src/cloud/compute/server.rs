//! A server and what each microversion shows of it.

use super::Flavor;
use super::host;
use super::wish::{Disk, Nic};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::{State, micros, seconds};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Nova: `vm_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cloud) enum VmState {
    Building,
    Active,
    Stopped,
    Paused,
    Suspended,
    Error,
    /// Stopped, its disk kept as an image.
    Shelved,
    /// Shelved and without a host.
    ShelvedOffloaded,
    Deleted,
}

impl VmState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Active => "active",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Error => "error",
            Self::Shelved => "shelved",
            Self::ShelvedOffloaded => "shelved_offloaded",
            Self::Deleted => "deleted",
        }
    }
}

/// What faults have decided for a server when it was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Destiny {
    pub stuck_build: bool,
    pub stuck_deleting: bool,
    pub boot_error: Option<String>,
    pub boot_seconds: Option<f64>,
    pub vanish_millis: Option<u64>,
    pub no_addresses: bool,
    pub ports_down: bool,
}

/// Why a server is in ERROR.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub message: String,
    pub at: Timestamp,
}

/// What was done to a server.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    pub action: &'static str,
    pub request: String,
    pub user: String,
    pub at: Timestamp,
}

/// One server. It has no `Debug`: its user-data carries a machine's secrets.
#[derive(Clone)]
pub(in crate::cloud) struct Server {
    pub id: String,
    pub name: String,
    pub host_name: String,
    pub project: String,
    pub user: String,
    pub created: Timestamp,
    pub updated: Timestamp,
    pub launched: Option<Timestamp>,
    pub terminated: Option<Timestamp>,
    pub flavor: Flavor,
    /// Absent when it boots from a volume.
    pub image: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub tags: BTreeSet<String>,
    pub description: Option<String>,
    /// `accessIPv4` and `accessIPv6`, which clients set and nothing reads; empty without.
    pub access: [String; 2],
    pub key_name: Option<String>,
    pub config_drive: bool,
    /// Base64, as it was sent.
    pub user_data: Option<String>,
    pub zone_asked: Option<String>,
    pub zone: String,
    pub host: Option<String>,
    /// Hosts that failed to boot it.
    pub(super) tried: Vec<String>,
    pub group: Option<String>,
    pub locked: bool,
    pub vm: VmState,
    pub task: Option<&'static str>,
    /// 0 none, 1 running, 3 paused, 4 shut down.
    pub power: u8,
    /// Whether the hypervisor runs it: what listeners were told.
    pub powered: bool,
    pub(super) failure: Option<Failure>,
    pub(super) nics: Vec<Nic>,
    pub(super) disks: Vec<Disk>,
    /// Names of security groups, shown while it has ports.
    pub(super) groups_shown: Vec<String>,
    /// As clients see them, lagging behind the ports.
    pub(super) addresses: Value,
    pub(super) destiny: Destiny,
    pub(super) deeds: Vec<Deed>,
    pub(super) console: VecDeque<String>,
}

impl Server {
    /// A DELETE was accepted while it was being built.
    pub(super) fn doomed(&self) -> bool {
        self.task == Some("deleting")
    }

    pub(in crate::cloud) fn status(&self) -> &'static str {
        match (self.vm, self.task) {
            (VmState::Building, _) => "BUILD",
            (VmState::Active, Some("rebooting" | "reboot_pending" | "reboot_started")) => "REBOOT",
            (
                VmState::Active,
                Some("rebooting_hard" | "reboot_pending_hard" | "reboot_started_hard"),
            ) => "HARD_REBOOT",
            (
                VmState::Active | VmState::Stopped | VmState::Error,
                Some("rebuilding" | "rebuild_block_device_mapping" | "rebuild_spawning"),
            ) => "REBUILD",
            (VmState::Active, _) => "ACTIVE",
            (VmState::Stopped, _) => "SHUTOFF",
            (VmState::Paused, _) => "PAUSED",
            (VmState::Suspended, _) => "SUSPENDED",
            (VmState::Error, _) => "ERROR",
            (VmState::Shelved, _) => "SHELVED",
            (VmState::ShelvedOffloaded, _) => "SHELVED_OFFLOADED",
            (VmState::Deleted, _) => "DELETED",
        }
    }

    pub(super) fn note(&mut self, action: &'static str, call: &Call, at: Timestamp) {
        let deed =
            Deed { action, request: call.request_id.clone(), user: call.session.user.clone(), at };
        self.deeds.push(deed);
    }

    /// Its ports, in the order of its interfaces.
    pub(super) fn ports(&self) -> impl Iterator<Item = &String> {
        self.nics.iter().filter_map(|nic| nic.port.as_ref())
    }
}

/// Nova: from 2.75 on a change is answered with all that a GET shows.
const CHANGED_WHOLE: u16 = 75;

/// What a change was answered with before.
const CHANGED: [&str; 24] = [
    "id",
    "name",
    "status",
    "tenant_id",
    "user_id",
    "created",
    "updated",
    "accessIPv4",
    "accessIPv6",
    "addresses",
    "flavor",
    "hostId",
    "image",
    "links",
    "metadata",
    "OS-DCF:diskConfig",
    "progress",
    "fault",
    "locked",
    "locked_reason",
    "description",
    "tags",
    "trusted_image_certificates",
    "server_groups",
];

/// How much of a server is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// In `GET /servers/detail`.
    Listed,
    /// In `GET /servers/{id}`.
    Whole,
    /// In the answer to a PUT or a rebuild.
    Changed,
}

pub(super) fn links(base: &str, id: &str) -> Value {
    json!([
        {"rel": "self", "href": format!("{base}/compute/v2.1/servers/{id}")},
        {"rel": "bookmark", "href": format!("{base}/compute/servers/{id}")},
    ])
}

/// The server as this caller sees it at this microversion.
pub(super) fn show(state: &State, call: &Call, server: &Server, view: View) -> Value {
    let base = &state.config.base_url;
    // Until a host is chosen what clients see is a request that is rendered anew each time.
    let updated = if server.task == Some("scheduling") { state.now() } else { server.updated };
    let mut shown = json!({
        "id": server.id,
        "name": server.name,
        "status": server.status(),
        "tenant_id": server.project,
        "user_id": server.user,
        "created": seconds(server.created),
        "updated": seconds(updated),
        "accessIPv4": server.access[0],
        "accessIPv6": server.access[1],
        "addresses": server.addresses,
        "flavor": flavor(base, server, call.minor),
        "hostId": server.host.as_ref().map_or_else(String::new, |host| host::opaque(&server.project, host)),
        "image": image(state, server, call.minor),
        "links": links(base, &server.id),
        "metadata": server.metadata,
        "OS-DCF:diskConfig": "MANUAL",
        "OS-EXT-AZ:availability_zone": server.zone,
        "config_drive": if server.config_drive { "True" } else { "" },
        "key_name": server.key_name,
        "OS-SRV-USG:launched_at": server.launched.map(micros),
        "OS-SRV-USG:terminated_at": server.terminated.map(micros),
        "OS-EXT-STS:task_state": server.task,
        "OS-EXT-STS:vm_state": server.vm.name(),
        "OS-EXT-STS:power_state": server.power,
        "os-extended-volumes:volumes_attached": volumes(server, call.minor),
    });
    if matches!(server.status(), "ACTIVE" | "BUILD" | "REBUILD" | "REBOOT") {
        shown["progress"] = json!(0);
    }
    if let (VmState::Error | VmState::Deleted, Some(failure)) = (server.vm, &server.failure) {
        let at = seconds(failure.at);
        shown["fault"] = json!({"code": 500, "created": at, "message": failure.message});
    }
    let plugged = server.host.is_some() && server.vm != VmState::Deleted;
    if plugged && !server.groups_shown.is_empty() && server.ports().next().is_some() {
        let groups = server.groups_shown.iter().map(|name| json!({"name": name}));
        shown["security_groups"] = groups.collect();
    }
    by_microversion(server, call, view, &mut shown);
    if view == View::Changed && call.minor < CHANGED_WHOLE {
        if let Some(fields) = shown.as_object_mut() {
            fields.retain(|name, _| CHANGED.contains(&name.as_str()));
        }
    } else if call.session.is_admin() && call.minor >= 3 {
        for_admins(server, &mut shown);
    }
    shown
}

fn by_microversion(server: &Server, call: &Call, view: View, shown: &mut Value) {
    let minor = call.minor;
    if minor >= 9 {
        shown["locked"] = json!(server.locked);
    }
    if minor >= 19 {
        shown["description"] = json!(server.description);
    }
    if minor >= 26 {
        shown["tags"] = json!(server.tags);
    }
    if minor >= 63 {
        shown["trusted_image_certificates"] = Value::Null;
    }
    if minor >= 71 && view != View::Listed {
        shown["server_groups"] = json!(server.group.iter().collect::<Vec<_>>());
    }
    if minor >= 73 {
        shown["locked_reason"] = Value::Null;
    }
    if minor >= 90 {
        shown["OS-EXT-SRV-ATTR:hostname"] = json!(server.host_name);
    }
    if minor >= 96 {
        shown["pinned_availability_zone"] = json!(server.zone_asked);
    }
    if minor >= 100 {
        shown["scheduler_hints"] = match &server.group {
            Some(group) => json!({"group": [group]}),
            None => json!({}),
        };
    }
}

fn for_admins(server: &Server, shown: &mut Value) {
    shown["OS-EXT-SRV-ATTR:host"] = json!(server.host);
    shown["OS-EXT-SRV-ATTR:hypervisor_hostname"] = json!(server.host);
    shown["OS-EXT-SRV-ATTR:hostname"] = json!(server.host_name);
    shown["OS-EXT-SRV-ATTR:user_data"] = json!(server.user_data);
    shown["host_status"] = json!(if server.host.is_some() { "UP" } else { "" });
}

fn flavor(base: &str, server: &Server, minor: u16) -> Value {
    let flavor = &server.flavor;
    if minor < 47 {
        let own = format!("{base}/compute/flavors/{}", flavor.id);
        return json!({"id": flavor.id, "links": [{"rel": "bookmark", "href": own}]});
    }
    json!({
        "original_name": flavor.name, "vcpus": flavor.vcpus, "ram": flavor.ram, "disk": flavor.disk,
        "ephemeral": 0, "swap": 0, "extra_specs": {},
    })
}

fn image(state: &State, server: &Server, minor: u16) -> Value {
    let Some(id) = &server.image else {
        return json!("");
    };
    let own = format!("{}/compute/images/{id}", state.config.base_url);
    let mut shown = json!({"id": id, "links": [{"rel": "bookmark", "href": own}]});
    if minor >= 98 {
        let image = state.images.all.get(id);
        let distribution = image.and_then(|image| image.properties.get("os_distro"));
        shown["properties"] = json!({"os_distro": distribution});
    }
    shown
}

fn volumes(server: &Server, minor: u16) -> Value {
    let attached = server.disks.iter().filter_map(|disk| {
        let volume = disk.volume.as_ref().filter(|_| disk.attached)?;
        Some(if minor >= 3 {
            json!({"id": volume, "delete_on_termination": disk.delete_on_termination})
        } else {
            json!({"id": volume})
        })
    });
    attached.collect()
}

/// `GET /servers/{id}/ips[/{network}]`: the addresses without their kinds.
pub(super) fn addresses(server: &Server, rest: &[&str]) -> Answer {
    let mut addresses = server.addresses.clone();
    for entries in addresses.as_object_mut().into_iter().flat_map(|networks| networks.values_mut())
    {
        for entry in entries.as_array_mut().into_iter().flatten() {
            *entry = json!({"version": entry["version"], "addr": entry["addr"]});
        }
    }
    match rest {
        [] => Ok(Reply::json(200, json!({"addresses": addresses}))),
        [network] => match addresses.get(network) {
            Some(entries) => Ok(Reply::json(200, json!({*network: entries}))),
            None => Err(fault(404, "Network name not found")),
        },
        _ => Err(super::unknown_path()),
    }
}
