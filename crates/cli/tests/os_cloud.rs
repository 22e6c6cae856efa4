//! `drover dev --os-cloud` through the real binary: the story on an OpenStack that was there before, simulated and real.

#[path = "story/process.rs"]
mod process;

use drover_lab::kube::Assets;
use drover_lab::kubeconfig;
use drover_lab::openstack::project::Project;
use process::{Drover, assert_secret, interrupt, scratch, started};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long the first server may take to be there.
const SERVER_MAX: Duration = Duration::from_secs(240);
const EXAMPLE: &str = include_str!("../../../examples/metakube/machinedeployment.yaml");

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// `drover dev` in this project, with its files here; the clouds.yaml is found as openstacksdk finds it.
fn dev(project: &Project, data: &Path) -> Command {
    let config = data.with_extension("config");
    std::fs::create_dir_all(config.join("openstack")).expect("a folder");
    let file = config.join("openstack/clouds.yaml");
    std::fs::write(file, project.clouds_yaml()).expect("a file is written");
    let mut dev = Command::new(env!("CARGO_BIN_EXE_drover"));
    dev.args(["dev", "--speed", "50", "--os-cloud", "drover", "--data"]).arg(data);
    dev.env("XDG_CONFIG_HOME", config).env_remove("OS_CLIENT_CONFIG_FILE").stdin(Stdio::null());
    dev
}

fn remove(data: &Path) {
    let _ = std::fs::remove_dir_all(data);
    let _ = std::fs::remove_dir_all(data.with_extension("config"));
}

fn told(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    texts.concat()
}

/// The whole story, on the lab's API server or on a real one; nothing is left in the project.
fn demo(name: &str, project: Project, plane: Option<Drover>) {
    let data = scratch(name);
    let mut command = dev(&project, &data);
    command.args(["--demo", "--os-admin-cloud", "admin", "--os-floating-ip-pool", "ext-net"]);
    match &plane {
        Some(plane) => command.arg("--kubeconfig").arg(plane.data.join("kubeconfig")),
        None => command.args(["--api-port", "0"]),
    };
    let began = Instant::now();
    let output = command.output().expect("the binary runs");
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    let pool = format!("apply -f {}", data.join("pool.yaml").display());
    for part in [
        "nodes       simulated: they boot from the user-data that admin",
        &pool,
        "the pool is up: 2 machines",
        "every machine was replaced: 5 machines",
        "The pool is healthy.",
        "nothing is left: 0 machines",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert_secret(&data.join("manager.token"));
    assert!(!data.join("clouds.yaml").exists(), "there is no embedded cloud");
    println!("{name}: {:.0} s", began.elapsed().as_secs_f64());
    remove(&data);
    assert_eq!(plane.map_or(Some(0), Drover::stop), Some(0), "the control plane ends in order");
    let made = runtime().block_on(async {
        let made = project.ledger().await.expect("the cloud answers").made;
        project.end().await.expect("nothing is left, and nothing else was touched");
        made
    });
    assert_eq!(made.len(), 2 + 3 + 5 + 1, "a server for each machine: {made:?}");
    assert!(made.values().all(|count| *count == 1), "one server for each machine: {made:?}");
}

fn real(name: &str) -> Drover {
    Drover::start(name, &["lab", "apiserver", "--assets"])
}

/// The lab's cloud as a process of its own is as foreign as any.
fn lab_cloud(name: &str) -> (Drover, Project) {
    let cloud = Drover::start(name, &["lab", "cloud", "--speed", "50"]);
    assert!(cloud.said[0].starts_with("cloud "), "{:?}", cloud.said);
    let yaml = std::fs::read_to_string(cloud.data.join("clouds.yaml")).expect("a clouds.yaml");
    let project = runtime().block_on(Project::make(&yaml, name)).expect("a project");
    (cloud, project)
}

#[test]
fn the_story_on_a_cloud_that_was_there() {
    let (cloud, project) = lab_cloud("abroad");
    demo("abroad-demo", project, None);
    assert_eq!(cloud.stop(), Some(0));
}

/// On the lab's API server, on a real one, and broken off, at once: each in a project of its own.
#[test]
fn the_story_on_real_openstack() {
    let make = |cases| runtime().block_on(Project::for_suite("story", cases)).expect("a project");
    let Some(project) = make(3) else { return };
    std::thread::scope(|all| {
        all.spawn(|| demo("real-cloud", project, None));
        all.spawn(|| {
            if Assets::for_suite("story on real OpenStack", 1).is_some()
                && let Some(project) = make(1)
            {
                demo("both-real", project, Some(real("both-real-plane")));
            }
        });
        all.spawn(|| make(1).map(|project| leave("real-leave", project)));
    });
}

#[test]
fn what_was_made_goes_with_the_api_server_that_knew_of_it() {
    let (cloud, project) = lab_cloud("leave-cloud");
    leave("leave", project);
    assert_eq!(cloud.stop(), Some(0));
}

/// Ctrl-C amid a creation: nobody would know of the servers, so they go.
fn leave(name: &str, project: Project) {
    let data = scratch(name);
    let mut command = dev(&project, &data);
    command.args(["--os-admin-cloud", "admin", "--api-port", "0"]).stdout(Stdio::piped());
    let (mut process, _) = started(&mut command);
    let access = kubeconfig::Access::read(&data.join("kubeconfig")).expect("a kubeconfig");
    let text = std::fs::read_to_string(data.join("pool.yaml")).expect("a pool");
    let pool = pool_in(&text);
    let ended = runtime().block_on(async {
        let client = access.client().expect("a client");
        let path = "/apis/cluster.k8s.io/v1alpha1/namespaces/kube-system/machinedeployments";
        client.create(path, &pool).await.expect("the pool is created");
        let until = Instant::now() + SERVER_MAX;
        while project.ledger().await.expect("the cloud answers").servers.is_empty() {
            assert!(Instant::now() < until, "no server is made");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let ended = interrupt(&mut process);
        project.end().await.expect("nothing is left");
        ended
    });
    assert_eq!(ended, Some(0));
    remove(&data);
}

fn pool_in(text: &str) -> Value {
    let pool: Value = serde_saphyr::from_str(text).expect("YAML");
    let example: Value = serde_saphyr::from_str(EXAMPLE).expect("YAML");
    assert_eq!(pool["metadata"], example["metadata"]);
    pool
}

#[test]
fn a_cloud_that_cannot_be_used_is_told_with_the_way_out() {
    let (cloud, project) = lab_cloud("unfit-cloud");
    let data = scratch("unfit");
    for (args, parts) in [
        (&["--os-admin-cloud", "nobody"][..], "--os-admin-cloud nobody: |it has admin, drover"),
        (
            &["--os-admin-cloud", "drover"],
            "cannot list everybody's servers as an administrator|403",
        ),
        (&["--os-image", "Windows"], "--os-image \"Windows\"|but Flatcar"),
        (
            &["--os-network", "lan"],
            "--os-network \"lan\": there is no network of that name or id, but nodes",
        ),
    ] {
        let output = dev(&project, &data).args(args).output().expect("the binary runs");
        assert!(!output.status.success());
        let told = told(&output);
        for part in parts.split('|') {
            assert!(told.contains(part), "{part} is not in\n{told}");
        }
    }
    remove(&data);
    runtime().block_on(project.end()).expect("nothing was made");
    assert_eq!(cloud.stop(), Some(0));
}
