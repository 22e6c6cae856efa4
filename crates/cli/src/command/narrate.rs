//! Tells what Drover does, a line for each thing that happens, from the Events it writes.

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// Prints every Event of Drover from now on, until stopped.
pub async fn events(client: Client, stop: CancellationToken) {
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
                if event.reporting_controller.as_deref() == Some("drover") && known.is_none() {
                    println!("{}", line(&event));
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

/// `14:03:07  Machine nodes-2vx-00001  ServerCreated  made server .. in zone dbl1`
fn line(event: &Event) -> String {
    let time = event.event_time.as_ref().map_or_else(Timestamp::now, |time| time.0);
    let about = event.regarding.clone().unwrap_or_default();
    format!(
        "{}  {} {}  {}  {}",
        time.strftime("%H:%M:%S"),
        about.kind.unwrap_or_default(),
        about.name.unwrap_or_default(),
        event.reason.as_deref().unwrap_or_default(),
        event.note.as_deref().unwrap_or_default(),
    )
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
        assert_eq!(line(&event), "14:03:07  Machine nodes-1  ServerCreated  made server s");
    }
}
