//! What machines make of good and of broken user-data.

use super::*;
use std::io::Write as _;

const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn base64(text: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn ubuntu() -> String {
    include_str!("fixtures/ubuntu.yaml")
        .replace("HOSTNAME\nssh", "node-1\nssh")
        .replace("CA_BASE64", &base64(CA))
        .replace("SERVER", "https://api.example:6443")
        .replace("TOKEN", "abcdef.0123456789abcdef")
}

fn flatcar() -> String {
    let kubeconfig = "{clusters: [{name: a, cluster: {server: 'https://api.example', \
                      certificate-authority-data: CA}}], contexts: [{name: a, context: {cluster: a, \
                      user: a}}], current-context: a, users: [{name: a, user: {token: t}}]}"
        .replace("CA}", &format!("{}}}", base64(CA)));
    include_str!("fixtures/flatcar.json")
        .replace("HOSTNAME", "node-2")
        .replace("KUBECONFIG_BASE64", &base64(kubeconfig))
        .replace("SETUP_GZIP_BASE64", &base64(gzip(include_str!("fixtures/flatcar-setup.sh"))))
}

fn joins(user_data: &[u8]) -> Join {
    let boot = boot(user_data, "host-by-nova");
    boot.join.unwrap_or_else(|| panic!("does not join:\n{}", boot.console.join("\n")))
}

fn refused(user_data: &str, expect: &str) {
    let boot = boot(user_data.as_bytes(), "host-by-nova");
    assert!(boot.join.is_none(), "joins although it should say: {expect}");
    let console = boot.console.join("\n");
    assert!(console.contains(expect), "expected {expect:?} in:\n{console}");
}

#[test]
fn an_ubuntu_machine_joins_as_its_cloud_config_says() {
    for user_data in [ubuntu().into_bytes(), gzip(&ubuntu())] {
        let join = joins(&user_data);
        assert_eq!(join.node_name, "node-1");
        assert_eq!(join.version, "v1.30.3");
        assert_eq!(join.server, "https://api.example:6443");
        assert_eq!(join.ca_pem, CA);
        assert_eq!(join.token, "abcdef.0123456789abcdef");
        assert_eq!(join.labels["example.com/pool"], "blue");
        let taint = &join.taints[0];
        assert_eq!(
            (&taint.key[..], &taint.effect[..]),
            ("node.syseleven.de/not-ready", "NoSchedule")
        );
        assert!(join.cloud_external && join.serving_from_cluster);
        assert_eq!(join.reserved_cpu, ["200m", "200m"]);
    }
}

#[test]
fn a_flatcar_machine_joins_as_its_ignition_says() {
    let join = joins(flatcar().as_bytes());
    assert_eq!((&join.node_name[..], &join.version[..]), ("node-2", "v1.31.2"));
    assert!(join.cloud_external && join.serving_from_cluster && join.taints.is_empty());
}

#[test]
fn parts_of_a_mime_archive_count_together() {
    let script = "#!/bin/sh\nsystemctl start setup.service\n";
    let config =
        ubuntu().replace("  - [systemctl, enable, --now, --no-block, setup.service]\n", "");
    let archive = format!(
        "Content-Type: multipart/mixed; boundary=\"===b\"\nMIME-Version: 1.0\n\n--===b\n\
         Content-Type: text/cloud-config\n\n{config}\n--===b\nContent-Type: text/x-shellscript\n\
         Content-Transfer-Encoding: base64\n\n{}\n--===b--\n",
        base64(script)
    );
    assert_eq!(joins(archive.as_bytes()).node_name, "node-1");
}

#[test]
fn a_package_of_a_kubelet_counts_when_a_drop_in_tells_it_what_to_join() {
    let with_package = ubuntu()
        .replace(
            "path: /etc/systemd/system/kubelet.service",
            "path: /etc/systemd/system/kubelet.service.d/10.conf",
        )
        .replace(
            "      ExecStart=/opt/bin/kubelet",
            "      ExecStart=\n      ExecStart=/usr/bin/kubelet",
        )
        .replace("containerd\n      opt_bin", "containerd kubelet=1.32.1-1.1\n      opt_bin");
    assert_eq!(joins(with_package.as_bytes()).version, "v1.32.1");
}

#[test]
fn broken_user_data_says_why_no_node_joins() {
    let ubuntu = ubuntu();
    let without = |line: &str| {
        assert!(ubuntu.contains(line), "{line} is not in the fixture");
        ubuntu.replace(line, "")
    };
    refused("", "no user-data");
    refused("hello", "Unhandled non-multipart (text/x-not-multipart) userdata: 'hello...'");
    refused("#cloud-config\nruncmd: [a\nb: {", "Failed loading yaml blob");
    refused("#cloud-config\n{}", "there is no kubelet.service");
    refused(&without("            token: abcdef.0123456789abcdef\n"), "bootstrap kubeconfig");
    refused(&ubuntu.replace("abcdef.0123456789abcdef", "''"), "the user has no token");
    refused(&without("      systemctl enable --now kubelet\n"), "neither enabled nor started");
    refused(
        &ubuntu.replace("enable --now kubelet", "enable kubelet"),
        "kubelet.service is enabled, but nothing started it",
    );
    refused(
        &without("for bin in kubelet kubectl; do"),
        "syntax error near unexpected token `done'",
    );
    refused(
        &ubuntu.replace("for bin in kubelet kubectl", "for bin in kubectl"),
        "Unable to locate executable '/opt/bin/kubelet'",
    );
    refused(
        &without("        chmod +x \"$kube_dir/$bin\"\n"),
        "/opt/bin/kubelet: Permission denied",
    );
    refused(&ubuntu.replace("/linux/$arch/", "/linux/arm64/"), "Exec format error");
    refused(&without("      kind: KubeletConfiguration\n"), "failed to load kubelet config file");
    refused(
        &ubuntu.replace("clientCAFile: /etc", "clientCAFile: /nowhere"),
        "unable to load client CA file /nowhere/kubernetes/pki/ca.crt",
    );
    refused(
        &ubuntu.replace("--cert-dir", "--allow-privileged=true --cert-dir"),
        "unknown flag: --allow-privileged",
    );
    refused(
        &ubuntu.replace("example.com/pool", "node-role.kubernetes.io/worker"),
        "unknown 'kubernetes.io' or 'k8s.io' labels",
    );
    refused(&ubuntu.replace(":NoSchedule", ":NoWay"), "invalid taint effect: NoWay");
    refused(&ubuntu.replace("encoding: b64", "encoding: gz+b64"), "content is not gz+b64");
    refused(
        &ubuntu.replace("/opt/bin/setup\n\n", "/opt/bin/none\n\n"),
        "/opt/bin/none: No such file or directory",
    );
}

#[test]
fn broken_ignition_says_why_no_node_joins() {
    let flatcar = flatcar();
    refused("{", "Ignition failed: error at EOF");
    refused(&flatcar.replace("3.4.0", "1.0.0"), "unsupported config version \"1.0.0\"");
    refused(&flatcar.replace("\"enabled\": true,", ""), "nothing installed a kubelet binary");
    refused(&flatcar.replace("locksmithd", "kubelet"), "Unit kubelet.service is masked");
    refused(
        &flatcar.replace("data:,HOST", "https://x/HOST").replace("data:,node-2", "https://x/"),
        "cannot be fetched",
    );
    refused(
        &flatcar.replace("\"compression\": \"gzip\", ", ""),
        "/opt/bin/setup: Exec format error",
    );
}

#[test]
fn endless_scripts_end() {
    refused(
        "#cloud-config\nruncmd: ['while true; do sleep 1; done']",
        "still trying after 10 rounds",
    );
    refused("#!/bin/sh\nf() { f; f; }\nf", "more than");
}
