//! How a node gets at what is outside the cluster: downloads, a proxy, registries and their mirrors.

use super::files::{File, file};
use super::{Error, Input};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

/// Where the environment of a proxy is, for units to read.
pub(super) const PROXY_FILE: &str = "/etc/drover/proxy.env";
/// What downloads are trusted by when their server is not of the public kind.
const DOWNLOAD_CA: &str = "/etc/drover/downloads.crt";
/// Never asked of a proxy. MetaKube's list.
const NO_PROXY: [&str; 4] = [".svc", ".cluster.local", "localhost", "127.0.0.1"];
/// The SHA-256 that are built in, by the path below the server.
static KNOWN: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    checksums(include_str!("checksums.txt")).expect("the list is in the form of `sha256sum`")
});

/// Where the setup script takes its programs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloads {
    /// Serves `/v<version>/bin/linux/<arch>/kubelet`.
    pub kubernetes: String,
    /// Serves `/v<version>/cni-plugins-linux-<arch>-v<version>.tgz`.
    pub cni_plugins: String,
    /// PEM certificates to trust these servers by, and no others. Default: the system's.
    pub ca_pem: Option<String>,
    /// SHA-256 by the path below the server, such as `v1.36.3/bin/linux/amd64/kubelet`; they win over those
    /// built in. What is in neither is compared with the file `.sha256` that its server has beside it.
    pub checksums: BTreeMap<String, String>,
}

impl Default for Downloads {
    fn default() -> Self {
        Self {
            kubernetes: "https://dl.k8s.io/release".to_owned(),
            cni_plugins: "https://github.com/containernetworking/plugins/releases/download"
                .to_owned(),
            ca_pem: None,
            checksums: BTreeMap::new(),
        }
    }
}

impl Downloads {
    /// The SHA-256 of the file at this path; empty when it is not known beforehand.
    pub(super) fn checksum(&self, path: &str) -> String {
        self.checksums.get(path).or_else(|| KNOWN.get(path)).cloned().unwrap_or_default()
    }

    /// The options by which curl trusts these servers.
    pub(super) fn trust(&self) -> String {
        self.ca_pem.as_ref().map(|_| format!(" --cacert {DOWNLOAD_CA}")).unwrap_or_default()
    }
}

/// Reads SHA-256 as `sha256sum` writes them: 64 hexadecimal digits, blanks, the path.
///
/// # Errors
/// [`Error::Checksum`] with the line that has another form.
pub fn checksums(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let wrong = || Error::Checksum { line: line.to_owned() };
            let (sum, path) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let path = path.trim().trim_start_matches(['*', '.']).trim_start_matches('/');
            let is_hex = sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
            match is_hex && !path.is_empty() {
                true => Ok((path.to_owned(), sum.to_ascii_lowercase())),
                false => Err(wrong()),
            }
        })
        .collect()
}

/// What is between a node and the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Default: none.
    pub proxy: Option<Proxy>,
    /// By the host of a registry, such as `docker.io`; `*` stands for all that are not named.
    pub registries: BTreeMap<String, Registry>,
}

/// An HTTP proxy for downloads and images. Its URL may hold a password, so it does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Such as `http://proxy.example:3128`.
    pub url: String,
    /// Hosts, domains and ranges that are reached directly, besides those of the cluster.
    pub no_proxy: Vec<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy(<url>, not for {:?})", self.no_proxy)
    }
}

/// How one registry is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// URLs that are asked first, in this order.
    pub mirrors: Vec<String>,
    /// Whether its certificate may be anybody's.
    pub insecure: bool,
}

/// Refuses what could break out of its place.
pub(super) fn check(input: &Input) -> Result<(), Error> {
    let Downloads { kubernetes, cni_plugins, ca_pem, checksums: _ } = &input.downloads;
    for url in [kubernetes, cni_plugins] {
        if !super::is_plain_https(url) {
            return Err(Error::Download { url: url.clone() });
        }
    }
    if ca_pem.as_ref().is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
        return Err(Error::DownloadCa);
    }
    if let Some(Proxy { url, no_proxy }) = &input.outside.proxy {
        let scheme = url.starts_with("http://") || url.starts_with("https://");
        if !scheme || !is_plain(url) || !no_proxy.iter().all(|it| is_plain(it)) {
            return Err(Error::Proxy);
        }
    }
    for (host, registry) in &input.outside.registries {
        let name = host == "*" || super::is_dns_name(host.split(':').next().unwrap_or_default());
        let mirror = |url: &String| {
            is_plain(url) && (url.starts_with("https://") || url.starts_with("http://"))
        };
        if !name || !is_plain(host) || !registry.mirrors.iter().all(mirror) {
            return Err(Error::Registry { host: host.clone() });
        }
    }
    Ok(())
}

/// Whether a text stays what it is in a shell's word, in TOML and in systemd's environment files.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?@!&()*+,=%[]".contains(&b))
}

pub(super) fn files(input: &Input) -> Vec<File> {
    let mut files = Vec::new();
    if let Some(pem) = &input.downloads.ca_pem {
        files.push(file(DOWNLOAD_CA, 0o644, pem.clone()));
    }
    if let Some(proxy) = &input.outside.proxy {
        files.push(file(PROXY_FILE, 0o600, environment(proxy, &input.api_server_url)));
    }
    for (host, registry) in &input.outside.registries {
        let folder = if host == "*" { "_default" } else { host };
        let path = format!("/etc/containerd/certs.d/{folder}/hosts.toml");
        files.push(file(&path, 0o644, hosts(host, registry)));
    }
    files
}

/// In both cases: apt reads the small ones, Go programs either.
fn environment(proxy: &Proxy, api_server_url: &str) -> String {
    let Proxy { url, no_proxy } = proxy;
    let own = api_server_url.strip_prefix("https://").unwrap_or(api_server_url);
    let own = own.split(['/', ':']).next().unwrap_or_default();
    let direct = NO_PROXY.into_iter().chain([own]).chain(no_proxy.iter().map(String::as_str));
    let direct: Vec<&str> = direct.filter(|it| !it.is_empty()).collect();
    let direct = direct.join(",");
    let lines = [
        ("HTTP_PROXY", url),
        ("HTTPS_PROXY", url),
        ("NO_PROXY", &direct),
        ("http_proxy", url),
        ("https_proxy", url),
        ("no_proxy", &direct),
    ];
    lines.map(|(name, value)| format!("{name}={value}\n")).concat()
}

/// containerd: `hosts.toml` of one registry.
fn hosts(host: &str, registry: &Registry) -> String {
    let origin = match host {
        // Docker: the registry is not where its name says.
        "docker.io" => "https://registry-1.docker.io".to_owned(),
        host => format!("https://{host}"),
    };
    let mut text = String::new();
    let write = |text: &mut String, line: std::fmt::Arguments| {
        text.write_fmt(line).expect("a string takes every text");
    };
    if host != "*" {
        write(&mut text, format_args!("server = \"{origin}\"\n"));
    }
    for mirror in &registry.mirrors {
        write(
            &mut text,
            format_args!("\n[host.\"{mirror}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"),
        );
    }
    if registry.insecure && host != "*" {
        write(&mut text, format_args!("\n[host.\"{origin}\"]\nskip_verify = true\n"));
    }
    text.trim_start().to_owned()
}
