//! `GET /servers` and `/servers/detail`: filters, order, pages.

use super::server::{Server, View, links, show};
use super::{VmState, disallowed};
use crate::cloud::fault::Effect;
use crate::cloud::http::{Answer, Call, Reply, fault};
use crate::cloud::state::State;
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Value, json};

/// Nova: `osapi_max_limit`.
pub(super) const PAGE_MAX: usize = 1_000;

/// What may stand in the query from 2.75 on; anything else is a 400.
const KNOWN: [&str; 40] = [
    "limit",
    "marker",
    "sort_key",
    "sort_dir",
    "all_tenants",
    "name",
    "status",
    "tags",
    "tags-any",
    "not-tags",
    "not-tags-any",
    "ip",
    "ip6",
    "flavor",
    "image",
    "host",
    "node",
    "hostname",
    "deleted",
    "changes-since",
    "changes-before",
    "metadata",
    "reservation_id",
    "project_id",
    "tenant_id",
    "user_id",
    "uuid",
    "key_name",
    "availability_zone",
    "config_drive",
    "description",
    "locked",
    "power_state",
    "task_state",
    "vm_state",
    "access_ip_v4",
    "access_ip_v6",
    "created_at",
    "launched_at",
    "progress",
];

const SORT_KEYS: [&str; 30] = [
    "root_device_name",
    "kernel_id",
    "project_id",
    "host",
    "instance_type_id",
    "task_state",
    "created_at",
    "uuid",
    "vm_state",
    "display_name",
    "access_ip_v4",
    "power_state",
    "availability_zone",
    "locked",
    "config_drive",
    "access_ip_v6",
    "node",
    "user_id",
    "hostname",
    "auto_disk_config",
    "terminated_at",
    "ramdisk_id",
    "key_name",
    "progress",
    "display_description",
    "locked_by",
    "launched_at",
    "image_ref",
    "launch_index",
    "updated_at",
];

/// The address of the next page.
pub(super) fn next_link(state: &State, call: &Call, path: &str, marker: &str) -> String {
    // Nova: in order of their names, a new marker last.
    let mut pairs: Vec<(&str, &str)> =
        call.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    pairs.sort_by_key(|(name, _)| *name);
    match pairs.iter_mut().find(|(name, _)| *name == "marker") {
        Some((_, old)) => *old = marker,
        None => pairs.push(("marker", marker)),
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    format!("{}/compute/v2.1/{path}?{}", state.config.base_url, query.finish())
}

pub(super) fn list(state: &State, call: &Call, detail: bool) -> Answer {
    let filter = Filter::of(state, call)?;
    let limit = limit(call)?;
    let live = state.compute.servers.values().filter(|server| filter.lets(server));
    // Newest first, and what is deleted only for those who ask for changes.
    let mut found: Vec<&Server> = live.rev().map(AsRef::as_ref).collect();
    if filter.since.is_some() {
        let deleted = state.compute.deleted.iter().rev().filter(|server| filter.lets(server));
        found.extend(deleted.map(AsRef::as_ref));
    }
    sort(&mut found, call)?;
    if let Some(marker) = call.query("marker") {
        let at = found.iter().position(|server| server.id == marker);
        let at = at.ok_or_else(|| fault(400, format!("marker [{marker}] not found")))?;
        found.drain(..=at);
    }
    found.truncate(limit);
    let base = &state.config.base_url;
    let shown: Vec<Value> = found
        .iter()
        .map(|server| {
            if detail {
                show(state, call, server, View::Listed)
            } else {
                json!({"id": server.id, "name": server.name, "links": links(base, &server.id)})
            }
        })
        .collect();
    let mut body = json!({"servers": shown});
    if let (true, Some(last)) = (found.len() == limit && limit > 0, found.last()) {
        let path = if detail { "servers/detail" } else { "servers" };
        let next = next_link(state, call, path, &last.id);
        body["servers_links"] = json!([{"rel": "next", "href": next}]);
    }
    Ok(Reply::json(200, body))
}

fn bad_query(field: &str, value: &str, why: &str) -> Reply {
    fault(400, format!("Invalid input for query parameters {field}. Value: {value}. {why}"))
}

fn limit(call: &Call) -> Result<usize, Reply> {
    let Some(limit) = call.query("limit") else {
        return Ok(PAGE_MAX);
    };
    let number = limit.parse::<usize>();
    let number = number
        .map_err(|_| bad_query("limit", limit, &format!("'{limit}' does not match '^[0-9]*$'")))?;
    Ok(number.min(PAGE_MAX))
}

fn sort(found: &mut [&Server], call: &Call) -> Result<(), Reply> {
    if call.query("sort_dir").is_some_and(|way| !matches!(way, "asc" | "desc")) {
        let message = "Invalid input received: Unknown sort direction, must be 'desc' or 'asc'";
        return Err(fault(400, message));
    }
    let Some(key) = call.query("sort_key") else {
        return Ok(());
    };
    if !SORT_KEYS.contains(&key) {
        let keys = SORT_KEYS.map(|key| format!("'{key}'")).join(", ");
        return Err(bad_query("sort_key", key, &format!("'{key}' is not one of [{keys}]")));
    }
    let text = |server: &Server| match key {
        "created_at" => server.created.to_string(),
        "updated_at" => server.updated.to_string(),
        "launched_at" => server.launched.map_or_else(String::new, |at| at.to_string()),
        "display_name" => server.name.clone(),
        "hostname" => server.host_name.clone(),
        "uuid" => server.id.clone(),
        "vm_state" => server.vm.name().to_owned(),
        "task_state" => server.task.unwrap_or_default().to_owned(),
        "availability_zone" => server.zone.clone(),
        _ => String::new(),
    };
    let ascending = call.query("sort_dir") == Some("asc");

    if ascending {
        // So that servers of one moment are oldest first too.
        found.reverse();
    }
    found.sort_by(|one, other| {
        let order = text(one).cmp(&text(other));
        if ascending { order } else { order.reverse() }
    });
    Ok(())
}

/// What a list is to have.
#[derive(Default)]
struct Filter {
    project: Option<String>,
    name: Option<Regex>,
    ip: Option<Regex>,
    statuses: Vec<String>,
    tags: Vec<String>,
    any_tag: Vec<String>,
    not_tags: Vec<String>,
    not_any_tag: Vec<String>,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
    /// Leaves out what was made after this: a list that lags.
    young: Option<Timestamp>,
    plain: Vec<(String, String)>,
}

impl Filter {
    fn of(state: &State, call: &Call) -> Result<Self, Reply> {
        let strict = call.minor >= 75;
        let known = |name: &str| KNOWN.contains(&name) || name.starts_with('_');
        if let Some((name, _)) = call.query.iter().find(|(name, _)| strict && !known(name)) {
            return Err(fault(400, format!("'{name}' does not match any of the regexes: '^_'")));
        }
        let everybody = call
            .query("all_tenants")
            .is_some_and(|all| all != "0" && !all.eq_ignore_ascii_case("false"));
        if everybody && !call.session.is_admin() {
            return Err(disallowed("servers:detail:get_all_tenants"));
        }
        let mut filter = Self {
            project: if everybody { None } else { call.session.project.clone() },
            name: pattern(call, "name")?,
            ip: pattern(call, "ip")?,
            since: time(call, "changes-since")?,
            before: time(call, "changes-before")?,
            ..Self::default()
        };
        filter.statuses = statuses(call)?;
        if call.minor >= 26 {
            let words = |name: &str| -> Vec<String> {
                call.queries(name).flat_map(|tags| tags.split(',')).map(str::to_lowercase).collect()
            };
            filter.tags = words("tags");
            filter.any_tag = words("tags-any");
            filter.not_tags = words("not-tags");
            filter.not_any_tag = words("not-tags-any");
        }
        for name in [
            "flavor",
            "image",
            "uuid",
            "user_id",
            "key_name",
            "availability_zone",
            "hostname",
            "vm_state",
            "task_state",
        ] {
            filter.plain.extend(call.query(name).map(|value| (name.to_owned(), value.to_owned())));
        }
        if let Some(Effect::Lag { millis }) = call.effect {
            let lag = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
            filter.young = state.now().saturating_sub(lag).ok();
        }
        Ok(filter)
    }

    fn lets(&self, server: &Server) -> bool {
        // Tags compare without case, and as a whole.
        let has = |tag: &String| server.tags.iter().any(|one| one.to_lowercase() == *tag);
        self.project.as_ref().is_none_or(|project| *project == server.project)
            && self.name.as_ref().is_none_or(|name| name.is_match(&server.name))
            && self.ip.as_ref().is_none_or(|ip| addresses(server).any(|one| ip.is_match(one)))
            && (self.statuses.is_empty()
                || self.statuses.iter().any(|status| status == server.status()))
            && self.tags.iter().all(has)
            && (self.any_tag.is_empty() || self.any_tag.iter().any(has))
            && (self.not_tags.is_empty() || !self.not_tags.iter().all(has))
            && !self.not_any_tag.iter().any(has)
            && self.since.is_none_or(|since| server.updated >= since)
            && self.before.is_none_or(|before| server.updated <= before)
            && self
                .young
                .is_none_or(|young| server.created < young || server.vm == VmState::Deleted)
            && self.plain.iter().all(|(name, value)| is(server, name, value))
    }
}

/// The statuses asked for; those Nova does not know are refused.
fn statuses(call: &Call) -> Result<Vec<String>, Reply> {
    const STATUSES: [&str; 20] = [
        "ACTIVE",
        "BUILD",
        "DELETED",
        "ERROR",
        "REBOOT",
        "REBUILD",
        "SHUTOFF",
        "HARD_REBOOT",
        "PASSWORD",
        "PAUSED",
        "RESCUE",
        "RESIZE",
        "SHELVED",
        "SHELVED_OFFLOADED",
        "SOFT_DELETED",
        "SUSPENDED",
        "UNKNOWN",
        "VERIFY_RESIZE",
        "MIGRATING",
        "REVERT_RESIZE",
    ];
    let asked = call.queries("status").map(str::to_uppercase);
    asked
        .map(|status| {
            let known = STATUSES.contains(&status.as_str());
            // Before 2.38 an unknown one is simply nobody's.
            let passes = known || call.minor < 38;
            passes.then_some(status).ok_or_else(|| fault(400, "Invalid status value"))
        })
        .collect()
}

fn is(server: &Server, name: &str, value: &str) -> bool {
    match name {
        "flavor" => server.flavor.id == value,
        "image" => server.image.as_deref() == Some(value),
        "uuid" => server.id == value,
        "user_id" => server.user == value,
        "key_name" => server.key_name.as_deref() == Some(value),
        "availability_zone" => server.zone == value,
        "hostname" => server.host_name == value,
        "vm_state" => server.vm.name() == value,
        "task_state" => server.task == Some(value),
        _ => true,
    }
}

fn addresses(server: &Server) -> impl Iterator<Item = &str> {
    let networks = server.addresses.as_object().into_iter().flat_map(|networks| networks.values());
    let entries = networks.flat_map(|entries| entries.as_array().into_iter().flatten());
    entries.filter_map(|entry| entry["addr"].as_str())
}

/// An expression as the database reads it: anywhere in the text, without case.
fn pattern(call: &Call, field: &str) -> Result<Option<Regex>, Reply> {
    let Some(text) = call.query(field) else {
        return Ok(None);
    };
    let pattern = Regex::new(&format!("(?i){text}"));
    pattern.map(Some).map_err(|_| bad_query(field, text, &format!("'{text}' is not a 'regex'")))
}

fn time(call: &Call, field: &str) -> Result<Option<Timestamp>, Reply> {
    let Some(text) = call.query(field) else {
        return Ok(None);
    };
    let zoned = text.parse::<Timestamp>().or_else(|_| format!("{text}Z").parse());
    zoned.map(Some).map_err(|_| bad_query(field, text, &format!("'{text}' is not a 'date-time'")))
}
