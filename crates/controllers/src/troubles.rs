//! The last failure of each object, so that its next plan can put it into the status.

use crate::cache::Key;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What failed last, by object. A cache: after a restart it fails again and is known again.
#[derive(Default)]
pub struct Troubles(Mutex<BTreeMap<Key, String>>);

impl Troubles {
    /// The text of the last failure of this object, if its last look failed.
    pub fn of(&self, key: &Key) -> Option<String> {
        self.lock().get(key).cloned()
    }

    /// This object's look failed.
    pub fn remember(&self, key: &Key, error: &dyn Error) {
        self.lock().insert(key.clone(), chain(error));
    }

    /// This object's look succeeded, or the object is gone.
    pub fn settle(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with all its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}
