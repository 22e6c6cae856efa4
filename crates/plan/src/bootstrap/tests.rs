//! What a server is given, seen as the server sees it.

use super::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use std::io::Read;

const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const UBUNTU: OperatingSystem = OperatingSystem::Ubuntu { dist_upgrade: false };
const FLATCAR: OperatingSystem = OperatingSystem::Flatcar {
    disable_auto_update: true,
    disable_locksmith: false,
    disable_update_engine: false,
    provisioning: Provisioning::Ignition,
};

fn input(operating_system: OperatingSystem) -> Input {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    Input {
        machine_name: "nodes-7f9cd-00001".to_owned(),
        operating_system,
        kubelet_version: "v1.30.3".to_owned(),
        ssh_keys: vec![" ssh-ed25519 AAAA me ".to_owned(), "ssh-ed25519 AAAA me".to_owned()],
        api_server_url: "https://127.0.0.1:6443".to_owned(),
        cluster_ca_pem: CA.to_owned(),
        token: BootstrapToken::parse("abcdef.0123456789abcdef").unwrap(),
        node_labels: map(&[("group", "nodes"), ("node-role.kubernetes.io/worker", "")]),
        taints: vec![Taint {
            key: "node.syseleven.de/not-ready".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }],
        cluster_dns: vec!["10.10.10.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        cloud_provider_external: true,
        ip_family: None,
        cloud_config: None,
        kubelet: KubeletSettings::default(),
        downloads: Downloads::default(),
        outside: Outside::default(),
    }
}

/// path -> (mode, content) as the server's file system shows them after the boot.
type Disk = BTreeMap<String, (u32, String)>;

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn cloud_init(bytes: &[u8]) -> (Value, Disk) {
    let unpacked = bytes.starts_with(&[0x1f, 0x8b]).then(|| gunzip(bytes));
    let text = unpacked.as_deref().unwrap_or_else(|| std::str::from_utf8(bytes).unwrap());
    let config: Value =
        serde_saphyr::from_str(text.strip_prefix("#cloud-config\n").unwrap()).unwrap();
    let disk = config["write_files"].as_array().unwrap().iter().map(|file| {
        let content = file["content"].as_str().unwrap();
        let content = content.to_owned();
        let mode = u32::from_str_radix(file["permissions"].as_str().unwrap(), 8).unwrap();
        (file["path"].as_str().unwrap().to_owned(), (mode, content))
    });
    (config.clone(), disk.collect())
}

fn resource(resource: &Value) -> String {
    let source = resource["source"].as_str().unwrap();
    let bytes = match source.strip_prefix("data:;base64,") {
        Some(base64) => BASE64_STANDARD.decode(base64).unwrap(),
        None => unescape(source.strip_prefix("data:,").unwrap()),
    };
    match resource["compression"].as_str() {
        Some("gzip") => gunzip(&bytes),
        Some(other) => panic!("unknown compression {other}"),
        None => String::from_utf8(bytes).unwrap(),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let (first, rest) = text.split_once('%').unwrap_or((text, ""));
    let rest = rest.split('%').filter(|part| !part.is_empty()).flat_map(|part| {
        let code = u8::from_str_radix(&part[..2], 16).unwrap();
        std::iter::once(code).chain(part.bytes().skip(2))
    });
    first.bytes().chain(rest).collect()
}

fn ignition(bytes: &[u8]) -> (Value, Disk) {
    let config: Value = serde_json::from_slice(bytes).unwrap();
    let replace = &config["ignition"]["config"]["replace"];
    if replace.is_object() {
        return ignition(resource(replace).as_bytes());
    }
    let files = config["storage"]["files"].as_array().unwrap().iter().map(|file| {
        let mode = file["mode"].as_u64().unwrap() as u32;
        (file["path"].as_str().unwrap().to_owned(), (mode, resource(&file["contents"])))
    });
    (config.clone(), files.collect())
}

fn listing(disk: &Disk) -> String {
    let lines = disk.iter().map(|(path, (mode, _))| format!("{mode:04o} {path}\n"));
    lines.collect()
}

#[test]
fn ubuntu_boots_into_these_files_and_commands() {
    let (config, disk) = cloud_init(&render(&input(UBUNTU)).unwrap());
    insta::assert_snapshot!(listing(&disk), @r"
    0644 /etc/containerd/config.toml
    0644 /etc/crictl.yaml
    0600 /etc/kubernetes/bootstrap-kubelet.conf
    0644 /etc/kubernetes/kubelet.conf
    0644 /etc/kubernetes/pki/ca.crt
    0644 /etc/modules-load.d/kubernetes.conf
    0644 /etc/sysctl.d/90-kubernetes.conf
    0644 /etc/systemd/journald.conf.d/size.conf
    0644 /etc/systemd/system/drover-setup.service
    0644 /etc/systemd/system/kubelet.service
    0755 /opt/drover/setup
    ");
    let mut rest = config;
    rest.as_object_mut().unwrap().remove("write_files");
    insta::assert_json_snapshot!(rest, @r#"
    {
      "hostname": "nodes-7f9cd-00001",
      "prefer_fqdn_over_hostname": true,
      "runcmd": [
        [
          "systemctl",
          "daemon-reload"
        ],
        [
          "systemctl",
          "enable",
          "--now",
          "--no-block",
          "drover-setup.service"
        ]
      ],
      "ssh_authorized_keys": [
        "ssh-ed25519 AAAA me"
      ],
      "ssh_pwauth": false
    }
    "#);
}

#[test]
fn flatcar_boots_into_these_files_and_units() {
    let (config, disk) = ignition(&render(&input(FLATCAR)).unwrap());
    insta::assert_snapshot!(listing(&disk), @r"
    0644 /etc/containerd/config.toml
    0644 /etc/crictl.yaml
    0644 /etc/hostname
    0600 /etc/kubernetes/bootstrap-kubelet.conf
    0644 /etc/kubernetes/kubelet.conf
    0644 /etc/kubernetes/pki/ca.crt
    0644 /etc/modules-load.d/kubernetes.conf
    0644 /etc/sysctl.d/90-kubernetes.conf
    0644 /etc/systemd/journald.conf.d/size.conf
    0755 /opt/drover/setup
    ");
    insta::assert_json_snapshot!(config["passwd"], @r#"
    {
      "users": [
        {
          "name": "core",
          "sshAuthorizedKeys": [
            "ssh-ed25519 AAAA me"
          ]
        }
      ]
    }
    "#);
    let units = config["systemd"]["units"].as_array().unwrap().iter().map(|unit| {
        let flag = |name: &str| unit[name].as_bool().unwrap_or_default();
        let (name, drop_ins) = (&unit["name"], unit["dropins"].as_array().map_or(0, Vec::len));
        format!("{name} enabled={} mask={} dropins={drop_ins}", flag("enabled"), flag("mask"))
    });
    insta::assert_snapshot!(units.collect::<Vec<_>>().join("\n"), @r#"
    "containerd.service" enabled=false mask=false dropins=1
    "drover-setup.service" enabled=true mask=false dropins=0
    "kubelet.service" enabled=false mask=false dropins=0
    "locksmithd.service" enabled=false mask=true dropins=0
    "update-engine.service" enabled=false mask=true dropins=0
    "#);
}

#[test]
fn the_kubelet_is_told_who_it_is() {
    let (_, disk) = cloud_init(&render(&input(UBUNTU)).unwrap());
    insta::assert_snapshot!(disk["/etc/systemd/system/kubelet.service"].1, @r"
    [Unit]
    Description=Kubernetes node agent
    Wants=network-online.target containerd.service
    After=network-online.target containerd.service
    StartLimitIntervalSec=0

    [Service]
    ExecStart=/opt/bin/kubelet \
      --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
      --kubeconfig=/var/lib/kubelet/kubeconfig \
      --config=/etc/kubernetes/kubelet.conf \
      --cert-dir=/var/lib/kubelet/pki \
      --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
      --cloud-provider=external \
      --node-labels=group=nodes \
      --register-with-taints=node.syseleven.de/not-ready=:NoSchedule
    Restart=always
    RestartSec=10
    CPUAccounting=true
    MemoryAccounting=true

    [Install]
    WantedBy=multi-user.target
    ");
    insta::assert_snapshot!(disk["/etc/kubernetes/bootstrap-kubelet.conf"].1, @r"
    apiVersion: v1
    kind: Config
    clusters:
    - name: cluster
      cluster:
        certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
        server: https://127.0.0.1:6443
    contexts:
    - name: cluster
      context:
        cluster: cluster
        user: kubelet-bootstrap
    current-context: cluster
    users:
    - name: kubelet-bootstrap
      user:
        token: abcdef.0123456789abcdef
    ");
}

#[test]
fn the_kubelet_is_configured_as_metakube_does() {
    let (_, disk) = cloud_init(&render(&input(UBUNTU)).unwrap());
    insta::assert_snapshot!(disk["/etc/kubernetes/kubelet.conf"].1, @r#"
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    authentication:
      anonymous:
        enabled: false
      webhook:
        enabled: true
      x509:
        clientCAFile: /etc/kubernetes/pki/ca.crt
    authorization:
      mode: Webhook
    cgroupDriver: systemd
    clusterDNS:
    - "10.10.10.10"
    clusterDomain: cluster.local
    containerLogMaxFiles: 5
    containerLogMaxSize: 100Mi
    evictionHard:
      imagefs.available: 15%
      memory.available: 100Mi
      nodefs.available: 10%
      nodefs.inodesFree: 5%
    kubeReserved:
      cpu: 200m
      ephemeral-storage: 1Gi
      memory: 200Mi
    maxParallelImagePulls: 10
    protectKernelDefaults: true
    readOnlyPort: 0
    resolvConf: /run/systemd/resolve/resolv.conf
    rotateCertificates: true
    serializeImagePulls: false
    serverTLSBootstrap: true
    staticPodPath: /etc/kubernetes/manifests
    systemReserved:
      cpu: 200m
      ephemeral-storage: 1Gi
      memory: 200Mi
    tlsMinVersion: VersionTLS12
    volumePluginDir: /var/lib/kubelet/volumeplugins
    "#);
}

#[test]
fn both_systems_get_the_same_kubelet() {
    let (_, ubuntu) = cloud_init(&render(&input(UBUNTU)).unwrap());
    let (config, flatcar) = ignition(&render(&input(FLATCAR)).unwrap());
    for path in ["/etc/kubernetes/bootstrap-kubelet.conf", "/etc/kubernetes/kubelet.conf"] {
        assert_eq!(ubuntu[path], flatcar[path], "{path}");
    }
    let units = config["systemd"]["units"].as_array().unwrap();
    let unit = units.iter().find(|unit| unit["name"] == "kubelet.service").unwrap();
    assert_eq!(unit["contents"], *ubuntu["/etc/systemd/system/kubelet.service"].1);
}

#[test]
fn the_setup_script_installs_the_exact_kubelet() {
    for (disk, runtime) in [
        (cloud_init(&render(&input(UBUNTU)).unwrap()).1, "apt-mark hold containerd"),
        (ignition(&render(&input(FLATCAR)).unwrap()).1, "systemctl restart containerd.service"),
    ] {
        let script = &disk["/opt/drover/setup"].1;
        let url = "\"https://dl.k8s.io/release/v1.30.3/bin/linux/${arch}/kubelet\"";
        for line in [url, runtime, "systemctl enable --now kubelet.service"] {
            assert!(script.contains(line), "{line} is missing");
        }
        assert!(!script.contains('@') || script.contains("[@]"), "a placeholder stayed");
        assert_bash_parses(script);
    }
}

fn assert_bash_parses(script: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut bash) = bash else {
        eprintln!("no bash here: the script's syntax stays unchecked");
        return;
    };
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn equal_input_gives_equal_bytes() {
    for system in [UBUNTU, FLATCAR] {
        assert_eq!(render(&input(system.clone())).unwrap(), render(&input(system)).unwrap());
    }
}

/// MetaKube: `package_upgrade` and `package_reboot_if_required`.
#[test]
fn a_distribution_upgrade_is_asked_of_cloud_init() {
    let system = OperatingSystem::Ubuntu { dist_upgrade: true };
    let (config, _) = cloud_init(&render(&input(system)).unwrap());
    assert_eq!(config["package_upgrade"], true);
    assert_eq!(config["package_reboot_if_required"], true);
}

#[test]
fn what_is_too_long_in_plain_is_packed_whole_and_the_same() {
    let long = format!("ssh-ed25519 {} me", "AAAA".repeat(15_000));
    for system in [UBUNTU, FLATCAR] {
        let unpack =
            |bytes: &[u8]| if system == UBUNTU { cloud_init(bytes).1 } else { ignition(bytes).1 };
        let plain = render(&input(system.clone())).unwrap();
        let packed =
            render(&Input { ssh_keys: vec![long.clone()], ..input(system.clone()) }).unwrap();
        assert!(packed.len() < plain.len(), "{} is not below {}", packed.len(), plain.len());
        assert_eq!(unpack(&packed), unpack(&plain));
    }
}

#[test]
fn a_checksum_that_is_known_is_not_asked_of_the_download_server() {
    let script =
        |input: &Input| cloud_init(&render(input).unwrap()).1["/opt/drover/setup"].1.clone();
    let mut input = input(UBUNTU);
    input.kubelet_version = "v1.33.0".to_owned();
    let known = "kubelet_sha256=dd416d94850c342226d3dcdce838518b040ccea16548bfeaf2595934af88ef60\n";
    assert!(script(&input).contains(known), "it is built in");
    let (own, path) = ("ab".repeat(32), "v1.33.0/bin/linux/amd64/kubelet");
    input.downloads.checksums = checksums(&format!("# mine\n{own}  ./{path}\n")).unwrap();
    assert!(script(&input).contains(&format!("kubelet_sha256={own}\n")), "one's own wins");
    input.kubelet_version = "v1.30.3".to_owned();
    assert!(script(&input).contains("kubelet_sha256=\n"), "the server tells");
    let error = checksums("abc  kubelet").unwrap_err().to_string();
    assert!(error.starts_with("\"abc  kubelet\" is no checksum; write lines as"), "{error}");
}

#[test]
fn a_node_behind_a_proxy_with_mirrors_is_told_so() {
    let mut input = input(FLATCAR);
    input.operating_system = OperatingSystem::Flatcar {
        disable_auto_update: false,
        disable_locksmith: false,
        disable_update_engine: false,
        provisioning: Provisioning::Ignition,
    };
    let url = "http://me:secret@proxy.example:3128".to_owned();
    input.outside.proxy = Some(Proxy { url, no_proxy: vec!["10.0.0.0/8".to_owned()] });
    let mirrors = vec!["https://mirror.example/v2/hub".to_owned()];
    let registry = Registry { mirrors, insecure: false };
    input.outside.registries.insert("docker.io".to_owned(), registry);
    let insecure = Registry { mirrors: vec![], insecure: true };
    input.outside.registries.insert("lab.example:5000".to_owned(), insecure);
    let (config, disk) = ignition(&render(&input).unwrap());
    insta::assert_snapshot!(disk["/etc/drover/proxy.env"].1, @r"
    HTTP_PROXY=http://me:secret@proxy.example:3128
    HTTPS_PROXY=http://me:secret@proxy.example:3128
    NO_PROXY=.svc,.cluster.local,localhost,127.0.0.1,127.0.0.1,10.0.0.0/8
    http_proxy=http://me:secret@proxy.example:3128
    https_proxy=http://me:secret@proxy.example:3128
    no_proxy=.svc,.cluster.local,localhost,127.0.0.1,127.0.0.1,10.0.0.0/8
    ");
    assert_eq!(disk["/etc/drover/proxy.env"].0, 0o600);
    insta::assert_snapshot!(disk["/etc/containerd/certs.d/docker.io/hosts.toml"].1, @r#"
    server = "https://registry-1.docker.io"

    [host."https://mirror.example/v2/hub"]
    capabilities = ["pull", "resolve"]
    "#);
    insta::assert_snapshot!(disk["/etc/containerd/certs.d/lab.example:5000/hosts.toml"].1, @r#"
    server = "https://lab.example:5000"

    [host."https://lab.example:5000"]
    skip_verify = true
    "#);
    let units = config["systemd"]["units"].as_array().unwrap();
    for name in ["containerd.service", "update-engine.service"] {
        let unit = units.iter().find(|unit| unit["name"] == name).unwrap();
        let drop_in = unit["dropins"][0]["contents"].as_str().unwrap();
        assert!(drop_in.contains("EnvironmentFile=/etc/drover/proxy.env\n"), "{name}: {drop_in}");
    }
    let shown = format!("{:?}", input.outside);
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn labels_that_a_kubelet_may_not_set_are_left_to_the_controller() {
    for (key, may) in [
        ("group", true),
        ("example.com/pool", true),
        ("node.kubernetes.io/pool", true),
        ("tier.node.kubernetes.io/pool", true),
        ("kubelet.kubernetes.io/pool", true),
        ("topology.kubernetes.io/zone", true),
        ("node-role.kubernetes.io/worker", false),
        ("node-restriction.kubernetes.io/team", false),
        ("kubernetes.io/pool", false),
        ("cluster.k8s.io/pool", false),
        ("notkubernetes.io/pool", true),
    ] {
        assert_eq!(may_label_itself(key), may, "{key}");
    }
}

#[test]
fn what_could_break_out_of_its_place_is_refused() {
    let check = |change: &dyn Fn(&mut Input), expected: &str| {
        let mut input = input(UBUNTU);
        change(&mut input);
        let error = render(&input).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    };
    check(&|i| i.machine_name = "a;reboot".into(), "\"a;reboot\" cannot be a host name");
    check(&|i| i.machine_name = "a".repeat(64), "at most 63");
    check(&|i| i.machine_name = "a..b".into(), "\"a..b\" cannot be a host name");
    check(&|i| i.kubelet_version = "1.30".into(), "\"1.30\" is no exact version");
    check(&|i| i.kubelet_version = "1.30.3;x".into(), "write one such as \"1.30.3\"");
    check(&|i| i.api_server_url = "http://a".into(), "API server \"http://a\" is no https URL");
    check(&|i| i.api_server_url = "https://a\n- b".into(), "is no https URL");
    check(&|i| i.downloads.kubernetes = "https://$(id)".into(), "download location");
    check(&|i| i.cluster_ca_pem.clear(), "holds no PEM certificate");
    check(&|i| i.downloads.ca_pem = Some("x".into()), "CA of downloads holds no PEM");
    let proxy = |url: &str| Some(Proxy { url: url.into(), no_proxy: vec![] });
    check(&|i| i.outside.proxy = proxy("http://a\nB=c"), "the proxy is no http or https URL");
    check(&|i| i.outside.proxy = proxy("ftp://a"), "the proxy is no http or https URL");
    let mirror = |url: &str| Registry { mirrors: vec![url.into()], insecure: false };
    check(
        &|i| drop(i.outside.registries.insert("a/../b".into(), mirror("https://m"))),
        "registry \"a/../b\"",
    );
    check(
        &|i| drop(i.outside.registries.insert("a".into(), mirror("https://m\"]"))),
        "registry \"a\"",
    );
    check(&|i| i.cluster_domain = "a b".into(), "\"a b\" is no DNS name");
    check(&|i| i.ssh_keys.push("a\nb".into()), "ssh key number 3 spans several lines");
    check(&|i| drop(i.node_labels.insert("a".into(), "b c".into())), "node label \"a\"");
    check(&|i| drop(i.node_labels.insert("a b".into(), String::new())), "node label \"a b\"");
    check(&|i| i.taints[0].effect = "Never".into(), "taint \"node.syseleven.de/not-ready=:Never\"");
    check(&|i| i.taints[0].key.clear(), "taint \"=:NoSchedule\"");
}

#[test]
fn user_data_that_nova_would_refuse_names_its_largest_part() {
    use sha2::{Digest, Sha256};
    let noise = (0..3125_u32).map(|n| format!("{:x}", Sha256::digest(n.to_le_bytes())));
    let noise: String = noise.collect();
    let big = Input { ssh_keys: vec![noise], ..input(FLATCAR) };
    let error = render(&big).expect_err("too much").to_string();
    assert!(error.ends_with("its largest part is ssh keys with 200000 bytes"), "{error}");
}

#[test]
fn a_token_has_its_form_and_does_not_print_its_secret() {
    for wrong in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde"] {
        assert!(BootstrapToken::parse(wrong).is_err(), "{wrong}");
    }
    let shown = format!("{:?}", input(UBUNTU));
    assert!(shown.contains("abcdef.<secret>") && !shown.contains("0123456789abcdef"), "{shown}");
}
