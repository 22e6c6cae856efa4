//! Custom resources come and go with their definitions, and so do the watches of them.

use super::Watches;
use super::object::{is_true, items};
use super::view::{Address, Change, Resource, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::Value;

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Watches what is defined.
pub(super) struct Kinds {
    watches: Watches,
}

impl Kinds {
    pub(super) fn new(watches: Watches) -> Self {
        Self { watches }
    }

    fn look(&self, view: &View, at: &Address) -> Next {
        match view.at(at).as_deref().and_then(served) {
            Some(resource) => self.watches.start(resource),
            None => self.watches.end(&at.name),
        }
        Next::Change
    }
}

/// The resource of a definition that is established.
fn served(definition: &Value) -> Option<Resource> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = items(&spec["versions"]).iter().find(|one| one["served"] == true)?;
    is_true(definition, "Established").then(|| {
        let namespaced = spec["scope"] == "Namespaced";
        let names = &spec["names"];
        let (group, version) = (text(&spec["group"]), text(&version["name"]));
        Resource::new(&group, &version, &text(&names["plural"]), &text(&names["kind"]), namespaced)
    })
}

impl Controller for Kinds {
    fn name(&self) -> &'static str {
        "custom resources"
    }

    fn concerns(&self, _: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of(DEFINITIONS) {
            wake(change.address.clone());
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        Ok(self.look(&hands.view, at))
    }
}
