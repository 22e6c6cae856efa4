//! The story of the README through the real binary and the real kubectl.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long any one wait may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(240);

const NAMESPACE: &[&str] = &["-n", "kube-system"];

/// A running `drover dev`, ended when dropped.
struct Dev {
    process: Child,
    data: PathBuf,
}

impl Dev {
    fn start(name: &str, more: &[&str]) -> Self {
        let data =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        let mut process = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["dev", "--api-port", "0", "--speed", "50", "--data"])
            .arg(&data)
            .args(more)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let stdout = process.stdout.take().expect("piped");
        let mut lines = BufReader::new(stdout).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("KUBECONFIG="));
        assert!(ready, "dev ended before it said where its kubeconfig is");
        // Somebody must go on reading, or the process stops when the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, data }
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
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
        assert!(sent.success());
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "dev does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
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

fn has_kubectl() -> bool {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("SKIPPED: kubectl is not installed, the story through it was not told");
    }
    found
}

#[test]
fn kubectl_drives_a_pool() {
    if !has_kubectl() {
        return;
    }
    let dev = Dev::start("kubectl", &[]);
    let example = "examples/metakube/machinedeployment.yaml";

    let applied = dev.ok(&["apply", "-f", example]);
    assert_eq!(applied.trim(), "machinedeployment.cluster.k8s.io/nodes created");
    dev.whole(2, &[]);
    let wide = dev.ok_here(&["get", "md,ms,ma", "-o", "wide"]);
    for column in ["AVAILABLE-REPLICAS", "KUBELET", "PROVIDERID", "1.30.3", "openstack:///"] {
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
    let described = dev.ok_here(&["describe", "machine", &dev.names("machines")[0]]);
    assert!(described.contains("Events:") && described.contains("NodeJoined"), "{described}");

    dev.ok_here(&["delete", "md", "nodes", "--cascade=foreground"]);
    assert!(dev.names("machines").is_empty() && dev.names("nodes").is_empty());
    assert_eq!(dev.stop(), Some(0), "Ctrl-C ends it in order");
}

#[test]
fn the_demo_tells_the_story_by_itself() {
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["dev", "--api-port", "0", "--demo", "--speed", "50", "--data"])
        .arg(&data)
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for chapter in
        ["apply -f", "scale md nodes --replicas=5", "restartedAt", "delete machine", "healthy"]
    {
        assert!(told.contains(chapter), "{chapter} is not in\n{told}");
    }
    assert!(data.join("kubeconfig").exists() && data.join("clouds.yaml").exists());
    let _ = std::fs::remove_dir_all(&data);
}
