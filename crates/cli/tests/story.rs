//! The story of the README through the real binary and the real kubectl.

#[path = "story/kubectl.rs"]
mod kubectl;
#[path = "story/process.rs"]
mod process;

use drover_lab::kube::Assets;
use kubectl::has_kubectl;
use process::{Drover, interrupt, scratch, started};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long any one wait may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(240);

const NAMESPACE: &[&str] = &["-n", "kube-system"];

/// Where the story is told.
#[derive(Clone, Copy, PartialEq)]
enum World {
    /// On the lab's API server.
    Lab,
    /// On a real control plane.
    Kube,
}

/// A running `drover dev`, ended when dropped.
struct Dev {
    process: Child,
    data: PathBuf,
    /// The control plane under it, when it is a real one; ended after it.
    plane: Option<Drover>,
}

impl Dev {
    fn start(name: &str, world: World) -> Self {
        let data = scratch(name);
        let plane = (world == World::Kube).then(|| real(name));
        let mut dev = command(&data, plane.as_ref());
        let (process, _) = started(dev.stdout(Stdio::piped()).stdin(Stdio::null()));
        Self { process, data, plane }
    }

    fn kubectl(&self, args: &[&str]) -> Output {
        Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .env("HOME", &self.data)
            .current_dir(root())
            .output()
            .expect("kubectl runs")
    }

    /// The example's file, fit for this world.
    fn example(&self, world: World) -> String {
        let path = self.data.join("example.yaml");
        let text = kubectl::example(world == World::Kube);
        std::fs::write(&path, text).expect("a folder of this test's own");
        path.display().to_string()
    }

    /// Standard output of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.kubectl(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn ok_here(&self, args: &[&str]) -> String {
        self.ok(&[NAMESPACE, args].concat())
    }

    /// Waits until a command succeeds and says this.
    fn eventually(&self, args: &[&str], word: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let output = self.kubectl(&[NAMESPACE, args].concat());
            let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            if output.status.success() && texts.iter().any(|text| text.contains(word)) {
                return;
            }
            assert!(Instant::now() < deadline, "never {word:?}: kubectl {args:?}: {texts:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn items(&self, what: &str) -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&self.ok_here(&["get", what, "-o", "json"])).expect("JSON");
        list["items"].as_array().cloned().expect("a list")
    }

    fn names(&self, what: &str) -> Vec<String> {
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.items(what).iter().map(name).collect()
    }

    /// Waits until the pool is whole: so many machines and Ready nodes, none of `old`.
    fn whole(&self, replicas: usize, old: &[String]) -> Vec<String> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let machines = self.names("machines");
            let nodes = self.items("nodes");
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let pool = &self.items("md")[0];
            let available = pool["status"]["availableReplicas"].as_u64().unwrap_or(0) as usize;
            let whole =
                [machines.len(), nodes.len(), ready, available].iter().all(|n| *n == replicas)
                    && !machines.iter().any(|name| old.contains(name));
            if whole {
                return machines;
            }
            assert!(
                Instant::now() < deadline,
                "not whole: machines {machines:?}, {ready} of {} nodes Ready, pool {}",
                nodes.len(),
                pool["status"],
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Asks it to end as Ctrl-C does, and tells how it ended.
    fn stop(mut self) -> Option<i32> {
        let ended = interrupt(&mut self.process);
        let plane = self.plane.take().map(Drover::stop);
        assert_eq!(plane.unwrap_or(Some(0)), Some(0), "the control plane ends in order");
        ended
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// `drover dev` that keeps its files here.
fn command(data: &Path, plane: Option<&Drover>) -> Command {
    let mut dev = Command::new(env!("CARGO_BIN_EXE_drover"));
    dev.args(["dev", "--speed", "50", "--data"]).arg(data);
    match plane {
        Some(plane) => dev.arg("--kubeconfig").arg(plane.data.join("kubeconfig")),
        None => dev.args(["--api-port", "0"]),
    };
    dev
}

fn real(name: &str) -> Drover {
    let plane = Drover::start(&format!("{name}-plane"), &["lab", "apiserver", "--assets"]);
    assert!(plane.said[0].starts_with("API server  https://127.0.0.1:"), "{:?}", plane.said);
    plane
}

/// Tells a case in each world; one loud line where there are no programs for a real one.
fn each(cases: usize, told: impl Fn(World)) {
    told(World::Lab);
    if Assets::for_suite("story", cases).is_some() {
        told(World::Kube);
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two deep").into()
}

#[test]
fn kubectl_drives_a_pool() {
    if has_kubectl() {
        each(1, drive);
    }
}

fn drive(world: World) {
    let dev = Dev::start("kubectl", world);
    let example = &dev.example(world);

    // Kubernetes: a kind is served a moment before it is discovered.
    dev.eventually(&["get", "md"], "No resources found");
    let applied = dev.ok(&["apply", "-f", example]);
    assert_eq!(applied.trim(), "machinedeployment.cluster.k8s.io/nodes created");
    dev.whole(2, &[]);
    let wide = dev.ok_here(&["get", "md,ms,ma", "-o", "wide"]);
    for column in [
        "AVAILABLE-REPLICAS",
        "KUBELET",
        "PROVIDERID",
        "openstack:///",
        "MESSAGE",
        "the node is ready",
    ] {
        assert!(wide.contains(column), "{column} is not in\n{wide}");
    }
    let unchanged = dev.ok(&["apply", "-f", example]);
    assert_eq!(unchanged.trim(), "machinedeployment.cluster.k8s.io/nodes unchanged");
    assert_eq!(dev.ok(&["diff", "-f", example]), "");

    dev.ok_here(&["scale", "md", "nodes", "--replicas=5"]);
    let old = dev.whole(5, &[]);
    let restart = r#"{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-02T03:04:05.678+0000"}}}}}"#;
    dev.ok_here(&["patch", "machinedeployment", "nodes", "-p", restart, "--type", "merge"]);
    let rolled = dev.whole(5, &old);

    dev.ok_here(&["delete", "machine", &rolled[0], "--wait=true"]);
    dev.whole(5, &rolled[..1]);

    let explained = dev.ok(&["explain", "md.spec.strategy.rollingUpdate"]);
    assert!(explained.contains("maxSurge"), "{explained}");
    // Events follow what they tell of.
    dev.eventually(&["describe", "machine", &dev.names("machines")[0]], "NodeReady");

    dev.ok_here(&["delete", "md", "nodes", "--cascade=foreground"]);
    assert!(dev.names("machines").is_empty() && dev.names("nodes").is_empty());
    assert_eq!(dev.stop(), Some(0), "Ctrl-C ends it in order");
}

#[test]
fn the_demo_tells_the_story_by_itself() {
    each(1, |world| {
        let data = scratch("demo");
        let plane = (world == World::Kube).then(|| real("demo"));
        let output =
            command(&data, plane.as_ref()).arg("--demo").output().expect("the binary runs");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
        for chapter in [
            "apply -f",
            "scale md nodes --replicas=5",
            "restartedAt",
            "delete machine",
            "healthy",
            "nothing is left",
        ] {
            assert!(told.contains(chapter), "{chapter} is not in\n{told}");
        }
        let says_skew =
            told.contains("# the example's kubelet 1.30.3 is too old for the API server");
        assert_eq!(says_skew, world == World::Kube, "{told}");
        for secret in ["kubeconfig", "manager.kubeconfig", "manager.token", "clouds.yaml"] {
            process::assert_secret(&data.join(secret));
        }
        let _ = std::fs::remove_dir_all(&data);
    });
}
