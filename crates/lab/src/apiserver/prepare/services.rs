//! Cluster addresses of Services: given out in order from one range.

use crate::apiserver::store::ResourceId;
use crate::apiserver::{ApiServer, Status};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The first two octets of all cluster addresses.
const RANGE: &str = "10.96";

/// Addresses in the range.
const RANGE_SIZE: u32 = 1 << 16;

/// Gives a Service its cluster address, unless it wants none.
pub(super) fn allocate(server: &ApiServer, object: &mut Value) -> Result<(), Status> {
    let spec = &mut object["spec"];
    if !spec.is_object() || spec["type"] == "ExternalName" || spec["clusterIP"] == "None" {
        if spec["clusterIP"] == "None" {
            spec["clusterIPs"] = json!(["None"]);
        }
        return Ok(());
    }
    if let Some(given) = spec["clusterIP"].as_str().filter(|given| !given.is_empty()) {
        spec["clusterIPs"] = json!([given]);
        return Ok(());
    }
    let (_, all) = server.store().list(&ResourceId::new("", "services"), None);
    let taken: BTreeSet<&str> =
        all.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    let free = (10..RANGE_SIZE - 1)
        .map(|n| format!("{RANGE}.{}.{}", n >> 8, n & 255))
        .find(|address| !taken.contains(address.as_str()))
        .ok_or_else(|| Status::internal("failed to allocate IP: range is full"))?;
    spec["clusterIPs"] = json!([&free]);
    spec["clusterIP"] = free.into();
    Ok(())
}
