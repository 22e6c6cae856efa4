//! Holds the invariants of the house that a compiler does not: edges, forbidden words, sizes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines a file may have: what a person reads in one sitting.
const FILE_LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two deep").into()
}

/// All Rust files of the workspace, as paths from its root, with their text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("source is UTF-8");
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "the walk found only {} files", found.len());
    found
}

/// The packages that a package is built from, itself included.
fn graph(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", package, "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn ours(package: &str) -> BTreeSet<String> {
    let mut ours: BTreeSet<String> =
        graph(package).into_iter().filter(|name| name.starts_with("drover")).collect();
    ours.remove(package);
    ours
}

#[test]
fn nouns_and_decisions_cannot_wait_look_or_roll_dice() {
    for package in ["drover-api", "drover-plan"] {
        let graph = graph(package);
        for banned in
            ["tokio", "hyper", "tower", "reqwest", "rand", "fastrand", "tracing-subscriber"]
        {
            assert!(!graph.contains(banned), "{package} is built from {banned}");
        }
    }
}

#[test]
fn crates_know_only_whom_they_may() {
    let edges: &[(&str, &[&str])] = &[
        ("drover-api", &[]),
        ("drover-plan", &["drover-api"]),
        ("drover-provider", &[]),
        ("drover-openstack", &["drover-provider"]),
        ("drover-controllers", &["drover-api", "drover-plan", "drover-provider"]),
        ("drover-lab", &[]),
    ];
    for (package, allowed) in edges {
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        let known = ours(package);
        assert!(known.is_subset(&allowed), "{package} knows {known:?}, may know {allowed:?}");
    }
}

#[test]
fn one_provider_of_cryptography_is_built_in() {
    let graph = graph("drover");
    assert!(!graph.contains("aws-lc-sys") && !graph.contains("openssl-sys"));
}

#[test]
fn decisions_read_no_clock_roll_no_dice_and_iterate_in_order() {
    let banned =
        ["HashMap", "HashSet", "Timestamp::now", "SystemTime", "Instant", "std::env", "tracing::"];
    for (name, text) in sources().iter().filter(|(name, _)| name.starts_with("crates/plan/src")) {
        for word in banned {
            let at = text.lines().position(|line| line.contains(word));
            assert!(at.is_none(), "{name}:{} says {word}", at.unwrap_or(0) + 1);
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    for (name, text) in sources() {
        assert!(text.starts_with("//! "), "{name} does not begin with a line that says what it is");
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{name} has {lines} lines, more than {FILE_LINES_MAX}");
    }
}

#[test]
fn nothing_is_left_undone_in_the_code() {
    // Built from pieces, so that this file does not find itself.
    let banned =
        [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["#[", "ignore"].concat()];
    for (name, text) in sources() {
        for word in &banned {
            assert!(!text.contains(word.as_str()), "{name} says {word}");
        }
    }
}

#[test]
fn no_drawer_for_odds_and_ends() {
    for (name, _) in sources() {
        for part in Path::new(&name).iter().filter_map(|part| part.to_str()) {
            let stem = part.trim_end_matches(".rs");
            assert!(!["common", "utils", "util", "helpers", "misc"].contains(&stem), "{name}");
        }
    }
}
