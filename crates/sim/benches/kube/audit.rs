//! What one user asked of the API server, read from its audit log.

use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

/// Calls of one user since the last look.
pub struct Audit {
    log: PathBuf,
    user: String,
    at: u64,
}

/// Requests by verb and resource, and those that were refused.
#[derive(Debug, Default)]
pub struct Calls {
    pub by_name: BTreeMap<String, u32>,
    pub conflicts: u32,
}

impl Audit {
    pub fn new(log: PathBuf, user: &str) -> Self {
        Self { log, user: user.to_owned(), at: 0 }
    }

    /// The calls since the last look. Leases are left out: they are paid by the clock, not by machines.
    pub fn take(&mut self) -> anyhow::Result<Calls> {
        let mut file =
            File::open(&self.log).with_context(|| format!("opening {}", self.log.display()))?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut reader = BufReader::new(file);
        let mut calls = Calls::default();
        let mut line = String::new();
        loop {
            line.clear();
            let read = reader.read_line(&mut line)?;
            // A line that is still being written is read the next time.
            if read == 0 || !line.ends_with('\n') {
                return Ok(calls);
            }
            self.at += read as u64;
            calls.add(&serde_json::from_str(&line)?, &self.user);
        }
    }
}

impl Calls {
    fn add(&mut self, event: &Value, user: &str) {
        let object = &event["objectRef"];
        // A watch is one call, told when it begins; its end is no second one.
        let is_end = event["verb"] == "watch" && event["stage"] == "ResponseComplete";
        if event["user"]["username"] != user || object["resource"] == "leases" || is_end {
            return;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut name = format!("{} {}", text(&event["verb"]), text(&object["resource"]));
        if let Some(subresource) = object["subresource"].as_str() {
            name.extend(["/", subresource]);
        }
        *self.by_name.entry(name).or_default() += 1;
        self.conflicts += u32::from(event["responseStatus"]["code"] == 409);
    }

    pub fn all(&self) -> u32 {
        self.by_name.values().sum()
    }

    /// What the peers' figures leave out: bootstrap tokens and decisions about certificates.
    pub fn without_joining(&self) -> u32 {
        let joins =
            |name: &str| name.ends_with(" secrets") || name.contains("certificatesigningrequests");
        let kept = self.by_name.iter().filter(|(name, _)| !joins(name));
        kept.map(|(_, count)| count).sum()
    }
}
