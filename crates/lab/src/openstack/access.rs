//! Who logs in where: a section of clouds.yaml, read by its own names.

use super::Error;
use crate::dial::{self, Transport};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One user's way to one cloud.
#[derive(Clone)]
pub struct Access {
    /// Keystone's URL, ending in `/v3`.
    pub(super) auth_url: String,
    /// The body of the login. Secret.
    pub(super) login: Value,
    /// None for any.
    pub(super) region: Option<String>,
    pub(super) interface: String,
    pub(super) transport: Transport,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("auth_url", &self.auth_url).finish_non_exhaustive()
    }
}

/// What was given, by the names of clouds.yaml, those below `auth` beside the others.
struct Given<'a>(BTreeMap<&'a str, &'a str>);

impl Access {
    /// Reads the values of one cloud of a clouds.yaml, those below `auth` beside the others and `cacert` as PEM, not as a
    /// file's name.
    ///
    /// # Errors
    /// When something is missing, or certificates are not to be verified.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let given = Given(pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect());
        if given.get("verify").is_some_and(|text| text.eq_ignore_ascii_case("false")) {
            return Err(Error::Unfit(
                "verify: false is not for what can read every server's user-data; give cacert",
            ));
        }
        let url = given.need("auth_url")?.trim_end_matches('/');
        let auth_url = if url.ends_with("/v3") { url.to_owned() } else { format!("{url}/v3") };
        let transport =
            if url.starts_with("https:") { dial::web(given.get("cacert"))? } else { dial::plain() };
        let interface = given.get("interface").or(given.get("endpoint_type")).unwrap_or("public");
        Ok(Self {
            auth_url,
            login: given.login()?,
            region: given.get("region_name").map(str::to_owned),
            // As older clients wrote it: publicURL.
            interface: interface.trim_end_matches("URL").to_owned(),
            transport,
        })
    }

    /// The same by another way, as to a cloud of this process.
    #[must_use]
    pub fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }
}

impl<'a> Given<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn need(&self, name: &str) -> Result<&'a str, Error> {
        self.get(name).ok_or_else(|| Error::Missing(name.to_owned()))
    }

    /// The body of `POST /auth/tokens`.
    fn login(&self) -> Result<Value, Error> {
        if let Some(secret) = self.get("application_credential_secret") {
            let mut credential = match self.get("application_credential_id") {
                Some(id) => json!({"id": id}),
                None => json!({
                    "name": self.need("application_credential_name")?,
                    "user": self.named("user", "username")?,
                }),
            };
            credential["secret"] = secret.into();
            // Keystone: it brings its project; with a scope the answer is 401.
            return Ok(json!({"auth": {"identity": {
                "methods": ["application_credential"], "application_credential": credential,
            }}}));
        }
        let identity = match self.get("password") {
            Some(password) => {
                let mut user = self.named("user", "username")?;
                user["password"] = password.into();
                json!({"methods": ["password"], "password": {"user": user}})
            }
            None => json!({"methods": ["token"], "token": {"id": self.need("token")
                .map_err(|_| Error::Missing("password, token or application credential".to_owned()))?}}),
        };
        let project = self.named("project", "project_name")?;
        Ok(json!({"auth": {"identity": identity, "scope": {"project": project}}}))
    }

    /// A user or project by id, or by name and domain.
    fn named(&self, what: &str, name: &str) -> Result<Value, Error> {
        if let Some(id) = self.get(&format!("{what}_id")) {
            return Ok(json!({"id": id}));
        }
        let of = |field: &str| {
            let own = self.get(&format!("{what}_domain_{field}"));
            own.or_else(|| self.get(&format!("domain_{field}")))
        };
        let domain = match (of("id"), of("name")) {
            (Some(id), _) => json!({"id": id}),
            (None, Some(name)) => json!({"name": name}),
            // As every client has it where nothing is said.
            (None, None) => json!({"id": "default"}),
        };
        Ok(json!({"name": self.need(name)?, "domain": domain}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(pairs: &[(&str, &str)]) -> Result<Value, String> {
        let url = ("auth_url", "http://k:5000/");
        let access = Access::of(std::iter::once(url).chain(pairs.iter().copied()));
        access.map(|access| access.login["auth"].clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_way_to_log_in_is_what_keystone_takes() {
        let password = [("username", "u"), ("password", "p"), ("project_id", "x")];
        assert_eq!(
            login(&password).unwrap(),
            json!({
                "identity": {"methods": ["password"], "password": {"user": {
                    "name": "u", "domain": {"id": "default"}, "password": "p"}}},
                "scope": {"project": {"id": "x"}},
            })
        );
        let credential =
            [("application_credential_id", "i"), ("application_credential_secret", "s")];
        assert_eq!(
            login(&credential).unwrap(),
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "i", "secret": "s"}}})
        );
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_secret_is_printed() {
        let without = login(&[("username", "u"), ("project_name", "x")]).unwrap_err();
        assert!(without.ends_with("has no password, token or application credential"), "{without}");
        let blind = login(&[("verify", "False")]).unwrap_err();
        assert!(blind.contains("give cacert"), "{blind}");
        let pairs = [("auth_url", "http://k/v3"), ("token", "s3cret"), ("project_id", "x")];
        assert!(!format!("{:?}", Access::of(pairs).unwrap()).contains("s3cret"));
    }
}
