//! The built-in kinds, from data recorded from a real server, and the objects a server makes for itself.

use super::registry::{Behaviour, Generation, Groups, Kind, Registry, Scale, Subresource};
use super::store::{Key, ResourceId};
use super::{ApiServer, access, table};
use crate::schema::Schema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const RESOURCES: &str = include_str!("data/resources.json");

/// OpenAPI components by group.
const DOCUMENTS: [(&str, &str); 19] = [
    ("", include_str!("data/openapi/core_v1.json")),
    ("apps", include_str!("data/openapi/apps_v1.json")),
    ("policy", include_str!("data/openapi/policy_v1.json")),
    ("coordination.k8s.io", include_str!("data/openapi/coordination.k8s.io_v1.json")),
    ("certificates.k8s.io", include_str!("data/openapi/certificates.k8s.io_v1.json")),
    ("rbac.authorization.k8s.io", include_str!("data/openapi/rbac.authorization.k8s.io_v1.json")),
    ("storage.k8s.io", include_str!("data/openapi/storage.k8s.io_v1.json")),
    ("scheduling.k8s.io", include_str!("data/openapi/scheduling.k8s.io_v1.json")),
    ("events.k8s.io", include_str!("data/openapi/events.k8s.io_v1.json")),
    ("apiextensions.k8s.io", include_str!("data/openapi/apiextensions.k8s.io_v1.json")),
    ("authentication.k8s.io", include_str!("data/openapi/authentication.k8s.io_v1.json")),
    ("authorization.k8s.io", include_str!("data/openapi/authorization.k8s.io_v1.json")),
    (
        "admissionregistration.k8s.io",
        include_str!("data/openapi/admissionregistration.k8s.io_v1.json"),
    ),
    ("apiregistration.k8s.io", include_str!("data/openapi/apiregistration.k8s.io_v1.json")),
    ("autoscaling", include_str!("data/openapi/autoscaling_v2.json")),
    ("batch", include_str!("data/openapi/batch_v1.json")),
    ("discovery.k8s.io", include_str!("data/openapi/discovery.k8s.io_v1.json")),
    ("networking.k8s.io", include_str!("data/openapi/networking.k8s.io_v1.json")),
    ("node.k8s.io", include_str!("data/openapi/node.k8s.io_v1.json")),
];

#[derive(Deserialize)]
struct GroupData {
    group: String,
    version: String,
    resources: Vec<ResourceData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceData {
    name: String,
    singular: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
    definition: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: BTreeMap<String, SubresourceData>,
    /// Nobody acts on its objects here.
    #[serde(default)]
    inert: bool,
}

#[derive(Deserialize)]
struct SubresourceData {
    group: String,
    version: String,
    kind: String,
    verbs: Vec<String>,
}

/// The OpenAPI components of a built-in group; what it shares with the core group is recorded there.
#[must_use]
pub(super) fn components(group: &str) -> Value {
    let text = |of: &str| DOCUMENTS.iter().find(|(name, _)| *name == of).map_or("{}", |one| one.1);
    let read = |of: &str| -> Value {
        serde_json::from_str(text(of)).expect("the recorded schemas are JSON")
    };
    let mut components = read(group);
    let Some(schemas) = components["components"]["schemas"].as_object_mut() else {
        return components;
    };
    let mut asked = BTreeSet::new();
    schemas.values().for_each(|schema| references(schema, &mut asked));
    asked.retain(|name| !schemas.contains_key(name));
    if asked.is_empty() {
        return components;
    }
    let core = read("");
    while let Some(name) = asked.pop_first() {
        let schema = &core["components"]["schemas"][&name];
        references(schema, &mut asked);
        schemas.insert(name, schema.clone());
        asked.retain(|name| !schemas.contains_key(name));
    }
    components
}

/// Collects the names of the schemas that a schema refers to.
fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                found.insert(target.rsplit('/').next().unwrap_or_default().to_owned());
            }
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// Everything built in.
#[must_use]
pub(super) fn registry() -> Registry {
    let data: Vec<GroupData> =
        serde_json::from_str(RESOURCES).expect("the recorded resources are JSON");
    let columns = table::builtin_columns();
    let mut groups = Groups::default();
    for GroupData { group, version, resources } in data {
        let document = components(&group);
        let schemas = &document["components"]["schemas"];
        for data in resources {
            let mut kind = kind(&group, &version, data, schemas);
            kind.columns = columns.of(&group, &kind.plural);
            groups.add(kind);
        }
    }
    Registry::new(groups)
}

fn kind(group: &str, version: &str, data: ResourceData, schemas: &Value) -> Kind {
    // Kubernetes: nothing but this kind is both served and deprecated.
    let warning = (data.definition == "io.k8s.api.core.v1.Endpoints").then(|| {
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()
    });
    let stored_in = if group == "autoscaling" { "v2" } else { "v1" };
    // Events of both groups are one storage.
    let home = if group == "events.k8s.io" { "" } else { group };
    let subresources: BTreeMap<String, Subresource> =
        data.subresources.into_iter().map(|(name, sub)| (name, subresource(sub))).collect();
    let mut behaviour = behaviour(group, &data.name);
    behaviour.status_apart = subresources.contains_key("status");
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        storage: ResourceId::new(home, &data.name),
        storage_version: super::registry::api_version(home, stored_in),
        selectable: selectable(group, &data.name).iter().map(|&path| path.to_owned()).collect(),
        scale: subresources.get("scale").map(|_| Scale {
            spec: ".spec.replicas".to_owned(),
            status: ".status.replicas".to_owned(),
            selector: None,
        }),
        list_kind: format!("{}List", data.kind),
        schema: Schema::builtin(schemas, &data.definition),
        plural: data.name,
        singular: data.singular,
        kind: data.kind,
        short_names: data.short_names,
        categories: data.categories,
        namespaced: data.namespaced,
        verbs: data.verbs,
        subresources,
        columns: Vec::new(),
        behaviour,
        custom: false,
        definition: data.definition,
        published: Value::Null,
        revision: 0,
        closing: false,
        warning,
        inert: data.inert,
    }
}

fn subresource(data: SubresourceData) -> Subresource {
    let SubresourceData { group, version, kind, verbs } = data;
    Subresource { group, version, kind, verbs }
}

/// What Kubernetes' strategies of each kind say.
fn behaviour(group: &str, plural: &str) -> Behaviour {
    let generation = match plural {
        "deployments" => Generation::SpecAndAnnotations,
        "replicasets"
        | "daemonsets"
        | "statefulsets"
        | "poddisruptionbudgets"
        | "pods"
        | "priorityclasses"
        | "customresourcedefinitions"
        | "jobs"
        | "cronjobs"
        | "ingresses"
        | "networkpolicies" => Generation::Spec,
        "endpointslices" | "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            Generation::Content
        }
        _ => Generation::None,
    };
    Behaviour {
        generation,
        create_on_update: matches!(plural, "leases" | "events")
            || group == "rbac.authorization.k8s.io",
        version_required: matches!(
            plural,
            "leases" | "poddisruptionbudgets" | "customresourcedefinitions" | "volumeattachments"
        ),
        delete_answers_object: matches!(
            plural,
            "pods"
                | "services"
                | "serviceaccounts"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "volumeattachments"
                | "storageclasses"
                | "csinodes"
        ),
        status_apart: false,
        status_on_create: plural == "nodes",
    }
}

/// Field selectors of Kubernetes' built-in kinds.
fn selectable(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingController",
            "type",
        ],
        ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    }
}

/// The first namespaces, priority classes and the RBAC objects every cluster starts with.
pub(super) fn bootstrap(server: &ApiServer) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        keep(
            server,
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }),
        );
    }
    for (name, value, text) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        keep(
            server,
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name, "generation": 1},
                "value": value, "description": text, "preemptionPolicy": "PreemptLowerPriority",
            }),
        );
    }
    keep(server, front_door());
    access::bootstrap_objects().into_iter().for_each(|object| keep(server, object));
}

/// Kubernetes: pods find the server under a Service with the range's first address.
fn front_door() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            "sessionAffinity": "None", "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    })
}

/// Stores an object of the server's own as it is.
fn keep(server: &ApiServer, mut object: Value) {
    let groups = server.registry().groups();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let name = object["kind"].as_str().unwrap_or_default();
    let Some(kind) =
        groups.kinds().find(|k| k.group == group && k.version == version && k.kind == name)
    else {
        return;
    };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let key =
        Key { resource: kind.storage.clone(), namespace: text("namespace"), name: text("name") };
    object["metadata"]["uid"] = server.uid().into();
    object["metadata"]["creationTimestamp"] = server.stamp().into();
    // A name that is taken keeps what it has.
    let _ = server.store().create(&key, object);
}
