//! GET of one object and of many.

use super::registry::Kind;
use super::request::Request;
use super::status::Status;
use super::store::{Entry, ResourceId};
use super::{Answer, ApiServer, prepare};
use crate::schema::FieldError;
use crate::schema::selector::{FieldSelector, LabelSelector};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a list waits for a revision that is not there yet (Kubernetes: three seconds).
pub(super) const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Of labels.
    pub labels: LabelSelector,
    /// Of fields.
    pub fields: FieldSelector,
    /// Objects of a page; 0 is all.
    pub limit: usize,
    /// Where the page before ended.
    pub resume: String,
    /// As given; empty where it was not.
    pub version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub version_match: String,
    /// Watch only: end after so long.
    pub timeout: Option<Duration>,
    /// Watch only: bookmarks are welcome.
    pub bookmarks: bool,
    /// Watch only: send what there is, then a bookmark.
    pub initial: Option<bool>,
}

impl ListOptions {
    /// Reads and checks the query.
    pub(super) fn of(request: &Request) -> Result<Self, Status> {
        let query = &request.query;
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout = query.number("timeoutSeconds")?;
        let labels = LabelSelector::parse(query.text("labelSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let mut fields = FieldSelector::parse(query.text("fieldSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        known_fields(&request.kind, &fields)?;
        stored_fields(&request.kind, &mut fields);
        let options = Self {
            labels,
            fields,
            limit: usize::try_from(limit).unwrap_or(0),
            resume: query.text("continue").to_owned(),
            version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
            timeout: timeout.and_then(|n| u64::try_from(n).ok()).map(Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks"),
            initial: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
        };
        let watch = request.verb == super::request::Verb::Watch;
        let errors = options.mistakes(watch);
        if errors.is_empty() {
            return Ok(options);
        }
        Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors))
    }

    /// Whether an object (as stored) is asked for.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(&object["metadata"]["labels"]) && self.fields.matches(object)
    }

    /// Kubernetes' rules for resourceVersion, its match and sendInitialEvents.
    fn mistakes(&self, watch: bool) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        let mut errors = Vec::new();
        let mut forbid = |why: &str| errors.push(FieldError::forbidden(field, why));
        let given = !self.version_match.is_empty();
        if watch {
            if self.initial.is_some() {
                if self.version_match != "NotOlderThan" {
                    forbid(
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    );
                }
                if given && self.version_match != "NotOlderThan" {
                    let value = json!(self.version_match);
                    errors.push(FieldError::unsupported(field, &value, &["NotOlderThan"]));
                }
            } else if given {
                forbid(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
                if self.version_match != "NotOlderThan" {
                    let value = json!(self.version_match);
                    errors.push(FieldError::unsupported(field, &value, &["NotOlderThan"]));
                }
            }
            return errors;
        }
        if given {
            if self.version.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.resume.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(self.version_match.as_str(), "Exact" | "NotOlderThan") {
                let known = ["Exact", "NotOlderThan", ""];
                let value = json!(self.version_match);
                errors.push(FieldError::unsupported(field, &value, &known));
            } else if self.version_match == "Exact" && self.version == "0" {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.initial.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }
}

/// 400 for a field that the kind cannot be selected by.
fn known_fields(kind: &Kind, fields: &FieldSelector) -> Result<(), Status> {
    for term in &fields.terms {
        let field = term.field.as_str();
        if field == "metadata.name"
            || field == "metadata.namespace"
            || kind.selectable.iter().any(|known| known == field)
        {
            continue;
        }
        let own_words = kind.custom || !kind.selectable.is_empty();
        return Err(Status::bad_request(if own_words {
            format!("field label not supported: {field}")
        } else {
            format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        }));
    }
    Ok(())
}

/// Names fields as they are stored (events of events.k8s.io are stored as core ones), and gives Go's zero to switches.
fn stored_fields(kind: &Kind, fields: &mut FieldSelector) {
    for term in &mut fields.terms {
        if kind.group == "events.k8s.io" {
            term.field = term
                .field
                .replace("regarding.", "involvedObject.")
                .replace("reportingController", "reportingComponent");
        }
        if kind.kind == "Event" && term.field == "source" {
            term.field = "source.component".to_owned();
            // Kubernetes: an event without a source comes from the controller that reports it.
            term.instead = Some("reportingComponent");
        }
        if !kind.custom && matches!(&*term.field, "spec.unschedulable" | "spec.hostNetwork") {
            term.absent = "false";
        }
    }
}

/// Answers GET of one object; `status` shows the whole object.
pub(super) fn get(server: &ApiServer, request: &Request) -> Result<Answer, Status> {
    Ok(Answer::ok(prepare::from_storage(&request.kind, &entry(server, request)?.object)))
}

/// The object a GET asks for, as it is kept.
pub(super) fn entry(server: &ApiServer, request: &Request) -> Result<Arc<Entry>, Status> {
    revision(request.query.text("resourceVersion"))
        .map_err(|why| Status::new(500, "", format!("resourceVersion: {why}")))?;
    server.store().entry(&request.key()).ok_or_else(|| request.not_found())
}

/// A resourceVersion as a number; 0 for none.
pub(super) fn revision(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let why =
        || format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
    text.parse().map_err(|_| why())
}

/// 504 of a revision that is still to come.
pub(super) fn too_large(asked: u64, current: u64) -> Status {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    Status::new(504, "Timeout", message).with(json!({
        "causes": [{
            "reason": "ResourceVersionTooLarge",
            "message": "Too large resource version",
        }],
        "retryAfterSeconds": 1,
    }))
}

/// One page of a list.
pub struct Page {
    /// Revision the list shows.
    pub revision: u64,
    /// Token for the next page.
    pub resume: Option<String>,
    /// Objects after this page; `None` where a selector hides how many.
    pub remaining: Option<usize>,
    /// The objects.
    pub entries: Vec<Arc<Entry>>,
}

impl Page {
    /// `metadata` of the list.
    #[must_use]
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.resume {
            metadata["continue"] = token.clone().into();
        }
        if let Some(count) = self.remaining {
            metadata["remainingItemCount"] = count.into();
        }
        metadata
    }
}

/// Reads one page.
pub(super) fn page(
    server: &ApiServer,
    request: &Request,
    options: &ListOptions,
) -> Result<Page, Status> {
    let storage = &request.kind.storage;
    let namespace = Some(request.namespace.as_str()).filter(|name| !name.is_empty());
    let asked = revision(&options.version).map_err(|why| {
        Status::bad_request(format!("invalid resource version: resourceVersion: {why}"))
    })?;
    let (revision, entries, after) = if options.resume.is_empty() {
        let exact = options.version_match == "Exact";
        let (now, entries) = server.store().entries(storage, namespace);
        if exact {
            let gone = |_| {
                let why = "The resourceVersion for the provided list is too old.";
                Status::new(410, "Expired", why)
            };
            let entries = server.store().entries_at(storage, namespace, asked).map_err(gone)?;
            (asked, entries, String::new())
        } else {
            (now, entries, String::new())
        }
    } else {
        resumed(server, storage, namespace, options, asked)?
    };
    // Kubernetes: the watch cache, asked with resourceVersion 0, knows no pages.
    let limit = if options.version == "0" { 0 } else { options.limit };
    Ok(cut(options, namespace, (revision, entries, after), limit))
}

type Snapshot = (u64, Vec<(String, Arc<Entry>)>, String);

fn cut(
    options: &ListOptions,
    namespace: Option<&str>,
    (revision, entries, after): Snapshot,
    limit: usize,
) -> Page {
    let prefix = namespace.map_or(0, |name| name.len() + 1);
    let mut left = entries
        .into_iter()
        .filter(|(path, _)| after.is_empty() || path[prefix..] >= *after)
        .filter(|(_, entry)| options.matches(&entry.object))
        .peekable();
    let mut taken = Vec::new();
    let mut last = String::new();
    while limit == 0 || taken.len() < limit {
        let Some((path, entry)) = left.next() else { break };
        last = path;
        taken.push(entry);
    }
    if left.peek().is_none() {
        return Page { revision, resume: None, remaining: None, entries: taken };
    }
    let selected = options.labels != LabelSelector::default() || !options.fields.terms.is_empty();
    let remaining = (!selected).then(|| left.count());
    let resume = Some(token(i64::try_from(revision).unwrap_or(i64::MAX), &last[prefix..]));
    Page { revision, resume, remaining, entries: taken }
}

/// A continue token as Kubernetes makes them: the next key is the last one with a zero byte.
fn token(revision: i64, last: &str) -> String {
    let text = format!(
        r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":{}}}"#,
        json!(format!("/{last}\0"))
    );
    URL_SAFE_NO_PAD.encode(text)
}

fn resumed(
    server: &ApiServer,
    storage: &ResourceId,
    namespace: Option<&str>,
    options: &ListOptions,
    asked: u64,
) -> Result<Snapshot, Status> {
    if asked != 0 {
        return Err(Status::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let invalid = |why: &str| {
        Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let bytes = URL_SAFE_NO_PAD.decode(options.resume.as_bytes()).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            // Go: where the quantum began that is not whole.
            _ => options.resume.find('=').unwrap_or(options.resume.len() / 4 * 4),
        };
        invalid(&format!("illegal base64 data at input byte {at}"))
    })?;
    let read: Value = serde_json::from_slice(&bytes)
        .map_err(|error| invalid(&super::body::syntax(&bytes, &error)))?;
    let at = read["rv"].as_i64().unwrap_or(0);
    if read["v"] != "meta.k8s.io/v1" {
        return Err(invalid("server does not recognize this encoded version"));
    }
    if at == 0 {
        return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    let start = read["start"].as_str().unwrap_or_default().trim_start_matches('/').to_owned();
    let Ok(at) = u64::try_from(at) else {
        let (now, entries) = server.store().entries(storage, namespace);
        return Ok((now, entries, start));
    };
    match server.store().entries_at(storage, namespace, at) {
        Ok(entries) => Ok((at, entries, start)),
        Err(_) => Err(expired(&start)),
    }
}

fn expired(start: &str) -> Status {
    let why = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    let mut status = Status::new(410, "Expired", why);
    status.resume = Some(token(-1, start.trim_end_matches('\0')));
    status
}

/// A list object of these items.
#[must_use]
pub(super) fn list_object(kind: &Kind, revision: u64, items: Vec<Value>) -> Value {
    let items: Vec<Value> = items.into_iter().map(|item| item_of(kind, item)).collect();
    json!({
        "kind": kind.list_kind, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    })
}

/// Kubernetes: items of built-in lists do not repeat their kind.
#[must_use]
pub(super) fn item_of(kind: &Kind, mut item: Value) -> Value {
    if !kind.custom
        && let Some(map) = item.as_object_mut()
    {
        map.remove("kind");
        map.remove("apiVersion");
    }
    item
}
