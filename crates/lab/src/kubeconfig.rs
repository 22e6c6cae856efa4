//! Kubeconfigs of users that the cluster's authority vouches for.

use crate::pki::{Authority, Pair};
use base64::Engine as _;

/// A kubeconfig of a user of these groups, two at most, who is known by a client certificate. Secret.
#[must_use]
pub fn of(server: &str, authority: &Authority, user: &str, groups: &[&str]) -> String {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let Pair { cert_pem, key_pem } = authority.issue_client(user, groups);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: drover\nclusters:\n- name: drover\n  \
         cluster:\n    server: {server}\n    certificate-authority-data: {}\ncontexts:\n- name: drover\n  \
         context:\n    cluster: drover\n    user: {user:?}\nusers:\n- name: {user:?}\n  user:\n    \
         client-certificate-data: {}\n    client-key-data: {}\n",
        base64(authority.ca_pem()),
        base64(&cert_pem),
        base64(&key_pem),
    )
}
