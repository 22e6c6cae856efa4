//! GET that stays: what happens to the objects of a list, in order and without loss.

use super::media::{Accept, Shape};
use super::read::{self, ListOptions};
use super::registry::Kind;
use super::request::{Query, Request};
use super::status::Status;
use super::store::{Change, Entry, Happened, Past};
use super::{ApiServer, Body, prepare, render, table};
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest life of a watch that asked for no timeout; it lives up to twice as long (Kubernetes: 30 minutes).
const SHORTEST_LIFE: Duration = Duration::from_secs(1_800);

/// Between two bookmarks (Kubernetes: about a minute).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

struct Watcher {
    server: ApiServer,
    kind: Arc<Kind>,
    namespace: String,
    options: ListOptions,
    accept: Accept,
    query: Query,
    /// Everything up to this revision was sent.
    seen: u64,
    ready: VecDeque<Bytes>,
    pulse: tokio::sync::watch::Receiver<u64>,
    ends: Instant,
    next_bookmark: Instant,
    /// A table told its columns already.
    columns_told: bool,
    over: bool,
}

/// Starts a watch: the body of its answer.
pub(super) fn start(server: &ApiServer, request: &Request) -> Result<Body, Status> {
    let mut options = ListOptions::of(request)?;
    if !request.name.is_empty() {
        // Kubernetes: a watch on the path of one object is a watch of its name.
        let by_name = crate::schema::selector::FieldTerm {
            field: "metadata.name".to_owned(),
            not: false,
            value: request.name.clone(),
            absent: "",
            instead: None,
        };
        options.fields.terms.push(by_name);
    }
    let from = read::revision(&options.version)
        .map_err(|why| Status::new(500, "", format!("resourceVersion: {why}")))?;
    let extra = server.dice().u64(0..SHORTEST_LIFE.as_secs());
    let life = options.timeout.unwrap_or(SHORTEST_LIFE + Duration::from_secs(extra));
    let now = Instant::now();
    let mut watcher = Watcher {
        server: server.clone(),
        kind: request.kind.clone(),
        namespace: request.namespace.clone(),
        accept: request.accept,
        query: request.query.clone(),
        seen: from,
        ready: VecDeque::new(),
        pulse: server.store().pulse(&request.kind.storage),
        ends: now + life,
        next_bookmark: now + BOOKMARK_EVERY,
        columns_told: false,
        over: false,
        options,
    };
    watcher.begin(from)?;
    let events = stream::unfold(watcher, |mut watcher| async move {
        let bytes = watcher.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), watcher))
    });
    Ok(StreamBody::new(events).boxed_unsync())
}

impl Watcher {
    /// Queues what the client is to see first.
    fn begin(&mut self, from: u64) -> Result<(), Status> {
        let initial = self.options.initial;
        let synthetic = match initial {
            Some(wanted) => wanted,
            None => from == 0,
        };
        if !synthetic {
            if from == 0 {
                self.seen = self.server.store().revision();
            }
            return Ok(());
        }
        let namespace = Some(self.namespace.as_str()).filter(|name| !name.is_empty());
        let (revision, entries) = self.server.store().entries(&self.kind.storage, namespace);
        if initial == Some(true) && from > revision {
            return Err(read::too_large(from, revision));
        }
        self.seen = revision;
        for (_, entry) in entries {
            if self.options.matches(&entry.object) {
                let event = self.event("ADDED", &entry)?;
                self.ready.push_back(event);
            }
        }
        if initial == Some(true) && self.options.bookmarks {
            let mark = self.bookmark(true)?;
            self.ready.push_back(mark);
        }
        Ok(())
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            // What is there is marked as seen before it is read: a change in between wakes again.
            self.pulse.borrow_and_update();
            self.collect();
            if !self.ready.is_empty() || self.over {
                continue;
            }
            let bookmark = self.options.bookmarks;
            tokio::select! {
                biased;
                changed = self.pulse.changed() => self.over = changed.is_err(),
                () = tokio::time::sleep_until(self.ends) => self.over = true,
                () = tokio::time::sleep_until(self.next_bookmark), if bookmark => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    match self.bookmark(false) {
                        Ok(mark) => self.ready.push_back(mark),
                        Err(status) => self.fail(&status),
                    }
                }
            }
        }
    }

    /// Queues what happened since the last look.
    fn collect(&mut self) {
        let changes = match self.server.store().past(&self.kind.storage, self.seen) {
            Past::Changes(changes) => changes,
            Past::Gone(oldest) => {
                let why = format!("too old resource version: {} ({oldest})", self.seen);
                let status = Status::new(410, "Expired", why);
                self.fail(&status);
                return;
            }
        };
        for change in changes {
            self.seen = change.now.revision;
            match self.shown(&change) {
                Some(Ok(event)) => self.ready.push_back(event),
                Some(Err(status)) => return self.fail(&status),
                None => {}
            }
        }
    }

    fn fail(&mut self, status: &Status) {
        let event = json!({"type": "ERROR", "object": status.to_value()});
        self.ready.push_back(line(&event));
        self.over = true;
    }

    /// The event of a change for this watch: an object that leaves the selection is deleted, in its former state.
    fn shown(&mut self, change: &Change) -> Option<Result<Bytes, Status>> {
        if !self.namespace.is_empty() && !change.path.starts_with(&*format!("{}/", self.namespace))
        {
            return None;
        }
        let matched = |entry: &Option<Arc<Entry>>| {
            entry.as_ref().is_some_and(|e| self.options.matches(&e.object))
        };
        let before = matched(&change.before);
        let now = change.what != Happened::Deleted && self.options.matches(&change.now.object);
        match (before, now) {
            (false, false) => None,
            (false, true) => Some(self.event("ADDED", &change.now)),
            (true, true) => Some(self.event("MODIFIED", &change.now)),
            (true, false) if change.what == Happened::Deleted => {
                Some(self.event("DELETED", &change.now))
            }
            (true, false) => {
                let before = change.before.as_ref()?;
                let mut last = (*before.object).clone();
                last["metadata"]["resourceVersion"] = change.now.revision.to_string().into();
                Some(self.told("DELETED", &last))
            }
        }
    }

    fn event(&mut self, what: &str, entry: &Entry) -> Result<Bytes, Status> {
        if self.accept.shape == Shape::Object && prepare::is_stored_form(&self.kind) {
            let json = entry.json();
            let mut bytes = Vec::with_capacity(json.len() + 40);
            bytes.extend_from_slice(format!("{{\"type\":\"{what}\",\"object\":").as_bytes());
            bytes.extend_from_slice(&json);
            bytes.extend_from_slice(b"}\n");
            return Ok(bytes.into());
        }
        self.told(what, &entry.object)
    }

    fn told(&mut self, what: &str, stored: &Value) -> Result<Bytes, Status> {
        self.shaped(what, prepare::from_storage(&self.kind, stored))
    }

    /// An event in the form that the client asked for.
    fn shaped(&mut self, what: &str, object: Value) -> Result<Bytes, Status> {
        let object = match self.accept.shape {
            Shape::Object | Shape::Discovery => object,
            Shape::Partial | Shape::PartialList => table::partial(&object),
            Shape::Table => {
                let now = self.server.clock().now();
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let mut table = table::table(&self.kind, metadata, &[object], &self.query, now)?;
                if self.columns_told {
                    table["columnDefinitions"] = Value::Null;
                }
                self.columns_told = true;
                table
            }
        };
        let object = render::versioned(object, self.accept);
        Ok(line(&json!({"type": what, "object": object})))
    }

    /// An object of the kind with nothing but a revision (Kubernetes: also as a row, where tables are asked for).
    fn bookmark(&mut self, initial_end: bool) -> Result<Bytes, Status> {
        let mut metadata = json!({"resourceVersion": self.seen.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = (&self.kind.kind, self.kind.api_version());
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        self.shaped("BOOKMARK", object)
    }
}

fn line(event: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(event).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
