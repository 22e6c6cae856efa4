//! What a machine's credentials leave out, taken from those the manager was started with.
//!
//! MetaKube: for a value that a description does not name stands the variable `OS_*` of the manager. Here, too, but nothing of
//! the manager's goes to another Keystone than its own, and one way to log in is never mixed with another.

use crate::account::{self, Account, Names, keystone};
use crate::clouds_yaml::unfold;
use drover_provider::{Credentials, Error};
use std::collections::BTreeMap;

/// Names of one thing in several forms: they come from one side, for a domain by its ID and another by its name would be two.
type Thing = &'static [&'static Names];

const USER: Thing = &[&account::USER_NAME, &account::USER_ID];
const PASSWORD: Thing = &[&account::PASSWORD];
const APPLICATION_CREDENTIAL: Thing =
    &[&account::CREDENTIAL_ID, &account::CREDENTIAL_NAME, &account::CREDENTIAL_SECRET];
const TOKEN: Thing = &[&account::TOKEN];
const LOGIN: [Thing; 5] = [USER, PASSWORD, APPLICATION_CREDENTIAL, TOKEN, &[&account::AUTH_TYPE]];
const DOMAIN: Thing = &[
    &account::DOMAIN_NAME,
    &account::DOMAIN_ID,
    &account::USER_DOMAIN_NAME,
    &account::USER_DOMAIN_ID,
    &account::PROJECT_DOMAIN_NAME,
    &account::PROJECT_DOMAIN_ID,
];
const TLS: Thing = &[
    &account::CA,
    &account::CLIENT_CERTIFICATE,
    &account::CLIENT_KEY,
    &account::INSECURE,
    &account::VERIFY,
];
/// What does not hang on the way to log in.
const REST: [Thing; 6] = [
    &[&account::AUTH_URL],
    DOMAIN,
    &[&account::PROJECT_NAME, &account::PROJECT_ID],
    &[&account::REGION],
    &[&account::INTERFACE],
    TLS,
];

/// Reads the given credentials, completed with the manager's when there are any.
///
/// # Errors
/// [`Error::Invalid`] that names what is missing, never a value.
pub fn read(
    given: &Credentials,
    manager: Option<&Credentials>,
) -> Result<(Credentials, Account), Error> {
    let given = unfold(given)?;
    let Some(manager) = manager.map(unfold).transpose()? else {
        let account = Account::read(&given)?;
        return Ok((given, account));
    };
    let all = complete(&given, &manager);
    match Account::read(&all) {
        Ok(account) => Ok((all, account)),
        Err(Error::Invalid(why)) if is_elsewhere(&given, &manager) => Err(Error::Invalid(format!(
            "{why}; nothing of the manager's stands in, for its Keystone is another one"
        ))),
        Err(error) => Err(error),
    }
}

/// Whether these are for another Keystone than the manager's.
fn is_elsewhere(given: &Credentials, manager: &Credentials) -> bool {
    let at = |of: &Credentials| account::AUTH_URL.find(of).map(keystone);
    at(given).is_some_and(|url| at(manager) != Some(url))
}

/// The given credentials, and the manager's where they name nothing.
fn complete(given: &Credentials, manager: &Credentials) -> Credentials {
    let mut all: BTreeMap<&str, &str> =
        given.iter().filter(|(_, value)| !value.is_empty()).collect();
    if !is_elsewhere(given, manager) {
        let is_named = |thing: &Thing| thing.iter().any(|names| names.find(given).is_some());
        let mut add = |thing: &Thing| {
            for name in thing.iter().flat_map(|names| names.0) {
                all.extend(manager.get(name).map(|value| (*name, value)));
            }
        };
        let login: &[Thing] = match LOGIN.iter().any(is_named) {
            false => &LOGIN,
            true if is_named(&APPLICATION_CREDENTIAL) || is_named(&TOKEN) => &[],
            // A user and a password belong together.
            true => &[USER, PASSWORD],
        };
        login.iter().chain(&REST).filter(|thing| !is_named(thing)).for_each(&mut add);
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Domain, Identity, Named};

    const MANAGER: [(&str, &str); 7] = [
        ("OS_AUTH_URL", "https://k:5000"),
        ("OS_USERNAME", "manager"),
        ("OS_PASSWORD", "managers"),
        ("OS_USER_DOMAIN_NAME", "d"),
        ("OS_PROJECT_DOMAIN_NAME", "d"),
        ("OS_PROJECT_NAME", "p"),
        ("cacert", "PEM"),
    ];

    fn with(given: &[(&str, &str)], manager: &[(&str, &str)]) -> Credentials {
        complete(&given.iter().copied().collect(), &manager.iter().copied().collect())
    }

    fn read(given: &[(&str, &str)]) -> Account {
        Account::read(&with(given, &MANAGER)).unwrap()
    }

    fn of(name: &str, domain: &str) -> Named {
        Named::Name { name: name.into(), domain: Domain::Name(domain.into()) }
    }

    #[test]
    fn each_value_that_is_not_named_is_the_managers() {
        let account = read(&[("identityEndpoint", "https://k:5000/v3/"), ("projectName", "other")]);
        let Identity::Password { user, .. } = &account.identity else { panic!("{account:?}") };
        assert_eq!((user, &account.project), (&of("manager", "d"), &Some(of("other", "d"))));
        assert_eq!(account.tls.ca.as_deref(), Some("PEM"));
        let account = read(&[("username", "me"), ("password", "mine"), ("domainName", "e")]);
        let Identity::Password { user, .. } = &account.identity else { panic!("{account:?}") };
        assert_eq!((user, &account.project), (&of("me", "e"), &Some(of("p", "e"))));
        assert_eq!(account.secrets().collect::<Vec<_>>(), ["mine"]);
        let account = read(&[("username", "me"), ("password", "")]);
        assert_eq!(account.secrets().collect::<Vec<_>>(), ["managers"]);
    }

    #[test]
    fn a_way_to_log_in_is_not_mixed_with_another() {
        let given = [("applicationCredentialID", "i"), ("applicationCredentialSecret", "s")];
        let account = read(&given);
        assert!(matches!(account.identity, Identity::ApplicationCredential { .. }));
        assert_eq!(account.auth_url, "https://k:5000/v3");
        let manager = [
            ("auth_url", "https://k:5000"),
            ("auth_type", "v3applicationcredential"),
            ("application_credential_id", "i"),
            ("application_credential_secret", "s"),
        ];
        let given = [("username", "me"), ("password", "mine"), ("domainName", "e")];
        let account = Account::read(&with(&given, &manager)).unwrap();
        assert!(matches!(account.identity, Identity::Password { .. }), "{account:?}");
        let account = Account::read(&with(&[("region", "r")], &manager)).unwrap();
        assert!(matches!(account.identity, Identity::ApplicationCredential { .. }));
        assert_eq!(account.region.as_deref(), Some("r"));
    }

    #[test]
    fn nothing_of_the_managers_goes_to_another_keystone() {
        for url in ["https://k:5000.evil/v3", "http://k:5000", "https://k"] {
            let all = with(&[("identityEndpoint", url), ("username", "me")], &MANAGER);
            let names: Vec<&str> = all.iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["identityEndpoint", "username"], "{url}");
        }
    }
}
