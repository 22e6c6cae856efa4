//! What is legal but odd in a pod: Kubernetes says so in warnings.

use serde_json::Value;

/// Labels of nodes that have another name now.
const OLD_LABELS: [(&str, &str); 4] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// The warnings about a new object of this kind.
pub(in crate::apiserver) fn of(kind: &str, object: &Value) -> Vec<String> {
    match kind {
        "Pod" => of_spec(&object["spec"], "spec"),
        "Deployment" | "ReplicaSet" | "DaemonSet" => {
            of_spec(&object["spec"]["template"]["spec"], "spec.template.spec")
        }
        _ => Vec::new(),
    }
}

fn of_spec(spec: &Value, at: &str) -> Vec<String> {
    let mut told = Vec::new();
    for (old, new) in OLD_LABELS {
        if !spec["nodeSelector"][old].is_null() {
            let why =
                if old.ends_with("/arch") || old.ends_with("/os") { "v1.14" } else { "v1.17" };
            told.push(format!(
                "{at}.nodeSelector[{old}]: deprecated since {why}; use \"{new}\" instead"
            ));
        }
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let names: Vec<&Value> =
                container["env"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
            for (place, name) in
                names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name))
            {
                told.push(format!(
                    "{at}.{list}[{index}].env[{place}]: hides previous definition of {name}, which may be dropped when using apply"
                ));
            }
        }
    }
    told
}
