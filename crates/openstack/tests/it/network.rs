//! The real network: TLS on loopback, with an authority of the credentials' own, or none asked for.

use crate::world::{order, parameters};
use drover_lab::{
    clock::Clock,
    cloud::{Cloud, Config},
    pki::Authority,
};
use drover_openstack::{OpenStack, Setup};
use drover_provider::{Created, Credentials, Error, Memory, Provider};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// A cloud behind TLS; its credentials and the PEM of its authority.
async fn cloud() -> (Credentials, String) {
    let clock = Clock::start(jiff::Timestamp::now());
    let authority = Authority::new(&clock);
    let pair = authority.issue_server(&["127.0.0.1"]);
    let certificate = CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::demo(clock);
    config.base_url = format!("https://{}", listener.local_addr().unwrap());
    let cloud = Cloud::new(config);
    let credentials = OpenStack::credentials_of(&cloud.clouds_yaml(), "drover").unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(cloud.router()));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let serving = hyper::server::conn::http1::Builder::new();
                drop(serving.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    (credentials, authority.ca_pem().to_owned())
}

fn with(credentials: &Credentials, name: &str, value: &str) -> Credentials {
    credentials.iter().chain([(name, value)]).collect()
}

async fn order_over(credentials: Credentials) -> Result<Created, Error> {
    let provider = OpenStack::new(Setup::new(Some(credentials)));
    let order = order(1, parameters());
    match provider.create(&order, &Memory::default()).await? {
        Created::Record(memory) => provider.create(&order, &memory).await,
        other => Ok(other),
    }
}

#[tokio::test]
async fn who_is_trusted_is_in_the_credentials() {
    let (credentials, ca) = cloud().await;
    let trusted = order_over(with(&credentials, "cacert", &ca)).await;
    assert!(matches!(trusted, Ok(Created::Waiting { .. })), "{trusted:?}");

    let (credentials, _) = cloud().await;
    let unverified = order_over(with(&credentials, "verify", "false")).await;
    assert!(matches!(unverified, Ok(Created::Waiting { .. })), "{unverified:?}");

    let stranger = Authority::new(&Clock::start(jiff::Timestamp::now()));
    let refused = order_over(with(&credentials, "cacert", stranger.ca_pem())).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
}
