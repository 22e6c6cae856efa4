//! The marks that every resource carries from its creation, and by which it is found again.

use crate::wire::{FloatingIp, Port, Server, Volume};
use drover_provider::{Error, Owner};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt::Write};

/// Metadata keys that begin so are ours.
pub const PREFIX: &str = "drover-";
/// The slot of the volume to boot from.
pub const ROOT: &str = "root";

const CLUSTER: &str = "drover-cluster";
const MACHINE: &str = "drover-machine";
/// Which of its machine's volumes a volume is.
const SLOT: &str = "drover-volume";
/// How a description begins that carries marks; cluster and machine follow, parted by slashes.
const DESCRIPTION: &str = "drover/";
/// The same of what is only borrowed.
const LOAN: &str = "drover-loan/";
/// Neutron's limit on a description is 255 characters.
const IDENTITY_BYTES: usize = 120;
/// The longest identity that goes into a tag as it is: Nova's limit on a tag is 60 characters.
const TAG_IDENTITY_BYTES: usize = 44;

/// What marks the resources of one machine.
#[derive(Clone, Debug)]
pub struct Marks {
    cluster: String,
    machine: String,
    pub description: String,
    /// The description of what the machine borrowed.
    pub loan: String,
    pub cluster_tag: String,
    pub machine_tag: String,
}

impl Marks {
    /// # Errors
    /// [`Error::Invalid`] when an identity cannot be written down where it must be found again.
    pub fn of(owner: &Owner) -> Result<Self, Error> {
        let Owner { cluster, machine, name } = owner;
        for (field, value) in [("cluster", cluster), ("machine", machine)] {
            if value.is_empty() || value.len() > IDENTITY_BYTES {
                return Err(Error::Invalid(format!(
                    "owner.{field} {value:?} must have 1 to {IDENTITY_BYTES} bytes"
                )));
            }
        }
        if machine.contains('/') || name.is_empty() {
            return Err(Error::Invalid(format!(
                "owner.machine {machine:?} must have no slash and owner.name must not be empty"
            )));
        }
        Ok(Self {
            cluster: cluster.clone(),
            machine: machine.clone(),
            description: format!("{DESCRIPTION}{cluster}/{machine}"),
            loan: format!("{LOAN}{cluster}/{machine}"),
            cluster_tag: cluster_tag(cluster),
            machine_tag: tag("machine", machine),
        })
    }

    /// The tags of server, ports and floating IP.
    #[must_use]
    pub fn tags(&self, more: &[String]) -> Vec<String> {
        let ours = [self.cluster_tag.clone(), self.machine_tag.clone()];
        ours.into_iter().chain(more.iter().cloned()).collect()
    }

    /// The metadata of the server.
    #[must_use]
    pub fn metadata(&self, more: &BTreeMap<String, String>) -> Value {
        let mut all = json!(more);
        all[CLUSTER] = self.cluster.as_str().into();
        all[MACHINE] = self.machine.as_str().into();
        all
    }

    /// The metadata of a volume.
    #[must_use]
    pub fn volume_metadata(&self, slot: &str) -> Value {
        json!({CLUSTER: self.cluster, MACHINE: self.machine, SLOT: slot})
    }

    /// Cinder's filter for the volumes of this machine.
    #[must_use]
    pub fn volume_filter(&self) -> String {
        json!({CLUSTER: self.cluster, MACHINE: self.machine}).to_string()
    }

    fn both(&self, metadata: &BTreeMap<String, String>) -> bool {
        metadata.get(CLUSTER) == Some(&self.cluster) && metadata.get(MACHINE) == Some(&self.machine)
    }

    #[must_use]
    pub fn on_server(&self, server: &Server) -> bool {
        self.both(&server.metadata)
    }

    /// Whether a server carries the tags and not the metadata: somebody changed it.
    #[must_use]
    pub fn half_on_server(&self, server: &Server) -> bool {
        let tagged = |tag: &String| server.tags.iter().any(|own| own.eq_ignore_ascii_case(tag));
        !self.on_server(server) && tagged(&self.cluster_tag) && tagged(&self.machine_tag)
    }

    #[must_use]
    pub fn on_port(&self, port: &Port) -> bool {
        port.description == self.description
    }

    #[must_use]
    pub fn on_floating_ip(&self, address: &FloatingIp) -> bool {
        address.description == self.description
    }

    #[must_use]
    pub fn on_loan(&self, address: &FloatingIp) -> bool {
        address.description == self.loan
    }

    /// Whether a floating IP is free for the taking: it leads nowhere and nobody says what it is kept for, or a machine
    /// of this cluster had it on loan and needs it no more.
    #[must_use]
    pub fn may_borrow(&self, address: &FloatingIp) -> bool {
        let FloatingIp { description, tags, port_id, status, .. } = address;
        let returned = description
            .strip_prefix(LOAN)
            .and_then(|rest| rest.rsplit_once('/'))
            .is_some_and(|(cluster, _)| cluster == self.cluster);
        let kept = !description.is_empty() || !tags.is_empty();
        port_id.is_empty() && status != "ERROR" && (!kept || returned)
    }

    #[must_use]
    pub fn on_volume(&self, volume: &Volume) -> bool {
        self.both(&volume.metadata)
    }
}

/// Which of its machine's volumes this is.
#[must_use]
pub fn slot(volume: &Volume) -> Option<&str> {
    volume.metadata.get(SLOT).map(String::as_str)
}

/// The tag of all that belongs to a cluster.
#[must_use]
pub fn cluster_tag(cluster: &str) -> String {
    tag("cluster", cluster)
}

/// Cinder's filter for the volumes of a cluster.
#[must_use]
pub fn cluster_filter(cluster: &str) -> String {
    json!({CLUSTER: cluster}).to_string()
}

/// The owner as metadata tells it.
#[must_use]
pub fn owner_in(metadata: &BTreeMap<String, String>, name: &str) -> Option<Owner> {
    let get = |key| metadata.get(key).filter(|value| !value.is_empty()).cloned();
    Some(Owner { cluster: get(CLUSTER)?, machine: get(MACHINE)?, name: name.to_owned() })
}

/// The owner as a description tells it.
#[must_use]
pub fn owner_of(description: &str, name: &str) -> Option<Owner> {
    let (cluster, machine) = description.strip_prefix(DESCRIPTION)?.rsplit_once('/')?;
    (!cluster.is_empty() && !machine.is_empty()).then(|| Owner {
        cluster: cluster.to_owned(),
        machine: machine.to_owned(),
        name: name.to_owned(),
    })
}

/// Lower case alone, no comma, no slash, at most 60 characters: Nova compares without case and takes
/// nothing else. What does not fit is hashed; the full identity stands in the metadata.
fn tag(kind: &str, identity: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if identity.len() <= TAG_IDENTITY_BYTES && identity.bytes().all(plain) {
        return format!("drover.{kind}.{identity}");
    }
    let mut tag = format!("drover.{kind}.");
    for byte in &Sha256::digest(identity)[..16] {
        write!(tag, "{byte:02x}").expect("a string takes everything");
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(cluster: &str, machine: &str) -> Owner {
        Owner { cluster: cluster.into(), machine: machine.into(), name: "nodes-1".into() }
    }

    #[test]
    fn tags_fit_into_nova() {
        let uid = "0b2b9d3c-6a0e-4f0a-9a57-4e8f1c3f3a11";
        let marks = Marks::of(&owner(uid, "Prod,EU")).unwrap();
        assert_eq!(marks.cluster_tag, format!("drover.cluster.{uid}"));
        assert_eq!(marks.machine_tag.len(), "drover.machine.".len() + 32);
        assert!(marks.tags(&[]).iter().all(|it| it.len() <= 60 && !it.contains([',', '/'])));
    }

    #[test]
    fn a_description_tells_its_owner() {
        let owner = owner("a/b", "m");
        let marks = Marks::of(&owner).unwrap();
        assert_eq!(owner_of(&marks.description, "nodes-1"), Some(owner));
        assert_eq!(owner_of("drover/x", "n"), None);
        assert_eq!(owner_of("somebody's port", "n"), None);
    }

    #[test]
    fn identities_that_cannot_be_written_are_refused() {
        assert!(Marks::of(&owner("c", "a/b")).is_err());
        assert!(Marks::of(&owner("", "m")).is_err());
        assert!(Marks::of(&owner("c", &"m".repeat(121))).is_err());
    }
}
