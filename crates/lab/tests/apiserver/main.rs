//! The lab and a real API server answer the same requests: every case is played in both.
//!
//! A case is a file in `cases/AREA`: a title, then requests, each with what the real server answered after `=>`.
//! README.md tells the words. `make record-kube` writes the answers anew from the real server.

mod case;
mod compare;
mod fill;
mod layout;
mod play;
mod point;
mod veil;
mod world;

use case::Case;
use drover_lab::kube::Assets;
use futures::StreamExt as _;
use play::Play;
use std::path::Path;
use std::time::Instant;
use world::World;

/// Cases that are played at a time on the real server.
const AT_ONCE: usize = 12;
/// Fewer cases than this are no proof.
const CASES_MIN: usize = 300;

/// All cases, or those whose name holds `CASE`, by name.
fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apiserver/cases");
    let wanted = std::env::var("CASE").unwrap_or_default();
    let mut paths = Vec::new();
    for area in std::fs::read_dir(&root).expect("the cases") {
        let area = area.expect("an area").path();
        if !area.ends_with("given") {
            let files = std::fs::read_dir(area).expect("an area is a folder");
            paths.extend(files.map(|file| file.expect("a case").path()));
        }
    }
    paths.sort();
    let all: Vec<Case> = paths.iter().map(|path| Case::read(&root, path)).collect();
    assert!(all.len() >= CASES_MIN, "only {} cases", all.len());
    all.into_iter().filter(|case| case.name.contains(&wanted)).collect()
}

/// Plays a case: what its answers look like in the file, or why there are none.
async fn play(world: &World, case: &Case) -> Result<Vec<Option<String>>, String> {
    let mut play = Play::new(world, case);
    let answers = play.run().await?;
    Ok(veil::told(case, &answers, play.fill.requests()))
}

/// In what a case goes otherwise than recorded.
fn differences(case: &Case, played: Result<Vec<Option<String>>, String>) -> Vec<String> {
    let answers = match played {
        Ok(answers) => answers,
        Err(why) => return vec![format!("{}: {why}", case.name)],
    };
    let mut found = Vec::new();
    for (step, answer) in case.steps.iter().zip(answers) {
        let Some(answer) = answer else { continue };
        let told = compare::answers(&step.answer, &answer);
        found.extend(told.iter().map(|why| format!("{}: {}: {why}", case.name, step.request())));
    }
    found
}

fn report(world: &str, cases: &[Case], failures: &[String], since: Instant) {
    let exchanges: usize = cases.iter().map(Case::exchanges).sum();
    let took = since.elapsed().as_secs_f64();
    println!("{world}: {} cases with {exchanges} exchanges in {took:.1} s", cases.len());
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn the_lab_answers_as_recorded() {
    let (cases, since) = (cases(), Instant::now());
    let world = World::lab();
    let mut failures = Vec::new();
    for case in &cases {
        failures.extend(differences(case, play(&world, case).await));
    }
    report("the lab", &cases, &failures, since);
}

#[tokio::test]
async fn the_real_server_answers_as_recorded() {
    let cases = cases();
    let Some(assets) = Assets::for_suite("apiserver", cases.len()) else { return };
    let since = Instant::now();
    let mut failures = Vec::new();
    if std::env::var_os("RECORD").is_some() {
        for (case, played) in play_on_a_real_server(&assets, cases.iter().collect()).await {
            match played {
                Ok(answers) => case.write(&answers),
                Err(why) => failures.push(format!("{}: {why}", case.name)),
            }
        }
        return report("recorded", &cases, &failures, since);
    }
    let mut doubtful: Vec<&Case> = cases.iter().collect();
    // A real server leaves some things to chance and load: what differs on two servers is a difference.
    for _ in 0..2 {
        failures.clear();
        for (case, played) in play_on_a_real_server(&assets, std::mem::take(&mut doubtful)).await {
            let found = differences(case, played);
            if !found.is_empty() {
                doubtful.push(case);
                failures.extend(found);
            }
        }
        if failures.is_empty() {
            break;
        }
        println!("differs at first, or for good:\n{}", failures.join("\n"));
    }
    failures.sort();
    report("the real server", &cases, &failures, since);
}

type Played<'a> = (&'a Case, Result<Vec<Option<String>>, String>);

/// Plays these cases, several at a time, on a server that nobody has used yet.
async fn play_on_a_real_server<'a>(assets: &Assets, cases: Vec<&'a Case>) -> Vec<Played<'a>> {
    let world = World::real(assets).await;
    let world = &world;
    let all = cases.into_iter().map(|case| async move { (case, play(world, case).await) });
    futures::stream::iter(all).buffer_unordered(AT_ONCE).collect().await
}
