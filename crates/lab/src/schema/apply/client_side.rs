//! The way from `kubectl apply`, whose last configuration stands in an annotation, to server-side apply.
//!
//! Kubernetes: `managedfields/internal/lastappliedmanager.go` and `lastappliedupdater.go`. Only the manager `kubectl` goes
//! it, so that who wants the conflicts takes another name.

use super::fields::{self, Node as Set};
use super::typed::{self, Place};
use super::{Writer, check_typed};
use serde_json::Value;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const KUBECTL: &str = "kubectl";

fn last_applied(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields that kubectl applied from its side and that still stand as it left them: it takes them over without a conflict.
pub(super) fn handed_over(place: Place, live: &Value, ctx: &Writer) -> Set {
    let text = last_applied(live).filter(|_| ctx.manager == KUBECTL);
    let last = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let last = last.filter(|last| last.is_object() && last["apiVersion"] == *ctx.api_version);
    let Some(last) = last.filter(|last| check_typed(place, last, ctx).is_ok()) else {
        return Set::new();
    };
    let changed = typed::compare(place, &last, live);
    let mut own = typed::set_of(place, &last);
    fields::subtract(&mut own, &changed.set);
    fields::subtract(&mut own, &changed.removed);
    own
}

/// Writes what was applied into the annotation, where there is one, so that the older way stays open.
pub(super) fn follow(merged: &mut Value, config: &Value, ctx: &Writer) {
    if ctx.manager != KUBECTL || last_applied(merged).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ANNOTATION);
    }
    merged["metadata"]["annotations"][ANNOTATION] = format!("{}\n", go_json(&config)).into();
}

/// JSON as Go writes it, safe to be put into HTML.
fn go_json(value: &Value) -> String {
    let text = value.to_string();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
