//! HorizontalPodAutoscalers are kept as version 2, of which version 1 shows the target for CPU alone.

use serde_json::{Map, Value, json};

/// Version 1's only target.
const TARGET: &str = "targetCPUUtilizationPercentage";

/// A metric that is about CPU.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn fields(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec").and_then(Value::as_object_mut)
}

/// As stored.
pub(super) fn to_v2(mut object: Value) -> Value {
    object["apiVersion"] = "autoscaling/v2".into();
    if let Some(spec) = fields(&mut object)
        && let Some(target) = spec.remove(TARGET)
    {
        let target = json!({"type": "Utilization", "averageUtilization": target});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    object
}

/// As version 1 shows it.
pub(super) fn to_v1(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "autoscaling/v1".into();
    if let Some(spec) = fields(&mut object) {
        spec.remove("behavior");
        let metrics = spec.remove("metrics").unwrap_or_default();
        let target = metrics.as_array().into_iter().flatten().find(|metric| is_cpu(metric));
        let target = target.map(|metric| &metric["resource"]["target"]["averageUtilization"]);
        if let Some(target) = target.filter(|target| target.is_number()) {
            spec.insert(TARGET.to_owned(), target.clone());
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_for_cpu_is_shown_by_both_versions() {
        let first = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, TARGET: 50}});
        let second = to_v2(first.clone());
        let metric = &second["spec"]["metrics"][0]["resource"];
        assert_eq!(metric["target"]["averageUtilization"], 50);
        assert_eq!(to_v1(&second), first);
    }
}
