//! Nova's quotas: what a project may have, and has.

use super::{VmState, disallowed, policy, unknown_path};
use crate::cloud::http::{Answer, Call, Content, Reply, fault};
use crate::cloud::network::merged_quotas;
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

/// What limits showed before this microversion: networks have left Nova, and so have personality files.
const PASSED_AWAY_LIMITS: [(&str, u16, i64); 8] = [
    ("maxTotalFloatingIps", 36, -1),
    ("totalFloatingIpsUsed", 36, 0),
    ("maxSecurityGroups", 36, -1),
    ("maxSecurityGroupRules", 36, -1),
    ("totalSecurityGroupsUsed", 36, 0),
    ("maxImageMeta", 39, 128),
    ("maxPersonality", 57, 5),
    ("maxPersonalitySize", 57, 10_240),
];

/// The same of quotas.
const PASSED_AWAY_QUOTAS: [(&str, u16, i64); 7] = [
    ("fixed_ips", 36, -1),
    ("floating_ips", 36, -1),
    ("security_groups", 36, -1),
    ("security_group_rules", 36, -1),
    ("injected_files", 57, 5),
    ("injected_file_content_bytes", 57, 10_240),
    ("injected_file_path_bytes", 57, 255),
];

/// What the servers of a project take.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    instances: u64,
    cores: u64,
    ram: u64,
}

fn used(state: &State, project: &str) -> Used {
    let servers = state.compute.servers.values();
    let live = servers.filter(|server| server.project == project && server.vm != VmState::Deleted);
    live.fold(Used::default(), |sum, server| Used {
        instances: sum.instances + 1,
        cores: sum.cores + server.flavor.vcpus,
        ram: sum.ram + server.flavor.ram,
    })
}

/// Refuses more servers of a flavor than the project may have.
pub(super) fn check(
    state: &State,
    project: &str,
    count: u64,
    vcpus: u64,
    ram: u64,
) -> Result<(), Reply> {
    let (used, quotas) = (used(state, project), &state.config.quotas);
    let asks = [
        ("instances", count, used.instances, quotas.instances),
        ("cores", count * vcpus, used.cores, quotas.cores),
        ("ram", count * ram, used.ram, quotas.ram),
    ];
    for (what, asked, used, limit) in asks {
        if limit >= 0 && used + asked > limit.unsigned_abs() {
            let message = format!(
                "Quota exceeded for {what}: Requested {asked}, but already used {used} of {limit} {what}"
            );
            return Err(fault(403, message));
        }
    }
    Ok(())
}

pub(super) fn limits(state: &State, call: &Call) -> Reply {
    let (used, quotas) = (used(state, &call.session.project()), &state.config.quotas);
    let mut absolute = json!({
        "maxTotalCores": quotas.cores,
        "maxTotalInstances": quotas.instances,
        "maxTotalKeypairs": quotas.key_pairs,
        "maxServerMeta": quotas.metadata_items,
        "maxTotalRAMSize": quotas.ram,
        "maxServerGroups": quotas.server_groups,
        "maxServerGroupMembers": quotas.server_group_members,
        "totalRAMUsed": used.ram,
        "totalCoresUsed": used.cores,
        "totalInstancesUsed": used.instances,
        "totalServerGroupsUsed": groups_of(state, &call.session.project()),
    });
    for (name, until, limit) in PASSED_AWAY_LIMITS {
        if call.minor < until {
            absolute[name] = json!(limit);
        }
    }
    Reply::json(200, json!({"limits": {"rate": [], "absolute": absolute}}))
}

pub(super) fn answer(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    policy(call, "os-quota-sets:show")?;
    match (&call.method, rest) {
        (&Method::GET, [project] | [project, "defaults"]) => Ok(plain(state, call, project)),
        (&Method::GET, [project, "detail"]) => {
            let used = used(state, project);
            let quotas = plain_values(state, call.minor);
            let detail: Value = quotas
                .into_iter()
                .map(|(name, limit)| {
                    let in_use = match name {
                        "cores" => used.cores,
                        "instances" => used.instances,
                        "ram" => used.ram,
                        "server_groups" => groups_of(state, project),
                        _ => 0,
                    };
                    (name.to_owned(), json!({"limit": limit, "in_use": in_use, "reserved": 0}))
                })
                .collect();
            let mut detail = detail;
            detail["id"] = json!(project);
            Ok(Reply::json(200, json!({"quota_set": detail})))
        }
        (&Method::PUT, [project]) => {
            if !call.session.is_admin() {
                return Err(disallowed("os-quota-sets:update"));
            }
            let bad = || fault(400, "Malformed request body");
            let body = call.json().map_err(|_| bad())?;
            let merged = merged_quotas(&state.config.quotas, &body["quota_set"]);
            state.config.quotas = merged.ok_or_else(bad)?;
            let mut reply = plain(state, call, project);
            if let Content::Json(body) = &mut reply.content
                && let Some(fields) = body["quota_set"].as_object_mut()
            {
                fields.remove("id");
            }
            Ok(reply)
        }
        _ => Err(unknown_path()),
    }
}

/// Server groups of a project.
fn groups_of(state: &State, project: &str) -> u64 {
    let own = state.compute.groups.values().filter(|group| group.project == project).count();
    u64::try_from(own).unwrap_or(u64::MAX)
}

fn plain_values(state: &State, minor: u16) -> Vec<(&'static str, i64)> {
    let quotas = &state.config.quotas;
    let passed_away = PASSED_AWAY_QUOTAS.into_iter().filter(|(_, until, _)| minor < *until);
    let now = [
        ("cores", quotas.cores),
        ("instances", quotas.instances),
        ("key_pairs", quotas.key_pairs),
        ("metadata_items", quotas.metadata_items),
        ("ram", quotas.ram),
        ("server_group_members", quotas.server_group_members),
        ("server_groups", quotas.server_groups),
    ];
    now.into_iter().chain(passed_away.map(|(name, _, limit)| (name, limit))).collect()
}

fn plain(state: &State, call: &Call, project: &str) -> Reply {
    let values = plain_values(state, call.minor)
        .into_iter()
        .map(|(name, limit)| (name.to_owned(), json!(limit)));
    let mut shown: Value = values.collect();
    shown["id"] = json!(project);
    Reply::json(200, json!({"quota_set": shown}))
}
