//! Who may ask for, approve and sign certificates.

use super::rbac::text;
use super::{Attributes, MASTERS, User, decide};
use crate::apiserver::{ApiServer, Status};
use crate::pki;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The signer of client certificates that anybody may be given.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Kubernetes' CertificateSubjectRestriction, CertificateApproval and CertificateSigning.
pub(super) fn admit(
    server: &ApiServer,
    user: &User,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (Some(new), "certificatesigningrequests") = (new, ask.resource) else { return Ok(()) };
    let signer = text(&old.unwrap_or(new)["spec"]["signerName"]);
    let refuse = |why: &str| Status::forbidden(ask.api_group, ask.resource, ask.name, why);
    let word = match (ask.subresource, old) {
        ("", None) if signer == CLIENT_SIGNER && asks_for_masters(new) => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            return Err(refuse(&why));
        }
        ("approval", _) => "approve",
        ("status", Some(old)) if old["status"] != new["status"] => "sign",
        _ => return Ok(()),
    };
    if may(server, user, word, signer) {
        return Ok(());
    }
    Err(refuse(&format!("user not permitted to {word} requests with signerName {signer:?}")))
}

fn asks_for_masters(request: &Value) -> bool {
    let pem = STANDARD.decode(text(&request["spec"]["request"])).ok();
    let pem = pem.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    pki::parse(&pem).is_ok_and(|asked| asked.organizations.iter().any(|group| group == MASTERS))
}

/// Kubernetes: the verb on the signer itself, or on all signers of its domain.
fn may(server: &ApiServer, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    [signer.to_owned(), format!("{domain}/*")].iter().any(|name| {
        let ask = Attributes {
            verb,
            api_group: "certificates.k8s.io",
            resource: "signers",
            name,
            ..Attributes::default()
        };
        decide(server, user, &ask).allowed
    })
}
