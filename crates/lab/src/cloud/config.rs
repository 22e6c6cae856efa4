//! What a simulated cloud is made with: its clock, its speed, its quotas and its moods.

use super::fault::Fault;
use crate::clock::{Clock, Pace};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a cloud is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The time that the services show.
    pub clock: Clock,
    /// Fixes every identifier, address and jitter.
    pub seed: u64,
    /// How many times faster than life builds, deletions and calls go.
    pub pace: Pace,
    /// Where clients reach the cloud, without a slash at the end; the catalogue's URLs begin with it.
    pub base_url: String,
    /// What every call takes, half of it to one and a half of it, at pace 1. Zero answers at once.
    pub latency: Duration,
    /// What the work behind the calls takes.
    pub delays: Delays,
    /// How much of everything a project may have.
    pub quotas: Quotas,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Availability zones, the first being the default one.
    pub zones: Vec<String>,
    /// Hosts of each zone.
    pub hosts_per_zone: usize,
    /// The capacity of a host.
    pub host: HostSize,
    /// How long a token lives. Keystone: four hours here.
    pub token_life: Duration,
    /// How long a service goes on trusting a token it has seen, after it was revoked.
    pub token_cache: Duration,
    /// Whether `POST /ports` keeps tags. Neutron: only with an ML2 extension driver that most clouds lack.
    pub tags_at_port_create: bool,
}

/// The size of one host; it is never overcommitted.
#[derive(Clone, Copy, Debug)]
pub struct HostSize {
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Memory in MiB.
    pub ram: u64,
    /// Disk in GiB.
    pub disk: u64,
}

/// How long the cloud's own work takes at pace 1; each is drawn from 0.8 to 1.2 times the value.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// From the 202 until a host is chosen. Real: 0.3 s idle, minutes when ten builds are under way.
    pub schedule: Duration,
    /// From there until the ports are bound.
    pub network: Duration,
    /// Making and attaching a boot volume.
    pub block_device: Duration,
    /// From there until ACTIVE.
    pub spawn: Duration,
    /// Stop, start and each half of a reboot or rebuild.
    pub power: Duration,
    /// From the DELETE until the guest is gone.
    pub delete: Duration,
    /// How long a deleted server is shown as DELETED before the 404.
    pub deleted: Duration,
    /// Making a volume.
    pub volume: Duration,
    /// Attaching, detaching and deleting a volume.
    pub volume_change: Duration,
    /// Until a floating IP or a bound port is ACTIVE.
    pub plug: Duration,
    /// How far the addresses of a server lag behind its ports.
    pub address_cache: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            schedule: ms(1_500),
            network: ms(1_000),
            block_device: ms(3_000),
            spawn: ms(8_000),
            power: ms(2_000),
            delete: ms(4_000),
            deleted: ms(200),
            volume: ms(2_000),
            volume_change: ms(500),
            plug: ms(500),
            address_cache: ms(1_000),
        }
    }
}

impl Delays {
    /// As quick as a cloud can be that still shows its intermediate states: one millisecond a step.
    #[must_use]
    pub fn instant() -> Self {
        let step = Duration::from_millis(1);
        Self {
            schedule: step,
            network: step,
            block_device: step,
            spawn: step,
            power: step,
            delete: step,
            deleted: step,
            volume: step,
            volume_change: step,
            plug: step,
            address_cache: step,
        }
    }
}

/// Limits of a project; -1 is none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Quotas {
    /// Servers.
    pub instances: i64,
    /// Virtual CPUs.
    pub cores: i64,
    /// Memory in MiB.
    pub ram: i64,
    /// Metadata items of one server.
    pub metadata_items: i64,
    /// Key pairs of one user.
    pub key_pairs: i64,
    /// Server groups.
    pub server_groups: i64,
    /// Members of one server group.
    pub server_group_members: i64,
    /// Networks.
    pub network: i64,
    /// Subnets.
    pub subnet: i64,
    /// Ports, those that Nova makes included.
    pub port: i64,
    /// Routers.
    pub router: i64,
    /// Floating IPs.
    pub floatingip: i64,
    /// Security groups.
    pub security_group: i64,
    /// Rules of all security groups.
    pub security_group_rule: i64,
    /// Volumes.
    pub volumes: i64,
    /// GiB of all volumes.
    pub gigabytes: i64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            instances: 20_000,
            cores: 80_000,
            ram: 200_000_000,
            metadata_items: 128,
            key_pairs: 1_000,
            server_groups: 1_000,
            server_group_members: 20_000,
            network: 100,
            subnet: 100,
            port: 40_000,
            router: 10,
            floatingip: 40_000,
            security_group: 100,
            security_group_rule: 1_000,
            volumes: 20_000,
            gigabytes: 2_000_000,
        }
    }
}

impl Config {
    /// The cloud of the documentation's examples: project `drover`, user `drover` with password `password`, region
    /// `dbl` with the zones `dbl1` and `dbl2`, and all that `examples/metakube` refers to.
    #[must_use]
    pub fn demo(clock: Clock) -> Self {
        Self {
            clock,
            seed: 1,
            pace: Pace::default(),
            base_url: "http://cloud.lab".to_owned(),
            latency: Duration::ZERO,
            delays: Delays::default(),
            quotas: Quotas::default(),
            faults: Vec::new(),
            zones: vec!["dbl1".to_owned(), "dbl2".to_owned()],
            hosts_per_zone: 100,
            host: HostSize { vcpus: 128, ram: 524_288, disk: 20_000 },
            token_life: Duration::from_hours(4),
            token_cache: Duration::from_mins(5),
            tags_at_port_create: false,
        }
    }
}
