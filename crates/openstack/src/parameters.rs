//! What a server should be: the provider's own part of an order, parsed once.

use drover_provider::Error;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, net::IpAddr};

/// Nova's limit on tags of a server is 50; two are ours.
const TAGS: usize = 48;
/// Nova's limit on items of metadata is 128; two are ours.
const METADATA_ITEMS: usize = 126;
/// The longest key and value of metadata, in characters (Nova).
const METADATA_CHARACTERS: usize = 255;
/// The longest tag of a server, in characters (Nova).
const TAG_CHARACTERS: usize = 60;

/// The description of a server. References are names or ids, as the user wrote them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameters {
    pub image: String,
    pub flavor: String,
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Chosen before that of the credentials.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "the provider reads it first, out of parameters that may not parse"
    )]
    pub region: Option<String>,
    /// One port on each, in order; the first is the primary one and gets the floating IP. Empty: the
    /// only network there is.
    #[serde(default)]
    pub networks: Vec<NetworkParameters>,
    #[serde(default)]
    pub security_groups: Vec<String>,
    /// The external network to take a floating IP of; none by default.
    #[serde(default)]
    pub floating_ip_pool: Option<String>,
    #[serde(default)]
    pub server_group: Option<String>,
    /// Boot from a volume of its own, which goes with the server; by default from the flavor's disk.
    #[serde(default)]
    pub root_volume: Option<RootVolume>,
    #[serde(default)]
    pub additional_volumes: Vec<AdditionalVolume>,
    #[serde(default)]
    pub key_name: Option<String>,
    #[serde(default)]
    pub config_drive: Option<bool>,
    /// `false` takes security groups and port security off all ports.
    #[serde(default)]
    pub port_security: Option<bool>,
    /// Addresses or prefixes that the ports may use beside their own.
    #[serde(default)]
    pub allowed_address_pairs: Vec<String>,
    /// Tags of server and ports beside ours.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The server's metadata beside ours.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// A network to be on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkParameters {
    /// Empty: the one the subnet belongs to, or the only one there is.
    #[serde(default)]
    pub network: String,
    #[serde(default)]
    pub subnet: Option<String>,
    /// More subnets of the same network: the port has an address in each.
    #[serde(default)]
    pub more_subnets: Vec<String>,
    #[serde(default)]
    pub fixed_ip: Option<IpAddr>,
    /// `false` keeps the allowed address pairs off this port.
    #[serde(default)]
    pub pods: Option<bool>,
}

/// The volume to boot from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RootVolume {
    #[serde(rename = "sizeGiB")]
    pub size_gib: u32,
    #[serde(default)]
    pub volume_type: Option<String>,
}

/// A volume beside the one it boots from. Empty at birth, deleted with the server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdditionalVolume {
    pub name: String,
    #[serde(rename = "sizeGiB")]
    pub size_gib: u32,
    #[serde(default)]
    pub volume_type: Option<String>,
}

impl Parameters {
    /// Parses and checks what can be checked without the cloud.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names field and value.
    pub fn parse(value: &Value) -> Result<Self, Error> {
        let parameters: Self =
            Self::deserialize(value).map_err(|error| refuse(&error.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> Result<(), Error> {
        for (field, value) in [("image", &self.image), ("flavor", &self.flavor)] {
            if value.is_empty() {
                return Err(refuse(&format!("{field} is empty; give a name or an id")));
            }
        }
        self.check_volumes()?;
        self.check_labels()?;
        if self.port_security == Some(false) && !self.allowed_address_pairs.is_empty() {
            return Err(refuse(
                "allowedAddressPairs has no use with portSecurity false; leave one of them out",
            ));
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), Error> {
        if self.root_volume.as_ref().is_some_and(|it| it.size_gib == 0) {
            return Err(refuse("rootVolume.sizeGiB is 0; give the size in GiB"));
        }
        for (at, volume) in self.additional_volumes.iter().enumerate() {
            if volume.name.is_empty() || volume.name == crate::marks::ROOT {
                return Err(refuse(&format!(
                    "additionalVolumes[{at}].name {:?}: give a name other than \"root\"",
                    volume.name
                )));
            }
            if volume.size_gib == 0 {
                return Err(refuse(&format!("additionalVolumes[{at}].sizeGiB is 0")));
            }
            if self.additional_volumes[..at].iter().any(|earlier| earlier.name == volume.name) {
                return Err(refuse(&format!(
                    "additionalVolumes[{at}].name {:?} is there twice",
                    volume.name
                )));
            }
        }
        Ok(())
    }

    fn check_labels(&self) -> Result<(), Error> {
        if self.tags.len() > TAGS {
            return Err(refuse(&format!("tags has {} items; at most {TAGS}", self.tags.len())));
        }
        for (at, tag) in self.tags.iter().enumerate() {
            let long = tag.chars().count() > TAG_CHARACTERS;
            if tag.is_empty() || long || tag.contains([',', '/']) {
                return Err(refuse(&format!(
                    "tags[{at}] {tag:?}: 1 to {TAG_CHARACTERS} characters without comma and slash"
                )));
            }
            // Two tags that differ in case alone leave a server in BUILD for ever (Nova on MySQL).
            let lower = tag.to_lowercase();
            if self.tags[..at].iter().any(|earlier| earlier.to_lowercase() == lower) {
                return Err(refuse(&format!("tags[{at}] {tag:?} is there twice")));
            }
        }
        if self.metadata.len() > METADATA_ITEMS {
            let count = self.metadata.len();
            return Err(refuse(&format!("metadata has {count} items; at most {METADATA_ITEMS}")));
        }
        for (key, value) in &self.metadata {
            if key.starts_with(crate::marks::PREFIX) {
                return Err(refuse(&format!("metadata.{key}: drover- is kept for Drover's marks")));
            }
            let long = |text: &str| text.chars().count() > METADATA_CHARACTERS;
            if key.is_empty() || long(key) || long(value) {
                return Err(refuse(&format!(
                    "metadata.{key}: key and value have at most {METADATA_CHARACTERS} characters"
                )));
            }
        }
        Ok(())
    }
}

fn refuse(why: &str) -> Error {
    Error::Invalid(format!("server parameters: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(field: &str, value: Value) -> Result<Parameters, Error> {
        let mut all = json!({"image": "i", "flavor": "f", "networks": [{"network": "n"}]});
        all[field] = value;
        Parameters::parse(&all)
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("image", json!(""), "image is empty"),
            ("networks", json!("net"), "invalid type"),
            ("networks", json!([{"network": "n", "vlan": 3}]), "unknown field `vlan`"),
            ("colour", json!("red"), "unknown field `colour`"),
            ("rootVolume", json!({"sizeGiB": 0}), "rootVolume.sizeGiB is 0"),
            ("rootVolume", json!({"sizeGiB": -1}), "invalid value"),
            ("additionalVolumes", json!([{"name": "root", "sizeGiB": 1}]), "additionalVolumes[0]"),
            ("tags", json!(["a,b"]), "tags[0] \"a,b\""),
            ("tags", json!(["a", "A"]), "tags[1] \"A\" is there twice"),
            ("metadata", json!({"drover-machine": "x"}), "metadata.drover-machine"),
            ("metadata", json!({"k": "v".repeat(256)}), "metadata.k"),
        ];
        for (field, value, expected) in cases {
            let text = with(field, value).unwrap_err().to_string();
            assert!(text.contains(expected), "{field}: {text}");
        }
    }

    #[test]
    fn all_fields_are_read() {
        let all = json!({
            "image": "i", "flavor": "f", "availabilityZone": "z", "region": "r",
            "networks": [{"network": "n", "subnet": "s", "fixedIp": "10.0.0.7"}],
            "securityGroups": ["g"], "floatingIpPool": "p", "serverGroup": "sg",
            "rootVolume": {"sizeGiB": 20, "volumeType": "ssd"},
            "additionalVolumes": [{"name": "data", "sizeGiB": 5}],
            "keyName": "k", "configDrive": true, "portSecurity": true,
            "allowedAddressPairs": ["10.244.0.0/16"], "tags": ["t"], "metadata": {"a": "b"},
        });
        let parameters = Parameters::parse(&all).unwrap();
        assert_eq!(parameters.networks[0].fixed_ip, Some([10, 0, 0, 7].into()));
        assert_eq!(parameters.additional_volumes[0].size_gib, 5);
    }
}
