//! The user-data of each operating system and provisioning utility, byte for byte: the files beside this one.
//!
//! `RECORD=1` writes them anew. The judges of crates/sim/tests/it/judges.rs read them, too.

use drover_api::{IpFamily, Provisioning, SecretText};
use drover_plan::bootstrap::{
    BootstrapToken, Downloads, Input, KubeletSettings, OperatingSystem, Outside, Proxy, Registry,
    render,
};
use k8s_openapi::api::core::v1::Taint;
use std::path::{Path, PathBuf};

const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

fn simple(operating_system: OperatingSystem) -> Input {
    Input {
        machine_name: "nodes-7f9cd-00001".to_owned(),
        operating_system,
        kubelet_version: "1.34.1".to_owned(),
        ssh_keys: vec!["ssh-ed25519 AAAA me".to_owned()],
        api_server_url: "https://api.example:6443".to_owned(),
        cluster_ca_pem: CA.to_owned(),
        token: BootstrapToken::parse("abcdef.0123456789abcdef").expect("a token's form"),
        node_labels: [("group".to_owned(), "nodes".to_owned())].into(),
        taints: vec![Taint {
            key: "node.syseleven.de/not-ready".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }],
        cluster_dns: vec!["10.10.10.10".parse().expect("an address")],
        cluster_domain: "cluster.local".to_owned(),
        cloud_provider_external: true,
        ip_family: None,
        cloud_config: None,
        kubelet: KubeletSettings::default(),
        downloads: Downloads::default(),
        outside: Outside::default(),
    }
}

/// One with everything that can be asked for.
fn rich(operating_system: OperatingSystem) -> Input {
    let mut input = simple(operating_system);
    input.machine_name = "node-1.example.org".to_owned();
    input.ssh_keys.push("ecdsa-sha2-nistp256 BBBB \"you\": #1".to_owned());
    input.taints.push(Taint {
        key: "team".to_owned(),
        value: Some("a".to_owned()),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    });
    input.kubelet.max_pods = Some(200);
    input.kubelet.image_gc_high_threshold_percent = Some(70);
    input.kubelet.image_maximum_gc_age = Some("168h".parse().expect("a duration"));
    input.ip_family = Some(IpFamily::V6V4);
    input.cloud_config = Some(SecretText("[Global]\nregion = dbl\n".to_owned()));
    input.downloads.ca_pem = Some(CA.to_owned());
    input.downloads.kubernetes = "https://mirror.example/kubernetes".to_owned();
    input.outside.proxy = Some(Proxy {
        url: "http://proxy.example:3128".to_owned(),
        no_proxy: vec!["10.0.0.0/8".to_owned()],
    });
    for (host, mirror) in [("docker.io", "https://hub.example"), ("*", "https://all.example")] {
        let registry = Registry { mirrors: vec![mirror.to_owned()], insecure: false };
        input.outside.registries.insert(host.to_owned(), registry);
    }
    input
}

fn flatcar(disable: bool, provisioning: Provisioning) -> OperatingSystem {
    OperatingSystem::Flatcar {
        disable_auto_update: false,
        disable_locksmith: disable,
        disable_update_engine: disable,
        provisioning,
    }
}

fn cases() -> Vec<(&'static str, Input)> {
    let ubuntu = |dist_upgrade| OperatingSystem::Ubuntu { dist_upgrade };
    let (ignition, cloud_init) = (Provisioning::Ignition, Provisioning::CloudInit);
    let large = |mut input: Input| {
        input.ssh_keys = (0..1500).map(|n| format!("ssh-ed25519 AAAAC3Nz me@{n}")).collect();
        input
    };
    vec![
        ("ubuntu.yaml", simple(ubuntu(false))),
        ("ubuntu-rich.yaml", rich(ubuntu(true))),
        ("ubuntu-large.yaml.gz", large(rich(ubuntu(false)))),
        ("flatcar-ignition.json", simple(flatcar(false, ignition))),
        ("flatcar-ignition-rich.json", rich(flatcar(true, ignition))),
        ("flatcar-ignition-large.json", large(rich(flatcar(false, ignition)))),
        ("flatcar-cloud-init.yaml", simple(flatcar(false, cloud_init))),
        ("flatcar-cloud-init-rich.yaml", rich(flatcar(true, cloud_init))),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/userdata")
}

#[test]
fn every_system_boots_with_what_is_written_here() {
    for (name, input) in cases() {
        let path = folder().join(name);
        let rendered = render(&input).expect("a good input");
        if std::env::var_os("RECORD").is_some() {
            std::fs::write(&path, &rendered).expect("a folder of the tree");
        }
        let written = std::fs::read(&path).unwrap_or_default();
        assert!(
            rendered == written,
            "{name} changed; look at it with RECORD=1 and git diff:\n{}",
            String::from_utf8_lossy(&rendered)
        );
    }
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("a folder of the tree")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let mut cases: Vec<&str> = cases().into_iter().map(|(name, _)| name).collect();
    files.sort();
    cases.sort_unstable();
    assert_eq!(files, cases, "every file is a case");
}
