//! Tells on standard output what happens, a line for each thing, from the Events that Drover writes.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::io::Write;
use tokio_util::sync::CancellationToken;

/// Writes one line.
///
/// # Errors
/// When nobody reads any more, such as a closed pipe, which must end a story and not crash it.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.context("writing to standard output")
}

/// Prints every Event of Drover since then, until stopped or nobody reads.
pub async fn events(client: Client, since: Timestamp, stop: CancellationToken) {
    let events = watcher(Api::<Event>::all(client), watcher::Config::default())
        .default_backoff()
        .take_until(stop.cancelled_owned());
    futures::pin_mut!(events);
    let mut told = BTreeMap::new();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(event) | watcher::Event::InitApply(event))) => {
                let count = event.series.as_ref().map_or(1, |series| series.count);
                let known = told.insert((event.namespace(), event.name_any()), count);
                let is_new = event.event_time.as_ref().is_some_and(|time| time.0 >= since);
                let ours = event.reporting_controller.as_deref() == Some("drover") && is_new;
                if ours && known.is_none() && say(&line(&event)).is_err() {
                    return;
                }
            }
            Ok(Some(watcher::Event::Delete(event))) => {
                told.remove(&(event.namespace(), event.name_any()));
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "watch of events failed, it is begun again"),
        }
    }
}

/// `14:03:07  ma/nodes-7bbb598c89-2vx4k   ServerRunning         server openstack:///.. runs`, in UTC.
fn line(event: &Event) -> String {
    let time = event.event_time.as_ref().map_or_else(Timestamp::now, |time| time.0);
    let about = event.regarding.clone().unwrap_or_default();
    let kind = about.kind.unwrap_or_default();
    let object = format!("{}/{}", short(&kind), about.name.unwrap_or_default());
    let reason = event.reason.as_deref().unwrap_or_default();
    let note = event.note.as_deref().unwrap_or_default();
    format!("{}  {object:<26} {reason:<21} {note}", time.strftime("%H:%M:%S"))
}

/// What kubectl takes for a kind, so that a line's object can be pasted after `kubectl get`.
fn short(kind: &str) -> String {
    match kind {
        "MachineDeployment" => "md".to_owned(),
        "MachineSet" => "ms".to_owned(),
        "Machine" => "ma".to_owned(),
        "CertificateSigningRequest" => "csr".to_owned(),
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_what_and_why() {
        let event: Event = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "m.1", "namespace": "kube-system" },
            "eventTime": "2026-11-21T14:03:07.000000Z",
            "reportingController": "drover", "reason": "ServerCreated", "note": "made server s",
            "regarding": { "kind": "Machine", "name": "nodes-1" },
        }))
        .unwrap();
        assert_eq!(
            line(&event),
            "14:03:07  ma/nodes-1                 ServerCreated         made server s"
        );
    }
}
