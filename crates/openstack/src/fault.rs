//! What went wrong with a call, and which of the provider's errors that is.

use drover_provider::Error;
use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// The longest text of a cloud that goes into an error, in characters.
const MESSAGE_CHARACTERS: usize = 400;

/// Why a call has no good answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The cloud answered, and not with success.
    Answered(Box<Refusal>),
    /// There was no answer, or none to be read: whether the cloud acted is unknown.
    Lost { call: String, why: String },
    /// The call never left.
    Unsent { call: String, why: String, retry_after: Option<Duration> },
    /// Something about credentials, catalogue or description stands in the way of any call.
    Setup(Error),
}

/// An answer that is no success.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Such as `POST /servers of compute`.
    pub call: String,
    pub status: StatusCode,
    /// The key that names the fault (Nova, Cinder) or the type (Neutron).
    pub kind: String,
    pub message: String,
    pub request_id: Option<String>,
    /// `None` when the cloud named no time; zero counts as none.
    pub retry_after: Option<Duration>,
    /// Whether the call was a POST: a 404 then means something it refers to.
    pub creates: bool,
}

impl Refusal {
    /// Reads an answer. A body that does not parse never hides the status.
    #[must_use]
    pub fn read(
        call: String,
        creates: bool,
        status: StatusCode,
        head: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let (kind, message) = words(body);
        let header = |name: &str| head.get(name).and_then(|value| value.to_str().ok());
        let request_id = header("x-openstack-request-id").or(header("x-compute-request-id"));
        let retry_after = header("retry-after").and_then(|text| text.trim().parse().ok());
        Self {
            call,
            status,
            kind,
            message: shorten(&hide_values(&message)),
            request_id: request_id.map(str::to_owned),
            retry_after: retry_after.map(Duration::from_secs).filter(|wait| !wait.is_zero()),
            creates,
        }
    }

    fn text(&self) -> String {
        let status = self.status.as_u16();
        let request = self.request_id.as_deref().unwrap_or("no request id");
        format!("{} answered {status}: {} ({request})", self.call, self.message)
    }

    fn class(&self) -> Error {
        let text = self.text();
        let says = |part: &str| self.message.contains(part);
        match (self.status.as_u16(), self.kind.as_str()) {
            (401, _) => Error::Unauthenticated(text),
            (_, "OverQuota") => Error::QuotaExceeded(text),
            (_, "IpAddressGenerationFailure") => Error::Exhausted(text),
            (403, _) if says("Quota exceeded") || says("is over the limit") => {
                Error::QuotaExceeded(text)
            }
            (403, _)
                if says("Only volume-backed servers") || says("Maximum number of metadata") =>
            {
                Error::Invalid(text)
            }
            (403, _) => Error::Forbidden(text),
            // Nova of old limits its rate with the same words, and then says for how long.
            (413, "overLimit") if self.retry_after.is_none() => Error::QuotaExceeded(text),
            (413, "overLimit") | (408 | 425 | 429 | 500..=599, _) => {
                Error::Unavailable { message: text, retry_after: self.retry_after }
            }
            (404, _) if !self.creates => Error::Conflict(text),
            (409 | 412, _) => Error::Conflict(text),
            _ => Error::Invalid(text),
        }
    }
}

impl Fault {
    /// The status, when there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered(refusal) => Some(refusal.status),
            Self::Lost { .. } | Self::Unsent { .. } | Self::Setup(_) => None,
        }
    }

    /// Whether the thing that was asked for is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the cloud surely did nothing: it said no, or it was never asked. After a 5xx or silence
    /// a POST may have been done all the same.
    #[must_use]
    pub fn surely_nothing_done(&self) -> bool {
        match self {
            Self::Answered(refusal) => {
                refusal.status.is_client_error() && refusal.status != StatusCode::REQUEST_TIMEOUT
            }
            Self::Unsent { .. } | Self::Setup(_) => true,
            Self::Lost { .. } => false,
        }
    }

    /// Whether the same call can be expected to succeed a moment later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Answered(refusal) => {
                matches!(refusal.class(), Error::Unavailable { .. })
            }
            Self::Lost { .. } => true,
            Self::Unsent { retry_after, .. } => retry_after.is_none(),
            Self::Setup(_) => false,
        }
    }

    /// How long the cloud wants to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered(refusal) => refusal.retry_after,
            Self::Unsent { retry_after, .. } => *retry_after,
            Self::Lost { .. } | Self::Setup(_) => None,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Answered(refusal) => refusal.class(),
            Fault::Lost { call, why } => Self::Unanswered(format!("{call}: {why}")),
            Fault::Unsent { call, why, retry_after } => {
                Self::Unavailable { message: format!("{call} was not sent: {why}"), retry_after }
            }
            Fault::Setup(error) => error,
        }
    }
}

/// What the fault of a server in ERROR means (Nova: `fault.message`).
#[must_use]
pub fn of_server(id: &str, message: Option<&str>) -> Error {
    let message = message.unwrap_or_default();
    let text = match message {
        "" => format!("server {id} is in ERROR and the cloud does not say why"),
        words => format!("server {id} is in ERROR: {}", shorten(words)),
    };
    let says = |part: &str| message.contains(part);
    if says("No valid host was found") || says("No fixed IP addresses available") {
        Error::Exhausted(text)
    } else if says("exceeds allowed") || says("Quota") {
        Error::QuotaExceeded(text)
    } else {
        Error::ServerFailed(text)
    }
}

/// The kind and the message of an error's body, whichever service wrote it.
fn words(body: &[u8]) -> (String, String) {
    let Ok(serde_json::Value::Object(top)) = serde_json::from_slice(body) else {
        return (String::new(), without_tags(&String::from_utf8_lossy(body)));
    };
    let text = |value: Option<&serde_json::Value>| {
        value.and_then(|it| it.as_str()).map(str::to_owned).unwrap_or_default()
    };
    let inner = top.iter().find_map(|(key, value)| value.as_object().map(|it| (key, it)));
    match inner {
        Some((key, inner)) if inner.contains_key("message") => {
            let kind = inner.get("type").and_then(|it| it.as_str()).unwrap_or(key);
            (kind.to_owned(), without_tags(&text(inner.get("message"))))
        }
        _ => (String::new(), without_tags(&text(top.get("message")))),
    }
}

fn without_tags(text: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for character in text.chars() {
        match character {
            '<' => inside = true,
            '>' if inside => inside = false,
            other if !inside => plain.push(other),
            _ => {}
        }
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Nova repeats a refused value in its text: user-data too, alone or with the rest of the body.
fn hide_values(message: &str) -> String {
    match message.split_once(" Value: ") {
        Some((field, value)) if value.contains("user_data") => {
            let reason = value.rsplit_once("}. ").map_or("", |(_, reason)| reason);
            format!("{field} Value: (not shown). {reason}")
        }
        Some((field, _)) if field.contains("user_data") || field.contains("adminPass") => {
            format!("{field} Value: (not shown)")
        }
        _ => message.to_owned(),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARACTERS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
