//! Lists of volumes, limits, quotas and messages.

use super::{Volume, bootable, shown};
use crate::cloud::fault::Effect;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::{State, micros};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cinder: `osapi_max_limit`.
const PAGE_MAX: usize = 1_000;

/// Cinder: what lists may be filtered and paged by.
const QUERIES: [&str; 25] = [
    "all_tenants",
    "availability_zone",
    "bootable",
    "consumes_quota",
    "created_at",
    "encryption_key_id",
    "glance_metadata",
    "group_id",
    "is_bootable",
    "limit",
    "marker",
    "metadata",
    "migration_status",
    "name",
    "offset",
    "project_id",
    "size",
    "sort",
    "sort_dir",
    "sort_key",
    "status",
    "updated_at",
    "user_id",
    "volume_type",
    "with_count",
];
/// From this microversion on Cinder refuses other filters; before, it drops them.
const STRICT: u16 = 31;

fn known_filters(call: &Call) -> Result<(), Reply> {
    let name = |(name, _): &(String, String)| name.split('~').next().unwrap_or_default().to_owned();
    let odd: Vec<String> =
        call.query.iter().map(name).filter(|name| !QUERIES.contains(&name.as_str())).collect();
    if odd.is_empty() || call.minor < STRICT || call.session.is_admin() {
        return Ok(());
    }
    Err(fault(400, format!("Invalid filters {} are found in query options.", odd.join(", "))))
}

pub(super) fn list(state: &State, call: &Call, detail: bool) -> Answer {
    known_filters(call)?;
    let metadata = call.query("metadata").map(dictionary).transpose()?;
    let wanted = |volume: &Volume| {
        call.session.sees(&volume.project)
            && call.query("name").is_none_or(|name| volume.name.as_deref() == Some(name))
            && call.query("status").is_none_or(|status| volume.status == status)
            && call.query("availability_zone").is_none_or(|zone| volume.zone == zone)
            && call
                .query("bootable")
                .is_none_or(|on| on.eq_ignore_ascii_case(&bootable(volume).to_string()))
            && call.query("size").is_none_or(|size| volume.size.to_string() == size)
            && metadata.as_ref().is_none_or(|wanted| {
                wanted.iter().all(|(key, value)| volume.metadata.get(key) == Some(value))
            })
    };
    let mut found: Vec<&Volume> =
        state.volumes.all.values().rev().filter(|one| wanted(one)).collect();
    if let Some(Effect::Lag { millis }) = call.effect {
        let lag = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
        let young = state.now().saturating_sub(lag);
        found.retain(|volume| young.as_ref().is_ok_and(|young| volume.created < *young));
    }
    let limit = match call.query("limit").map(str::parse::<usize>) {
        None => PAGE_MAX,
        Some(Ok(limit)) => limit.min(PAGE_MAX),
        Some(Err(_)) => return Err(fault(400, "limit param must be an integer")),
    };
    sort(&mut found, call)?;
    if let Some(marker) = call.query("marker") {
        let at = found.iter().position(|volume| volume.id == marker);
        let message = || fault(404, format!("Volume {marker} could not be found."));
        found.drain(..=at.ok_or_else(message)?);
    }
    found.truncate(limit);
    let base = &state.config.base_url;
    let entries: Vec<Value> = found
        .iter()
        .map(|volume| {
            let whole = shown(state, call.minor, volume);
            if detail {
                whole
            } else {
                json!({"id": whole["id"], "name": whole["name"], "links": whole["links"]})
            }
        })
        .collect();
    let mut body = json!({"volumes": entries});
    if let (true, Some(last)) = (found.len() == limit, found.last()) {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(call.query.iter().filter(|(name, _)| name != "marker"));
        query.append_pair("marker", &last.id);
        let path = if detail { "volumes/detail" } else { "volumes" };
        let next = format!("{base}/volume/v3/{path}?{}", query.finish());
        body["volumes_links"] = json!([{"rel": "next", "href": next}]);
    }
    Ok(Reply::json(200, body))
}

/// `sort=name:asc,created_at`, or `sort_key` and `sort_dir`; newest first without.
fn sort(found: &mut [&Volume], call: &Call) -> Result<(), Reply> {
    const KEYS: [&str; 7] =
        ["id", "status", "size", "availability_zone", "name", "bootable", "created_at"];
    let sort = call.query("sort").unwrap_or_default();
    let mut keys: Vec<(&str, &str)> = sort
        .split(',')
        .filter(|key| !key.is_empty())
        .map(|key| key.split_once(':').unwrap_or((key, "desc")))
        .collect();
    if let Some(key) = call.query("sort_key") {
        keys.push((key, call.query("sort_dir").unwrap_or("desc")));
    }
    if let Some((key, _)) = keys.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(fault(400, format!("Sort keys are invalid: {key}")));
    }
    let value = |volume: &Volume, key: &str| match key {
        "id" => volume.id.clone(),
        "status" => volume.status.to_owned(),
        "size" => format!("{:020}", volume.size),
        "availability_zone" => volume.zone.clone(),
        "name" => volume.name.clone().unwrap_or_default(),
        "bootable" => bootable(volume).to_string(),
        _ => volume.created.to_string(),
    };
    found.sort_by(|one, other| {
        keys.iter().fold(std::cmp::Ordering::Equal, |order, (key, direction)| {
            order.then_with(|| {
                let order = value(one, key).cmp(&value(other, key));
                if *direction == "asc" { order } else { order.reverse() }
            })
        })
    });
    Ok(())
}

/// A filter as JSON or as a Python dict of plain strings.
fn dictionary(text: &str) -> Result<BTreeMap<String, String>, Reply> {
    let double = text.replace('\'', "\"");
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&double))
        .map_err(|_| fault(400, format!("Invalid filters metadata = {text}.")))
}

/// Volumes and GiB of a project.
pub(super) fn used(state: &State, project: &str) -> (u64, u64) {
    let own = state.volumes.all.values().filter(|volume| volume.project == project);
    own.fold((0, 0), |(count, size), volume| (count + 1, size + volume.size))
}

pub(super) fn limits(state: &State, call: &Call) -> Reply {
    let (volumes, gigabytes) = used(state, &call.session.project());
    let quotas = &state.config.quotas;
    let absolute = json!({
        "maxTotalVolumes": quotas.volumes,
        "maxTotalSnapshots": 10,
        "maxTotalVolumeGigabytes": quotas.gigabytes,
        "maxTotalBackups": 10,
        "maxTotalBackupGigabytes": 1000,
        "totalVolumesUsed": volumes,
        "totalGigabytesUsed": gigabytes,
        "totalSnapshotsUsed": 0,
        "totalBackupsUsed": 0,
        "totalBackupGigabytesUsed": 0,
    });
    Reply::json(200, json!({"limits": {"rate": [], "absolute": absolute}}))
}

pub(super) fn quota_set(state: &State, call: &Call, project: &str) -> Reply {
    let (volumes, gigabytes) = used(state, project);
    let quotas = &state.config.quotas;
    let usage = call.query("usage").is_some_and(|usage| usage.eq_ignore_ascii_case("true"));
    let limits = [
        ("volumes", quotas.volumes, volumes),
        ("gigabytes", quotas.gigabytes, gigabytes),
        ("per_volume_gigabytes", -1, 0),
        ("snapshots", 10, 0),
        ("backups", 10, 0),
        ("backup_gigabytes", 1_000, 0),
        ("groups", 10, 0),
    ];
    let mut shown = json!({"id": project});
    // Cinder: each type has quotas of its own, and nobody has set any.
    let types = state.volumes.types.iter().flat_map(|(kind, _)| {
        ["volumes", "gigabytes", "snapshots"].map(|what| (format!("{what}_{kind}"), -1, 0))
    });
    let limits = limits.into_iter().map(|(name, limit, used)| (name.to_owned(), limit, used));
    for (name, limit, used) in limits.chain(types) {
        shown[name] = if usage {
            json!({"limit": limit, "in_use": used, "reserved": 0})
        } else {
            json!(limit)
        };
    }
    Reply::json(200, json!({"quota_set": shown}))
}

/// Why volumes failed.
pub(super) fn messages(state: &State, call: &Call) -> Reply {
    let of = call.query("resource_uuid");
    let failed = state.volumes.all.values().filter(|volume| volume.status == "error");
    let failed = failed.filter(|volume| call.session.sees(&volume.project));
    let failed = failed.filter(|volume| of.is_none_or(|of| volume.id == of));
    let messages: Vec<Value> = failed
        .map(|volume| {
            json!({
                "id": volume.id,
                "event_id": "VOLUME_VOLUME_001_003",
                "user_message": "schedule allocate volume:Could not find any available weighted backend.",
                "message_level": "ERROR",
                "created_at": volume.updated.map(micros),
                "guaranteed_until": volume.updated.map(micros),
                "request_id": null,
                "links": [],
                "resource_type": "VOLUME",
                "resource_uuid": volume.id,
            })
        })
        .collect();
    Reply::json(200, json!({"messages": messages}))
}
