//! The provider's memory of one machine, as the caller keeps it.

use drover_provider::{Memory, PLACE};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What is written down between two calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// When the create of the server was last promised.
    pub promised_at: Option<Timestamp>,
    /// The server, once Nova named it.
    pub server: Option<String>,
    /// The port on the first network.
    pub port: Option<String>,
    /// The address that came of the floating IP pool.
    pub floating_address: Option<String>,
    /// What names and defaults became before anything was made of them, by [`NOTES`].
    pub notes: BTreeMap<String, String>,
}

/// The notes that are kept of what was resolved.
const NOTES: [&str; 7] =
    ["image", "flavor", "networks", "securityGroups", "serverGroup", VOLUMES, PLACE];

/// The note of the volumes that were ordered, by their slots.
pub const VOLUMES: &str = "volumes";

const PROMISED_AT: &str = "promisedAt";
const SERVER: &str = "server";
const PORT: &str = "port";
const FLOATING_ADDRESS: &str = "floatingAddress";

impl Recall {
    /// Reads a memory. `now` stands in for a promise whose time cannot be read: it counts as just made.
    #[must_use]
    pub fn read(memory: &Memory, now: Timestamp) -> Self {
        let get = |key: &str| memory.0.get(key).filter(|value| !value.is_empty()).cloned();
        Self {
            promised_at: get(PROMISED_AT).map(|text| text.parse().unwrap_or(now)),
            server: get(SERVER),
            port: get(PORT),
            floating_address: get(FLOATING_ADDRESS),
            notes: NOTES.iter().filter_map(|key| Some(((*key).to_owned(), get(key)?))).collect(),
        }
    }

    #[must_use]
    pub fn write(&self) -> Memory {
        let pairs = [
            (PROMISED_AT, self.promised_at.map(|it| it.to_string())),
            (SERVER, self.server.clone()),
            (PORT, self.port.clone()),
            (FLOATING_ADDRESS, self.floating_address.clone()),
        ];
        let present = pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Memory(present.chain(self.notes.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let recall = Recall {
            promised_at: Some("2026-01-01T00:00:00.123456789Z".parse().unwrap()),
            server: Some("s".into()),
            port: None,
            floating_address: Some("1.2.3.4".into()),
            notes: [("image".to_owned(), "i".to_owned())].into(),
        };
        assert_eq!(Recall::read(&recall.write(), Timestamp::UNIX_EPOCH), recall);
        assert_eq!(Recall::default().write(), Memory::default());
    }

    #[test]
    fn an_unreadable_promise_counts_as_made_now() {
        let memory = Memory([("promisedAt".to_owned(), "soon".to_owned())].into());
        let now = Timestamp::from_second(7).unwrap();
        assert_eq!(Recall::read(&memory, now).promised_at, Some(now));
    }
}
