//! Lists of Neutron's objects: filters, fields, order and pages.

use super::{Kind, shown, visible};
use crate::cloud::fault::Effect;
use crate::cloud::http::{Answer, Call, Reply, neutron_error};
use crate::cloud::state::State;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Parameters of a list that are no filters.
const OTHER: [&str; 6] = ["fields", "limit", "marker", "sort_key", "sort_dir", "page_reverse"];

/// What one can filter by and not sort by; times one can do neither.
const UNSORTED: [&str; 3] = ["description", "fixed_ips", "security_groups"];

pub(super) fn list(state: &State, call: &Call, kind: Kind) -> Answer {
    let filters = filters(call, kind)?;
    let young = lag(state, call);
    let mut found: Vec<&Value> = state
        .network
        .table(kind)
        .values()
        .filter(|object| filters.iter().all(|filter| filter.lets(object)))
        .filter(|object| visible(call, object))
        .filter(|object| young.is_none_or(|young| older(object, young)))
        .collect();
    sort(&mut found, call, kind)?;
    let limit = limit(call)?;
    if let Some(marker) = call.query("marker") {
        if state.network.get(kind, marker).is_none() {
            return Err(kind.not_found(marker));
        }
        let at = found.iter().position(|object| object["id"] == marker);
        found.drain(..at.map_or(0, |at| at + 1));
    }
    let Some(limit) = limit else {
        return Ok(Reply::json(200, json!({kind.plural(): render(call, &found)})));
    };
    found.truncate(limit);
    let mut page = json!({kind.plural(): render(call, &found)});
    page[format!("{}_links", kind.plural())] = links(state, call, kind, limit, &found);
    Ok(Reply::json(200, page))
}

fn render(call: &Call, found: &[&Value]) -> Vec<Value> {
    found.iter().map(|object| shown(call, object)).collect()
}

fn lag(state: &State, call: &Call) -> Option<Timestamp> {
    match call.effect {
        Some(Effect::Lag { millis }) => {
            let millis = i64::try_from(millis).unwrap_or(i64::MAX);
            state.now().saturating_sub(SignedDuration::from_millis(millis)).ok()
        }
        _ => None,
    }
}

fn older(object: &Value, young: Timestamp) -> bool {
    let created = object["created_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    created.is_none_or(|created| created < young)
}

fn limit(call: &Call) -> Result<Option<usize>, Reply> {
    let Some(limit) = call.query("limit") else {
        return Ok(None);
    };
    match limit.parse::<usize>() {
        Ok(0) => Ok(None),
        Ok(limit) => Ok(Some(limit)),
        Err(_) => {
            let message = format!(
                "Bad limit request: Limit must be an integer 0 or greater and not '{limit}'."
            );
            Err(neutron_error(400, "BadRequest", message))
        }
    }
}

fn sort(found: &mut [&Value], call: &Call, kind: Kind) -> Result<(), Reply> {
    if call.queries("sort_key").count() != call.queries("sort_dir").count() {
        let message = "The number of sort_keys and sort_dirs must be same";
        return Err(neutron_error(400, "HTTPBadRequest", message));
    }
    let sortable = |key: &&str| !UNSORTED.contains(key) && attributes(kind).contains(key);
    if let Some(odd) = call.queries("sort_key").find(|key| !sortable(key)) {
        let message = format!("['{odd}'] is invalid attribute for sort_keys");
        return Err(neutron_error(400, "HTTPBadRequest", message));
    }
    let directions: Vec<&str> = call.queries("sort_dir").collect();
    let keys: Vec<(&str, bool)> = call
        .queries("sort_key")
        .enumerate()
        .map(|(at, key)| (key, directions.get(at).is_some_and(|direction| *direction == "desc")))
        .collect();
    // Without keys the order is that of creation; pages need one that lasts.
    found.sort_by(|one, other| {
        keys.iter().fold(std::cmp::Ordering::Equal, |order, (key, descending)| {
            order.then_with(|| {
                let order = one[*key].to_string().cmp(&other[*key].to_string());
                if *descending { order.reverse() } else { order }
            })
        })
    });
    Ok(())
}

fn links(state: &State, call: &Call, kind: Kind, limit: usize, found: &[&Value]) -> Value {
    let link = |marker: &Value, reverse: bool| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let rest = call.query.iter().filter(|(name, _)| name != "marker" && name != "page_reverse");
        query.extend_pairs(rest);
        query.append_pair("marker", marker.as_str().unwrap_or_default());
        if reverse {
            query.append_pair("page_reverse", "True");
        }
        let base = &state.config.base_url;
        format!("{base}/network/v2.0/{}?{}", kind.path(), query.finish())
    };
    let mut links = Vec::new();
    if let (true, Some(last)) = (found.len() == limit, found.last()) {
        links.push(json!({"rel": "next", "href": link(&last["id"], false)}));
    }
    if let Some(first) = found.first() {
        links.push(json!({"rel": "previous", "href": link(&first["id"], true)}));
    }
    Value::Array(links)
}

enum Filter<'a> {
    /// The attribute has one of these values.
    Is(&'a str, Vec<&'a str>),
    /// Carries all (or, negated, not all) of these tags.
    Tags(Vec<&'a str>, bool),
    /// Carries any (or, negated, none) of these tags.
    AnyTag(Vec<&'a str>, bool),
}

fn filters(call: &Call, kind: Kind) -> Result<Vec<Filter<'_>>, Reply> {
    let mut filters: Vec<Filter<'_>> = Vec::new();
    for (name, value) in &call.query {
        let tags = || value.split(',').collect();
        match name.as_str() {
            other if OTHER.contains(&other) => {}
            "tags" => filters.push(Filter::Tags(tags(), true)),
            "not-tags" => filters.push(Filter::Tags(tags(), false)),
            "tags-any" => filters.push(Filter::AnyTag(tags(), true)),
            "not-tags-any" => filters.push(Filter::AnyTag(tags(), false)),
            name if attributes(kind).contains(&name) => {
                let same = filters.iter_mut().find_map(|filter| match filter {
                    Filter::Is(attribute, values) if *attribute == name => Some(values),
                    _ => None,
                });
                match same {
                    Some(values) => values.push(value),
                    None => filters.push(Filter::Is(name, vec![value])),
                }
            }
            name => {
                let message = format!("['{name}'] is invalid attribute for filtering");
                return Err(neutron_error(400, "HTTPBadRequest", message));
            }
        }
    }
    Ok(filters)
}

fn attributes(kind: Kind) -> Vec<&'static str> {
    let own: &[&str] = match kind {
        Kind::Network => &["router:external", "shared", "status", "mtu", "is_default"],
        Kind::Subnet => {
            &["network_id", "cidr", "ip_version", "gateway_ip", "enable_dhcp", "shared"]
        }
        Kind::Port => &[
            "network_id",
            "device_id",
            "device_owner",
            "mac_address",
            "fixed_ips",
            "status",
            "security_groups",
            "ip_allocation",
        ],
        Kind::Router => &["status", "flavor_id"],
        Kind::SubnetPool => &["shared", "ip_version", "is_default", "address_scope_id"],
        Kind::SecurityGroup => &["stateful", "shared"],
        Kind::SecurityGroupRule => &[
            "security_group_id",
            "direction",
            "ethertype",
            "protocol",
            "remote_ip_prefix",
            "remote_group_id",
            "port_range_min",
            "port_range_max",
        ],
        Kind::FloatingIp => &[
            "port_id",
            "floating_ip_address",
            "floating_network_id",
            "fixed_ip_address",
            "router_id",
            "status",
        ],
    };
    let mut all = vec![
        "id",
        "name",
        "description",
        "project_id",
        "tenant_id",
        "admin_state_up",
        "revision_number",
    ];
    all.extend(own);
    all
}

impl Filter<'_> {
    fn lets(&self, object: &Value) -> bool {
        let has = |tag: &&str| {
            object["tags"].as_array().is_some_and(|tags| tags.iter().any(|one| one == tag))
        };
        match self {
            Self::Tags(tags, wanted) => tags.iter().all(has) == *wanted,
            Self::AnyTag(tags, wanted) => tags.iter().any(has) == *wanted,
            Self::Is(name, values) => values.iter().any(|value| is(&object[*name], value)),
        }
    }
}

/// Names compare without case, as MySQL's default collation does.
fn is(attribute: &Value, wanted: &str) -> bool {
    match attribute {
        Value::String(text) => text.eq_ignore_ascii_case(wanted),
        Value::Bool(flag) => {
            let wanted = matches!(wanted.to_ascii_lowercase().as_str(), "true" | "1");
            *flag == wanted
        }
        Value::Number(number) => number.to_string() == wanted,
        Value::Null => wanted.is_empty(),
        // `fixed_ips=ip_address=192.0.2.1`, `security_groups=ID`.
        Value::Array(items) => items.iter().any(|item| match wanted.split_once('=') {
            Some(("ip_address_substr", part)) => {
                item["ip_address"].as_str().is_some_and(|address| address.contains(part))
            }
            Some((field, value)) => item[field] == value,
            None => item == wanted,
        }),
        Value::Object(_) => false,
    }
}
