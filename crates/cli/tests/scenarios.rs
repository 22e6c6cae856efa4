//! Holds docs/scenarios.md to the tests that it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two deep").into()
}

/// A scenario as in `G16`, and a test as in `sim/tests/it/deletion.rs::full_deletion_order`.
#[derive(Debug)]
struct Claim {
    scenario: String,
    file: String,
    test: String,
}

fn claims() -> Vec<Claim> {
    let text =
        std::fs::read_to_string(root().join("docs/scenarios.md")).expect("the page is there");
    let mut claims = vec![];
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [scenarios, what, tests, ..] = cells[..] else { panic!("too few cells: {line}") };
        let tests: Vec<(&str, &str)> =
            tests.split(", ").filter_map(|it| it.trim_matches('`').split_once("::")).collect();
        assert!(!what.is_empty() && !tests.is_empty(), "a scenario without a test: {line}");
        for scenario in scenarios.split(", ") {
            claims.extend(tests.iter().map(|(file, test)| Claim {
                scenario: scenario.to_owned(),
                file: (*file).to_owned(),
                test: (*test).to_owned(),
            }));
        }
    }
    claims
}

/// The comment and the attributes above a function.
fn above(source: &str, test: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let name = format!("fn {test}(");
    let at = lines.iter().position(|line| line.contains(&name))?;
    let is_above = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
    let head: Vec<&str> = lines[..at].iter().rev().take_while(is_above).copied().collect();
    Some(head.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

/// Whether a comment names a scenario: its system and, but for Mirantis', whose have none, its number.
fn names(comment: &str, scenario: &str) -> bool {
    let (system, number) = scenario.split_at(1);
    let called: &[&str] = match system {
        "G" => &["Gardener"],
        // The engine under MetaKube.
        "K" => &["MetaKube", "machine-controller"],
        "M" => return comment.contains("Mirantis"),
        other => panic!("no system is called {other:?}"),
    };
    let mut words = comment.split(|it: char| !it.is_alphanumeric());
    called.iter().any(|name| comment.contains(name)) && words.any(|word| word == number)
}

/// The beginning that one test of the scenario has in its name; Mirantis' have no numbers.
fn called(scenario: &str) -> Option<String> {
    match scenario.split_at(1) {
        ("G", number) => Some(format!("gardener_{number}_")),
        ("K", number) => Some(format!("metakube_{number}_")),
        _ => None,
    }
}

#[test]
fn every_scenario_has_a_test_that_names_it() {
    let claims = claims();
    let mut wrong = vec![];
    for Claim { scenario, file, test } in &claims {
        let path = root().join("crates").join(file);
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        match above(&source, test) {
            None => wrong.push(format!("{scenario}: crates/{file} has no {test}")),
            Some(head) if !head.contains("test") => wrong.push(format!("{test} is no test")),
            Some(head) if !names(&head, scenario) => {
                wrong.push(format!("{scenario}: the comment of {test} does not name it"));
            }
            Some(_) => {}
        }
    }
    let scenarios: BTreeSet<&str> = claims.iter().map(|it| it.scenario.as_str()).collect();
    for name in scenarios.iter().filter_map(|scenario| called(scenario)) {
        if !claims.iter().any(|claim| claim.test.contains(&name)) {
            wrong.push(format!("no test is called {name}.."));
        }
    }
    assert!(wrong.is_empty(), "docs/scenarios.md:\n{}", wrong.join("\n"));
    assert!(scenarios.len() > 30, "the page was not read: {scenarios:?}");
}
