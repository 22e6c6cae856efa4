//! What nodes may do: read what their pods need, write themselves and their pods, and nothing else.

use super::rbac::{Decision, Rule, text};
use super::{Attributes, User};
use crate::apiserver::{ApiServer, Key, ResourceId, Status};
use crate::schema::selector::{FieldSelector, FieldTerm};
use serde_json::Value;

/// The group of kubelets.
const NODES: &str = "system:nodes";
/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";
/// Marks the picture of a pod that a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Labels a kubelet may give its node although their prefix belongs to Kubernetes.
const OWN_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The node that a user is, if it is one.
pub(crate) fn name_of(user: &User) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|name| !name.is_empty() && user.is_in(NODES))
}

fn no(reason: impl Into<String>) -> Decision {
    Decision { allowed: false, reason: reason.into() }
}

const YES: Decision = Decision { allowed: true, reason: String::new() };

/// Kubernetes' Node authorizer; `rules` are those of the role `system:node`.
pub(super) fn decide(
    server: &ApiServer,
    node: &str,
    ask: &Attributes<'_>,
    rules: &[Rule],
) -> Decision {
    let reads = matches!(ask.verb, "get" | "list" | "watch");
    match (ask.api_group, ask.resource) {
        ("", "secrets" | "configmaps" | "persistentvolumeclaims") if ask.path.is_empty() => {
            if !reads {
                return no("can only read resources of this type");
            }
            if !ask.subresource.is_empty() {
                return no("cannot read subresource");
            }
            if ask.name.is_empty() {
                return no("No Object name found");
            }
            related(node, refers(server, node, ask.namespace, ask.resource, ask.name))
        }
        ("", "serviceaccounts") if ask.subresource == "token" => {
            if ask.verb != "create" {
                return no("can only create tokens for individual service accounts");
            }
            related(node, refers(server, node, ask.namespace, "serviceaccounts", ask.name))
        }
        ("", "nodes") => node_itself(node, ask),
        ("", "pods") if reads => pods(server, node, ask),
        ("coordination.k8s.io", "leases") => {
            if ask.namespace != LEASES {
                let why = format!("can only access leases in the {LEASES:?} system namespace");
                return no(why);
            }
            // On create the name is not known yet: admission looks at it.
            if ask.verb != "create" && ask.name != node {
                return no("can only access node lease with the same name as the requesting node");
            }
            YES
        }
        ("storage.k8s.io", "volumeattachments") if ask.verb == "get" => {
            let key = Key::new(ask.api_group, ask.resource, "", ask.name);
            related(node, server.store().get(&key).is_some_and(|va| va["spec"]["nodeName"] == node))
        }
        _ => Decision { allowed: rules.iter().any(|rule| rule.allows(ask)), reason: String::new() },
    }
}

fn related(node: &str, is: bool) -> Decision {
    let why = || no(format!("no relationship found between node '{node}' and this object"));
    if is { YES } else { why() }
}

fn node_itself(node: &str, ask: &Attributes<'_>) -> Decision {
    match (ask.verb, ask.subresource) {
        // Kubernetes: whose node it is, admission looks at.
        ("create", "") | ("update" | "patch", "" | "status") => YES,
        ("get" | "list" | "watch", "") => match ask.name {
            own if own == node => YES,
            "" => no(format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => no(format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => no(""),
    }
}

fn pods(server: &ApiServer, node: &str, ask: &Attributes<'_>) -> Decision {
    if ask.name.is_empty() {
        let own =
            |term: &FieldTerm| term.field == "spec.nodeName" && !term.not && term.value == node;
        let selects = |text| FieldSelector::parse(text).is_ok_and(|all| all.terms.iter().any(own));
        if ask.field_selector.is_none_or(selects) {
            return YES;
        }
        return no("can only list/watch pods with spec.nodeName field selector");
    }
    let key = Key::new("", "pods", ask.namespace, ask.name);
    related(node, server.store().get(&key).is_some_and(|pod| pod["spec"]["nodeName"] == node))
}

/// Whether a pod of the node refers to an object of its namespace.
fn refers(server: &ApiServer, node: &str, namespace: &str, resource: &str, name: &str) -> bool {
    let pods = ResourceId::new("", "pods");
    let (_, pods) = server.store().list(&pods, Some(namespace));
    pods.iter().any(|pod| {
        let spec = &pod["spec"];
        spec["nodeName"] == node
            && match resource {
                "serviceaccounts" => spec["serviceAccountName"] == name,
                "secrets" => {
                    names(spec, &["secret", "secretRef", "secretKeyRef"], "secretName", name)
                        || spec["imagePullSecrets"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .any(|own| own["name"] == name)
                }
                "configmaps" => {
                    names(spec, &["configMap", "configMapRef", "configMapKeyRef"], "name", name)
                }
                _ => names(spec, &["persistentVolumeClaim"], "claimName", name),
            }
    })
}

/// Whether an object under one of these keys, at any depth, has this name.
fn names(value: &Value, keys: &[&str], field: &str, name: &str) -> bool {
    match value {
        Value::Array(list) => list.iter().any(|one| names(one, keys, field, name)),
        Value::Object(map) => map.iter().any(|(key, one)| {
            (keys.contains(&key.as_str()) && (one[field] == name || one["name"] == name))
                || names(one, keys, field, name)
        }),
        _ => false,
    }
}

/// Kubernetes' NodeRestriction.
pub(super) fn admit(
    server: &ApiServer,
    node: &str,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let why = match (ask.api_group, ask.resource) {
        ("", "nodes") => of_node(node, ask, new, old),
        ("", "pods") => of_pod(node, ask, new, old),
        ("", "serviceaccounts") if ask.subresource == "token" => of_token(server, node, ask, new),
        ("coordination.k8s.io", "leases") if ask.name != node => {
            let why = "can only access node lease with the same name as the requesting node";
            Some(why.to_owned())
        }
        ("storage.k8s.io", "csinodes") if ask.name != node => {
            let why = "can only access CSINode with the same name as the requesting node";
            Some(why.to_owned())
        }
        ("certificates.k8s.io", "certificatesigningrequests") if ask.verb == "create" => {
            of_request(node, new)
        }
        _ => None,
    };
    match why {
        Some(why) => Err(Status::forbidden(ask.api_group, ask.resource, ask.name, &why)),
        None => Ok(()),
    }
}

fn of_node(
    node: &str,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Option<String> {
    if ask.name != node {
        return Some(format!("node {node:?} is not allowed to modify node {:?}", ask.name));
    }
    let new = new?;
    let Some(old) = old else {
        let labels = new["metadata"]["labels"].as_object().into_iter().flatten();
        let refused: Vec<&str> =
            labels.map(|(key, _)| key.as_str()).filter(|key| !is_own(key)).collect();
        return (!refused.is_empty()).then(|| {
            let all = refused.join(", ");
            format!("node {node:?} is not allowed to set the following labels: {all}")
        });
    };
    if !ask.subresource.is_empty() && ask.subresource != "status" {
        return None;
    }
    if old["metadata"]["ownerReferences"] != new["metadata"]["ownerReferences"] {
        return Some(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let list = |object: &Value| object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if list(old) != list(new) {
        return Some(format!("node {node:?} is not allowed to modify taints"));
    }
    let (was, now) = (&old["metadata"]["labels"], &new["metadata"]["labels"]);
    let keys = |labels: &Value| -> Vec<String> {
        labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let mut changed: Vec<String> = [keys(was), keys(now)].concat();
    changed.retain(|key| was.get(key) != now.get(key) && !is_own(key));
    changed.sort();
    changed.dedup();
    (!changed.is_empty())
        .then(|| format!("is not allowed to modify labels: {}", changed.join(", ")))
}

/// Whether a kubelet may set this label on its node.
fn is_own(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |home: &str| domain == home || domain.ends_with(&format!(".{home}"));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    OWN_LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

fn of_pod(
    node: &str,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Option<String> {
    let is_here = |pod: Option<&Value>| pod.is_some_and(|pod| pod["spec"]["nodeName"] == node);
    match (ask.verb, ask.subresource) {
        ("create", "") => {
            let pod = new?;
            if pod["metadata"]["annotations"].get(MIRROR).is_none() {
                return Some(format!(
                    "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
                ));
            }
            if !is_here(Some(pod)) {
                let why = "can only create pods with spec.nodeName set to itself";
                return Some(format!("node {node:?} {why}"));
            }
            let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice);
            let own = owners.is_some_and(|owners| match owners {
                [owner] => owner["kind"] == "Node" && owner["name"] == node,
                _ => false,
            });
            (!own).then(|| {
                format!("node {node:?} can only create pods with an owner reference set to itself")
            })
        }
        ("delete" | "deletecollection", "") => (!is_here(old)).then(|| {
            format!("node {node:?} can only delete pods with spec.nodeName set to itself")
        }),
        ("update" | "patch", "status") => {
            if !is_here(old) {
                return Some(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                ));
            }
            let labels = |pod: &Value| pod["metadata"]["labels"].clone();
            (labels(new?) != labels(old?))
                .then(|| format!("node {node:?} cannot update labels through pod status"))
        }
        ("create", "eviction") => (!is_here(old))
            .then(|| format!("node {node} can only evict pods with spec.nodeName set to itself")),
        (_, part) => Some(format!(
            "unexpected pod subresource {part:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

/// Kubernetes: a node asks for certificates of its own name alone.
fn of_request(node: &str, new: Option<&Value>) -> Option<String> {
    use base64::Engine as _;
    let spec = &new?["spec"];
    let signers = ["kube-apiserver-client-kubelet", "kubelet-serving"];
    let signer = text(&spec["signerName"]).strip_prefix("kubernetes.io/")?;
    if !signers.contains(&signer) {
        return None;
    }
    let pem = base64::engine::general_purpose::STANDARD.decode(text(&spec["request"])).ok()?;
    let asked = crate::pki::parse(&String::from_utf8(pem).ok()?).ok()?;
    let own = format!("system:node:{node}");
    (asked.common_name != own).then(|| format!("can only create a node CSR with CN={own}"))
}

fn of_token(
    server: &ApiServer,
    node: &str,
    ask: &Attributes<'_>,
    new: Option<&Value>,
) -> Option<String> {
    let bound = &new?["spec"]["boundObjectRef"];
    if bound["kind"] != "Pod" || text(&bound["name"]).is_empty() {
        return Some("node requested token not bound to a pod".to_owned());
    }
    if text(&bound["uid"]).is_empty() {
        return Some("node requested token with a pod binding without a uid".to_owned());
    }
    let pod = server.store().get(&Key::new("", "pods", ask.namespace, text(&bound["name"])))?;
    let why = if pod["metadata"]["uid"] != bound["uid"] {
        "the UID in the bound object reference does not match the UID in record"
    } else if pod["spec"]["nodeName"] != node {
        "node requested token bound to a pod scheduled on a different node"
    } else {
        return None;
    };
    Some(why.to_owned())
}
