//! Nova's quotas: what a project may have, and has.

use super::{VmState, disallowed, policy, unknown_path};
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::network::merged_quotas;
use crate::cloud::state::State;
use http::Method;
use serde_json::{Value, json};

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
        "totalServerGroupsUsed": state.compute.groups.len(),
    });
    if call.minor < 57 {
        // Gone from 2.57 on, with personality files.
        for (name, limit) in
            [("maxImageMeta", 128), ("maxPersonality", 5), ("maxPersonalitySize", 10_240)]
        {
            absolute[name] = json!(limit);
        }
    }
    Reply::json(200, json!({"limits": {"rate": [], "absolute": absolute}}))
}

pub(super) fn answer(state: &mut State, call: &Call, rest: &[&str]) -> Answer {
    policy(call, "os-quota-sets:show")?;
    match (&call.method, rest) {
        (&Method::GET, [project] | [project, "defaults"]) => Ok(plain(state, project)),
        (&Method::GET, [project, "detail"]) => {
            let used = used(state, project);
            let quotas = plain_values(state);
            let detail: Value = quotas
                .into_iter()
                .map(|(name, limit)| {
                    let in_use = match name {
                        "cores" => used.cores,
                        "instances" => used.instances,
                        "ram" => used.ram,
                        "server_groups" => {
                            u64::try_from(state.compute.groups.len()).unwrap_or(u64::MAX)
                        }
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
            Ok(plain(state, project))
        }
        _ => Err(unknown_path()),
    }
}

fn plain_values(state: &State) -> [(&'static str, i64); 7] {
    let quotas = &state.config.quotas;
    [
        ("cores", quotas.cores),
        ("instances", quotas.instances),
        ("key_pairs", quotas.key_pairs),
        ("metadata_items", quotas.metadata_items),
        ("ram", quotas.ram),
        ("server_group_members", quotas.server_group_members),
        ("server_groups", quotas.server_groups),
    ]
}

fn plain(state: &State, project: &str) -> Reply {
    let values =
        plain_values(state).into_iter().map(|(name, limit)| (name.to_owned(), json!(limit)));
    let mut shown: Value = values.collect();
    shown["id"] = json!(project);
    Reply::json(200, json!({"quota_set": shown}))
}
