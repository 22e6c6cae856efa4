//! Keystone's words: the request for a token and what comes with one.

use crate::account::{Account, Domain, Identity, Named};
use drover_provider::Error;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The services a node provider talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Compute,
    Network,
    Image,
    Volume,
}

impl Service {
    const ALL: [Self; 4] = [Self::Compute, Self::Network, Self::Image, Self::Volume];

    /// The word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Network => "network",
            Self::Image => "image",
            Self::Volume => "volume",
        }
    }

    /// The types that catalogues use, best first.
    fn types(self) -> &'static [&'static str] {
        match self {
            Self::Compute => &["compute"],
            Self::Network => &["network"],
            Self::Image => &["image"],
            Self::Volume => &["block-storage", "volumev3", "block-store", "volume"],
        }
    }

    /// What an endpoint's address must end in.
    fn version(self) -> Option<&'static str> {
        match self {
            Self::Network => Some("/v2.0"),
            Self::Image => Some("/v2"),
            Self::Compute | Self::Volume => None,
        }
    }
}

/// A token and what it opens.
#[derive(Debug)]
pub struct Token {
    pub secret: SecretString,
    pub expires: Timestamp,
    /// The ID of the project.
    pub project: String,
    /// Addresses without a slash at the end, with the version in them.
    pub endpoints: BTreeMap<Service, String>,
}

/// The body of `POST /auth/tokens`.
#[must_use]
pub fn login(account: &Account) -> Value {
    let identity = match &account.identity {
        Identity::Password { user, password } => {
            let mut user = named(user);
            user["password"] = password.expose_secret().into();
            json!({"methods": ["password"], "password": {"user": user}})
        }
        Identity::ApplicationCredential { credential, secret } => {
            let mut credential = named(credential);
            credential["secret"] = secret.expose_secret().into();
            json!({"methods": ["application_credential"], "application_credential": credential})
        }
        Identity::Token(token) => {
            json!({"methods": ["token"], "token": {"id": token.expose_secret()}})
        }
    };
    match &account.project {
        Some(project) => {
            json!({"auth": {"identity": identity, "scope": {"project": named(project)}}})
        }
        None => json!({"auth": {"identity": identity}}),
    }
}

fn named(who: &Named) -> Value {
    match who {
        Named::Id(id) => json!({"id": id}),
        Named::Name { name, domain: Domain::Id(id) } => json!({"name": name, "domain": {"id": id}}),
        Named::Name { name, domain: Domain::Name(domain) } => {
            json!({"name": name, "domain": {"name": domain}})
        }
        Named::OfUser { name, user } => json!({"name": name, "user": named(user)}),
    }
}

#[derive(Deserialize)]
struct Body {
    token: TokenBody,
}

#[derive(Deserialize)]
struct TokenBody {
    expires_at: String,
    #[serde(default)]
    project: Option<Value>,
    #[serde(default)]
    catalog: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    region_id: Option<String>,
    #[serde(default)]
    url: String,
}

/// Reads the answer of a login.
///
/// # Errors
/// [`Error::Unauthenticated`] for a token without a project: Neutron and Cinder would answer it with
/// lists that lack everything of ours, and whoever believes those deletes or makes twice.
/// [`Error::Invalid`] when the region is unclear or no endpoint is left.
pub fn read(secret: &str, body: &[u8], account: &Account) -> Result<Token, Error> {
    let Ok(Body { token }) = serde_json::from_slice(body) else {
        return Err(Error::Unavailable {
            message: format!("{} answered a login with what is no token", account.auth_url),
            retry_after: None,
        });
    };
    let Some(project) = token.project else {
        return Err(Error::Unauthenticated(
            "the login gives a token without a project; name the project in the credentials".into(),
        ));
    };
    let expires = token.expires_at.parse().map_err(|_| Error::Unavailable {
        message: format!("token.expires_at {:?} is no time", token.expires_at),
        retry_after: None,
    })?;
    let project = project["id"].as_str().unwrap_or_default().to_owned();
    let endpoints = endpoints(&token.catalog, account)?;
    Ok(Token { secret: secret.into(), expires, project, endpoints })
}

fn endpoints(catalog: &[Entry], account: &Account) -> Result<BTreeMap<Service, String>, Error> {
    let mut found = BTreeMap::new();
    for service in Service::ALL {
        let entries = service
            .types()
            .iter()
            .filter_map(|kind| catalog.iter().find(|entry| entry.kind == *kind))
            .map(|entry| of_entry(entry, account));
        let Some(candidates) = entries.into_iter().find(|candidates| !candidates.is_empty()) else {
            continue;
        };
        let urls: BTreeSet<&str> = candidates.iter().map(|it| it.url.as_str()).collect();
        if urls.len() > 1 {
            let regions: Vec<_> = candidates.iter().map(|it| it.region()).collect();
            return Err(Error::Invalid(format!(
                "the cloud has several regions ({}); name one as region",
                regions.join(", ")
            )));
        }
        found.extend(urls.first().map(|url| (service, with_version(url, service))));
    }
    if found.is_empty() {
        let all = catalog.iter().flat_map(|entry| &entry.endpoints);
        let all: BTreeSet<String> =
            all.map(|it| format!("{} {}", it.region(), it.interface)).collect();
        return Err(Error::Invalid(format!(
            "the catalogue of {} has no {} endpoint{}; region and interface may be: {}",
            account.auth_url,
            account.interface,
            account.region.as_ref().map(|it| format!(" in region {it:?}")).unwrap_or_default(),
            all.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    Ok(found)
}

impl Endpoint {
    fn region(&self) -> &str {
        self.region.as_deref().or(self.region_id.as_deref()).unwrap_or_default()
    }
}

fn of_entry<'a>(entry: &'a Entry, account: &Account) -> Vec<&'a Endpoint> {
    let wanted = |it: &&Endpoint| {
        it.interface == account.interface
            && account.region.as_deref().is_none_or(|region| {
                [&it.region, &it.region_id].into_iter().any(|own| own.as_deref() == Some(region))
            })
    };
    entry.endpoints.iter().filter(wanted).collect()
}

fn with_version(url: &str, service: Service) -> String {
    let url = url.trim_end_matches('/');
    match service.version() {
        Some(version) if !url.ends_with(version) => format!("{url}{version}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(pairs: &[(&str, &str)]) -> Account {
        let base = [("auth_url", "https://k"), ("token", "t")];
        Account::read(&base.iter().chain(pairs).copied().collect()).unwrap()
    }

    fn body(project: bool) -> Vec<u8> {
        let endpoint = |region: &str, interface: &str, url: &str| json!({"region": region, "region_id": region, "interface": interface, "url": url});
        let project = project.then(|| json!({"id": "p"}));
        let body = json!({"token": {
            "expires_at": "2026-11-21T02:38:12.000000Z", "project": project,
            "catalog": [
                {"type": "compute", "endpoints": [
                    endpoint("a", "public", "https://a/v2.1/"), endpoint("a", "internal", "https://i"),
                    endpoint("b", "public", "https://b/v2.1")]},
                {"type": "network", "endpoints": [endpoint("a", "public", "https://a:9696")]},
                {"type": "volumev3", "endpoints": [endpoint("a", "public", "https://a:8776/v3")]},
            ],
        }});
        serde_json::to_vec(&body).unwrap()
    }

    #[test]
    fn the_catalogue_is_read_by_region_and_interface() {
        let token = read("t", &body(true), &account(&[("region", "a")])).unwrap();
        assert_eq!(token.endpoints[&Service::Compute], "https://a/v2.1");
        assert_eq!(token.endpoints[&Service::Network], "https://a:9696/v2.0");
        assert_eq!(token.endpoints[&Service::Volume], "https://a:8776/v3");
        assert!(!token.endpoints.contains_key(&Service::Image));
    }

    #[test]
    fn an_unclear_region_is_an_error_that_names_them() {
        let text = read("t", &body(true), &account(&[])).unwrap_err().to_string();
        assert!(text.contains("several regions (a, b)"), "{text}");
    }

    #[test]
    fn a_token_without_a_project_is_refused() {
        let error = read("t", &body(false), &account(&[("region", "a")])).unwrap_err();
        assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
    }

    #[test]
    fn an_application_credential_brings_no_scope() {
        let pairs = [
            ("auth_url", "https://k"),
            ("application_credential_name", "n"),
            ("application_credential_secret", "s"),
            ("username", "u"),
            ("domain_name", "d"),
        ];
        let login = login(&Account::read(&pairs.into_iter().collect()).unwrap());
        assert!(login["auth"].get("scope").is_none());
        let credential = &login["auth"]["identity"]["application_credential"];
        assert_eq!(credential["user"], json!({"name": "u", "domain": {"name": "d"}}));
    }
}
