//! The row of a pod: its state is a summary over containers, conditions and deletion.

use super::age;
use crate::apiserver::registry::Kind;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Cells of a pod by column; empty for other kinds.
pub(super) fn summary(kind: &Kind, pod: &Value, now: Timestamp) -> BTreeMap<&'static str, Value> {
    let mut cells = BTreeMap::new();
    if kind.plural != "pods" || !kind.group.is_empty() {
        return cells;
    }
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let states = || items(&status["containerStatuses"]);
    let ready = states().filter(|one| one["ready"] == true).count();
    let total = items(&spec["containers"]).count();
    let text = |value: &Value| -> Value {
        value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>").into()
    };
    cells.insert("Ready", format!("{ready}/{total}").into());
    cells.insert("Status", state(pod).into());
    cells.insert("Restarts", restarts(pod, now).into());
    cells.insert("IP", text(&status["podIP"]));
    cells.insert("Node", text(&spec["nodeName"]));
    cells.insert("Nominated Node", text(&status["nominatedNodeName"]));
    cells.insert("Readiness Gates", gates(pod).into());
    cells
}

fn restarts(pod: &Value, now: Timestamp) -> String {
    let states = || items(&pod["status"]["containerStatuses"]);
    let count: i64 = states().filter_map(|one| one["restartCount"].as_i64()).sum();
    let last = states()
        .map(|one| &one["lastState"]["terminated"]["finishedAt"])
        .filter(|time| time.is_string())
        .max_by_key(|time| time.as_str());
    match last {
        Some(time) if count > 0 => format!("{count} ({} ago)", age::since(time, now)),
        _ => count.to_string(),
    }
}

/// Kubernetes' word for the state of a pod: a reason of a container wins over the phase.
fn state(pod: &Value) -> String {
    let status = &pod["status"];
    let word = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let mut state = word(&status["reason"])
        .or_else(|| word(&status["phase"]))
        .unwrap_or_else(|| "Unknown".to_owned());
    for condition in items(&status["conditions"]) {
        if condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated" {
            state = "SchedulingGated".to_owned();
        }
    }
    for container in items(&status["containerStatuses"]) {
        let (waiting, ended) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        if let Some(reason) = word(&waiting["reason"]).or_else(|| word(&ended["reason"])) {
            state = reason;
        } else if let Some(code) = ended["exitCode"].as_i64() {
            state = format!("ExitCode:{code}");
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let lost = status["reason"] == "NodeLost";
        let over = matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"));
        state = match (lost, over) {
            (true, _) => "Unknown".to_owned(),
            (_, false) => "Terminating".to_owned(),
            _ => state,
        };
    }
    state
}

fn gates(pod: &Value) -> String {
    let gates: Vec<&Value> = items(&pod["spec"]["readinessGates"]).collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = |gate: &&&Value| {
        items(&pod["status"]["conditions"])
            .any(|one| one["type"] == gate["conditionType"] && one["status"] == "True")
    };
    format!("{}/{}", gates.iter().filter(met).count(), gates.len())
}
