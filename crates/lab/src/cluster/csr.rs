//! The signers of certificates for nodes: what was approved and keeps the signer's rules is signed.
//!
//! Nothing is approved here: that is for whoever knows the nodes.

use super::object::{condition, is_true, items};
use super::view::{Address, Change, View};
use super::work::{Controller, Hands, Next};
use crate::client::ApiError;
use crate::pki::{self, Requested};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
/// Seconds a certificate is good for unless less was asked for (Kubernetes: one year).
const LENGTH: u64 = 365 * 86_400;

/// Signs for the three signers of kube-controller-manager that nodes and users meet.
pub(super) struct Signer;

/// What a signer demands; the words are Kubernetes'.
fn mistake(signer: &str, asked: &Requested, usages: &[&str]) -> Option<String> {
    let both = ["digital signature", "key encipherment"];
    let fits = |purpose: &str| {
        let known = |usage: &&str| *usage == purpose || both.contains(usage);
        usages.contains(&purpose) && usages.contains(&both[0]) && usages.iter().all(known)
    };
    let of_node = || {
        if asked.organizations != ["system:nodes"] {
            return Some("subject organization is not system:nodes");
        }
        (!asked.common_name.starts_with("system:node:"))
            .then_some("subject common name does not begin with system:node: ")
    };
    let mail = asked.other_names.iter().any(|name| name.contains('@'));
    let text = match signer {
        "kubernetes.io/kube-apiserver-client-kubelet" => {
            if let Some(text) = of_node() {
                text
            } else if !asked.dns_names.is_empty() {
                "DNS subjectAltNames are not allowed"
            } else if mail {
                "Email subjectAltNames are not allowed"
            } else if !asked.addresses.is_empty() {
                "IP subjectAltNames are not allowed"
            } else if !asked.other_names.is_empty() {
                "URI subjectAltNames are not allowed"
            } else if !fits("client auth") {
                "usages did not match [client auth digital signature key encipherment]"
            } else {
                return None;
            }
        }
        "kubernetes.io/kubelet-serving" => {
            if let Some(text) = of_node() {
                text
            } else if asked.dns_names.is_empty() && asked.addresses.is_empty() {
                "DNS or IP subjectAltName is required"
            } else if mail {
                "Email subjectAltNames are not allowed"
            } else if !asked.other_names.is_empty() {
                "URI subjectAltNames are not allowed"
            } else if !fits("server auth") {
                "usages did not match [digital signature key encipherment server auth]"
            } else {
                return None;
            }
        }
        _ => {
            let client = |usage: &&str| *usage == "client auth" || both.contains(usage);
            let good = usages.contains(&"client auth") && usages.iter().all(client);
            return (!good).then(|| "usages did not match [client auth]".to_owned());
        }
    };
    Some(text.to_owned())
}

/// Whether a request waits for its certificate from one of the signers here.
fn waits(request: &Value) -> bool {
    let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
    let known = [
        "kubernetes.io/kube-apiserver-client",
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/kubelet-serving",
    ];
    known.contains(&signer)
        && is_true(request, "Approved")
        && condition(request, "Failed").is_none()
        && condition(request, "Denied").is_none()
        && request["status"]["certificate"].as_str().is_none_or(str::is_empty)
}

impl Controller for Signer {
    fn name(&self) -> &'static str {
        "certificate signer"
    }

    fn concerns(&self, _: &View, change: &Change, wake: &mut dyn FnMut(Address)) {
        if change.is_of(REQUESTS) && change.now.as_deref().is_some_and(waits) {
            wake(change.address.clone());
        }
    }

    async fn sync(&self, hands: &Hands, at: &Address) -> Result<Next, ApiError> {
        let Some(request) = hands.view.at(at).filter(|request| waits(request)) else {
            return Ok(Next::Change);
        };
        let spec = &request["spec"];
        let usages: Vec<&str> = items(&spec["usages"]).iter().filter_map(Value::as_str).collect();
        let wish = spec["expirationSeconds"].as_u64().unwrap_or(LENGTH).min(LENGTH);
        let signer = spec["signerName"].as_str().unwrap_or_default();
        let pem = STANDARD.decode(spec["request"].as_str().unwrap_or_default()).ok();
        let pem = pem.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let signed = match pki::parse(&pem) {
            Err(error) => Err(error.to_string()),
            Ok(asked) => match mistake(signer, &asked, &usages) {
                Some(why) => Err(why),
                None => hands
                    .pki
                    .sign(&pem, &usages, Duration::from_secs(wish))
                    .map_err(|error| error.to_string()),
            },
        };
        let mut new = (*request).clone();
        match signed {
            Ok(certificate) => new["status"]["certificate"] = STANDARD.encode(certificate).into(),
            Err(why) => {
                let now = hands.stamp();
                let failed = json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                    "message": why, "lastUpdateTime": now, "lastTransitionTime": now,
                });
                if let Some(list) = new["status"]["conditions"].as_array_mut() {
                    list.push(failed);
                }
            }
        }
        hands.replace(at, "/status", &new).await?;
        Ok(Next::Change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    const SERVING: &str = "kubernetes.io/kubelet-serving";

    fn node() -> Requested {
        Requested {
            common_name: "system:node:n1".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..Requested::default()
        }
    }

    #[test]
    fn clients_have_no_other_names() {
        let usages = ["digital signature", "client auth"];
        assert_eq!(mistake(CLIENT, &node(), &usages), None);
        let text = "usages did not match [client auth digital signature key encipherment]";
        let more = ["digital signature", "client auth", "server auth"];
        assert_eq!(mistake(CLIENT, &node(), &more).as_deref(), Some(text));
        let named = Requested { dns_names: vec!["n1".to_owned()], ..node() };
        let text = "DNS subjectAltNames are not allowed";
        assert_eq!(mistake(CLIENT, &named, &usages).as_deref(), Some(text));
        let stranger = Requested { organizations: vec!["dev".to_owned()], ..node() };
        let text = "subject organization is not system:nodes";
        assert_eq!(mistake(CLIENT, &stranger, &usages).as_deref(), Some(text));
    }

    #[test]
    fn servers_need_a_name() {
        let usages = ["digital signature", "server auth"];
        let text = "DNS or IP subjectAltName is required";
        assert_eq!(mistake(SERVING, &node(), &usages).as_deref(), Some(text));
        let named = Requested { dns_names: vec!["n1".to_owned()], ..node() };
        assert_eq!(mistake(SERVING, &named, &usages), None);
    }
}
