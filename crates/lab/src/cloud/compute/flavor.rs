//! Flavors: the sizes of servers.

use super::unknown_path;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// A size.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct Flavor {
    pub id: String,
    pub name: String,
    pub vcpus: u64,
    /// MiB.
    pub ram: u64,
    /// GiB; 0 wants a volume.
    pub disk: u64,
}

pub(super) fn answer(state: &State, call: &Call, rest: &[&str]) -> Answer {
    match (&call.method, rest) {
        (&Method::GET, []) => list(state, call, false),
        (&Method::GET, ["detail"]) => list(state, call, true),
        (&Method::GET, [id]) => {
            let flavor = state.compute.flavors.iter().find(|flavor| flavor.id == *id);
            let flavor =
                flavor.ok_or_else(|| fault(404, format!("Flavor {id} could not be found.")))?;
            Ok(Reply::json(200, json!({"flavor": shown(state, call, flavor, true)})))
        }
        (&Method::GET, [id, "os-extra_specs"]) => {
            if state.compute.flavors.iter().any(|flavor| flavor.id == *id) {
                return Ok(Reply::json(200, json!({"extra_specs": {}})));
            }
            Err(fault(404, format!("Flavor {id} could not be found.")))
        }
        _ => Err(unknown_path()),
    }
}

fn shown(state: &State, call: &Call, flavor: &Flavor, detail: bool) -> Value {
    let base = format!("{}/compute", state.config.base_url);
    let mut shown = json!({
        "id": flavor.id,
        "name": flavor.name,
        "links": [
            {"rel": "self", "href": format!("{base}/v2.1/flavors/{}", flavor.id)},
            {"rel": "bookmark", "href": format!("{base}/flavors/{}", flavor.id)},
        ],
    });
    if call.minor >= 55 {
        shown["description"] = Value::Null;
    }
    if detail {
        shown["ram"] = json!(flavor.ram);
        shown["disk"] = json!(flavor.disk);
        shown["vcpus"] = json!(flavor.vcpus);
        shown["swap"] = if call.minor >= 75 { json!(0) } else { json!("") };
        shown["OS-FLV-EXT-DATA:ephemeral"] = json!(0);
        shown["OS-FLV-DISABLED:disabled"] = json!(false);
        shown["os-flavor-access:is_public"] = json!(true);
        shown["rxtx_factor"] = json!(1.0);
        if call.minor >= 61 {
            shown["extra_specs"] = json!({});
        }
    }
    shown
}

fn list(state: &State, call: &Call, detail: bool) -> Answer {
    let mut all: Vec<&Flavor> = state.compute.flavors.iter().collect();
    let key = call.query("sort_key").unwrap_or("flavorid");
    all.sort_by(|one, other| {
        let order = match key {
            "name" => one.name.cmp(&other.name),
            "memory_mb" => one.ram.cmp(&other.ram),
            "root_gb" => one.disk.cmp(&other.disk),
            "vcpus" => one.vcpus.cmp(&other.vcpus),
            _ => std::cmp::Ordering::Equal,
        };
        order.then_with(|| one.id.cmp(&other.id))
    });
    if call.query("sort_dir") == Some("desc") {
        all.reverse();
    }
    let number = |name: &str| match call.query(name).map(str::parse::<usize>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(fault(400, format!("Invalid input for query parameters {name}."))),
    };
    let start = match call.query("marker") {
        None => 0,
        Some(marker) => {
            let at = all.iter().position(|flavor| flavor.id == marker);
            at.ok_or_else(|| fault(400, format!("marker [{marker}] not found")))? + 1
        }
    };
    let limit = number("limit")?.unwrap_or(super::list::PAGE_MAX).min(super::list::PAGE_MAX);
    let min_ram = number("minRam")?.unwrap_or(0);
    let min_disk = number("minDisk")?.unwrap_or(0);
    let at_least = |have: u64, least: usize| usize::try_from(have).is_ok_and(|have| have >= least);
    let page: Vec<&Flavor> = all
        .into_iter()
        .skip(start)
        .filter(|flavor| at_least(flavor.ram, min_ram) && at_least(flavor.disk, min_disk))
        .take(limit)
        .collect();
    let path = if detail { "flavors/detail" } else { "flavors" };
    let mut body = json!({
        "flavors": page.iter().map(|flavor| shown(state, call, flavor, detail)).collect::<Vec<_>>(),
    });
    if let (true, Some(last)) = (page.len() == limit, page.last()) {
        let next = super::list::next_link(state, call, path, &last.id);
        body["flavors_links"] = json!([{"rel": "next", "href": next}]);
    }
    Ok(Reply::json(200, body))
}
