//! The closed set of ways a cloud can refuse, each with one reaction.

use std::time::Duration;

/// When it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not before the order or the credentials change.
    OnChange,
    /// After this time: the cloud said so, or waits are long by nature.
    After(Duration),
    /// Soon, then ever later.
    Backoff,
}

/// How long to wait for a quota or for capacity: minutes, for somebody has to act.
const SCARCITY_WAIT: Duration = Duration::from_secs(120);

/// Why a cloud did not do what it was asked. The text carries the cloud's words and its request id,
/// never a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The credentials are wrong, expired or revoked.
    #[error("the cloud refused the credentials: {0}")]
    Unauthenticated(String),
    /// The credentials are good and do not suffice.
    #[error("the cloud forbids it: {0}")]
    Forbidden(String),
    /// The description cannot be fulfilled as written.
    #[error("the description cannot be fulfilled: {0}")]
    Invalid(String),
    /// A quota of the project is used up.
    #[error("quota exceeded: {0}")]
    QuotaExceeded(String),
    /// The cloud has no room: no host, no free address.
    #[error("the cloud has no capacity: {0}")]
    Exhausted(String),
    /// The server was accepted and failed to come up; delete and replace it.
    #[error("the server failed: {0}")]
    ServerFailed(String),
    /// The world is not as it was a moment ago; look again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The cloud does not answer, or answers that it cannot just now.
    #[error("the cloud is unavailable: {message}")]
    Unavailable { message: String, retry_after: Option<Duration> },
    /// The cloud was asked and no answer came back: whether it acted is for the next look to say.
    #[error("the cloud did not answer: {0}")]
    Unanswered(String),
}

impl Error {
    /// The one reaction to this error.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unauthenticated(_) | Self::Forbidden(_) | Self::Invalid(_) => Retry::OnChange,
            Self::QuotaExceeded(_) | Self::Exhausted(_) => Retry::After(SCARCITY_WAIT),
            // Zero is no permission to hammer: Cinder sends it with a used-up quota.
            Self::Unavailable { retry_after: Some(wait), .. } if !wait.is_zero() => {
                Retry::After(*wait)
            }
            Self::Unavailable { .. }
            | Self::Unanswered(_)
            | Self::Conflict(_)
            | Self::ServerFailed(_) => Retry::Backoff,
        }
    }

    /// The code that Gardener's machine-controller-manager shows in `status.lastOperation.errorCode`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "Unauthenticated",
            Self::Forbidden(_) => "PermissionDenied",
            Self::Invalid(_) => "InvalidArgument",
            Self::QuotaExceeded(_) | Self::Exhausted(_) => "ResourceExhausted",
            Self::ServerFailed(_) => "Internal",
            Self::Conflict(_) => "Aborted",
            Self::Unavailable { .. } => "Unavailable",
            Self::Unanswered(_) => "DeadlineExceeded",
        }
    }
}
