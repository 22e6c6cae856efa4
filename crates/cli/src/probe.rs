//! What a manager tells those who watch it: metrics and whether it lives.

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use drover_controllers::metrics::Metrics;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// OpenMetrics: the media type of its text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics`, `/healthz` and `/readyz` until stopped.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let router = Router::new()
        .route(
            "/metrics",
            get(move || async move { ([(CONTENT_TYPE, OPEN_METRICS)], metrics.text()) }),
        )
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async { "ok" }));
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "metrics are no longer served");
        }
    });
    Ok(())
}
