//! `clouds.yaml` and `OS_*` variables, as every OpenStack client reads them.

use drover_provider::{Credentials, Error};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The environment as a value, so that tests bring their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The credentials a process is started with: the named cloud of the first `clouds.yaml` on the search
/// path, or the `OS_*` variables. `None` when there is neither.
///
/// # Errors
/// [`Error::Invalid`] when a file cannot be read or has no such cloud.
pub fn from_environment(
    cloud: Option<&str>,
    environment: Environment<'_>,
) -> Result<Option<Credentials>, Error> {
    let wanted = cloud.map(str::to_owned).or_else(|| environment("OS_CLOUD"));
    let wanted = wanted.filter(|name| !name.is_empty());
    if wanted.is_none()
        && let Some(found) = variables(environment)
    {
        return Ok(Some(found));
    }
    let Some(path) = search(environment, "OS_CLIENT_CONFIG_FILE", "clouds") else {
        return match wanted {
            None => Ok(None),
            Some(name) => Err(Error::Invalid(format!(
                "cloud {name:?} is wanted and there is no clouds.yaml; \
                 set OS_CLIENT_CONFIG_FILE or put it into ~/.config/openstack"
            ))),
        };
    };
    let mut file = parse(&read(&path)?, &path.display().to_string())?;
    if let Some(secure) = search(environment, "OS_CLIENT_SECURE_FILE", "secure") {
        merge(&mut file, parse(&read(&secure)?, &secure.display().to_string())?);
    }
    let place = path.display().to_string();
    let mut pairs = select(&file, wanted.as_deref(), &place)?;
    for name in ["cacert", "cert", "key"] {
        if let Some(file) = pairs.get_mut(name).filter(|value| !value.contains("-----BEGIN")) {
            *file = read(&home(environment, file))?;
        }
    }
    Ok(Some(pairs.into_iter().collect()))
}

/// Credentials in the form of the flat names: unfolds a `clouds.yaml` that a Secret holds whole
/// (Cluster API: keys `clouds.yaml` and `cacert`).
///
/// # Errors
/// [`Error::Invalid`] when the file does not parse or does not tell which cloud is meant.
pub fn unfold(given: &Credentials) -> Result<Credentials, Error> {
    let Some(text) = given.get("clouds.yaml") else { return Ok(given.clone()) };
    let file = parse(text, "key clouds.yaml")?;
    let wanted = ["cloud", "cloudName", "OS_CLOUD"].iter().find_map(|name| given.get(name));
    let mut pairs = select(&file, wanted, "key clouds.yaml")?;
    // A path means nothing outside the machine it was written on.
    for name in ["cacert", "cert", "key"] {
        pairs.retain(|key, value| key != name || value.contains("-----BEGIN"));
    }
    let rest = given.iter().filter(|(name, _)| *name != "clouds.yaml");
    pairs.extend(rest.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Ok(pairs.into_iter().collect())
}

fn variables(environment: Environment<'_>) -> Option<Credentials> {
    environment("OS_AUTH_URL").filter(|url| !url.is_empty())?;
    const VARIABLES: [&str; 21] = [
        "OS_AUTH_URL",
        "OS_USERNAME",
        "OS_USER_NAME",
        "OS_USER_ID",
        "OS_PASSWORD",
        "OS_DOMAIN_NAME",
        "OS_DOMAIN_ID",
        "OS_USER_DOMAIN_NAME",
        "OS_USER_DOMAIN_ID",
        "OS_PROJECT_DOMAIN_NAME",
        "OS_PROJECT_DOMAIN_ID",
        "OS_PROJECT_NAME",
        "OS_TENANT_NAME",
        "OS_PROJECT_ID",
        "OS_TENANT_ID",
        "OS_APPLICATION_CREDENTIAL_ID",
        "OS_APPLICATION_CREDENTIAL_NAME",
        "OS_APPLICATION_CREDENTIAL_SECRET",
        "OS_TOKEN",
        "OS_REGION_NAME",
        "OS_INTERFACE",
    ];
    let mut pairs: BTreeMap<String, String> = VARIABLES
        .iter()
        .filter_map(|name| environment(name).map(|value| ((*name).to_owned(), value)))
        .collect();
    if let Some(pem) = environment("OS_CACERT").and_then(|path| std::fs::read_to_string(path).ok())
    {
        pairs.insert("cacert".into(), pem);
    }
    if let Some(value) = environment("OS_INSECURE") {
        pairs.insert("insecure".into(), value);
    }
    Some(pairs.into_iter().collect())
}

/// The variable's file, else the first of the usual places.
fn search(environment: Environment<'_>, variable: &str, stem: &str) -> Option<PathBuf> {
    if let Some(path) = environment(variable).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let config = environment("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| environment("HOME").map(|home| Path::new(&home).join(".config")));
    let folders = [Some(PathBuf::from(".")), config.map(|it| it.join("openstack"))];
    let folders = folders.into_iter().flatten().chain([PathBuf::from("/etc/openstack")]);
    folders
        .flat_map(|folder| ["yaml", "yml"].map(|end| folder.join(format!("{stem}.{end}"))))
        .find(|path| path.is_file())
}

fn home(environment: Environment<'_>, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), environment("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.into(),
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::Invalid(format!("reading {}: {error}", path.display())))
}

/// The parser's own words are left out: they may quote the line.
fn parse(text: &str, place: &str) -> Result<Value, Error> {
    serde_saphyr::from_str(text).map_err(|_| Error::Invalid(format!("{place} is no YAML")))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The flat names of one cloud.
fn select(
    file: &Value,
    wanted: Option<&str>,
    place: &str,
) -> Result<BTreeMap<String, String>, Error> {
    let clouds = file.get("clouds").and_then(Value::as_object);
    let clouds =
        clouds.ok_or_else(|| Error::Invalid(format!("{place} has no section `clouds`")))?;
    let known = || clouds.keys().cloned().collect::<Vec<_>>().join(", ");
    let cloud = match wanted {
        Some(name) => clouds.get(name).ok_or_else(|| {
            Error::Invalid(format!("{place} has no cloud {name:?}; it has {}", known()))
        })?,
        None if clouds.len() == 1 => clouds.values().next().expect("it has one"),
        None => {
            return Err(Error::Invalid(format!(
                "{place} has several clouds ({}); name one with OS_CLOUD",
                known()
            )));
        }
    };
    if cloud.get("profile").is_some() {
        return Err(Error::Invalid(format!(
            "{place}: vendor profiles are not known here; write auth_url in place of `profile`"
        )));
    }
    let auth = cloud.get("auth").and_then(Value::as_object).into_iter().flatten();
    let rest = cloud.as_object().into_iter().flatten();
    Ok(rest.chain(auth).filter_map(|(key, value)| Some((key.clone(), plain(value)?))).collect())
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, Identity};

    const FILE: &str = "
clouds:
  one:
    auth: {auth_url: https://one/v3, username: u, password: p, project_name: x,
           user_domain_name: Default, project_domain_name: Default}
    region_name: dbl
    verify: false
  two:
    auth_type: v3applicationcredential
    auth: {auth_url: https://two, application_credential_id: i, application_credential_secret: s}
";

    fn secret(pairs: &[(&str, &str)]) -> Result<Account, Error> {
        Account::read(&unfold(&pairs.iter().copied().collect())?)
    }

    #[test]
    fn a_secret_holds_the_whole_file() {
        let account = secret(&[("clouds.yaml", FILE), ("cloudName", "one")]).unwrap();
        assert_eq!(account.region.as_deref(), Some("dbl"));
        assert!(account.tls.insecure);
        let account = secret(&[("clouds.yaml", FILE), ("cloud", "two")]).unwrap();
        assert!(matches!(account.identity, Identity::ApplicationCredential { .. }));
        assert_eq!(account.auth_url, "https://two/v3");
    }

    #[test]
    fn which_cloud_must_be_clear() {
        let text = secret(&[("clouds.yaml", FILE)]).unwrap_err().to_string();
        assert!(text.contains("several clouds (one, two)"), "{text}");
        let text = secret(&[("clouds.yaml", FILE), ("cloud", "three")]).unwrap_err().to_string();
        assert!(text.contains("no cloud \"three\"; it has one, two"), "{text}");
    }

    #[test]
    fn variables_serve_when_no_cloud_is_named() {
        let environment = |name: &str| match name {
            "OS_AUTH_URL" => Some("https://k".to_owned()),
            "OS_TOKEN" => Some("t".to_owned()),
            _ => None,
        };
        let found = from_environment(None, &environment).unwrap().unwrap();
        assert!(matches!(Account::read(&found).unwrap().identity, Identity::Token(_)));
    }

    #[test]
    fn a_named_cloud_without_a_file_is_an_error() {
        let nowhere = |name: &str| {
            matches!(name, "OS_CLIENT_CONFIG_FILE").then(|| "/nonexistent/clouds.yaml".to_owned())
        };
        assert!(from_environment(Some("one"), &nowhere).is_err());
    }
}
