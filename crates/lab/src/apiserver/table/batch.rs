//! Cells of jobs and cron jobs.

use super::age;
use super::cells::{items, joined, labels, or};
use jiff::Timestamp;
use serde_json::Value;

/// The cell of this column.
pub(super) fn cell(plural: &str, column: &str, object: &Value, now: Timestamp) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let job = if plural == "jobs" { spec } else { &spec["jobTemplate"]["spec"] };
    let containers = || items(&job["template"]["spec"]["containers"]);
    match column {
        "Containers" => joined(containers().map(|one| &one["name"])).into(),
        "Images" => joined(containers().map(|one| &one["image"])).into(),
        "Selector" => labels(&job["selector"]["matchLabels"]).into(),
        "Status" => state(object).into(),
        "Completions" => completions(spec, status).into(),
        "Duration" if status["startTime"].is_null() => "".into(),
        "Duration" => {
            let end = status["completionTime"].as_str().and_then(|time| time.parse().ok());
            age::since(&status["startTime"], end.unwrap_or(now)).into()
        }
        "Schedule" => or(&spec["schedule"], ""),
        "Timezone" => or(&spec["timeZone"], "<none>"),
        "Suspend" => match spec["suspend"].as_bool() {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => "<unset>".into(),
        },
        "Active" => items(&status["active"]).count().into(),
        "Last Schedule" if status["lastScheduleTime"].is_null() => "<none>".into(),
        "Last Schedule" => age::since(&status["lastScheduleTime"], now).into(),
        _ => Value::Null,
    }
}

/// Kubernetes: the first of these conditions that holds, or what else is true of it.
fn state(job: &Value) -> &'static str {
    let holds = |kind: &str| {
        let mut conditions = items(&job["status"]["conditions"]);
        conditions.any(|one| one["type"] == kind && one["status"] == "True")
    };
    let is_deleting = job["metadata"]["deletionTimestamp"].is_string();
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if is_deleting => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(spec: &Value, status: &Value) -> String {
    let done = status["succeeded"].as_i64().unwrap_or(0);
    match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(all), _) => format!("{done}/{all}"),
        (None, Some(many)) if many > 1 => format!("{done}/1 of {many}"),
        _ => format!("{done}/1"),
    }
}
