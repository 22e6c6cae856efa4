//! Cells of a row: those of custom kinds by their paths, those of built-in kinds by name.

use super::{age, batch, pods};
use crate::apiserver::registry::{Column, Kind};
use crate::schema::jsonpath;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The cells of one object, in the order of its kind's columns.
pub(super) fn of(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    if kind.custom {
        let rest = kind.columns.iter().skip(1).map(|column| custom(column, object, now));
        return std::iter::once(object["metadata"]["name"].clone()).chain(rest).collect();
    }
    let shared = pods::summary(kind, object, now);
    kind.columns
        .iter()
        .map(|column| {
            let name = column.definition["name"].as_str().unwrap_or_default();
            shared.get(name).cloned().unwrap_or_else(|| builtin(&kind.plural, name, object, now))
        })
        .collect()
}

/// Kubernetes: the first match in the type of its column; what has another type is not shown.
fn custom(column: &Column, object: &Value, now: Timestamp) -> Value {
    let found = jsonpath::find(&column.path, object);
    let Some(&value) = found.first() else { return Value::Null };
    match column.definition["type"].as_str().unwrap_or_default() {
        "integer" if value.is_i64() || value.is_u64() => value.clone(),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "string" => match value {
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        },
        "date" if value.is_string() => age::since(value, now).into(),
        _ => Value::Null,
    }
}

/// A text, or what stands for none.
pub(super) fn or(value: &Value, none: &str) -> Value {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(none).into()
}

pub(super) fn number(value: &Value) -> Value {
    value.as_i64().unwrap_or(0).into()
}

/// A number or a text, as a field of both kinds is shown.
fn either(value: &Value, none: &str) -> Value {
    match value {
        Value::Number(number) => number.to_string().into(),
        other => or(other, none),
    }
}

pub(super) fn joined<'a>(list: impl Iterator<Item = &'a Value>) -> String {
    list.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn builtin(plural: &str, column: &str, object: &Value, now: Timestamp) -> Value {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    match (plural, column) {
        ("events", _) => event(column, object, now),
        (_, "Name") => meta["name"].clone(),
        (_, "Age") => age::since(&meta["creationTimestamp"], now).into(),
        (_, "Created At") => meta["creationTimestamp"].clone(),
        ("nodes", _) => node(column, object),
        ("services", _) => service(column, object),
        ("jobs" | "cronjobs", _) => batch::cell(plural, column, object, now),
        ("endpoints", _) => endpoints(object).into(),
        ("deployments" | "replicasets" | "daemonsets" | "statefulsets", _) => {
            workload(plural, column, object)
        }
        ("podtemplates", _) => template(column, &object["template"]),
        ("certificatesigningrequests", _) => request(column, object),
        ("poddisruptionbudgets", "Min Available") => either(&spec["minAvailable"], "N/A"),
        ("poddisruptionbudgets", "Max Unavailable") => either(&spec["maxUnavailable"], "N/A"),
        ("poddisruptionbudgets", _) => number(&status["disruptionsAllowed"]),
        ("namespaces", _) => status["phase"].clone(),
        ("configmaps", _) => (size(&object["data"]) + size(&object["binaryData"])).into(),
        ("secrets", "Type") => object["type"].clone(),
        ("secrets", _) => size(&object["data"]).into(),
        ("leases", _) => or(&spec["holderIdentity"], ""),
        ("rolebindings" | "clusterrolebindings", _) => binding(column, object),
        ("priorityclasses", "Value") => number(&object["value"]),
        ("priorityclasses", "Global-Default") => {
            object["globalDefault"].as_bool().unwrap_or(false).into()
        }
        ("priorityclasses", _) => or(&object["preemptionPolicy"], "<unset>"),
        ("csinodes", _) => items(&spec["drivers"]).count().into(),
        ("storageclasses", "Provisioner") => object["provisioner"].clone(),
        ("storageclasses", "ReclaimPolicy") => or(&object["reclaimPolicy"], "Delete"),
        ("storageclasses", _) => or(&object["volumeBindingMode"], "<unset>"),
        ("volumeattachments", "Attacher") => spec["attacher"].clone(),
        ("volumeattachments", "PV") => or(&spec["source"]["persistentVolumeName"], ""),
        ("volumeattachments", "Node") => spec["nodeName"].clone(),
        ("volumeattachments", _) => {
            status["attached"].as_bool().unwrap_or(false).to_string().into()
        }
        ("persistentvolumes" | "persistentvolumeclaims", _) => volume(plural, column, object),
        _ => Value::Null,
    }
}

fn size(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

fn node(column: &str, object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let info = &status["nodeInfo"];
    let address = |wanted: &str| {
        let found = items(&status["addresses"]).find(|one| one["type"] == wanted);
        or(found.map_or(&Value::Null, |one| &one["address"]), "<none>")
    };
    match column {
        "Status" => {
            let ready = items(&status["conditions"]).find(|one| one["type"] == "Ready");
            let mut text = match ready.map(|one| one["status"] == "True") {
                Some(true) => "Ready",
                Some(false) => "NotReady",
                None => "Unknown",
            }
            .to_owned();
            if spec["unschedulable"] == true {
                text.push_str(",SchedulingDisabled");
            }
            text.into()
        }
        "Roles" => roles(&object["metadata"]["labels"]).into(),
        "Version" => or(&info["kubeletVersion"], ""),
        "Internal-IP" => address("InternalIP"),
        "External-IP" => address("ExternalIP"),
        "OS-Image" => or(&info["osImage"], "<unknown>"),
        "Kernel-Version" => {
            let kernel = info["kernelVersion"].as_str().unwrap_or_default();
            match info["architecture"].as_str().filter(|arch| !arch.is_empty()) {
                Some(arch) if !kernel.is_empty() => format!("{kernel} ({arch})").into(),
                _ => or(&info["kernelVersion"], "<unknown>"),
            }
        }
        _ => or(&info["containerRuntimeVersion"], "<unknown>"),
    }
}

/// Kubernetes: roles are labels, `node-role.kubernetes.io/ROLE` or `kubernetes.io/role: ROLE`.
fn roles(labels: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.push(role);
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.retain(|role| !role.is_empty());
    roles.sort_unstable();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn service(column: &str, object: &Value) -> Value {
    let spec = &object["spec"];
    match column {
        "Type" => spec["type"].clone(),
        "Cluster-IP" => or(&spec["clusterIP"], "<none>"),
        "External-IP" => {
            let ingress = items(&object["status"]["loadBalancer"]["ingress"]);
            let text = joined(ingress.map(|one| &one["ip"]).chain(items(&spec["externalIPs"])));
            match text.as_str() {
                "" if spec["type"] == "LoadBalancer" => "<pending>".into(),
                "" => or(&spec["externalName"], "<none>"),
                _ => text.into(),
            }
        }
        "Port(s)" => {
            let port = |port: &Value| {
                let protocol = port["protocol"].as_str().unwrap_or("TCP");
                match port["nodePort"].as_i64().filter(|&node| node > 0) {
                    Some(node) => format!("{}:{node}/{protocol}", port["port"]),
                    None => format!("{}/{protocol}", port["port"]),
                }
            };
            let all: Vec<String> = items(&spec["ports"]).map(port).collect();
            if all.is_empty() { "<none>".into() } else { all.join(",").into() }
        }
        _ => labels(&spec["selector"]).into(),
    }
}

pub(super) fn labels(map: &Value) -> String {
    let all = map.as_object().into_iter().flatten();
    let text: Vec<String> =
        all.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if text.is_empty() { "<none>".to_owned() } else { text.join(",") }
}

fn workload(plural: &str, column: &str, object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let containers = || items(&spec["template"]["spec"]["containers"]);
    match (plural, column) {
        (_, "Containers") => joined(containers().map(|one| &one["name"])).into(),
        (_, "Images") => joined(containers().map(|one| &one["image"])).into(),
        (_, "Selector") => labels(&spec["selector"]["matchLabels"]).into(),
        ("deployments" | "statefulsets", "Ready") => {
            let ready = status["readyReplicas"].as_i64().unwrap_or(0);
            format!("{ready}/{}", spec["replicas"].as_i64().unwrap_or(0)).into()
        }
        ("deployments", "Up-to-date") => number(&status["updatedReplicas"]),
        ("deployments", _) => number(&status["availableReplicas"]),
        ("replicasets", "Desired") => number(&spec["replicas"]),
        ("replicasets", "Current") => number(&status["replicas"]),
        ("replicasets", _) => number(&status["readyReplicas"]),
        (_, "Desired") => number(&status["desiredNumberScheduled"]),
        (_, "Current") => number(&status["currentNumberScheduled"]),
        (_, "Ready") => number(&status["numberReady"]),
        (_, "Up-to-date") => number(&status["updatedNumberScheduled"]),
        (_, "Available") => number(&status["numberAvailable"]),
        _ => labels(&spec["template"]["spec"]["nodeSelector"]).into(),
    }
}

/// Kubernetes: the first three addresses, and how many more there are.
fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(&object["subsets"]) {
        let addresses = || items(&subset["addresses"]).filter_map(|one| one["ip"].as_str());
        if items(&subset["ports"]).next().is_none() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in items(&subset["ports"]) {
            let port = port["port"].as_i64().unwrap_or(0);
            all.extend(addresses().map(|address| format!("{address}:{port}")));
        }
    }
    const SHOWN: usize = 3;
    match all.len() {
        0 if items(&object["subsets"]).next().is_none() => "<none>".to_owned(),
        count if count > SHOWN => {
            format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN)
        }
        _ => all.join(","),
    }
}

fn template(column: &str, template: &Value) -> Value {
    let containers = || items(&template["spec"]["containers"]);
    match column {
        "Containers" => joined(containers().map(|one| &one["name"])).into(),
        "Images" => joined(containers().map(|one| &one["image"])).into(),
        _ => labels(&template["metadata"]["labels"]).into(),
    }
}

fn request(column: &str, object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    match column {
        "SignerName" => spec["signerName"].clone(),
        "Requestor" => spec["username"].clone(),
        "RequestedDuration" => {
            spec["expirationSeconds"].as_i64().map_or("<none>".to_owned(), age::human).into()
        }
        _ => {
            let is = |name: &str| items(&status["conditions"]).any(|one| one["type"] == name);
            let mut text = match (is("Denied"), is("Approved")) {
                (true, _) => "Denied",
                (_, true) => "Approved",
                _ => "Pending",
            }
            .to_owned();
            if is("Failed") {
                text.push_str(",Failed");
            }
            if status["certificate"].as_str().is_some_and(|pem| !pem.is_empty()) {
                text.push_str(",Issued");
            }
            text.into()
        }
    }
}

fn binding(column: &str, object: &Value) -> Value {
    let role = &object["roleRef"];
    let subjects = |kind: &str| -> Vec<String> {
        let own = items(&object["subjects"]).filter(|one| one["kind"] == kind);
        own.map(|one| {
            let name = one["name"].as_str().unwrap_or_default();
            match one["namespace"].as_str().filter(|_| kind == "ServiceAccount") {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.to_owned(),
            }
        })
        .collect()
    };
    match column {
        "Role" => {
            let text = |field: &str| role[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("kind"), text("name")).into()
        }
        "Users" => subjects("User").join(", ").into(),
        "Groups" => subjects("Group").join(", ").into(),
        _ => subjects("ServiceAccount").join(", ").into(),
    }
}

fn volume(plural: &str, column: &str, object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let claim = plural == "persistentvolumeclaims";
    match column {
        "Capacity" if claim => or(&status["capacity"]["storage"], ""),
        "Capacity" => or(&spec["capacity"]["storage"], ""),
        "Access Modes" => {
            let short = |mode: &Value| match mode.as_str() {
                Some("ReadWriteOnce") => "RWO",
                Some("ReadOnlyMany") => "ROX",
                Some("ReadWriteMany") => "RWX",
                Some("ReadWriteOncePod") => "RWOP",
                _ => "",
            };
            items(&spec["accessModes"]).map(short).collect::<Vec<_>>().join(",").into()
        }
        "Reclaim Policy" => or(&spec["persistentVolumeReclaimPolicy"], ""),
        "Status" => or(&status["phase"], ""),
        "Volume" => or(&spec["volumeName"], ""),
        "Claim" => {
            let of = &spec["claimRef"];
            match (of["namespace"].as_str(), of["name"].as_str()) {
                (Some(namespace), Some(name)) => format!("{namespace}/{name}").into(),
                _ => "".into(),
            }
        }
        "StorageClass" => or(&spec["storageClassName"], ""),
        _ => or(&status["reason"], ""),
    }
}

/// Events of both groups come here in the names of the core group or in their own.
fn event(column: &str, object: &Value, now: Timestamp) -> Value {
    let field = |core: &str, new: &str| {
        if object[core].is_null() { &object[new] } else { &object[core] }
    };
    let about = field("involvedObject", "regarding");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let first = [field("firstTimestamp", "deprecatedFirstTimestamp"), &object["eventTime"]];
    let last = [
        &object["series"]["lastObservedTime"],
        field("lastTimestamp", "deprecatedLastTimestamp"),
        first[0],
        first[1],
    ];
    let shown = |times: &[&Value]| {
        let time = times.iter().find(|time| time.is_string());
        Value::from(time.map_or("<unknown>".to_owned(), |time| age::since(time, now)))
    };
    match column {
        "Last Seen" => shown(&last),
        "First Seen" => shown(&first),
        "Type" => object["type"].clone(),
        "Reason" => object["reason"].clone(),
        "Object" => {
            let kind = text(&about["kind"]).to_lowercase();
            let name = text(&about["name"]);
            if name.is_empty() { kind.into() } else { format!("{kind}/{name}").into() }
        }
        "Subobject" => or(&about["fieldPath"], ""),
        "Source" => {
            let source = field("source", "deprecatedSource");
            let component =
                [&source["component"], field("reportingComponent", "reportingController")]
                    .into_iter()
                    .map(text)
                    .find(|name| !name.is_empty())
                    .unwrap_or_default();
            let host = [&source["host"], &object["reportingInstance"]]
                .into_iter()
                .map(text)
                .find(|name| !name.is_empty());
            host.map_or(component.clone(), |host| format!("{component}, {host}")).into()
        }
        "Message" => text(field("message", "note")).trim().to_owned().into(),
        "Count" => {
            let count = field("count", "deprecatedCount").as_i64();
            json!(count.or(object["series"]["count"].as_i64()).unwrap_or(1))
        }
        _ => object["metadata"]["name"].clone(),
    }
}
