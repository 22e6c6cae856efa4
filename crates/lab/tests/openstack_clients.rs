//! Clients that others wrote, against the lab's cloud: what they see is, word for word, what they saw on real services.
//!
//! With `DROVER_OS_CLOUD=NAME`, a cloud of `OS_CLIENT_CONFIG_FILE`, they go to that one too.

use drover_lab::clock::{Clock, Pace};
use drover_lab::cloud::{Cloud, Config};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Ten times faster than life: what lies between is still seen by who looks at once.
const PACE: f64 = 10.0;
/// At that pace, two seconds from the 202 of a server: who looks at once on a busy machine still sees it being built.
const SCHEDULE: Duration = Duration::from_secs(20);
/// What `run.sh` ends with where the client's language is missing.
const NO_LANGUAGE: i32 = 3;

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/clients/openstack")
}

/// Runs a client to its end; it gives up by itself.
async fn run(client: &'static str, cloud: String, clouds_yaml: Option<PathBuf>) -> Output {
    let mut command = Command::new(programs().join("run.sh"));
    command.args([client, &cloud]).stdin(Stdio::null());
    if let Some(file) = clouds_yaml {
        command.env("OS_CLIENT_CONFIG_FILE", file);
    }
    let running = tokio::task::spawn_blocking(move || command.output());
    running.await.expect("the client was started").expect("run.sh is there")
}

/// Compares what a client saw with what it saw on real services.
fn compare(client: &str, on: &str, output: &Output) {
    let expected = std::fs::read_to_string(programs().join(format!("seen/{client}.txt"))).unwrap();
    if output.status.code() == Some(NO_LANGUAGE) {
        let steps = expected.lines().count();
        eprintln!(
            "{client} was NOT run on {on}, {steps} steps: its language is missing on this machine"
        );
        return;
    }
    let seen = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let differing: Vec<String> = expected
        .lines()
        .zip(seen.lines())
        .filter(|(one, other)| one != other)
        .map(|(one, other)| format!("real: {one}\nhere: {other}"))
        .collect();
    assert!(differing.is_empty(), "{client} on {on}:\n{}", differing.join("\n"));
    let whole = expected.lines().count() == seen.lines().count() && output.status.success();
    assert!(whole, "{client} on {on} ended early, after\n{seen}\n{complaint}");
}

async fn see(client: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::demo(Clock::start(Timestamp::now()));
    config.pace = Pace(PACE);
    config.delays.schedule = SCHEDULE;
    config.base_url = format!("http://{}", listener.local_addr().unwrap());
    let cloud = Cloud::new(config);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clouds-{client}.yaml"));
    std::fs::write(&file, cloud.clouds_yaml()).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(cloud.clone().serve(listener, stop.clone()));
    let output = run(client, "drover".to_owned(), Some(file.clone())).await;
    stop.cancel();
    serving.await.unwrap().unwrap();
    std::fs::remove_file(file).unwrap();
    compare(client, "the lab's cloud", &output);
    assert!(cloud.ledger().is_empty(), "{client} left something behind: {:?}", cloud.ledger());
    if let Ok(real) = std::env::var("DROVER_OS_CLOUD") {
        compare(client, &real, &run(client, real.clone(), None).await);
    }
}

#[tokio::test]
async fn openstacksdk_sees_what_it_saw_on_real_services() {
    see("sdk").await;
}

#[tokio::test]
async fn the_openstack_command_sees_what_it_saw_on_real_services() {
    see("cli").await;
}

#[tokio::test]
async fn gophercloud_sees_what_it_saw_on_real_services() {
    see("gophercloud").await;
}
