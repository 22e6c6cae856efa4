//! Durations as Go writes them, such as `20m` or `1h30m`.

use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// A duration in Go's syntax: numbers with the units `ns`, `us`, `ms`, `s`, `m`, `h`, such as
/// `1h30m`. Never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no duration; write it like 20m or 1h30m")]
pub struct DurationError {
    text: String,
}

/// The longest duration that is accepted: a century holds every sane timeout, and sums of it with a
/// point in time cannot overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse(text)
            .filter(|duration| *duration <= LONGEST)
            .map(Self)
            .ok_or_else(|| DurationError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos = 0_f64;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..number].parse().ok()?;
        rest = &rest[number..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += value * nanos_of(&rest[..unit])?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(nanos / 1e9).ok()).flatten()
}

fn nanos_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (seconds, nanos) {
            (0, 0) if self.0.is_zero() => f.write_str("0s"),
            (0, 0) => Ok(()),
            (_, 0) => write!(f, "{seconds}s"),
            _ => {
                let fraction = format!("{nanos:09}");
                write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::pattern(r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$", 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_and_written_as_go_does() {
        for (text, seconds, written) in [
            ("20m", 1200.0, "20m"),
            ("1h30m", 5400.0, "1h30m"),
            ("2h0m0s", 7200.0, "2h"),
            ("1.5s", 1.5, "1.5s"),
            ("90s", 90.0, "1m30s"),
            ("250ms", 0.25, "0.25s"),
            ("0", 0.0, "0s"),
        ] {
            let duration: GoDuration = text.parse().expect(text);
            assert_eq!(duration.0, Duration::from_secs_f64(seconds), "{text}");
            assert_eq!(duration.to_string(), written, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_way_out() {
        for text in ["", "5", "-1m", "1d", "m", "1h 30m", "99999999999999h", "1.2.3s"] {
            let error = text.parse::<GoDuration>().expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("{text:?} is no duration; write it like 20m or 1h30m")
            );
        }
    }
}
