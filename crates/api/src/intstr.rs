//! Counts that may be written as a percentage.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt};

/// A number of machines, or a share of the replicas such as `25%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// That many machines.
    Count(u32),
    /// That many of a hundred replicas.
    Percent(u16),
}

impl IntOrPercent {
    /// How many of `replicas` this is, a fraction counting as a whole machine. Kubernetes: surge.
    #[must_use]
    pub fn round_up(self, replicas: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => share(percent, replicas, 99),
        }
    }

    /// How many of `replicas` this is, a fraction counting as nothing. Kubernetes: unavailable.
    #[must_use]
    pub fn round_down(self, replicas: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => share(percent, replicas, 0),
        }
    }

    /// Whether it is nothing, whatever the replicas.
    #[must_use]
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

fn share(percent: u16, replicas: u32, correction: u64) -> u32 {
    let share = (u64::from(percent) * u64::from(replicas) + correction) / 100;
    u32::try_from(share).unwrap_or(u32::MAX)
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for IntOrPercent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl de::Visitor<'_> for Reader {
    type Value = IntOrPercent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number that is not negative, or a percentage such as \"25%\"")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<IntOrPercent, E> {
        let count = u32::try_from(count)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(count), &self))?;
        Ok(IntOrPercent::Count(count))
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<IntOrPercent, E> {
        let count = u32::try_from(count)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))?;
        Ok(IntOrPercent::Count(count))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrPercent, E> {
        text.strip_suffix('%')
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(IntOrPercent::Percent)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl JsonSchema for IntOrPercent {
    fn schema_name() -> Cow<'static, str> {
        "IntOrPercent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": "^(0|[1-9][0-9]{0,2})%$",
            "minimum": 0,
            "maxLength": 4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_string};

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        let quarter: IntOrPercent = from_str("\"25%\"").unwrap();
        assert_eq!((quarter.round_up(10), quarter.round_down(10)), (3, 2));
        let tenth: IntOrPercent = from_str("\"10%\"").unwrap();
        assert_eq!((tenth.round_up(3), tenth.round_down(3)), (1, 0));
        assert_eq!(IntOrPercent::Percent(100).round_up(u32::MAX), u32::MAX);
    }

    #[test]
    fn numbers_stay_numbers_and_percentages_texts() {
        for text in ["3", "0", "\"25%\""] {
            let value: IntOrPercent = from_str(text).unwrap();
            assert_eq!(to_string(&value).unwrap(), text);
        }
        for text in ["-1", "\"1\"", "\"+1%\"", "\"%\"", "1.5", "null", "\"99999%\""] {
            assert!(from_str::<IntOrPercent>(text).is_err(), "{text}");
        }
    }
}
