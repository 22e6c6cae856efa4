//! The manager's own way to the API server: a token of its ServiceAccount, renewed before it expires.

use super::folder::Folder;
use anyhow::Context;
use drover_controllers::rbac;
use drover_lab::kubeconfig::{self, Access};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TOKEN_FILE: &str = "manager.token";
/// How long a token is asked for; the server may give less (Kubernetes: at least ten minutes).
const LIFE_SECONDS: i64 = 3600;
/// Before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// A kubeconfig of the manager, whose token is read anew from its file as it is renewed.
pub fn kubeconfig(folder: &Folder, admin: &Access) -> String {
    kubeconfig::with_token_file(&admin.server, &admin.ca_pem, &folder.file(TOKEN_FILE))
}

/// Who gets tokens for the manager.
pub struct Account {
    admin: Client,
    folder: Arc<Folder>,
}

impl Account {
    pub fn new(admin: Client, folder: Arc<Folder>) -> Self {
        Self { admin, folder }
    }

    /// Writes a new token to its file; when it expires.
    pub async fn renew(&self) -> anyhow::Result<Timestamp> {
        let accounts = Api::<ServiceAccount>::namespaced(self.admin.clone(), rbac::NAMESPACE);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(LIFE_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let name = rbac::SERVICE_ACCOUNT;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let status = answer
            .with_context(|| format!("asking for a token of ServiceAccount {name}"))?
            .status
            .with_context(|| format!("the API server gave no token of ServiceAccount {name}"))?;
        self.folder.secret(TOKEN_FILE, &status.token)?;
        Ok(status.expiration_timestamp.0)
    }

    /// Renews the token at half of its life, until stopped.
    pub async fn keep(self, expires: Timestamp, stop: CancellationToken) {
        let half = |expires| Timestamp::now().duration_until(expires).unsigned_abs() / 2;
        let mut wait = half(expires);
        while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            wait = match self.renew().await {
                Ok(expires) => half(expires).max(RETRY),
                Err(error) => {
                    tracing::warn!("the manager's token is not renewed: {error:#}");
                    RETRY
                }
            };
        }
    }
}
