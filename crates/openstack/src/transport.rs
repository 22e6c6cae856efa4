//! How requests reach a cloud: one tower service, over TLS in production, in process in tests.

use crate::account::Tls;
use bytes::Bytes;
use drover_provider::Error;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use secrecy::ExposeSecret;
use std::{sync::Arc, time::Duration};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Failure>;
/// What carries a request to a cloud and brings the answer.
pub type Transport = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Failure>;

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub message: String,
    /// There was not even a connection: the cloud surely did nothing.
    pub unsent: bool,
}

impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        let client = error.downcast_ref::<hyper_util::client::legacy::Error>();
        let unsent = client.is_some_and(hyper_util::client::legacy::Error::is_connect);
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self { message, unsent }
    }
}

/// Makes the transport for a way of protecting connections.
pub type Dial = Arc<dyn Fn(&Tls) -> Result<Transport, Error> + Send + Sync>;

/// How long a TCP connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than proxies keep theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Any HTTP service as a transport, such as a simulated cloud's router.
pub fn of<S, B>(service: S) -> Transport
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let unified = service
        .map_response(|answer: Response<B>| {
            answer.map(|body| body.map_err(|error| Failure::from(error.into())).boxed_unsync())
        })
        .map_err(|error| Failure::from(error.into()));
    BoxCloneSyncService::new(unified)
}

/// The real network.
#[must_use]
pub fn network() -> Dial {
    Arc::new(|tls| {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build::<_, Full<Bytes>>(connector);
        Ok(of(client))
    })
}

fn tls_config(tls: &Tls) -> Result<ClientConfig, Error> {
    let crypto = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(format!("preparing TLS: {error}")))?;
    let builder = match &tls.ca {
        _ if tls.insecure => {
            tracing::warn!("the cloud's certificate is not verified: its credentials say so");
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(crypto)))
        }
        Some(pem) => builder.with_root_certificates(roots(pem)?),
        None => builder.with_native_roots().map_err(|error| {
            Error::Invalid(format!("this system's certificate authorities: {error}; give cacert"))
        })?,
    };
    let Some((certificate, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
        .map_err(|_| Error::Invalid("credentials: key is no PEM of a private key".into()))?;
    builder
        .with_client_auth_cert(certificates(certificate, "cert")?, key)
        .map_err(|_| Error::Invalid("credentials: cert and key do not fit together".into()))
}

fn roots(pem: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "cacert")? {
        roots.add(certificate).map_err(|error| {
            Error::Invalid(format!("credentials: cacert holds a bad certificate: {error}"))
        })?;
    }
    Ok(roots)
}

fn certificates(pem: &str, field: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match all {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::Invalid(format!("credentials: {field} is no PEM of certificates"))),
    }
}

/// Accepts whoever answers. Only for `verify: false`.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
