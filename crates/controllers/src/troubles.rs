//! The last failure of each object, so that its next plan can put it into the status.

use crate::cache::Key;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One notebook for each controller that shows failures in a status.
#[derive(Default)]
pub struct AllTroubles {
    pub deployments: Troubles,
    pub sets: Troubles,
    pub machines: Troubles,
}

/// What failed last, by object. A cache: after a restart it fails again and is known again.
#[derive(Default)]
pub struct Troubles(Mutex<BTreeMap<Key, String>>);

impl Troubles {
    /// The text of the last failure of this object, if its last look failed.
    pub fn of(&self, key: &Key) -> Option<String> {
        self.lock().get(key).cloned()
    }

    /// How this object's look ended.
    pub fn note<T, E: Error + 'static>(&self, key: &Key, looked: &Result<T, E>) {
        match looked {
            Ok(_) => self.settle(key),
            Err(error) => {
                self.lock().insert(key.clone(), chain(error));
            }
        }
    }

    /// There is nothing to complain of, or the object is gone.
    pub fn settle(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with all its causes, in one line; of the API server's answer only its message.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let answer = match error.downcast_ref() {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        next = if answer.is_some() { None } else { error.source() };
        let said = answer.unwrap_or_else(|| error.to_string());
        if text.is_empty() {
            text = said;
        } else if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
    }
    text
}
