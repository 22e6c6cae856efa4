//! Kubeconfigs: how one user reaches one API server, read and written as kubectl does.

use crate::client::Client;
use crate::dial::{Credential, DialError, Dialer};
use crate::pki::{Authority, Pair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::Path;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file: the kubeconfig or one that it names.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The text is no kubeconfig that this reads.
    #[error("kubeconfig {path}: {why}")]
    Content {
        /// The kubeconfig.
        path: String,
        /// The field and what is wrong with it.
        why: String,
    },
}

/// One user's way to one API server.
#[derive(Clone, Debug)]
pub struct Access {
    /// The URL of the API server.
    pub server: String,
    /// The CA that signed its certificate, PEM.
    pub ca_pem: String,
    /// What the user shows.
    pub who: Credential,
}

impl Access {
    /// That of a user of these groups, two at most, whom the cluster's authority vouches for.
    #[must_use]
    pub fn issued(server: &str, authority: &Authority, user: &str, groups: &[&str]) -> Self {
        let Pair { cert_pem, key_pem } = authority.issue_client(user, groups);
        Self {
            server: server.to_owned(),
            ca_pem: authority.ca_pem().to_owned(),
            who: Credential::Certificate { cert_pem, key_pem },
        }
    }

    /// Reads the current context of a kubeconfig; files it names are looked for beside it.
    ///
    /// # Errors
    /// When a file is missing, or the user is known by a plugin or a password.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text_of(path)?, &path.display().to_string(), folder)
    }

    fn parse(text: &str, path: &str, folder: &Path) -> Result<Self, Error> {
        let content = |why: String| Error::Content { path: path.to_owned(), why };
        let config: Value = serde_saphyr::from_str(text).map_err(|error| {
            content(error.to_string().lines().next().unwrap_or_default().to_owned())
        })?;
        let named = |list: &str, entry: &str, name: &Value| {
            let all = config[list].as_array().into_iter().flatten();
            let found = all.filter(|one| one["name"] == *name).map(|one| one[entry].clone()).next();
            found.ok_or_else(|| content(format!("{list}: no entry {name}")))
        };
        let context = named("contexts", "context", &config["current-context"])?;
        let cluster = named("clusters", "cluster", &context["cluster"])?;
        let user = named("users", "user", &context["user"])?;
        // Kubernetes: data in the kubeconfig wins over the file of the same name.
        let pem = |of: &Value, field: &str| -> Result<Option<String>, Error> {
            if let Some(data) = of[format!("{field}-data")].as_str() {
                let bytes = STANDARD.decode(data.trim()).ok();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                return text.map(Some).ok_or_else(|| content(format!("{field}-data is no base64")));
            }
            of[field].as_str().map(|file| text_of(&folder.join(file))).transpose()
        };
        let server = cluster["server"].as_str().unwrap_or_default().to_owned();
        let ca_pem = pem(&cluster, "certificate-authority")?
            .ok_or_else(|| content("the cluster has no certificate-authority".to_owned()))?;
        let cert_pem = pem(&user, "client-certificate")?;
        let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => Some(text_of(&folder.join(file))?.trim().to_owned()),
            (None, None) => None,
        };
        let who = match (cert_pem, pem(&user, "client-key")?, token) {
            (Some(cert_pem), Some(key_pem), _) => Credential::Certificate { cert_pem, key_pem },
            (_, _, Some(token)) => Credential::Bearer(token),
            _ => {
                let why = "the user has neither client-certificate and client-key nor a token";
                return Err(content(why.to_owned()));
            }
        };
        Ok(Self { server, ca_pem, who })
    }

    /// A kubeconfig that says the same; secret, for it holds the user's key or token.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let user = match &self.who {
            Credential::Bearer(token) => format!("    token: {token}\n"),
            Credential::Certificate { cert_pem, key_pem } => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(cert_pem),
                STANDARD.encode(key_pem)
            ),
        };
        with_user(&self.server, &self.ca_pem, &user)
    }

    /// A client that is this user.
    ///
    /// # Errors
    /// When the CA or the credential cannot be used.
    pub fn client(&self) -> Result<Client, DialError> {
        Dialer::Tls.dial(&self.server, &self.ca_pem, &self.who)
    }
}

/// A kubeconfig of a user whose token is in this file, which clients read anew as it changes.
#[must_use]
pub fn with_token_file(server: &str, ca_pem: &str, token_file: &Path) -> String {
    with_user(server, ca_pem, &format!("    tokenFile: {:?}\n", token_file.display().to_string()))
}

/// `user` are the lines below `user:`.
fn with_user(server: &str, ca_pem: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: drover\nclusters:\n- name: drover\n  \
         cluster:\n    server: {server}\n    certificate-authority-data: {}\ncontexts:\n- name: drover\n  \
         context:\n    cluster: drover\n    user: drover\nusers:\n- name: drover\n  user:\n{user}",
        STANDARD.encode(ca_pem),
    )
}

fn text_of(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|source| Error::Read { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Access, Error> {
        Access::parse(text, "test", Path::new("/nowhere"))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let ca_pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        let server = "https://127.0.0.1:6443".to_owned();
        for who in [
            Credential::Bearer("t".to_owned()),
            Credential::Certificate { cert_pem: "c".to_owned(), key_pem: "k".to_owned() },
        ] {
            let access = Access { server: server.clone(), ca_pem: ca_pem.clone(), who };
            let again = parse(&access.kubeconfig()).unwrap();
            assert_eq!((&again.server, &again.ca_pem), (&server, &ca_pem));
            assert_eq!(again.kubeconfig(), access.kubeconfig());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let good = with_user("https://a", "ca", "    username: me\n");
        for (text, word) in [
            (good.clone(), "neither client-certificate"),
            (good.replace("current-context: drover", "current-context: other"), "other"),
            (with_user("https://a", "ca", "    tokenFile: gone\n"), "/nowhere/gone"),
            ("{".to_owned(), "test"),
        ] {
            let said = parse(&text).unwrap_err().to_string();
            assert!(said.contains(word), "{word} is not in {said}");
        }
    }
}
