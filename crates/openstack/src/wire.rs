//! What Nova, Neutron, Glance and Cinder write, as far as it is read here; unknown fields are ignored.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Nova's server, from microversion 2.52 on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Server {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    #[serde(rename = "OS-EXT-STS:task_state", deserialize_with = "or_default")]
    pub task_state: String,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "or_default")]
    pub zone: String,
    #[serde(deserialize_with = "or_default")]
    pub created: String,
    #[serde(deserialize_with = "or_default")]
    pub metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// By the name of the network.
    #[serde(deserialize_with = "or_default")]
    pub addresses: BTreeMap<String, Vec<ServerAddress>>,
    /// Only in ERROR, and not always there.
    #[serde(deserialize_with = "or_default")]
    pub fault: ServerFault,
    #[serde(rename = "os-extended-volumes:volumes_attached", deserialize_with = "or_default")]
    pub volumes: Vec<Reference>,
}

impl Server {
    /// Gone as far as the server itself goes; its ports wait for the 404.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.status.as_str(), "DELETED" | "SOFT_DELETED")
    }

    /// Being deleted shows in the task, not in the status.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        matches!(self.task_state.as_str(), "deleting" | "soft-deleting")
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerAddress {
    pub addr: String,
    #[serde(rename = "OS-EXT-IPS:type")]
    pub kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerFault {
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

/// Anything with an id.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reference {
    pub id: String,
}

/// Anything that can be looked up by name or id.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Thing {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Of a flavor, in GB; 0 needs a volume to boot from.
    #[serde(deserialize_with = "or_default")]
    pub disk: u64,
    /// Of an image, in GB.
    #[serde(deserialize_with = "or_default")]
    pub min_disk: u64,
    /// Of an image.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    /// Of a subnet.
    #[serde(deserialize_with = "or_default")]
    pub network_id: String,
}

/// Neutron's port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    #[serde(deserialize_with = "or_default")]
    pub network_id: String,
    /// The server that has it; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub device_id: String,
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub created_at: String,
}

/// Neutron's floating IP.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FloatingIp {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub floating_ip_address: String,
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    #[serde(deserialize_with = "or_default")]
    pub port_id: String,
    /// Rises with every change.
    #[serde(deserialize_with = "or_default")]
    pub revision_number: u64,
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub created_at: String,
}

/// Nova's server group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerGroup {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// From microversion 2.64 on.
    #[serde(deserialize_with = "or_default")]
    policy: String,
    /// Before.
    #[serde(deserialize_with = "or_default")]
    policies: Vec<String>,
    /// The servers in it that are not deleted.
    #[serde(deserialize_with = "or_default")]
    pub members: Vec<String>,
}

impl ServerGroup {
    #[must_use]
    pub fn has_policy(&self, policy: &str) -> bool {
        self.policy == policy || self.policies.iter().any(|it| it == policy)
    }
}

/// Cinder's volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    #[serde(deserialize_with = "or_default")]
    pub metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub attachments: Vec<Attachment>,
    #[serde(deserialize_with = "or_default")]
    pub created_at: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Attachment {
    #[serde(deserialize_with = "or_default")]
    pub server_id: String,
}

/// Services write null where they have nothing.
fn or_default<'de, D, T>(source: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(source).map(Option::unwrap_or_default)
}

/// A time in any of the three forms: with `Z`, without a zone (Cinder), with or without decimals.
#[must_use]
pub fn time(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_time() {
        for text in
            ["2026-11-20T22:38:15Z", "2026-11-20T22:38:15.000000Z", "2026-11-20T22:38:15.000000"]
        {
            assert_eq!(time(text).unwrap().to_string(), "2026-11-20T22:38:15Z");
        }
        assert_eq!(time(""), None);
    }

    #[test]
    fn nulls_and_absences_are_alike() {
        let server: Server = serde_json::from_str(
            r#"{"id": "a", "image": "", "fault": null, "OS-EXT-STS:task_state": null, "x": 1}"#,
        )
        .unwrap();
        assert_eq!((server.id.as_str(), server.task_state.as_str()), ("a", ""));
    }
}
