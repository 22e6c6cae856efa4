//! What a provider is told of a server: names and IDs as the user wrote them.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr};

/// A server as it is ordered from a provider. Serialises to the provider's JSON; names and IDs are as
/// written, for the provider to look up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerParameters {
    /// Name or ID of the image.
    pub image: String,
    /// Name or ID of the flavor.
    pub flavor: String,
    /// The availability zone. Default: the cloud's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// The region. Default: that of the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The networks in the order of the interfaces. Empty: the only one there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkParameters>,
    /// Names or IDs of security groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Name or ID of the network a floating IP comes from. Default: no floating IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floating_ip_pool: Option<String>,
    /// Name or ID of the server group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_group: Option<String>,
    /// Boots from a new volume instead of the flavor's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<RootVolume>,
    /// More volumes, attached after boot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_volumes: Vec<AdditionalVolume>,
    /// Name of the key pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// Whether user-data also comes on a disk. Default: as the cloud likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<bool>,
    /// False takes port security and security groups off the ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_security: Option<bool>,
    /// Ranges the ports may send from beside their own address, such as the pods'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_address_pairs: Vec<String>,
    /// Tags of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Metadata of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// One interface of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkParameters {
    /// Name or ID of the network. Empty: the one the subnet belongs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// Name or ID of the subnet. Default: as the cloud likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Names or IDs of more subnets of the network, an address in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_subnets: Vec<String>,
    /// The address. Default: as the cloud likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_ip: Option<IpAddr>,
    /// Whether the allowed address pairs go onto this port. Default: they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<bool>,
}

/// The volume a server boots from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RootVolume {
    /// Its size in GiB.
    #[serde(rename = "sizeGiB")]
    pub size_gib: u32,
    /// Its type. Default: the cloud's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// A volume beside the one a server boots from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdditionalVolume {
    /// What tells it from the server's other volumes.
    pub name: String,
    /// Its size in GiB.
    #[serde(rename = "sizeGiB")]
    pub size_gib: u32,
    /// Its type. Default: the cloud's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}
