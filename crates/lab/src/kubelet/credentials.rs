//! How a kubelet gets its certificates: it asks, somebody approves, it hears of it.

use super::World;
use super::wire::Word;
use crate::client::{ApiError, Client};
use crate::pki;
use base64::Engine as _;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// Kubernetes: how long a kubelet waits for one request before it makes another.
const WAIT: Duration = Duration::from_secs(900);
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request could not be made.
    #[error("cannot create certificate signing request: {0}")]
    Ask(ApiError),
    /// Somebody said no.
    #[error("certificate signing request {0} is denied: {1}")]
    Denied(String, String),
    /// The signer could not.
    #[error("certificate signing request {0} failed: {1}")]
    Failed(String, String),
    /// Nobody said anything.
    #[error("certificate signing request {0} was neither approved nor denied within {WAIT:?}")]
    Unanswered(String),
}

/// What a certificate is for.
pub enum Purpose<'a> {
    /// To be known to the API server.
    Client,
    /// To be known by the API server, under these names and addresses.
    Serving(&'a [String], &'a [IpAddr]),
}

/// A request on its way.
pub struct Asked {
    /// The name of the request.
    pub name: String,
    key_pem: String,
}

/// Sends a request for the node's certificate.
pub async fn ask(
    world: &World,
    client: &Client,
    node: &str,
    purpose: &Purpose<'_>,
) -> Result<Asked, Error> {
    let user = format!("system:node:{node}");
    let (signer, usage, (csr_pem, key_pem)) = match purpose {
        Purpose::Client => {
            let request = pki::request(&user, &["system:nodes"], &[], &[]);
            ("kubernetes.io/kube-apiserver-client-kubelet", "client auth", request)
        }
        Purpose::Serving(names, addresses) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let request = pki::request(&user, &["system:nodes"], &names, addresses);
            ("kubernetes.io/kubelet-serving", "server auth", request)
        }
    };
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64::engine::general_purpose::STANDARD.encode(csr_pem),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    });
    let created = client.create(REQUESTS, &object).await.map_err(Error::Ask)?;
    let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    world.wire.follow_request(&name, node);
    Ok(Asked { name, key_pem })
}

impl Asked {
    /// What this word says of the request: the certificate and its key, a refusal, or nothing yet.
    pub fn hear(&self, request: &Value) -> Option<Result<pki::Pair, Error>> {
        if request["metadata"]["name"] != *self.name {
            return None;
        }
        for condition in request["status"]["conditions"].as_array().into_iter().flatten() {
            let message = condition["message"].as_str().unwrap_or_default().to_owned();
            match condition["type"].as_str() {
                Some("Denied") => return Some(Err(Error::Denied(self.name.clone(), message))),
                Some("Failed") => return Some(Err(Error::Failed(self.name.clone(), message))),
                _ => {}
            }
        }
        let certificate = request["status"]["certificate"].as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(certificate).ok()?;
        let cert_pem = String::from_utf8(bytes).ok()?;
        Some(Ok(pki::Pair { cert_pem, key_pem: self.key_pem.clone() }))
    }
}

/// Gets the client certificate that makes a kubelet a node.
pub async fn client_certificate(
    world: &World,
    client: &Client,
    node: &str,
    words: &mut UnboundedReceiver<Word>,
) -> Result<pki::Pair, Error> {
    let asked = ask(world, client, node, &Purpose::Client).await?;
    let answer = tokio::time::timeout(WAIT, async {
        loop {
            match words.recv().await {
                Some(Word::Request(request)) => {
                    if let Some(answer) = asked.hear(&request) {
                        return answer;
                    }
                }
                Some(_) => {}
                // The line was taken over by another kubelet of this name; nothing will come.
                None => std::future::pending().await,
            }
        }
    })
    .await;
    world.wire.forget_request(&asked.name);
    answer.unwrap_or_else(|_| Err(Error::Unanswered(asked.name.clone())))
}
