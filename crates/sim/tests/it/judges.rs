//! User-data before those who know: cloud-init's schema, Ignition's validator, bash and shellcheck.

use crate::manifests::{good, with};
use drover_sim::faults::Life;
use drover_sim::stage::Stage;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/sim is two deep").into()
}

/// The judges that are here, by name; the others are named in one line, with how many cases they miss.
fn judges(suite: &str, cases: usize) -> BTreeMap<&'static str, PathBuf> {
    let setup = root().join("tools/userdata/setup.sh");
    let output = Command::new(setup).arg("where").output().expect("bash runs");
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let known = ["cloud-init", "ignition", "shellcheck"];
    let (here, missing): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|judge| folder.join(judge).exists());
    if !missing.is_empty() {
        // Written past the macros, whose output the test runner keeps to itself when a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: {cases} cases of {suite} by {}; `make userdata-judges` makes them (needs Go, Python 3, Debian)",
            missing.join(", ")
        );
    }
    here.into_iter().map(|judge| (judge, folder.join(judge))).collect()
}

/// A folder of this test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(suite: &str) -> Self {
        let path = std::env::temp_dir().join(format!("drover-{suite}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file in a temporary folder");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program says against some files, if anything.
fn complaint(program: &Path, arguments: &[&str], files: &[PathBuf]) -> Option<String> {
    let output = Command::new(program).args(arguments).args(files).output().expect("a judge runs");
    let said = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&said).into_owned())
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain) {
        Ok(_) => plain,
        Err(_) => bytes.to_vec(),
    }
}

/// The shell scripts in a cloud-config.
fn scripts(config: &[u8]) -> Vec<String> {
    let config: Value = serde_saphyr::from_slice(config).expect("a cloud-config is YAML");
    let files = config["write_files"].as_array().expect("files").iter();
    let contents = files.filter_map(|file| file["content"].as_str());
    contents.filter(|content| content.starts_with("#!")).map(str::to_owned).collect()
}

/// Holds some user-data, by name, before all judges that are here.
fn judge(suite: &str, documents: &BTreeMap<String, Vec<u8>>) {
    let judges = judges(suite, documents.len());
    let scratch = Scratch::new(suite);
    let (mut configs, mut ignitions, mut shells) = (vec![], vec![], BTreeSet::new());
    for (name, bytes) in documents {
        let plain = unpacked(bytes);
        let path = scratch.write(name, &plain);
        if plain.starts_with(b"{") {
            ignitions.push(path);
        } else {
            shells.extend(scripts(&plain));
            configs.push(path);
        }
    }
    assert!(!shells.is_empty(), "{suite} has no script to judge");
    let shells: Vec<PathBuf> = shells
        .iter()
        .enumerate()
        .map(|(n, text)| scratch.write(&format!("script-{n}.sh"), text.as_bytes()))
        .collect();
    let none = |said: Option<String>| assert_eq!(said, None, "{suite}");
    for script in &shells {
        none(complaint(Path::new("bash"), &["-n"], std::slice::from_ref(script)));
    }
    if let Some(program) = judges.get("shellcheck") {
        none(complaint(program, &["--severity=style"], &shells));
    }
    if let Some(program) = judges.get("ignition") {
        none(complaint(program, &[], &ignitions));
    }
    if let Some(program) = judges.get("cloud-init") {
        for config in &configs {
            none(complaint(program, &["schema", "-c"], std::slice::from_ref(config)));
        }
    }
}

#[test]
fn the_judges_refuse_what_is_wrong() {
    let judges = judges("the judges themselves", 3);
    let scratch = Scratch::new("wrong");
    for (judge, arguments, text, word) in [
        ("cloud-init", &["schema", "-c"][..], "#cloud-config\nhostname: [a]\n", "not of type"),
        (
            "ignition",
            &[],
            "{\"ignition\":{\"version\":\"3.3.0\"},\"storage\":{\"files\":[{\"path\":\"x\"}]}}",
            "path not absolute",
        ),
        ("shellcheck", &[], "#!/bin/bash\nrm -rf $1/*\n", "SC2086"),
    ] {
        let Some(program) = judges.get(judge) else { continue };
        let file = scratch.write(judge, text.as_bytes());
        let said = complaint(program, arguments, &[file]).expect("it complains");
        assert!(said.contains(word), "{judge}: {said}");
    }
}

#[test]
fn every_golden_file_is_accepted() {
    let folder = root().join("crates/plan/tests/userdata");
    let files = std::fs::read_dir(folder).expect("a folder of the tree").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(path).expect("a file"))
    });
    judge("golden user-data", &files.collect());
}

/// A pool of this operating system beside the example.
fn flatcar(name: &str, utility: &str) -> Value {
    let value = "/spec/template/spec/providerSpec/value";
    let pool =
        with(good("MachineDeployment", name), "/spec/selector/matchLabels/group", json!(name));
    let pool = with(pool, "/spec/template/metadata/labels/group", json!(name));
    let pool = with(pool, &format!("{value}/operatingSystem"), json!("flatcar"));
    with(pool, &format!("{value}/operatingSystemSpec"), json!({"provisioningUtility": utility}))
}

/// What the servers that are there now boot with.
fn collect(stage: &Stage, into: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    let cloud = stage.cloud()?;
    for server in &cloud.ledger().servers {
        let guest = cloud.guest(&server.id).expect("a server that is there");
        into.insert(guest.name, guest.user_data);
    }
    Ok(())
}

/// The story of the README, with a pool for each provisioning utility of Flatcar beside it.
#[tokio::test(start_paused = true)]
async fn the_user_data_of_every_machine_of_a_story_is_accepted() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let manager = stage.work(stage.wires(&Life::long()))?;
    let mut seen = BTreeMap::new();
    let none = BTreeSet::new();
    stage.apply_example(2).await?;
    stage.whole(2, &none, stage.chapter).await?;
    collect(&stage, &mut seen)?;
    stage.scale(3).await?;
    let old = stage.whole(3, &none, stage.chapter).await?.uids();
    collect(&stage, &mut seen)?;
    stage.restart().await?;
    stage.whole(3, &old, stage.chapter).await?;
    collect(&stage, &mut seen)?;
    for utility in ["ignition", "cloud-init"] {
        stage.create(&flatcar(&format!("flatcar-{utility}"), utility)).await?;
    }
    stage
        .until("Flatcar nodes", async |stage| {
            let nodes = stage.census().await?.nodes;
            Ok(nodes.iter().filter(|node| drover_plan::node::is_ready(node)).count() == 3 + 2 * 2)
        })
        .await?;
    collect(&stage, &mut seen)?;
    assert_eq!(seen.len(), 3 + 3 + 2 * 2);
    judge("a story's user-data", &seen);
    manager.end().await
}
