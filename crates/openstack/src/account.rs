//! Who we are to a cloud: where it is, how to log in, for which project; read from any dialect's names.

use drover_provider::{Credentials, Error};
use secrecy::{ExposeSecret, SecretString};

/// All that is needed to log in.
#[derive(Clone, Debug)]
pub struct Account {
    /// Keystone's address, ending in `/v3`.
    pub auth_url: String,
    pub identity: Identity,
    /// `None` for an application credential, which brings its own, or for the user's default project.
    pub project: Option<Named>,
    /// `None`: the only one of the catalogue.
    pub region: Option<String>,
    /// Which endpoint of the catalogue: `public` by default.
    pub interface: String,
    pub tls: Tls,
}

/// How to prove who we are.
#[derive(Clone, Debug)]
pub enum Identity {
    Password { user: Named, password: SecretString },
    ApplicationCredential { credential: Named, secret: SecretString },
    Token(SecretString),
}

/// A user, project or application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Id(String),
    /// A name, and what it is a name in: a domain, or the user of an application credential.
    Name {
        name: String,
        domain: Domain,
    },
    /// An application credential by name belongs to a user.
    OfUser {
        name: String,
        user: Box<Named>,
    },
}

/// A domain by one of its two names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    Id(String),
    Name(String),
}

/// How connections to the cloud are protected.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// PEM of the only authorities to trust; `None` for those of the system.
    pub ca: Option<String>,
    /// PEM of a client's certificate and key.
    pub client: Option<(String, SecretString)>,
    /// Accept any certificate.
    pub insecure: bool,
}

/// Every name of a value, most specific dialect first: clouds.yaml, MetaKube, Gardener, openrc.
pub struct Names(pub &'static [&'static str]);

pub const AUTH_URL: Names = Names(&["auth_url", "identityEndpoint", "authURL", "OS_AUTH_URL"]);
pub const USER_NAME: Names = Names(&["username", "OS_USERNAME", "OS_USER_NAME"]);
pub const USER_ID: Names = Names(&["user_id", "userID", "OS_USER_ID"]);
pub const PASSWORD: Names = Names(&["password", "OS_PASSWORD"]);
pub const DOMAIN_NAME: Names = Names(&["domain_name", "domainName", "OS_DOMAIN_NAME"]);
pub const DOMAIN_ID: Names = Names(&["domain_id", "domainID", "OS_DOMAIN_ID"]);
pub const USER_DOMAIN_NAME: Names =
    Names(&["user_domain_name", "userDomainName", "OS_USER_DOMAIN_NAME"]);
pub const USER_DOMAIN_ID: Names = Names(&["user_domain_id", "userDomainID", "OS_USER_DOMAIN_ID"]);
pub const PROJECT_DOMAIN_NAME: Names =
    Names(&["project_domain_name", "projectDomainName", "OS_PROJECT_DOMAIN_NAME"]);
pub const PROJECT_DOMAIN_ID: Names =
    Names(&["project_domain_id", "projectDomainID", "OS_PROJECT_DOMAIN_ID"]);
pub const PROJECT_NAME: Names = Names(&[
    "project_name",
    "projectName",
    "tenant_name",
    "tenantName",
    "OS_PROJECT_NAME",
    "OS_TENANT_NAME",
]);
pub const PROJECT_ID: Names =
    Names(&["project_id", "projectID", "tenant_id", "tenantID", "OS_PROJECT_ID", "OS_TENANT_ID"]);
pub const CREDENTIAL_ID: Names = Names(&[
    "application_credential_id",
    "applicationCredentialID",
    "OS_APPLICATION_CREDENTIAL_ID",
]);
pub const CREDENTIAL_NAME: Names = Names(&[
    "application_credential_name",
    "applicationCredentialName",
    "OS_APPLICATION_CREDENTIAL_NAME",
]);
pub const CREDENTIAL_SECRET: Names = Names(&[
    "application_credential_secret",
    "applicationCredentialSecret",
    "OS_APPLICATION_CREDENTIAL_SECRET",
]);
pub const TOKEN: Names = Names(&["token", "tokenId", "tokenID", "OS_TOKEN"]);
pub const REGION: Names = Names(&["region_name", "region", "OS_REGION_NAME"]);
pub const INTERFACE: Names = Names(&["interface", "endpoint_type", "OS_INTERFACE"]);
pub const CA: Names = Names(&["cacert", "caCert"]);
pub const CLIENT_CERTIFICATE: Names = Names(&["cert", "clientCert"]);
pub const CLIENT_KEY: Names = Names(&["key", "clientKey"]);
pub const INSECURE: Names = Names(&["insecure"]);
pub const VERIFY: Names = Names(&["verify"]);
pub const AUTH_TYPE: Names = Names(&["auth_type"]);

impl Names {
    pub fn find<'a>(&self, given: &'a Credentials) -> Option<&'a str> {
        self.0.iter().find_map(|name| given.get(name))
    }

    fn owned(&self, given: &Credentials) -> Option<String> {
        self.find(given).map(str::to_owned)
    }

    fn secret(&self, given: &Credentials) -> Option<SecretString> {
        self.find(given).map(SecretString::from)
    }

    fn need(&self, given: &Credentials, why: &str) -> Result<String, Error> {
        self.owned(given).ok_or_else(|| self.missing(why))
    }

    fn missing(&self, why: &str) -> Error {
        let names = self.0.join(", ");
        Error::Invalid(format!("credentials: {why} is missing; give one of {names}"))
    }
}

impl Account {
    /// Reads the flat names of a Secret, a section of clouds.yaml, a MetaKube description or openrc.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names what is missing, never a value.
    pub fn read(given: &Credentials) -> Result<Self, Error> {
        let url = AUTH_URL.need(given, "the address of Keystone")?;
        let identity = identity(given)?;
        let project = match identity {
            Identity::ApplicationCredential { .. } => None,
            Identity::Password { .. } | Identity::Token(_) => project(given)?,
        };
        let interface = INTERFACE.owned(given).unwrap_or_else(|| "public".into());
        Ok(Self {
            auth_url: keystone(&url),
            identity,
            project,
            region: REGION.owned(given),
            // python-openstackclient of old wrote `publicURL`.
            interface: interface.trim_end_matches("URL").to_owned(),
            tls: Tls {
                ca: CA.owned(given),
                client: CLIENT_CERTIFICATE.owned(given).zip(CLIENT_KEY.secret(given)),
                insecure: truth(INSECURE.find(given)) == Some(true)
                    || truth(VERIFY.find(given)) == Some(false),
            },
        })
    }

    /// All that must never be seen.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let secret = match &self.identity {
            Identity::Password { password: secret, .. }
            | Identity::ApplicationCredential { secret, .. }
            | Identity::Token(secret) => secret,
        };
        std::iter::once(secret.expose_secret())
    }
}

fn identity(given: &Credentials) -> Result<Identity, Error> {
    let kind = AUTH_TYPE.find(given).unwrap_or_default();
    let credential = match (CREDENTIAL_ID.owned(given), CREDENTIAL_NAME.owned(given)) {
        (Some(id), _) => Some(Named::Id(id)),
        (None, Some(name)) => Some(Named::OfUser { name, user: Box::new(user(given)?) }),
        (None, None) => None,
    };
    match (kind, credential) {
        ("" | "applicationcredential" | "v3applicationcredential", Some(credential)) => {
            let secret = CREDENTIAL_SECRET.secret(given).ok_or_else(|| {
                CREDENTIAL_SECRET.missing("the secret of the application credential")
            })?;
            return Ok(Identity::ApplicationCredential { credential, secret });
        }
        ("applicationcredential" | "v3applicationcredential", None) => {
            return Err(CREDENTIAL_ID.missing("the application credential"));
        }
        ("" | "password" | "v3password" | "token" | "v3token", _) => {}
        (other, _) => {
            return Err(Error::Invalid(format!(
                "credentials: auth_type {other:?} is not known; use password, \
                 v3applicationcredential or token"
            )));
        }
    }
    let password = PASSWORD.secret(given).filter(|_| !kind.ends_with("token"));
    match (password, TOKEN.secret(given).filter(|_| !kind.ends_with("password"))) {
        (Some(password), _) => Ok(Identity::Password { user: user(given)?, password }),
        (None, Some(token)) => Ok(Identity::Token(token)),
        (None, None) => Err(PASSWORD.missing("a password, token or application credential")),
    }
}

fn user(given: &Credentials) -> Result<Named, Error> {
    if let Some(id) = USER_ID.owned(given) {
        return Ok(Named::Id(id));
    }
    let name = USER_NAME.need(given, "the user")?;
    let domain = domain(given, &USER_DOMAIN_ID, &USER_DOMAIN_NAME)
        .ok_or_else(|| USER_DOMAIN_NAME.missing("the domain of the user"))?;
    Ok(Named::Name { name, domain })
}

fn project(given: &Credentials) -> Result<Option<Named>, Error> {
    if let Some(id) = PROJECT_ID.owned(given) {
        return Ok(Some(Named::Id(id)));
    }
    let Some(name) = PROJECT_NAME.owned(given) else { return Ok(None) };
    let domain = domain(given, &PROJECT_DOMAIN_ID, &PROJECT_DOMAIN_NAME)
        .or_else(|| domain(given, &USER_DOMAIN_ID, &USER_DOMAIN_NAME))
        .ok_or_else(|| PROJECT_DOMAIN_NAME.missing("the domain of the project"))?;
    Ok(Some(Named::Name { name, domain }))
}

/// MetaKube and Gardener: one domain serves user and project.
fn domain(given: &Credentials, id: &Names, name: &Names) -> Option<Domain> {
    let own = id.owned(given).map(Domain::Id).or(name.owned(given).map(Domain::Name));
    own.or_else(|| DOMAIN_ID.owned(given).map(Domain::Id))
        .or_else(|| DOMAIN_NAME.owned(given).map(Domain::Name))
}

/// Keystone's address with its version, however it was written.
pub fn keystone(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    if url.ends_with("/v3") { url.to_owned() } else { format!("{url}/v3") }
}

fn truth(text: Option<&str>) -> Option<bool> {
    match text?.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Account, Error> {
        Account::read(&pairs.iter().copied().collect())
    }

    #[test]
    fn metakube_names_with_one_domain() {
        let account = read(&[
            ("identityEndpoint", "https://k.example:5000/"),
            ("username", "u"),
            ("password", "p"),
            ("domainName", "d"),
            ("tenantName", "t"),
            ("region", "dbl"),
        ])
        .unwrap();
        assert_eq!(account.auth_url, "https://k.example:5000/v3");
        let domain = Domain::Name("d".into());
        assert_eq!(account.project, Some(Named::Name { name: "t".into(), domain }));
        assert_eq!(account.region.as_deref(), Some("dbl"));
    }

    #[test]
    fn an_application_credential_wins_over_a_password_and_has_no_project() {
        let account = read(&[
            ("authURL", "https://k/v3"),
            ("applicationCredentialID", "i"),
            ("applicationCredentialSecret", "s3cret"),
            ("username", "u"),
            ("password", "p"),
            ("tenantName", "t"),
            ("insecure", "true"),
        ])
        .unwrap();
        assert!(matches!(account.identity, Identity::ApplicationCredential { .. }));
        assert_eq!(account.project, None);
        assert!(account.tls.insecure);
        assert!(!format!("{account:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error =
            read(&[("OS_AUTH_URL", "https://k"), ("OS_USERNAME", "u"), ("OS_PASSWORD", "p")]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the domain of the user is missing"), "{text}");
        assert!(text.contains("OS_USER_DOMAIN_NAME"), "{text}");
    }
}
