//! The cluster's certificate authority, and the certificate requests that nodes send to it.

use crate::apiserver::access::Memo;
use crate::clock::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

/// How long the authority itself is valid.
const AUTHORITY_DAYS: u64 = 3_650;
/// How long certificates are valid that are not asked for by a request.
const ISSUED_DAYS: u64 = 365;
/// Certificates begin this much earlier than now (Kubernetes: 5 min), so that clocks may differ.
const BACKDATE: Duration = Duration::from_secs(300);
/// Certificates remembered as checked; with more than these all are checked anew.
const CHECKED_MAX: usize = 20_000;

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text holds no certificate request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    /// The request is damaged or its signature is wrong.
    #[error("the certificate request cannot be used: {0}")]
    Unusable(String),
}

/// A certificate and its private key.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub cert_pem: String,
    /// The private key, PKCS #8.
    pub key_pem: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// What a certificate request asks to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// Subject CN.
    pub common_name: String,
    /// Subject O, all of them.
    pub organizations: Vec<String>,
    /// Alternative names that are DNS names.
    pub dns_names: Vec<String>,
    /// Alternative names that are addresses.
    pub addresses: Vec<IpAddr>,
    /// Alternative names of any other form: mail addresses, URIs.
    pub other_names: Vec<String>,
}

/// Who a client certificate was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Subject CN: the user.
    pub common_name: String,
    /// Subject O: the groups.
    pub organizations: Vec<String>,
    /// SHA-256 of the certificate, in hex.
    pub fingerprint: String,
}

#[derive(Clone)]
struct Checked {
    identity: Identity,
    until: i64,
}

/// Signs what the cluster trusts: servers, clients, and the requests of nodes.
pub struct Authority {
    clock: Clock,
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
    checked: Mutex<BTreeMap<Vec<u8>, Checked>>,
    secret: [u8; 32],
    rights: Memo,
}

impl Authority {
    /// A new authority with a key of its own, valid from the world's now on.
    #[must_use]
    pub fn new(clock: &Clock) -> Self {
        let key = new_key();
        let mut params = valid(clock, Duration::from_secs(AUTHORITY_DAYS * 86_400));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let certificate = params.self_signed(&key).expect("own parameters can be signed");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("own certificate is a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .expect("one root is enough");
        let secret = Sha256::digest(key.serialized_der()).into();
        Self {
            clock: *clock,
            issuer: Issuer::new(params, key),
            certificate_pem: certificate.pem(),
            verifier,
            checked: Mutex::default(),
            secret,
            rights: Memo::default(),
        }
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's own key, for a signer outside this process. Secret.
    #[must_use]
    pub fn ca_key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// What tokens of service accounts are signed with.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// What users were found to be granted; kept beside what tells who they are.
    pub(crate) fn rights(&self) -> &Memo {
        &self.rights
    }

    /// A serving certificate for these DNS names and addresses.
    #[must_use]
    pub fn issue_server(&self, names: &[&str]) -> Pair {
        let mut params = self.leaf(ExtendedKeyUsagePurpose::ServerAuth);
        params.distinguished_name.push(DnType::CommonName, *names.first().unwrap_or(&"server"));
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect();
        self.pair(&params)
    }

    /// A client certificate for this user in these groups, two at most.
    #[must_use]
    pub fn issue_client(&self, common_name: &str, organizations: &[&str]) -> Pair {
        let mut params = self.leaf(ExtendedKeyUsagePurpose::ClientAuth);
        subject(&mut params, common_name, organizations);
        self.pair(&params)
    }

    fn leaf(&self, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
        let mut params = valid(&self.clock, Duration::from_secs(ISSUED_DAYS * 86_400));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn pair(&self, params: &CertificateParams) -> Pair {
        let key = new_key();
        let certificate =
            params.signed_by(&key, &self.issuer).expect("own parameters can be signed");
        Pair { cert_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// Signs a request for these usages (in Kubernetes' words, as `client auth`) and this long.
    ///
    /// Subject and alternative names are those of the request; whoever calls has checked them.
    ///
    /// # Errors
    /// When the text is no request, names several organizations, or is not signed by the key it names.
    pub fn sign(&self, csr_pem: &str, usages: &[&str], length: Duration) -> Result<String, Error> {
        if parse(csr_pem)?.organizations.len() > 1 {
            return Err(Error::Unusable("it names more than one organization".to_owned()));
        }
        let unusable = |error: rcgen::Error| Error::Unusable(error.to_string());
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).map_err(unusable)?;
        let times = valid(&self.clock, length);
        csr.params.not_before = times.not_before;
        csr.params.not_after = times.not_after;
        csr.params.is_ca = IsCa::ExplicitNoCa;
        csr.params.use_authority_key_identifier_extension = true;
        csr.params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
        csr.params.extended_key_usages =
            usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        Ok(csr.signed_by(&self.issuer).map_err(unusable)?.pem())
    }

    /// Who a client certificate (DER) was made for, if this authority signed it for clients and it
    /// is valid now.
    #[must_use]
    pub fn identify(&self, der: &[u8]) -> Option<Identity> {
        let now = self.clock.now().as_second();
        let known = self.checked().get(der).cloned();
        if let Some(known) = known {
            return (now <= known.until).then_some(known.identity);
        }
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).ok()?));
        self.verifier.verify_client_cert(&CertificateDer::from_slice(der), &[], at).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
        let digest = Sha256::digest(der);
        let identity = Identity {
            common_name: common_name(parsed.subject()),
            organizations: organizations(parsed.subject()),
            fingerprint: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let until = parsed.validity().not_after.timestamp();
        let mut checked = self.checked();
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(der.to_vec(), Checked { identity: identity.clone(), until });
        Some(identity)
    }

    fn checked(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes what a kubelet makes before it asks for a certificate: a request and its private key.
#[must_use]
pub fn request(
    common_name: &str,
    organizations: &[&str],
    dns_names: &[&str],
    addresses: &[IpAddr],
) -> (String, String) {
    let key = new_key();
    let mut params = CertificateParams::default();
    subject(&mut params, common_name, organizations);
    let dns = dns_names.iter().map(|name| alternative(name));
    params.subject_alt_names =
        dns.chain(addresses.iter().copied().map(SanType::IpAddress)).collect();
    let csr = params.serialize_request(&key).expect("own parameters can be requested");
    (csr.pem().expect("a request is PEM"), key.serialize_pem())
}

/// Reads what a request asks for.
///
/// # Errors
/// When the text is no `CERTIFICATE REQUEST` or damaged.
pub fn parse(csr_pem: &str) -> Result<Requested, Error> {
    let (_, pem) =
        x509_parser::pem::parse_x509_pem(csr_pem.as_bytes()).map_err(|_| Error::NotARequest)?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(Error::NotARequest);
    }
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents)
        .map_err(|error| Error::Unusable(error.to_string()))?;
    let name = &csr.certification_request_info.subject;
    let mut requested = Requested {
        common_name: common_name(name),
        organizations: organizations(name),
        ..Requested::default()
    };
    for extension in csr.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            names.general_names.iter().for_each(|name| requested.take(name));
        }
    }
    Ok(requested)
}

impl Requested {
    fn take(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(dns) => self.dns_names.push((*dns).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                match v4.or(v6) {
                    Ok(address) => self.addresses.push(address),
                    Err(_) => self.other_names.push(name.to_string()),
                }
            }
            other => self.other_names.push(other.to_string()),
        }
    }
}

fn common_name(name: &X509Name<'_>) -> String {
    let last = name.iter_common_name().last();
    last.and_then(|value| value.as_str().ok()).unwrap_or_default().to_owned()
}

fn organizations(name: &X509Name<'_>) -> Vec<String> {
    name.iter_organization().filter_map(|value| value.as_str().ok()).map(str::to_owned).collect()
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the random source of the system gives a P-256 key")
}

fn valid(clock: &Clock, length: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let now = Duration::from_secs(u64::try_from(clock.now().as_second()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATE);
    params.not_after = epoch + now + length;
    params
}

fn subject(params: &mut CertificateParams, common_name: &str, groups: &[&str]) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    // A name of rcgen holds one value of each type; the type by number stands beside the type by word.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    assert!(groups.len() <= types.len(), "a certificate of the lab names at most two groups");
    for (kind, group) in types.into_iter().zip(groups) {
        params.distinguished_name.push(kind, *group);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
}

fn alternative(name: &str) -> SanType {
    match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into().expect("host names are ASCII")),
    }
}

fn key_usage(word: &str) -> Option<KeyUsagePurpose> {
    Some(match word {
        "digital signature" | "signing" => KeyUsagePurpose::DigitalSignature,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        _ => return None,
    })
}

fn extended_usage(word: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match word {
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" => ExtendedKeyUsagePurpose::EmailProtection,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Authority {
        let at = "2026-11-21T09:00:00Z".parse().expect("a time");
        Authority::new(&Clock::start(at))
    }

    fn der(pem: &str) -> Vec<u8> {
        x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM").1.contents
    }

    #[tokio::test(start_paused = true)]
    async fn a_signed_request_identifies_the_node_until_it_expires() {
        let authority = authority();
        let (csr, _) = request("system:node:n1", &["system:nodes"], &[], &[]);
        let usages = ["digital signature", "client auth"];
        let hour = Duration::from_secs(3_600);
        let certificate = der(&authority.sign(&csr, &usages, hour).expect("signed"));
        let identity = authority.identify(&certificate).expect("known");
        assert_eq!(identity.common_name, "system:node:n1");
        assert_eq!(identity.organizations, ["system:nodes"]);
        tokio::time::advance(hour + Duration::from_secs(1)).await;
        assert_eq!(authority.identify(&certificate), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_own_client_certificates_identify() {
        let (authority, other) = (authority(), authority());
        let foreign = other.issue_client("admin", &["system:masters"]);
        assert_eq!(authority.identify(&der(&foreign.cert_pem)), None);
        let server = authority.issue_server(&["localhost", "127.0.0.1"]);
        assert_eq!(authority.identify(&der(&server.cert_pem)), None);
        let own = authority.issue_client("admin", &["a", "system:masters"]);
        let identity = authority.identify(&der(&own.cert_pem)).expect("known");
        assert_eq!(identity.organizations, ["a", "system:masters"]);
    }

    #[test]
    fn a_request_tells_its_names() {
        let address = IpAddr::from([10, 0, 0, 7]);
        let (csr, key) = request("system:node:n1", &["system:nodes"], &["n1"], &[address]);
        let requested = parse(&csr).expect("a request");
        assert_eq!(requested.dns_names, ["n1"]);
        assert_eq!(requested.addresses, [address]);
        assert!(requested.other_names.is_empty());
        assert!(matches!(parse(&key), Err(Error::NotARequest)));
    }
}
