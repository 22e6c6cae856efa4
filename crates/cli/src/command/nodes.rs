//! What `manager` can be told about how nodes get their programs and images.

use anyhow::{Context, bail};
use drover_plan::bootstrap::{Outside, Proxy, checksums};
use drover_plan::machine::Cluster;
use std::path::{Path, PathBuf};

/// How nodes get at what is outside the cluster.
#[derive(clap::Args, Default)]
pub struct NodeArgs {
    /// Where nodes download the kubelet, instead of https://dl.k8s.io/release
    #[arg(long, value_name = "URL")]
    node_kubernetes_url: Option<String>,
    /// Where nodes download the CNI plugins, instead of their releases on GitHub
    #[arg(long, value_name = "URL")]
    node_cni_plugins_url: Option<String>,
    /// The certificates by which nodes trust these two, and no others; the system's by default
    #[arg(long, value_name = "FILE")]
    node_download_ca_file: Option<PathBuf>,
    /// SHA-256 of downloads as sha256sum prints them, such as `3f69.. v1.36.3/bin/linux/amd64/kubelet`; they win over those built in
    #[arg(long, value_name = "FILE")]
    node_checksums_file: Option<PathBuf>,
    /// The HTTP proxy of nodes, for downloads and images
    #[arg(long, value_name = "URL")]
    node_http_proxy: Option<String>,
    /// What nodes reach without the proxy besides the cluster, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', requires = "node_http_proxy")]
    node_no_proxy: Vec<String>,
    /// A mirror that nodes ask before a registry, such as docker.io=https://mirror.example; `*` is every registry. May be repeated
    #[arg(long, value_name = "REGISTRY=URL")]
    node_registry_mirror: Vec<String>,
    /// A registry whose certificate nodes do not check. May be repeated
    #[arg(long, value_name = "HOST")]
    node_insecure_registry: Vec<String>,
}

impl NodeArgs {
    /// Enters what was told into the settings of all nodes.
    ///
    /// # Errors
    /// When a file cannot be read or a mirror is not written as `REGISTRY=URL`.
    pub fn apply(self, nodes: &mut Cluster) -> anyhow::Result<()> {
        let downloads = &mut nodes.downloads;
        if let Some(url) = self.node_kubernetes_url {
            url.trim_end_matches('/').clone_into(&mut downloads.kubernetes);
        }
        if let Some(url) = self.node_cni_plugins_url {
            url.trim_end_matches('/').clone_into(&mut downloads.cni_plugins);
        }
        downloads.ca_pem = self.node_download_ca_file.as_deref().map(read).transpose()?;
        if let Some(path) = &self.node_checksums_file {
            downloads.checksums =
                checksums(&read(path)?).with_context(|| format!("in {}", path.display()))?;
        }
        let Outside { proxy, registries } = &mut nodes.outside;
        *proxy = self.node_http_proxy.map(|url| Proxy { url, no_proxy: self.node_no_proxy });
        for mirror in &self.node_registry_mirror {
            let Some((host, url)) = mirror.split_once('=') else {
                bail!(
                    "--node-registry-mirror {mirror:?}: write REGISTRY=URL, such as docker.io=https://mirror.example"
                );
            };
            registries.entry(host.to_owned()).or_default().mirrors.push(url.to_owned());
        }
        for host in self.node_insecure_registry {
            registries.entry(host).or_default().insecure = true;
        }
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_plan::bootstrap::{Downloads, KubeletSettings};

    #[test]
    fn what_is_told_is_what_nodes_get() {
        let mut nodes = Cluster {
            api_server_url: String::new(),
            ca_pem: String::new(),
            dns: vec![],
            domain: String::new(),
            kubelet: KubeletSettings::default(),
            downloads: Downloads::default(),
            outside: Outside::default(),
        };
        let mirror = |text: &str| vec![text.to_owned()];
        let args = NodeArgs {
            node_kubernetes_url: Some("https://mirror.example/k8s/".to_owned()),
            node_http_proxy: Some("http://proxy.example:3128".to_owned()),
            node_no_proxy: mirror("10.0.0.0/8"),
            node_registry_mirror: mirror("docker.io=https://hub.example"),
            node_insecure_registry: mirror("lab.example:5000"),
            ..NodeArgs::default()
        };
        args.apply(&mut nodes).expect("good arguments");
        assert_eq!(nodes.downloads.kubernetes, "https://mirror.example/k8s");
        assert_eq!(nodes.downloads.cni_plugins, Downloads::default().cni_plugins);
        assert_eq!(nodes.outside.proxy.as_ref().expect("a proxy").no_proxy, ["10.0.0.0/8"]);
        assert_eq!(nodes.outside.registries["docker.io"].mirrors, ["https://hub.example"]);
        assert!(nodes.outside.registries["lab.example:5000"].insecure);
        let wrong = NodeArgs { node_registry_mirror: mirror("docker.io"), ..NodeArgs::default() };
        let error = wrong.apply(&mut nodes).expect_err("no URL").to_string();
        assert!(error.contains("\"docker.io\": write REGISTRY=URL"), "{error}");
    }
}
