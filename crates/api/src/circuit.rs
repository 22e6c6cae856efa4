//! The circuit of a set: whether its machines may ask the cloud for new servers.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the attempts of a set to get new machines fail. While it is open no new server is asked for, but by one machine
/// at a time that tries whether it works again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CircuitStatus {
    /// Why they fail, in one word, such as QuotaExceeded.
    pub reason: String,
    /// How many machines failed for that reason without one that succeeded, those that were replaced meanwhile included.
    pub failures: u32,
    /// When the last of them failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_failure_time: Option<Time>,
    /// Since when it is open; absent while it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub open_since: Option<Time>,
    /// How often in a row a wait was begun; each is longer than the one before.
    pub waits: u32,
    /// Until when no server is asked for. Then one machine tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub until: Option<Time>,
    /// The machine that tries, from `until` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// What stands for the template of the machines that failed; another template closes the circuit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template: String,
}

impl CircuitStatus {
    /// Whether it is this machine's turn to try.
    #[must_use]
    pub fn is_probe(&self, machine: &str) -> bool {
        self.probe.as_deref() == Some(machine)
    }
}
