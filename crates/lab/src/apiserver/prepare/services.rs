//! Cluster addresses of Services: given out in order from one range.

use crate::apiserver::store::ResourceId;
use crate::apiserver::{ApiServer, Status};
use crate::schema::FieldError;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The first two octets of all cluster addresses.
const RANGE: &str = "10.96";

/// Addresses in the range.
const RANGE_SIZE: u32 = 1 << 16;

/// Gives a Service its cluster address, unless it wants none.
pub(super) fn allocate(server: &ApiServer, object: &mut Value) -> Result<(), Status> {
    object["status"] = json!({"loadBalancer": {}});
    let spec = &mut object["spec"];
    if spec.is_object() && spec["type"] != "ExternalName" {
        // Kubernetes: one family, that of the cluster's range; who selects nobody and has no address may have both.
        let free = spec["clusterIP"] == "None" && spec["selector"].is_null();
        let (families, policy) = if free {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", json!(policy))] {
            if spec[field].is_null() {
                spec[field] = value;
            }
        }
    }
    if !spec.is_object() || spec["type"] == "ExternalName" || spec["clusterIP"] == "None" {
        if spec["clusterIP"] == "None" {
            spec["clusterIPs"] = json!(["None"]);
        }
        return Ok(());
    }
    let (_, all) = server.store().list(&ResourceId::new("", "services"), None);
    let taken: BTreeSet<&str> =
        all.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    if let Some(given) = spec["clusterIP"].as_str().filter(|given| !given.is_empty()) {
        let given = given.to_owned();
        if given.parse::<std::net::IpAddr>().is_err() {
            // What is no address is for validation to refuse.
            spec["clusterIPs"] = json!([given]);
            return Ok(());
        }
        let why = if taken.contains(given.as_str()) {
            "provided IP is already allocated"
        } else if !given.starts_with(&format!("{RANGE}.")) {
            "the provided network does not match the current range"
        } else {
            spec["clusterIPs"] = json!([given]);
            return Ok(());
        };
        let why = format!("failed to allocate IP {given}: {why}");
        let error = FieldError::invalid("spec.clusterIPs", &json!([given]), &why);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Status::invalid("", "Service", name, &[error]));
    }
    let free = (10..RANGE_SIZE - 1)
        .map(|n| format!("{RANGE}.{}.{}", n >> 8, n & 255))
        .find(|address| !taken.contains(address.as_str()))
        .ok_or_else(|| Status::internal("failed to allocate IP: range is full"))?;
    spec["clusterIPs"] = json!([&free]);
    spec["clusterIP"] = free.into();
    Ok(())
}

/// Kubernetes: an update that does not name the addresses keeps them.
pub(super) fn keep_address(old: &Value, new: &mut Value) {
    if !new["spec"].is_object() || new["spec"]["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        let missing = new["spec"][field].as_str().is_none_or(str::is_empty)
            && new["spec"][field].as_array().is_none_or(Vec::is_empty);
        if missing && !old["spec"][field].is_null() {
            new["spec"][field] = old["spec"][field].clone();
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if new["spec"][field].is_null() && !old["spec"][field].is_null() {
            new["spec"][field] = old["spec"][field].clone();
        }
    }
}
