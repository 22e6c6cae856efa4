//! Neutron v2.0: networks, ports, floating IPs and what they need. Objects are JSON, as clients see them.

pub(super) mod address;
pub(super) mod floating;
pub(super) mod port;
mod quota;
mod rule;
mod security;
mod table;
mod tag;
pub(super) mod topology;

pub(super) use quota::merged as merged_quotas;
pub(super) use security::{ensure_default, plant_group};

use super::gate::admit;
use super::http::{Answer, Call, Reply, neutron_error};
use super::state::State;
use address::Pool;
use http::Method;
use indexmap::IndexMap;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The id of the first external network.
pub(super) fn external(state: &State) -> Option<String> {
    let mut all = state.network.table(Kind::Network).values();
    let found = all.find(|network| network["router:external"] == true)?;
    found["id"].as_str().map(str::to_owned)
}

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Network,
    Subnet,
    Port,
    Router,
    SecurityGroup,
    SecurityGroupRule,
    FloatingIp,
    SubnetPool,
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::Network,
        Self::Subnet,
        Self::Port,
        Self::Router,
        Self::SecurityGroup,
        Self::SecurityGroupRule,
        Self::FloatingIp,
        Self::SubnetPool,
    ];

    /// In the path; in a body its dashes are underscores.
    fn path(self) -> &'static str {
        match self {
            Self::Network => "networks",
            Self::Subnet => "subnets",
            Self::Port => "ports",
            Self::Router => "routers",
            Self::SecurityGroup => "security-groups",
            Self::SecurityGroupRule => "security-group-rules",
            Self::FloatingIp => "floatingips",
            Self::SubnetPool => "subnetpools",
        }
    }

    fn plural(self) -> String {
        self.path().replace('-', "_")
    }

    pub(super) fn singular(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Subnet => "subnet",
            Self::Port => "port",
            Self::Router => "router",
            Self::SecurityGroup => "security_group",
            Self::SecurityGroupRule => "security_group_rule",
            Self::FloatingIp => "floatingip",
            Self::SubnetPool => "subnetpool",
        }
    }

    pub(super) fn not_found(self, id: &str) -> Reply {
        let (kind, message) = match self {
            Self::Network => ("NetworkNotFound", format!("Network {id} could not be found.")),
            Self::Subnet => ("SubnetNotFound", format!("Subnet {id} could not be found.")),
            Self::Port => ("PortNotFound", format!("Port {id} could not be found.")),
            Self::Router => ("RouterNotFound", format!("Router {id} could not be found")),
            Self::SecurityGroup => {
                ("SecurityGroupNotFound", format!("Security group {id} does not exist"))
            }
            Self::SecurityGroupRule => {
                ("SecurityGroupRuleNotFound", format!("Security group rule {id} does not exist"))
            }
            Self::FloatingIp => {
                ("FloatingIPNotFound", format!("Floating IP {id} could not be found"))
            }
            Self::SubnetPool => {
                ("SubnetPoolNotFound", format!("Subnet pool {id} could not be found."))
            }
        };
        neutron_error(404, kind, message)
    }
}

/// One table of objects by id, oldest first.
pub(super) type Table = IndexMap<String, Value>;

/// All objects.
pub(super) struct Network {
    tables: BTreeMap<Kind, Table>,
    /// The addresses of each subnet.
    pub pools: BTreeMap<String, Pool>,
    /// MAC addresses in use.
    pub macs: BTreeSet<String>,
    /// Ports that never become ACTIVE.
    pub stuck_ports: BTreeSet<String>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            tables: Kind::ALL.into_iter().map(|kind| (kind, Table::new())).collect(),
            pools: BTreeMap::new(),
            macs: BTreeSet::new(),
            stuck_ports: BTreeSet::new(),
        }
    }
}

impl Network {
    pub(super) fn table(&self, kind: Kind) -> &Table {
        &self.tables[&kind]
    }

    fn table_mut(&mut self, kind: Kind) -> &mut Table {
        self.tables.entry(kind).or_default()
    }

    pub(super) fn get(&self, kind: Kind, id: &str) -> Option<&Value> {
        self.table(kind).get(id)
    }

    fn get_mut(&mut self, kind: Kind, id: &str) -> Option<&mut Value> {
        self.table_mut(kind).get_mut(id)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Value> {
        self.table(Kind::Port).values()
    }
}

pub(super) fn answer(state: &mut State, call: &mut Call) -> Answer {
    let base = state.config.base_url.clone();
    match (&call.method, call.version.as_str(), call.path.as_slice()) {
        (&Method::GET, "", []) => {
            let own = json!([{"rel": "self", "href": format!("{base}/network/v2.0/")}]);
            let version = json!({"id": "v2.0", "status": "CURRENT", "links": own});
            return Ok(Reply::json(200, json!({"versions": [version]})));
        }
        (_, version, _) if version != "v2.0" => {
            // Neutron: another program in front of it answers for other versions, in words of its own.
            let body = json!({"code": 404, "title": "Not Found", "description": null});
            return Err(Reply::json(404, body));
        }
        (&Method::GET, _, []) => {
            let reply = Reply::json(200, resources(&base));
            return Ok(reply.with("x-openstack-request-id", call.request_id.clone()));
        }
        _ => {}
    }
    admit(state, call)?;
    let identified = |reply: Reply, id: &str| reply.with("x-openstack-request-id", id);
    let id = call.request_id.clone();
    route(state, call).map(|reply| identified(reply, &id)).map_err(|reply| identified(reply, &id))
}

fn resources(base: &str) -> Value {
    let resources: Vec<Value> = [Kind::Network, Kind::Subnet, Kind::SubnetPool, Kind::Port]
        .into_iter()
        .map(|kind| {
            let own = format!("{base}/network/v2.0/{}", kind.path());
            let links = json!([{"rel": "self", "href": own}]);
            json!({"name": kind.singular(), "collection": kind.plural(), "links": links})
        })
        .collect();
    json!({"resources": resources})
}

fn unknown_path() -> Reply {
    neutron_error(404, "HTTPNotFound", "The resource could not be found.")
}

fn route(state: &mut State, call: &Call) -> Answer {
    let mut path = call.segments();
    if let Some(last) = path.last_mut() {
        *last = last.strip_suffix(".json").unwrap_or(last);
    }
    match path.as_slice() {
        ["extensions"] if call.method == Method::GET => return Ok(quota::extensions(state)),
        ["extensions", alias] if call.method == Method::GET => {
            return quota::extension(state, alias);
        }
        ["availability_zones"] if call.method == Method::GET => {
            return Ok(Reply::json(200, json!({"availability_zones": []})));
        }
        ["quotas", rest @ ..] => return quota::answer(state, call, rest),
        _ => {}
    }
    let kind =
        path.first().and_then(|first| Kind::ALL.into_iter().find(|kind| kind.path() == *first));
    let Some(kind) = kind else {
        return Err(unknown_path());
    };
    match (&call.method, &path[1..]) {
        (&Method::GET, []) => {
            if kind == Kind::SecurityGroup && call.session.project.is_some() {
                security::ensure_default(state, &call.session.project());
            }
            table::list(state, call, kind)
        }
        (&Method::GET, [id]) => show(state, call, kind, id),
        (&Method::POST, []) => create(state, call, kind),
        (&Method::PUT, [id]) => update(state, call, kind, id),
        (&Method::DELETE, [id]) => delete(state, call, kind, id),
        (_, [id, "tags", rest @ ..]) => tag::answer(state, call, kind, id, rest),
        (&Method::PUT, [id, verb]) if kind == Kind::Router => {
            topology::router_interface(state, call, id, verb)
        }
        _ => Err(unknown_path()),
    }
}

/// The object, if the caller may see it.
fn seen<'a>(state: &'a State, call: &Call, kind: Kind, id: &str) -> Result<&'a Value, Reply> {
    let found = state.network.get(kind, id).filter(|object| visible(call, object));
    found.ok_or_else(|| kind.not_found(id))
}

fn visible(call: &Call, object: &Value) -> bool {
    object["shared"] == true
        || object["router:external"] == true
        || call.session.sees(object["project_id"].as_str().unwrap_or_default())
}

/// The object as this caller sees it.
fn shown(call: &Call, object: &Value) -> Value {
    let mut object = object.clone();
    if !call.session.is_admin()
        && let Some(fields) = object.as_object_mut()
    {
        fields.retain(|name, _| !name.starts_with("binding:") || name == "binding:vnic_type");
    }
    let wanted: Vec<&str> = call.queries("fields").collect();
    if !wanted.is_empty()
        && let Some(fields) = object.as_object_mut()
    {
        fields.retain(|name, _| wanted.contains(&name.as_str()));
    }
    object
}

fn show(state: &State, call: &Call, kind: Kind, id: &str) -> Answer {
    let object = seen(state, call, kind, id)?;
    Ok(Reply::json(200, json!({kind.singular(): shown(call, object)})))
}

fn policy(call: &Call, rule: &str) -> Result<(), Reply> {
    if call.session.is_member() {
        return Ok(());
    }
    let message = format!("rule:{rule} is disallowed by policy");
    Err(neutron_error(403, "PolicyNotAuthorized", message))
}

/// The object within the body of a write.
fn body(call: &Call, kind: Kind) -> Result<Map<String, Value>, Reply> {
    match whole_body(call)?[kind.singular()].take() {
        Value::Object(fields) => Ok(fields),
        _ => Err(neutron_error(400, "HTTPBadRequest", "Resource body required")),
    }
}

fn whole_body(call: &Call) -> Result<Value, Reply> {
    call.json()
        .map_err(|_| neutron_error(400, "HTTPBadRequest", "Body contains invalid data"))
        .map(|body| if body.is_object() { body } else { json!({}) })
}

fn create(state: &mut State, call: &Call, kind: Kind) -> Answer {
    policy(call, &format!("create_{}", kind.singular()))?;
    if let Value::Array(items) = whole_body(call)?[kind.plural()].take() {
        return create_all(state, call, kind, items);
    }
    let mut made = create_one(state, call, kind, body(call, kind)?)?;
    security::newborn(kind, &mut made);
    Ok(Reply::json(201, json!({kind.singular(): shown(call, &made)})))
}

/// Several objects in one call: all of them, or none.
fn create_all(state: &mut State, call: &Call, kind: Kind, items: Vec<Value>) -> Answer {
    let mut made: Vec<Value> = Vec::new();
    for item in items {
        let Value::Object(wanted) = item else {
            return Err(neutron_error(400, "HTTPBadRequest", "Resource body required"));
        };
        match create_one(state, call, kind, wanted) {
            Ok(one) => made.push(one),
            Err(refusal) => {
                for one in made.iter().rev().filter_map(|one| one["id"].as_str()) {
                    destroy(state, kind, one)?;
                }
                return Err(refusal);
            }
        }
    }
    let made: Vec<Value> = made.iter().map(|one| shown(call, one)).collect();
    Ok(Reply::json(201, json!({kind.plural(): made})))
}

fn create_one(
    state: &mut State,
    call: &Call,
    kind: Kind,
    wanted: Map<String, Value>,
) -> Result<Value, Reply> {
    // Neutron: the first thing that a project makes brings its default group.
    let project = owner(call, kind, &wanted)?;
    security::ensure_default(state, &project);
    match kind {
        Kind::Port => port::create(state, call, wanted),
        Kind::FloatingIp => floating::create(state, call, &wanted),
        Kind::Network => topology::create_network(state, call, &wanted),
        Kind::Subnet => topology::create_subnet(state, call, &wanted),
        Kind::Router => topology::create_router(state, call, &wanted),
        Kind::SecurityGroup => security::create_group(state, call, &wanted),
        Kind::SecurityGroupRule => security::create_rule(state, call, &wanted),
        Kind::SubnetPool => topology::create_pool(state, call, &wanted),
    }
}

fn update(state: &mut State, call: &Call, kind: Kind, id: &str) -> Answer {
    policy(call, &format!("update_{}", kind.singular()))?;
    let revision = seen(state, call, kind, id)?["revision_number"].as_u64().unwrap_or_default();
    // A malformed If-Match is ignored, as Neutron does.
    let wanted_revision = call
        .header("if-match")
        .and_then(|value| value.strip_prefix("revision_number="))
        .and_then(|number| number.parse::<u64>().ok());
    if let Some(wanted) = wanted_revision
        && wanted != revision
    {
        let message = format!("Constrained to {wanted}, but current revision is {revision}");
        return Err(neutron_error(412, "RevisionNumberConstraintFailed", message));
    }
    let wanted = body(call, kind)?;
    match kind {
        Kind::Port => port::update(state, call, id, wanted)?,
        Kind::FloatingIp => floating::update(state, id, &wanted)?,
        Kind::Router => topology::update_router(state, call, id, &wanted)?,
        Kind::Subnet => topology::update_subnet(state, id, &wanted)?,
        Kind::SecurityGroup if wanted.get("name").is_some_and(|name| name == "default") => {
            return Err(security::default_exists());
        }
        _ => topology::update(state, kind, id, &wanted)?,
    }
    show(state, call, kind, id)
}

fn delete(state: &mut State, call: &Call, kind: Kind, id: &str) -> Answer {
    policy(call, &format!("delete_{}", kind.singular()))?;
    let object = seen(state, call, kind, id)?;
    if kind == Kind::SecurityGroup && object["name"] == "default" && !call.session.is_admin() {
        let message = "Insufficient rights for removing default security group.";
        return Err(neutron_error(409, "SecurityGroupCannotRemoveDefault", message));
    }
    destroy(state, kind, id)?;
    Ok(Reply::empty(204))
}

fn destroy(state: &mut State, kind: Kind, id: &str) -> Result<(), Reply> {
    match kind {
        Kind::Port => port::delete(state, id),
        Kind::FloatingIp => {
            floating::delete(state, id);
            Ok(())
        }
        Kind::SecurityGroup => security::delete_group(state, id),
        Kind::SecurityGroupRule => {
            security::delete_rule(state, id);
            Ok(())
        }
        Kind::Network | Kind::Subnet | Kind::Router | Kind::SubnetPool => {
            topology::delete(state, kind, id)
        }
    }
}

/// A field's text, or a 400 in Neutron's words. Absent and null are empty.
fn text(wanted: &Map<String, Value>, field: &str) -> Result<String, Reply> {
    /// Neutron: `NAME_MAX_LEN`, `DESCRIPTION_MAX_LEN` in characters.
    const TEXT_MAX: usize = 255;
    let bad = |why: String| {
        let message = format!("Invalid input for {field}. Reason: {why}");
        neutron_error(400, "HTTPBadRequest", message)
    };
    match wanted.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) if text.chars().count() > TEXT_MAX => {
            Err(bad(format!("'{text}' exceeds maximum length of {TEXT_MAX}.")))
        }
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(bad(format!("'{other}' is not a valid string."))),
    }
}

/// Refuses attributes that the kind does not have.
fn only(wanted: &Map<String, Value>, known: &[&str]) -> Result<(), Reply> {
    const ALWAYS: [&str; 5] = ["name", "description", "project_id", "tenant_id", "admin_state_up"];
    let unknown: Vec<String> = wanted
        .keys()
        .filter(|name| !known.contains(&name.as_str()) && !ALWAYS.contains(&name.as_str()))
        .map(|name| format!("'{name}'"))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let message = format!("Unrecognized attribute(s) {}", unknown.join(", "));
    Err(neutron_error(400, "HTTPBadRequest", message))
}

fn required<'a>(wanted: &'a Map<String, Value>, field: &str) -> Result<&'a str, Reply> {
    wanted.get(field).and_then(Value::as_str).ok_or_else(|| {
        let message =
            format!("Failed to parse request. Required attribute '{field}' not specified");
        neutron_error(400, "HTTPBadRequest", message)
    })
}

/// The project of a new object: the caller's own, or any that an administrator names.
fn owner(call: &Call, kind: Kind, wanted: &Map<String, Value>) -> Result<String, Reply> {
    let named = wanted.get("project_id").or_else(|| wanted.get("tenant_id"));
    let own = call.session.project();
    match named.and_then(Value::as_str) {
        Some(named) if named != own && !call.session.is_admin() => {
            let message = format!("rule:create_{} is disallowed by policy", kind.singular());
            Err(neutron_error(403, "PolicyNotAuthorized", message))
        }
        Some(named) => Ok(named.to_owned()),
        None => Ok(own),
    }
}

/// Refuses one more object than the project may have.
fn within_quota(state: &State, kind: Kind, limit: i64, project: &str) -> Result<(), Reply> {
    if limit < 0 || used(state, kind, project) < limit.unsigned_abs() {
        return Ok(());
    }
    let message = format!("Quota exceeded for resources: ['{}'].", kind.singular());
    Err(neutron_error(409, "OverQuota", message))
}

/// How many objects of a kind the project has.
pub(super) fn used(state: &State, kind: Kind, project: &str) -> u64 {
    let table = state.network.table(kind);
    let used = table.values().filter(|object| object["project_id"] == project).count();
    u64::try_from(used).unwrap_or(u64::MAX)
}

/// Adds the fields that every object has and keeps it; returns it as kept.
fn keep(state: &mut State, kind: Kind, project: &str, revision: u64, mut object: Value) -> Value {
    let now = super::state::seconds(state.now());
    let id = object["id"].as_str().map_or_else(|| state.uuid(), str::to_owned);
    object["id"] = json!(id);
    object["project_id"] = json!(project);
    object["tenant_id"] = json!(project);
    object["created_at"] = json!(now);
    object["updated_at"] = json!(now);
    object["revision_number"] = json!(revision);
    if object.get("tags").is_none() {
        object["tags"] = json!([]);
    }
    state.network.table_mut(kind).insert(id, object.clone());
    state.counters.made_one(kind.singular());
    object
}

/// Takes an object out of its table.
fn drop_object(state: &mut State, kind: Kind, id: &str) -> Option<Value> {
    let gone = state.network.table_mut(kind).shift_remove(id)?;
    state.counters.deleted_one(kind.singular());
    Some(gone)
}

/// Changes an object; its revision rises when something really changed.
fn change(state: &mut State, kind: Kind, id: &str, edit: impl FnOnce(&mut Value)) {
    let now = super::state::seconds(state.now());
    let Some(object) = state.network.get_mut(kind, id) else {
        return;
    };
    let before = object.clone();
    edit(object);
    if *object != before {
        let revision = object["revision_number"].as_u64().unwrap_or_default();
        object["revision_number"] = json!(revision + 1);
        object["updated_at"] = json!(now);
    }
}
