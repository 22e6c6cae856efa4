//! Kubernetes' own choice of the labels by which a job knows its pods.

use crate::apiserver::create::metadata;
use serde_json::{Value, json};

/// Names of the job and of its uid, the old one and the new one of each.
const NAMES: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Gives a new job its selector and its pods the labels, unless the job brings its own.
pub(super) fn select(job: &mut Value) {
    if job["spec"]["manualSelector"] == true || !job["spec"]["template"].is_object() {
        return;
    }
    let (name, uid) = (metadata(job, "name").to_owned(), metadata(job, "uid").to_owned());
    // Kubernetes: labels that a job took over from its template are the same map, and grow with it.
    let shared = job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"]
        && job["metadata"]["labels"].is_object();
    let spec = &mut job["spec"];
    let values = NAMES.iter().map(|key| (key, &name)).chain(UIDS.iter().map(|key| (key, &uid)));
    for (key, value) in values {
        let label = &mut spec["template"]["metadata"]["labels"][key];
        if label.is_null() {
            *label = json!(value);
        }
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    let chosen = &mut spec["selector"]["matchLabels"][UIDS[1]];
    if chosen.is_null() {
        *chosen = json!(uid);
    }
    if shared {
        job["metadata"]["labels"] = labels;
    }
}
