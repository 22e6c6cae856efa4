//! Every namespace has a service account `default` and the certificate of the authority.

use super::object::is_deleting;
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use serde_json::json;

/// The name of the account that pods run as unless they say otherwise.
const ACCOUNT: &str = "default";
/// The name of the ConfigMap with the certificate.
const AUTHORITY: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Makes both.
pub(super) struct ServiceAccounts;

/// That it is there already is fine, and so is a namespace that has begun to go.
fn made(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if error.is_conflict() || error.is_not_found() || error.code == 403 => Ok(()),
        other => other,
    }
}

impl Controller for ServiceAccounts {
    fn name(&self) -> &'static str {
        "service accounts"
    }

    fn concerns(&self, _: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of("namespaces") && change.before.is_none() {
            wake(change.address.clone());
        }
        let Address { namespace, name, .. } = &change.address;
        let own = (change.is_of("serviceaccounts") && name == ACCOUNT)
            || (change.is_of("configmaps") && name == AUTHORITY);
        if own {
            wake(Address::new("namespaces", "", namespace));
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(namespace) = hands.view.at(at) else { return Ok(Next::Change) };
        if is_deleting(&namespace) {
            return Ok(Next::Change);
        }
        let home = &at.name;
        if hands.view.get("serviceaccounts", home, ACCOUNT).is_none() {
            let account = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT},
            });
            made(hands.create("serviceaccounts", home, &account).await)?;
        }
        let known = hands.view.get("configmaps", home, AUTHORITY);
        let data = json!({"ca.crt": hands.pki.ca_pem()});
        match known {
            Some(map) if map["data"] == data => {}
            Some(_) => {
                let at = Address::new("configmaps", home, AUTHORITY);
                hands.merge(&at, "", &json!({"data": data})).await?;
            }
            None => {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {
                        "name": AUTHORITY,
                        "annotations": {"kubernetes.io/description": DESCRIPTION},
                    },
                    "data": data,
                });
                made(hands.create("configmaps", home, &map).await)?;
            }
        }
        Ok(Next::Change)
    }
}
