//! kubectl against the lab's API server over TLS, with a kind it learned at run time.

use base64::Engine as _;
use drover_lab::apiserver::{ApiServer, Config};
use drover_lab::clock::Clock;
use drover_lab::pki::Authority;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.lab.example.com}
spec:
  group: lab.example.com
  scope: Namespaced
  names: {plural: toys, kind: Toy, shortNames: [ty]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, default: 1, description: How many there are.}
              color: {type: string, enum: [red, blue]}
          status: {type: object, properties: {replicas: {type: integer}}}
";

const TOY: &str = r"
apiVersion: lab.example.com/v1
kind: Toy
metadata: {name: a, namespace: default}
spec: {color: red}
";

const NODE: &str = r"
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
status:
  conditions: [{type: Ready, status: 'True'}]
  addresses: [{type: InternalIP, address: 10.0.0.1}]
";

/// Where this test keeps its files.
fn room() -> PathBuf {
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    // A cache of an earlier run would know another server.
    let _ = std::fs::remove_dir_all(&room);
    std::fs::create_dir_all(&room).expect("a directory");
    room
}

fn write(room: &Path, name: &str, text: &str) {
    std::fs::write(room.join(name), text).expect("a file");
}

fn kubeconfig(pki: &Authority, port: u16) -> String {
    let pair = pki.issue_client("admin", &["system:masters"]);
    let encoded = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    format!(
        "{{apiVersion: v1, kind: Config, current-context: lab,
          clusters: [{{name: lab, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority-data: {}}}}}],
          users: [{{name: admin, user: {{client-certificate-data: {}, client-key-data: {}}}}}],
          contexts: [{{name: lab, context: {{cluster: lab, user: admin}}}}]}}",
        encoded(pki.ca_pem()),
        encoded(&pair.cert_pem),
        encoded(&pair.key_pem)
    )
}

/// What kubectl prints, both streams.
async fn kubectl(room: &Path, line: &'static str) -> String {
    let room = room.to_owned();
    let run = move || {
        let output = Command::new("kubectl")
            .args(["--kubeconfig", "kubeconfig", "--cache-dir", "cache"])
            .args(line.split(' '))
            .current_dir(room)
            .output()
            .expect("kubectl runs");
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
    };
    tokio::task::spawn_blocking(run).await.expect("kubectl ended")
}

#[tokio::test]
async fn kubectl_works_with_a_kind_it_learned() {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        eprintln!("skipped: no kubectl in PATH");
        return;
    }
    let clock = Clock::start(jiff::Timestamp::now());
    let pki = Arc::new(Authority::new(&clock));
    let server = ApiServer::new(Config::new(clock, pki.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let stop = stop.clone();
        async move { server.serve(listener, stop).await }
    });
    let room = room();
    write(&room, "kubeconfig", &kubeconfig(&pki, port));
    write(&room, "crd.yaml", DEFINITION);
    write(&room, "toy.yaml", TOY);
    write(&room, "node.yaml", NODE);
    let story = [
        (
            "apply -f crd.yaml",
            "customresourcedefinition.apiextensions.k8s.io/toys.lab.example.com created",
        ),
        ("wait --for=condition=Established crd/toys.lab.example.com", "condition met"),
        ("apply -f toy.yaml", "toy.lab.example.com/a created"),
        ("apply -f toy.yaml", "toy.lab.example.com/a unchanged"),
        ("get ty", "NAME   REPLICAS\na      1"),
        ("get toys -o wide", "NAME   REPLICAS   COLOR\na      1          red"),
        ("explain toy.spec", "How many there are."),
        ("scale toy a --replicas=3", "toy.lab.example.com/a scaled"),
        ("diff -f toy.yaml", ""),
        (
            "patch toy a --type merge -p {\"spec\":{\"color\":\"green\"}}",
            "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        ("label toy a x=y", "toy.lab.example.com/a labeled"),
        ("get toys -l x=y -o jsonpath={.items[0].spec.replicas}", "3"),
        ("apply --server-side -f toy.yaml", "toy.lab.example.com/a serverside-applied"),
        ("create -f node.yaml", "node/n1 created"),
        ("cordon n1", "node/n1 cordoned"),
        ("get nodes", "Ready,SchedulingDisabled"),
        ("describe node n1", "InternalIP:  10.0.0.1"),
        ("delete toy a --wait", "toy.lab.example.com \"a\" deleted"),
        ("get toys", "No resources found in default namespace."),
        ("delete crd toys.lab.example.com", "deleted"),
        ("api-resources --api-group=lab.example.com -o name", ""),
    ];
    for (line, expected) in story {
        let said = kubectl(&room, line).await;
        let found = if expected.is_empty() { said.is_empty() } else { said.contains(expected) };
        assert!(found, "kubectl {line}\nwant: {expected}\nsaid: {said}");
    }
    stop.cancel();
    serving.await.expect("it ended").expect("it served");
}
