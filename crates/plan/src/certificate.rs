//! Which certificate requests of kubelets are approved, and why the others are not.
//!
//! Two signers are looked at. A fresh kubelet asks with its machine's bootstrap token for the client
//! certificate of that machine's Node and of no other; a running one asks, with that certificate,
//! for its renewal and for a serving certificate within its own names and addresses.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use std::{collections::BTreeSet, net::IpAddr, time::Duration};
use x509_parser::prelude::{
    FromDer, GeneralName, ParsedCriAttribute, ParsedExtension, X509CertificationRequest, X509Name,
};

/// Kubernetes: signs what kubelets show to the API server.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Kubernetes: signs what kubelets show to those who call them.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// How long a request may be ahead of what is known of its machine: a cloud tells a new floating IP
/// to the Node sooner than to the Machine.
pub const SETTLING_MAX: Duration = Duration::from_secs(600);

/// When to look again at a request that waits for what no watch may tell.
const SETTLING_CHECK: Duration = Duration::from_secs(30);

/// Kubelets ask in about 600 bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

const BOOTSTRAP_USER: &str = "system:bootstrap:";
const BOOTSTRAP_GROUP: &str = "system:bootstrappers";
const NODE_USER: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";

/// Who sent a request, as the API server authenticated them; by this the machine is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The id of a bootstrap token: the six characters before the dot.
    BootstrapToken(String),
    /// The name of a Node.
    Node(String),
    /// Anyone else.
    Stranger,
}

/// Who sent the request.
pub fn asker(request: &CertificateSigningRequest) -> Asker {
    let spec = &request.spec;
    let user = spec.username.as_deref().unwrap_or_default();
    let in_group = |group| spec.groups.iter().flatten().any(|of| of == group);
    match (user.strip_prefix(BOOTSTRAP_USER), user.strip_prefix(NODE_USER)) {
        (Some(id), _) if !id.is_empty() && in_group(BOOTSTRAP_GROUP) => {
            Asker::BootstrapToken(id.to_owned())
        }
        (_, Some(name)) if !name.is_empty() && in_group(NODE_GROUP) => Asker::Node(name.to_owned()),
        _ => Asker::Stranger,
    }
}

/// What is known of a machine that the asker may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownMachine {
    pub name: String,
    /// The name its Node has or will have.
    pub node_name: String,
    /// Whether that Node was seen.
    pub has_node: bool,
    pub is_deleting: bool,
    /// IP addresses and DNS names, from the Machine's status.
    pub addresses: Vec<String>,
}

/// A request and the world around it.
pub struct Observed<'a> {
    pub request: &'a CertificateSigningRequest,
    /// Every machine whose token (or whose Node) is the [`asker`]'s: none or one in a sane world.
    pub machines: &'a [KnownMachine],
    pub now: Timestamp,
}

/// What becomes of a request.
#[derive(Debug, PartialEq)]
pub enum Decision {
    Approve {
        why: Approval,
    },
    Deny {
        why: Refusal,
    },
    /// Left to others, for good.
    Ignore {
        why: Refusal,
    },
    /// Looked at again after the time given, or when the machine changes.
    Wait {
        why: Refusal,
        after: Duration,
    },
}

/// Why a request is approved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Approval {
    #[error(
        "first client certificate of the Node of machine {machine:?}, asked for with its token"
    )]
    FirstClient { machine: String },
    #[error("renewed client certificate of the Node of machine {machine:?}")]
    RenewedClient { machine: String },
    #[error("serving certificate within the names and addresses of machine {machine:?}")]
    Serving { machine: String },
}

/// Why a request is not approved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("signer {signer:?} is not one for kubelets")]
    OtherSigner { signer: String },
    #[error("the request is decided already")]
    Decided,
    #[error("user {user:?} is neither a bootstrap token nor a Node")]
    Stranger { user: String },
    #[error("a bootstrap token may not ask for a serving certificate")]
    ServingByToken,
    #[error("no machine is known to user {user:?}")]
    UnknownMachine { user: String },
    #[error("machines {machines:?} share the identity of user {user:?}")]
    Ambiguous { user: String, machines: Vec<String> },
    #[error("machine {machine:?} is being deleted")]
    Deleting { machine: String },
    #[error("machine {machine:?} has joined already; its token is spent")]
    Joined { machine: String },
    #[error("usages {usages:?} are not those of this signer")]
    Usages { usages: Vec<String> },
    #[error("the request is {bytes} bytes, {REQUEST_BYTES_MAX} are allowed")]
    TooBig { bytes: usize },
    #[error("the request is not exactly one PEM block of a certificate request")]
    Malformed,
    #[error("the subject is not exactly one organisation {NODE_GROUP:?} and one common name")]
    Subject,
    #[error("common name {name:?} is not {expected:?}")]
    CommonName { name: String, expected: String },
    #[error("a client certificate has no alternative names")]
    ClientNames,
    #[error("a serving certificate needs a DNS name or an IP address")]
    NoNames,
    #[error("alternative name {name} is neither a DNS name nor an IP address")]
    NameKind { name: String },
    #[error("alternative name {name:?} does not belong to machine {machine:?}")]
    ForeignName { name: String, machine: String },
}

/// Decides on one request. Never panics, whatever the request holds.
pub fn decide(seen: &Observed) -> Decision {
    match judge(seen) {
        Ok(why) => Decision::Approve { why },
        Err(why) => refuse(seen, why),
    }
}

/// What belongs to others is ignored, what may be only early waits, the rest is denied.
fn refuse(seen: &Observed, why: Refusal) -> Decision {
    let created = seen.request.metadata.creation_timestamp.as_ref().map_or(seen.now, |time| time.0);
    let age = Duration::try_from(seen.now.duration_since(created)).unwrap_or_default();
    let wait = |why| Decision::Wait { why, after: SETTLING_CHECK };
    match why {
        Refusal::OtherSigner { .. } | Refusal::Decided | Refusal::Stranger { .. } => {
            Decision::Ignore { why }
        }
        Refusal::UnknownMachine { .. } if age < SETTLING_MAX => wait(why),
        Refusal::UnknownMachine { .. } => Decision::Ignore { why },
        Refusal::ForeignName { .. } if age < SETTLING_MAX => wait(why),
        _ => Decision::Deny { why },
    }
}

fn judge(seen: &Observed) -> Result<Approval, Refusal> {
    let spec = &seen.request.spec;
    let is_serving = match spec.signer_name.as_str() {
        CLIENT_SIGNER => false,
        SERVING_SIGNER => true,
        other => return Err(Refusal::OtherSigner { signer: other.to_owned() }),
    };
    if is_decided(seen.request) {
        return Err(Refusal::Decided);
    }
    let asker = asker(seen.request);
    let user = || spec.username.clone().unwrap_or_default();
    let machine = match (seen.machines, &asker) {
        (_, Asker::Stranger) => return Err(Refusal::Stranger { user: user() }),
        ([], _) => return Err(Refusal::UnknownMachine { user: user() }),
        ([machine], _) => machine,
        (machines, _) => {
            let machines = machines.iter().map(|machine| machine.name.clone()).collect();
            return Err(Refusal::Ambiguous { user: user(), machines });
        }
    };
    check_usages(spec, if is_serving { "server auth" } else { "client auth" })?;
    let names = parse(&spec.request.0, &machine.node_name)?;
    let machine_name = machine.name.clone();
    match asker {
        Asker::Stranger => Err(Refusal::Stranger { user: user() }),
        Asker::BootstrapToken(_) if is_serving => Err(Refusal::ServingByToken),
        Asker::Node(name) if name != machine.node_name => {
            let expected = format!("{NODE_USER}{name}");
            Err(Refusal::CommonName { name: machine.node_name.clone(), expected })
        }
        Asker::Node(_) if is_serving => {
            check_names(&names, machine)?;
            Ok(Approval::Serving { machine: machine_name })
        }
        _ if !names.is_empty() => Err(Refusal::ClientNames),
        Asker::Node(_) => Ok(Approval::RenewedClient { machine: machine_name }),
        Asker::BootstrapToken(_) if machine.is_deleting => {
            Err(Refusal::Deleting { machine: machine_name })
        }
        Asker::BootstrapToken(_) if machine.has_node => {
            Err(Refusal::Joined { machine: machine_name })
        }
        Asker::BootstrapToken(_) => Ok(Approval::FirstClient { machine: machine_name }),
    }
}

/// Whether somebody approved or denied it, or it is signed.
#[must_use]
pub fn is_decided(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let last = |kind: &str| matches!(kind, "Approved" | "Denied" | "Failed");
    status.certificate.is_some()
        || status.conditions.iter().flatten().any(|condition| last(&condition.type_))
}

/// Kubernetes: both signers want these usages exactly, and key encipherment for RSA keys only.
fn check_usages(spec: &CertificateSigningRequestSpec, auth: &str) -> Result<(), Refusal> {
    let asked: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let mut expected = BTreeSet::from(["digital signature", auth]);
    if asked == expected {
        return Ok(());
    }
    expected.insert("key encipherment");
    if asked == expected {
        return Ok(());
    }
    Err(Refusal::Usages { usages: asked.into_iter().map(str::to_owned).collect() })
}

/// An alternative name of the two kinds a kubelet may carry.
enum AlternativeName {
    Dns(String),
    Ip(IpAddr),
}

/// Checks the form and the subject of a request; its alternative names are left to the caller.
fn parse(pem: &[u8], node_name: &str) -> Result<Vec<AlternativeName>, Refusal> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";
    if pem.len() > REQUEST_BYTES_MAX {
        return Err(Refusal::TooBig { bytes: pem.len() });
    }
    if !pem.trim_ascii_start().starts_with(BEGIN) {
        return Err(Refusal::Malformed);
    }
    let (rest, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| Refusal::Malformed)?;
    if !rest.trim_ascii().is_empty() {
        return Err(Refusal::Malformed);
    }
    let (rest, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| Refusal::Malformed)?;
    if !rest.is_empty() {
        return Err(Refusal::Malformed);
    }
    check_subject(&request.certification_request_info.subject, node_name)?;
    alternative_names(&request)
}

fn check_subject(subject: &X509Name, node_name: &str) -> Result<(), Refusal> {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue| {
        attribute.as_str().map(str::to_owned).map_err(|_| Refusal::Subject)
    };
    let names: Vec<String> = subject.iter_common_name().map(text).collect::<Result<_, _>>()?;
    let groups: Vec<String> = subject.iter_organization().map(text).collect::<Result<_, _>>()?;
    let ([name], [group]) = (&names[..], &groups[..]) else { return Err(Refusal::Subject) };
    if group != NODE_GROUP || subject.iter_attributes().count() != 2 {
        return Err(Refusal::Subject);
    }
    let expected = format!("{NODE_USER}{node_name}");
    if *name != expected {
        return Err(Refusal::CommonName { name: name.clone(), expected });
    }
    Ok(())
}

/// Go, and so the signer, joins the extensions of all attributes of the kind; so all are looked at.
fn alternative_names(request: &X509CertificationRequest) -> Result<Vec<AlternativeName>, Refusal> {
    let mut names = Vec::new();
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute() else {
            continue;
        };
        for extension in &asked.extensions {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(alternative) => {
                    for name in &alternative.general_names {
                        names.push(alternative_name(name)?);
                    }
                }
                ParsedExtension::ParseError { .. } | ParsedExtension::Unparsed => {
                    return Err(Refusal::Malformed);
                }
                _ => {}
            }
        }
    }
    Ok(names)
}

fn alternative_name(name: &GeneralName) -> Result<AlternativeName, Refusal> {
    let ip = |bytes: &[u8]| {
        let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    match name {
        GeneralName::DNSName(dns) => Ok(AlternativeName::Dns((*dns).to_owned())),
        GeneralName::IPAddress(bytes) => {
            ip(bytes).map(AlternativeName::Ip).ok_or(Refusal::Malformed)
        }
        other => Err(Refusal::NameKind { name: other.to_string() }),
    }
}

fn check_names(names: &[AlternativeName], machine: &KnownMachine) -> Result<(), Refusal> {
    if names.is_empty() {
        return Err(Refusal::NoNames);
    }
    let is_own = |name: &AlternativeName| match name {
        AlternativeName::Dns(dns) => *dns == machine.node_name || machine.addresses.contains(dns),
        AlternativeName::Ip(ip) => {
            machine.addresses.iter().any(|own| own.parse::<IpAddr>().is_ok_and(|own| own == *ip))
        }
    };
    match names.iter().find(|name| !is_own(name)) {
        None => Ok(()),
        Some(foreign) => {
            let name = match foreign {
                AlternativeName::Dns(dns) => dns.clone(),
                AlternativeName::Ip(ip) => ip.to_string(),
            };
            Err(Refusal::ForeignName { name, machine: machine.name.clone() })
        }
    }
}

#[cfg(test)]
mod tests;
