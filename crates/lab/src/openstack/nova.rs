//! Servers as Nova shows them to their project, and to an administrator.

use super::{Client, Error, Service};
use crate::cloud::Guest;
use base64::Engine as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Servers of one page; Nova's own limit is as high.
const PAGE: usize = 1000;

/// A server, as far as a Node or a hypervisor shows it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// As `ACTIVE`.
    pub status: String,
    /// Its availability zone.
    pub zone: String,
    /// The name of its flavor.
    pub flavor: String,
    /// Processors of its flavor.
    pub vcpus: u64,
    /// Memory of its flavor in MiB.
    pub ram: u64,
    /// Nova: 1 runs, 4 is switched off.
    pub power: u64,
    /// Addresses of its ports.
    pub internal: Vec<IpAddr>,
    /// Floating addresses that lead to it.
    pub external: Vec<IpAddr>,
}

/// All servers of the project by id.
///
/// # Errors
/// When the cloud does not answer.
pub async fn servers(client: &Client) -> Result<BTreeMap<String, Server>, Error> {
    let path = format!("/servers/detail?limit={PAGE}");
    let all = client.list(Service::Compute, &path, "servers").await?;
    Ok(all.iter().map(read).map(|server| (server.id.clone(), server)).collect())
}

/// Whether there is a server of this id.
///
/// # Errors
/// When the cloud does not answer.
pub async fn exists(client: &Client, id: &str) -> Result<bool, Error> {
    let server = client.get(Service::Compute, &format!("/servers/{id}")).await?;
    Ok(server.is_some_and(|server| {
        !matches!(server["server"]["status"].as_str(), Some("DELETED" | "SOFT_DELETED"))
    }))
}

/// The machine of a server as its hypervisor sees it, told to an administrator; None when it is gone.
///
/// # Errors
/// When the cloud does not answer, or does not show the user-data.
pub async fn guest(admin: &Client, id: &str) -> Result<Option<Guest>, Error> {
    let Some(answer) = admin.get(Service::Compute, &format!("/servers/{id}")).await? else {
        return Ok(None);
    };
    let shown = &answer["server"];
    let user_data = match shown.get("OS-EXT-SRV-ATTR:user_data") {
        None => return Err(Error::Missing("right to see user-data; name an administrator".into())),
        // Nova: null for a server that was given none.
        Some(text) => base64::engine::general_purpose::STANDARD
            .decode(text.as_str().unwrap_or_default())
            .unwrap_or_default(),
    };
    let server = read(shown);
    let host_name = shown["OS-EXT-SRV-ATTR:hostname"].as_str().unwrap_or(&server.name);
    Ok(Some(Guest {
        host_name: host_name.to_owned(),
        user_data,
        metadata: serde_json::from_value(shown["metadata"].clone()).unwrap_or_default(),
        server: server.id,
        name: server.name,
        fixed: server.internal,
        floating: server.external,
        zone: server.zone,
        flavor: server.flavor,
        vcpus: server.vcpus,
        ram: server.ram,
    }))
}

fn read(server: &Value) -> Server {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut internal, mut external) = (Vec::new(), Vec::new());
    for entry in server["addresses"]
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
        .flat_map(|entries| entries.as_array().into_iter().flatten())
    {
        let Some(address) = entry["addr"].as_str().and_then(|addr| addr.parse().ok()) else {
            continue;
        };
        let is_floating = entry["OS-EXT-IPS:type"] == "floating";
        if is_floating { &mut external } else { &mut internal }.push(address);
    }
    Server {
        id: text(&server["id"]),
        name: text(&server["name"]),
        status: text(&server["status"]),
        zone: text(&server["OS-EXT-AZ:availability_zone"]),
        flavor: text(&server["flavor"]["original_name"]),
        vcpus: server["flavor"]["vcpus"].as_u64().unwrap_or_default(),
        ram: server["flavor"]["ram"].as_u64().unwrap_or_default(),
        power: server["OS-EXT-STS:power_state"].as_u64().unwrap_or_default(),
        internal,
        external,
    }
}
