//! CustomResourceDefinitions: what they must look like, and how kinds come and go with them.

mod check;

pub(super) use check::mistakes;

use super::delete::{self, DeleteOptions};
use super::registry::{Behaviour, Generation, Kind, Scale, Subresource};
use super::request::Request;
use super::store::{Key, ResourceId};
use super::{ApiServer, table};
use crate::schema::Schema;
use crate::schema::apply::{self, Writer};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Holds a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Where definitions are kept.
#[must_use]
pub(super) fn storage() -> ResourceId {
    ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Fills in what follows from the rest of a new definition.
pub(super) fn before_create(crd: &mut Value) {
    let stored = stored_version(crd).map(|version| json!([version])).unwrap_or(Value::Null);
    crd["status"] = json!({
        "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored,
    });
}

/// Fills in what follows from the rest of a changed definition.
pub(super) fn before_update(crd: &mut Value) {
    defaults(crd);
    let Some(version) = stored_version(crd).map(str::to_owned) else { return };
    if let Some(list) = crd["status"]["storedVersions"].as_array_mut()
        && !list.iter().any(|known| *known == version.as_str())
    {
        list.push(version.into());
    }
}

/// Fills in the names and the conversion that a definition leaves out.
pub(super) fn defaults(crd: &mut Value) {
    let spec = &mut crd["spec"];
    if !spec["names"].is_object() {
        return;
    }
    let kind = text(&spec["names"], "kind").to_owned();
    for (field, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if text(&spec["names"], field).is_empty() {
            spec["names"][field] = value.into();
        }
    }
    if !spec["conversion"].is_object() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

fn stored_version(crd: &Value) -> Option<&str> {
    let versions = crd["spec"]["versions"].as_array()?;
    versions.iter().rev().find(|version| version["storage"] == true)?["name"].as_str()
}

/// Marks a definition whose objects must go first.
pub(super) fn before_delete(server: &ApiServer, kind: &Kind, crd: &mut Value) {
    if kind.storage != storage() || crd["metadata"]["deletionTimestamp"].is_string() {
        return;
    }
    if server.registry().groups().stored_in(&resource(crd)).next().is_none() {
        return;
    }
    let mut list = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    list.push(CLEANUP.into());
    crd["metadata"]["finalizers"] = Value::Array(list);
    let why =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let one = make_condition(server, "Terminating", "True", "InstanceDeletionPending", why);
    if let Some(conditions) = crd["status"]["conditions"].as_array_mut() {
        conditions.push(one);
    }
}

/// What the objects of a definition are kept as.
fn resource(crd: &Value) -> ResourceId {
    ResourceId::new(text(&crd["spec"], "group"), text(&crd["spec"]["names"], "plural"))
}

/// After a write: definitions take effect, and those on their way out let go when their last object is gone.
pub(super) fn settle(server: &ApiServer, request: &Request) {
    let kind = &*request.kind;
    if kind.storage == storage() {
        let (_, all) = server.store().list(&storage(), None);
        all.iter().for_each(|crd| settle_one(server, crd));
        withdraw(server);
    } else if kind.closing {
        let name = format!("{}.{}", kind.plural, kind.group);
        let key = Key { resource: storage(), namespace: String::new(), name };
        if let Some(crd) = server.store().get(&key) {
            settle_one(server, &crd);
        }
        withdraw(server);
    }
}

/// Stops serving kinds whose definition is gone.
fn withdraw(server: &ApiServer) {
    let (_, all) = server.store().list(&storage(), None);
    let groups = server.registry().groups();
    let left: Vec<ResourceId> = all.iter().map(|crd| resource(crd)).collect();
    let mut gone: Vec<ResourceId> = groups
        .kinds()
        .filter(|kind| kind.custom && !left.contains(&kind.storage))
        .map(|kind| kind.storage.clone())
        .collect();
    gone.dedup();
    for id in &gone {
        server.registry().replace(id, Vec::new());
        server.store().hang_up(id);
    }
}

fn settle_one(server: &ApiServer, crd: &Value) {
    let name = text(&crd["metadata"], "name").to_owned();
    let key = Key { resource: storage(), namespace: String::new(), name };
    if crd["metadata"]["deletionTimestamp"].is_string() {
        return clean_up(server, &key, crd);
    }
    if condition(crd, "Established").is_some_and(|condition| condition["status"] == "True") {
        if !is_served_as(server, crd) {
            server.registry().replace(&resource(crd), kinds(crd, false));
        }
        return;
    }
    establish(server, &key, crd);
}

/// The spec a kind was made from is remembered in the definition's generation.
fn is_served_as(server: &ApiServer, crd: &Value) -> bool {
    let generation = crd["metadata"]["generation"].as_i64().unwrap_or(0);
    let groups = server.registry().groups();
    let id = resource(crd);
    let mut served = groups.stored_in(&id).peekable();
    served.peek().is_some() && served.all(|kind| kind.revision == generation)
}

fn condition<'a>(crd: &'a Value, of_type: &str) -> Option<&'a Value> {
    crd["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == of_type)
}

fn make_condition(
    server: &ApiServer,
    of_type: &str,
    status: &str,
    reason: &str,
    why: &str,
) -> Value {
    json!({
        "type": of_type, "status": status, "lastTransitionTime": server.stamp(),
        "reason": reason, "message": why,
    })
}

/// A definition with a status that the server itself wrote, and owns.
fn noted(server: &ApiServer, old: &Value, mut new: Value) -> Value {
    if let Some(kind) = server.registry().groups().stored_in(&storage()).next() {
        let version = kind.api_version();
        let writer = Writer {
            manager: "kube-apiserver",
            api_version: &version,
            subresource: Some("status"),
            now: server.clock().now(),
        };
        apply::track(&kind.schema, Some(old), &mut new, &writer);
    }
    new
}

/// Accepts the names of a new definition and serves it, in two steps as the real server does.
fn establish(server: &ApiServer, key: &Key, crd: &Value) {
    let old = crd;
    let mut crd = crd.clone();
    let (names, conflict) = accept(server, &crd);
    if let Some(why) = conflict {
        let conditions = json!([
            make_condition(server, "NamesAccepted", "False", why.0, &why.1),
            make_condition(
                server,
                "Established",
                "False",
                "NotAccepted",
                "not all names are accepted"
            ),
        ]);
        if condition(&crd, "NamesAccepted").is_none() {
            crd["status"]["conditions"] = conditions;
            crd["status"]["acceptedNames"] = names;
            // Nobody else writes while a write is settled.
            let _ = server.store().replace(key, noted(server, old, crd), None);
        }
        return;
    }
    crd["status"]["acceptedNames"] = names;
    let accepted = "the initial names have been accepted";
    let names =
        make_condition(server, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let installing = make_condition(server, "Established", "False", "Installing", accepted);
    crd["status"]["conditions"] = json!([names, installing]);
    let mut crd = noted(server, old, crd);
    let _ = server.store().replace(key, crd.clone(), None);
    server.registry().replace(&resource(&crd), kinds(&crd, false));
    let served = make_condition(server, "Established", "True", "InitialNamesAccepted", accepted);
    crd["status"]["conditions"] = json!([names, served]);
    let _ = server.store().replace(key, crd, None);
}

/// The names of a definition that nobody else in its group has, and what is told of the last that is taken.
fn accept(server: &ApiServer, crd: &Value) -> (Value, Option<(&'static str, String)>) {
    let groups = server.registry().groups();
    let id = resource(crd);
    let others = || groups.kinds().filter(|kind| kind.group == id.group && kind.storage != id);
    let is_resource = |word: &str| {
        others().any(|kind| {
            kind.plural == word
                || kind.singular == word
                || kind.short_names.iter().any(|short| short == word)
        })
    };
    let is_kind = |word: &str| others().any(|kind| kind.kind == word || kind.list_kind == word);
    let mut names = crd["spec"]["names"].clone();
    let mut conflict = None;
    let mut told =
        |reason, word: &str| conflict = Some((reason, format!("{word:?} is already in use")));
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        if is_resource(text(&names, field)) {
            told(reason, text(&names, field));
            names[field] = "".into();
        }
    }
    let shorts = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(short) = shorts.into_iter().find(|short| is_resource(short)) {
        told("ShortNamesConflict", short);
        names["shortNames"] = Value::Null;
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        if is_kind(text(&names, field)) {
            told(reason, text(&names, field));
            names[field] = "".into();
        }
    }
    if let Some(map) = names.as_object_mut() {
        map.retain(|field, value| match field.as_str() {
            "plural" | "kind" => true,
            _ => !value.is_null() && *value != "",
        });
    }
    (names, conflict)
}

/// Deletes the objects of a definition on its way out; without objects it goes.
fn clean_up(server: &ApiServer, key: &Key, crd: &Value) {
    let id = resource(crd);
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|name| name == CLEANUP) {
        return;
    }
    if server.registry().groups().stored_in(&id).any(|kind| !kind.closing) {
        server.registry().replace(&id, kinds(crd, true));
    }
    let groups = server.registry().groups();
    if let Some(kind) = groups.stored_in(&id).next() {
        for (_, entry) in server.store().entries(&id, None).1 {
            let meta = &entry.object["metadata"];
            let object = Key {
                resource: id.clone(),
                namespace: text(meta, "namespace").to_owned(),
                name: text(meta, "name").to_owned(),
            };
            // What a finalizer holds stays, and is looked at again when it changes.
            let _ = delete::remove(server, kind, &object, &entry, &DeleteOptions::default());
        }
    }
    let left: Vec<Value> = finalizers.into_iter().filter(|name| name != CLEANUP).collect();
    if server.store().entries(&id, None).1.is_empty() {
        if left.is_empty() {
            let _ = server.store().remove(key, None);
        } else {
            let mut crd = crd.clone();
            crd["metadata"]["finalizers"] = Value::Array(left);
            let _ = server.store().replace(key, crd, None);
        }
    } else if condition(crd, "Terminating")
        .is_none_or(|one| one["reason"] != "InstanceDeletionInProgress")
    {
        let mut crd = crd.clone();
        let why = "CustomResource deletion is in progress";
        let one = make_condition(server, "Terminating", "True", "InstanceDeletionInProgress", why);
        if let Some(list) = crd["status"]["conditions"].as_array_mut() {
            list.retain(|known| known["type"] != "Terminating");
            list.push(one);
        }
        let _ = server.store().replace(key, crd, None);
    }
}

/// The kinds a definition serves.
fn kinds(crd: &Value, closing: bool) -> Vec<Kind> {
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|version| version["served"] == true);
    served.filter_map(|version| kind(crd, version, closing)).collect()
}

fn kind(crd: &Value, version: &Value, closing: bool) -> Option<Kind> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let words = |list: &Value| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let group = text(spec, "group").to_owned();
    let version_name = text(version, "name").to_owned();
    let status_apart = version["subresources"]["status"].is_object();
    let api_version = format!("{group}/{version_name}");
    let warning = (version["deprecated"] == true).then(|| {
        let given = text(version, "deprecationWarning");
        let of_kind = text(names, "kind");
        let mut plain = format!("{api_version} {of_kind} is deprecated");
        let mut all = spec["versions"].as_array().into_iter().flatten();
        if let Some(next) = all.find(|one| one["served"] == true && one["deprecated"] != true) {
            plain += &format!("; use {group}/{} {of_kind}", text(next, "name"));
        }
        if given.is_empty() { plain } else { given.to_owned() }
    });
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    Some(Kind {
        storage: resource(crd),
        storage_version: format!("{group}/{}", stored_version(crd)?),
        schema: Schema::from_crd(&version["schema"]["openAPIV3Schema"]).ok()?,
        columns: table::custom_columns(version["additionalPrinterColumns"].as_array()),
        scale: scale(&version["subresources"]["scale"]),
        subresources: subresources(&group, &version_name, text(names, "kind"), version),
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
            .map(str::to_owned)
            .into(),
        behaviour: Behaviour {
            generation: Generation::Content,
            version_required: true,
            status_apart,
            ..Behaviour::default()
        },
        custom: true,
        selectable: selectable
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        definition: definition(&group, &version_name, text(names, "kind")),
        published: version["schema"]["openAPIV3Schema"].clone(),
        closing,
        inert: false,
        warning,
        revision: crd["metadata"]["generation"].as_i64().unwrap_or(0),
        group,
        version: version_name,
    })
}

/// Kubernetes: the schema of `Rat` in `lab.example.com/v1` is called `com.example.lab.v1.Rat`.
fn definition(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.rsplit('.').collect();
    parts.extend([version, kind]);
    parts.join(".")
}

fn scale(scale: &Value) -> Option<Scale> {
    scale.is_object().then(|| Scale {
        spec: text(scale, "specReplicasPath").to_owned(),
        status: text(scale, "statusReplicasPath").to_owned(),
        selector: Some(text(scale, "labelSelectorPath").to_owned()),
    })
}

fn subresources(
    group: &str,
    version: &str,
    kind: &str,
    definition: &Value,
) -> BTreeMap<String, Subresource> {
    let verbs = || ["get", "patch", "update"].map(str::to_owned).into();
    let one = |group: &str, version: &str, kind: &str| Subresource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: verbs(),
    };
    let mut all = BTreeMap::new();
    if definition["subresources"]["status"].is_object() {
        all.insert("status".to_owned(), one(group, version, kind));
    }
    if definition["subresources"]["scale"].is_object() {
        all.insert("scale".to_owned(), one("autoscaling", "v1", "Scale"));
    }
    all
}
