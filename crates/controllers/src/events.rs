//! Tells what happened as Kubernetes Events (`events.k8s.io/v1`), once for each thing that happened.
//!
//! An Event's name is derived from what it tells, so the same news told again, even by another
//! process, meets the Event that is there and becomes its series. Telling never delays work: a full
//! queue drops the news, for the conditions tell the story too.

use drover_provider::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// News waiting to be written; more is dropped.
const QUEUE_MAX: usize = 1024;
/// How long the same news of an object is not repeated.
const QUIET: SignedDuration = SignedDuration::from_mins(10);
/// How much news is remembered as told.
const REMEMBERED_MAX: usize = 8192;
/// The API server's limit on a note, in bytes (Kubernetes: Event v1, `note`).
const NOTE_MAX: usize = 1024;

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Normal,
    Warning,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct News {
    pub regarding: ObjectReference,
    pub tone: Tone,
    /// From the vocabulary of reasons.
    pub reason: String,
    /// What was being done, such as `Create`.
    pub action: String,
    pub note: String,
}

/// Where controllers tell their news.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<News>,
}

impl Recorder {
    /// Starts the writer, which ends with `stop`.
    #[must_use]
    pub fn start(client: Client, instance: &str, clock: Clock, stop: CancellationToken) -> Self {
        let (queue, news) = mpsc::channel(QUEUE_MAX);
        let writer = Writer { client, instance: instance.to_owned(), clock, told: BTreeMap::new() };
        tokio::spawn(writer.run(news, stop));
        Self { queue }
    }

    /// Tells it, unless too much is waiting to be told.
    pub fn tell(&self, news: News) {
        if self.queue.try_send(news).is_err() {
            tracing::debug!("too many events are waiting, one was dropped");
        }
    }
}

struct Writer {
    client: Client,
    instance: String,
    clock: Clock,
    told: BTreeMap<String, Told>,
}

struct Told {
    at: Timestamp,
    count: i32,
}

impl Writer {
    async fn run(mut self, mut news: mpsc::Receiver<News>, stop: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                next = news.recv() => next,
            };
            let Some(next) = next else { return };
            if let Err(error) = self.write(next).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "event not written");
            }
        }
    }

    async fn write(&mut self, news: News) -> Result<(), kube::Error> {
        let name = name_of(&news);
        let now = self.clock.now();
        if let Some(told) = self.told.get_mut(&name) {
            told.count = told.count.saturating_add(1);
            if now.duration_since(told.at) < QUIET {
                return Ok(());
            }
            told.at = now;
        } else {
            self.forget_oldest();
            self.told.insert(name.clone(), Told { at: now, count: 1 });
        }
        let count = self.told.get(&name).map_or(1, |told| told.count);
        let namespace = news.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        if count == 1 {
            let event = self.event(&name, &namespace, news, now);
            match events.create(&PostParams::default(), &event).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => return answer.map(drop),
            }
        }
        let series = EventSeries { count: count.max(2), last_observed_time: MicroTime(now) };
        let patch = Patch::Merge(serde_json::json!({ "series": series }));
        events.patch(&name, &PatchParams::default(), &patch).await.map(drop)
    }

    fn event(&self, name: &str, namespace: &str, news: News, now: Timestamp) -> Event {
        let mut event = Event {
            action: Some(news.action),
            event_time: Some(MicroTime(now)),
            note: Some(cut(news.note)),
            reason: Some(news.reason),
            regarding: Some(news.regarding),
            reporting_controller: Some("drover".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if news.tone == Tone::Normal { "Normal" } else { "Warning" }.to_owned()),
            ..Event::default()
        };
        event.metadata.name = Some(name.to_owned());
        event.metadata.namespace = Some(namespace.to_owned());
        event
    }

    fn forget_oldest(&mut self) {
        if self.told.len() < REMEMBERED_MAX {
            return;
        }
        let now = self.clock.now();
        self.told.retain(|_, told| now.duration_since(told.at) < QUIET);
        if self.told.len() >= REMEMBERED_MAX {
            self.told.clear();
        }
    }
}

/// The object's name and 64 bits of what is told of it (FNV-1a: stable, and no secret is hashed).
fn name_of(news: &News) -> String {
    let object = &news.regarding;
    let parts = [
        object.uid.as_deref().unwrap_or_default(),
        object.kind.as_deref().unwrap_or_default(),
        news.reason.as_str(),
        news.note.as_str(),
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{}.{hash:016x}", object.name.as_deref().unwrap_or("unknown"))
}

fn cut(mut note: String) -> String {
    if note.len() > NOTE_MAX {
        let end = (0..=NOTE_MAX - 3).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
        note.truncate(end);
        note.push_str("...");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(note: &str) -> News {
        let regarding = ObjectReference {
            name: Some("m".into()),
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        let (reason, action) = ("Waits".to_owned(), "Drain".to_owned());
        News { regarding, tone: Tone::Normal, reason, action, note: note.into() }
    }

    #[test]
    fn the_same_news_has_the_same_name_and_other_news_another() {
        assert_eq!(name_of(&news("a")), name_of(&news("a")));
        assert_ne!(name_of(&news("a")), name_of(&news("b")));
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let cut = cut("ä".repeat(600));
        assert!(cut.len() <= NOTE_MAX && cut.ends_with("ä..."), "{}", cut.len());
    }
}
