//! How a client of the lab reaches a server: in process, or over TLS with what its kubeconfig trusts and shows.

use crate::apiserver::{ApiServer, Peer};
use crate::client::Client;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper_rustls::ConfigBuilderExt as _;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

/// Any error of a connection.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer, read as it comes.
pub type Answer = UnsyncBoxBody<Bytes, BoxError>;
/// Whatever carries a request to a server and brings the answer back.
pub type Transport = BoxCloneSyncService<Request<Full<Bytes>>, Response<Answer>, BoxError>;

/// What a client shows to prove who it is.
#[derive(Clone)]
pub enum Credential {
    /// A bearer token: a bootstrap token or that of a ServiceAccount.
    Bearer(String),
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The certificate, the leaf first.
        cert_pem: String,
        /// Its private key.
        key_pem: String,
    },
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer(..)",
            Self::Certificate { .. } => "Certificate(..)",
        })
    }
}

/// Why a server cannot be dialled with what was given.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The CA is no PEM certificate.
    #[error("certificate-authority-data is no PEM certificate: {0}")]
    Authority(String),
    /// The CA is not the one that signed the server.
    #[error("tls: failed to verify certificate: x509: certificate signed by unknown authority")]
    UnknownAuthority,
    /// The client certificate or its key cannot be used.
    #[error("client certificate cannot be used: {0}")]
    Certificate(String),
    /// The server's address is not that of an API server.
    #[error("server \"{0}\" is not an https address")]
    Server(String),
    /// Nobody listens there.
    #[error("dial {0}: no such host")]
    Unreachable(String),
}

/// Makes a service of this process a transport.
pub fn in_process<S, B>(service: S) -> Transport
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(
        service
            .map_response(|answer: Response<B>| {
                answer.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into),
    )
}

/// A transport over plain HTTP.
#[must_use]
pub fn plain() -> Transport {
    in_process(legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>())
}

/// A transport to a server of the web: it trusts this CA alone, or those of the system.
///
/// # Errors
/// When the CA is no PEM certificate, or the system has none.
pub fn web(ca_pem: Option<&str>) -> Result<Transport, DialError> {
    let config = client_config()?;
    let config = match ca_pem {
        Some(pem) => config.with_root_certificates(roots(pem)?),
        None => config
            .with_native_roots()
            .map_err(|error| DialError::Authority(format!("none of this system's: {error}")))?,
    };
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .build();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    Ok(in_process(client))
}

fn client_config()
-> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, DialError> {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .map_err(|error| DialError::Certificate(error.to_string()))
}

/// A transport over TLS that trusts this CA alone.
pub fn tls(ca_pem: &str, who: &Credential) -> Result<Transport, DialError> {
    let config = client_config()?.with_root_certificates(roots(ca_pem)?);
    let config = match who {
        Credential::Bearer(_) => config.with_no_client_auth(),
        Credential::Certificate { cert_pem, key_pem } => {
            let chain = certificates(cert_pem).map_err(DialError::Certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
                .map_err(|error| DialError::Certificate(error.to_string()))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| DialError::Certificate(error.to_string()))?
        }
    };
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_all_versions()
        .build();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    Ok(in_process(client))
}

/// The certificates of a PEM text; the text tells why there is none.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if all.is_empty() { Err("no CERTIFICATE block in it".to_owned()) } else { Ok(all) }
}

fn roots(ca_pem: &str) -> Result<rustls::RootCertStore, DialError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca_pem).map_err(DialError::Authority)? {
        roots.add(certificate).map_err(|error| DialError::Authority(error.to_string()))?;
    }
    Ok(roots)
}

/// How the server URL of a kubeconfig is reached.
#[derive(Clone)]
pub enum Dialer {
    /// In this process; a client must name this URL and trust the server's CA, as over the network.
    InProcess {
        /// The server.
        api: ApiServer,
        /// The only URL that leads to it.
        url: String,
    },
    /// Over the network, with TLS.
    Tls,
}

impl Dialer {
    /// A client of the API server at this URL that trusts this CA and shows this credential.
    ///
    /// # Errors
    /// When the CA or the credential cannot be used; in process also when they do not fit the server.
    pub fn dial(&self, server: &str, ca_pem: &str, who: &Credential) -> Result<Client, DialError> {
        let server = server.trim_end_matches('/');
        if !server.starts_with("https://") {
            return Err(DialError::Server(server.to_owned()));
        }
        match self {
            Self::Tls => Ok(Client::new(tls(ca_pem, who)?).at(server).showing(who)),
            Self::InProcess { api, url } => {
                if server != url {
                    return Err(DialError::Unreachable(server.to_owned()));
                }
                let trusted = certificates(ca_pem).map_err(DialError::Authority)?;
                let own = certificates(api.pki().ca_pem()).map_err(DialError::Authority)?;
                if !own.iter().any(|own| trusted.contains(own)) {
                    return Err(DialError::UnknownAuthority);
                }
                let peer = match who {
                    Credential::Bearer(_) => Peer::Anonymous,
                    Credential::Certificate { cert_pem, .. } => {
                        let chain = certificates(cert_pem).map_err(DialError::Certificate)?;
                        Peer::Certificate(chain[0].to_vec())
                    }
                };
                Ok(Client::over(api.service(peer)).showing(who))
            }
        }
    }
}
