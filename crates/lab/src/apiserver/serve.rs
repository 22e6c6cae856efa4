//! The server on a socket: TLS with optional client certificates, HTTP/1.1 and HTTP/2.

use super::{ApiServer, Peer};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long open requests may go on after the server was told to stop; watches would go on for ever.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Names the server's certificate is good for.
const NAMES: [&str; 6] =
    ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

impl ApiServer {
    /// Serves connections until told to stop.
    ///
    /// # Errors
    /// When the listener fails or TLS cannot be set up.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let acceptor = TlsAcceptor::from(Arc::new(self.tls().map_err(std::io::Error::other)?));
        let mut open = JoinSet::new();
        loop {
            let (socket, _) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted?,
                Some(_) = open.join_next() => continue,
            };
            open.spawn(converse(self.clone(), acceptor.clone(), socket, stop.clone()));
        }
        while open.join_next().await.is_some() {}
        Ok(())
    }

    fn tls(&self) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
        let pair = self.pki().issue_server(&NAMES);
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AnyCertificate { provider }))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

async fn converse(
    server: ApiServer,
    acceptor: TlsAcceptor,
    socket: TcpStream,
    stop: CancellationToken,
) {
    // Watch events are small and must not wait for more.
    let _ = socket.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await else {
        return;
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let peer = shown.map_or(Peer::Anonymous, |leaf| Peer::Certificate(leaf.to_vec()));
    let service = TowerToHyperService::new(server.service(peer));
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A client that hangs up is no news.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(STOP_GRACE, connection).await;
}

/// Takes any client certificate whose key the client holds; who signed it is looked at per request.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
