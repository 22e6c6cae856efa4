//! `drover lab`: each part alone, as clients from outside meet it.

#[path = "story/kubectl.rs"]
mod kubectl;
#[path = "story/process.rs"]
mod process;

use drover_lab::dial::Credential;
use drover_lab::kube::Assets;
use drover_lab::kubeconfig::Access;
use kubectl::has_kubectl;
use process::{Drover, assert_secret, interrupt};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long any one wait may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(240);

/// A process that does not outlive its test, however that ends.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn nodes(access: &Access) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let list = runtime.block_on(async {
        access.client().expect("a client").get("/api/v1/nodes").await.expect("a list")
    });
    list["items"].as_array().cloned().expect("items")
}

/// An API server with two nodes, and another one that comes and goes with its own process.
fn serve(args: &[&str]) {
    let server = Drover::start("parts", &[args, &["--kubelets", "2"]].concat());
    let kubeconfig = server.data.join("kubeconfig");
    assert_secret(&kubeconfig);
    let access = Access::read(&kubeconfig).expect("a kubeconfig");
    assert!(server.said[0].contains(&access.server), "{:?}", server.said);
    assert_eq!(nodes(&access).len(), 2, "ready when it said so");

    let more = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["lab", "kubelets", "--name", "more", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut more = Kept(more);
    let mut said = [0; 24];
    more.0.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it says that it is ready");
    let all = nodes(&access);
    let usable =
        |node: &&Value| node["spec"]["taints"].is_null() && node["metadata"]["name"] == "more-1";
    assert_eq!(all.iter().filter(usable).count(), 1, "{all:?}");
    assert_eq!(interrupt(&mut more.0), Some(0));
    assert_eq!(nodes(&access).len(), 2, "its node went with it");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn an_api_server_alone() {
    serve(&["lab", "apiserver"]);
    if Assets::for_suite("parts", 1).is_some() {
        serve(&["lab", "apiserver", "--assets"]);
    }
}

/// What a user types to run Drover on a cluster, with a token of its ServiceAccount: servers are made.
fn manage(args: &[&str]) {
    let server = Drover::start("manage-plane", args);
    let cloud = Drover::start("manage-cloud", &["lab", "cloud", "--speed", "50"]);
    let admin = server.data.join("kubeconfig");
    let tried = |args: &[&str], input: &[u8]| -> Option<String> {
        let mut kubectl = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", &admin)
            .env("HOME", &server.data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        kubectl.stdin.take().expect("piped").write_all(input).expect("written");
        let output = kubectl.wait_with_output().expect("it ends");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let kubectl = |args: &[&str], input: &[u8]| {
        tried(args, input).unwrap_or_else(|| panic!("kubectl {args:?}"))
    };
    let manifests = |what: &str| {
        let printed = Command::new(env!("CARGO_BIN_EXE_drover")).args(["manifests", what]).output();
        printed.expect("the binary runs").stdout
    };
    kubectl(&["apply", "--server-side", "-f", "-"], &manifests("crds"));
    kubectl(&["apply", "-f", "-"], &manifests("rbac"));
    kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=240s"], b"");
    let mut access = Access::read(&admin).expect("a kubeconfig");
    let token = kubectl(&["-n", "kube-system", "create", "token", "drover"], b"");
    access.who = Credential::Bearer(token.trim().to_owned());
    let kubeconfig = server.data.join("manager.kubeconfig");
    std::fs::write(&kubeconfig, access.kubeconfig()).expect("written");
    let manager = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["manager", "--os-cloud", "drover", "--kubeconfig"])
        .arg(&kubeconfig)
        .env("OS_CLIENT_CONFIG_FILE", cloud.data.join("clouds.yaml"))
        .spawn()
        .expect("the binary starts");
    let mut manager = Kept(manager);
    let example = kubectl::example(args.contains(&"--assets"));
    // Kubernetes: a kind is served a moment before it is discovered.
    until("the kind is known", || tried(&["apply", "-f", "-"], example.as_bytes()).is_some());
    until("two machines", || {
        kubectl(&["-n", "kube-system", "get", "machines", "-o", "name"], b"").lines().count() == 2
    });
    let ready = ["--timeout=240s", "--for=condition=ServerReady", "machines", "--all"];
    kubectl(&[&["-n", "kube-system", "wait"], &ready[..]].concat(), b"");
    assert_eq!(interrupt(&mut manager.0), Some(0));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_controllers_alone() {
    if !has_kubectl() {
        return;
    }
    manage(&["lab", "apiserver"]);
    if Assets::for_suite("manager", 1).is_some() {
        manage(&["lab", "apiserver", "--assets"]);
    }
}

#[test]
fn a_cloud_alone() {
    let cloud = Drover::start("parts-cloud", &["lab", "cloud"]);
    assert_secret(&cloud.data.join("clouds.yaml"));
    let url = cloud.said[0].split("http://").nth(1).expect("a URL");
    until("its state is shown", || {
        let mut wire = TcpStream::connect(url).expect("it listens");
        let ask = format!("GET /lab/state HTTP/1.1\r\nHost: {url}\r\nConnection: close\r\n\r\n");
        wire.write_all(ask.as_bytes()).expect("written");
        let mut answer = String::new();
        wire.read_to_string(&mut answer).expect("an answer");
        answer.starts_with("HTTP/1.1 200")
    });
    assert_eq!(cloud.stop(), Some(0));
}
