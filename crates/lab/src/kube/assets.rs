//! Where the programs of a real control plane are.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The programs, in the order in which they start.
pub const PROGRAMS: [&str; 4] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
/// What pins the version: the same file that the programs are built from.
const GO_MOD: &str = include_str!("../../../../tools/kube/control-plane/go.mod");

/// A folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
#[derive(Clone, Debug)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// The programs in this folder; the name of the missing one otherwise.
    pub fn at(folder: &Path) -> Result<Self, &'static str> {
        let missing = PROGRAMS.into_iter().find(|program| !folder.join(program).is_file());
        missing.map_or_else(|| Ok(Self { folder: folder.to_owned() }), Err)
    }

    /// The programs in `KUBEBUILDER_ASSETS`, or where `tools/kube/build.sh` puts them; None when they are not there.
    #[must_use]
    pub fn find() -> Option<Self> {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
        if let Some(folder) = named("KUBEBUILDER_ASSETS") {
            return Self::at(Path::new(&folder)).ok();
        }
        let cache = named("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache")))?;
        Self::at(&cache.join("drover/kube").join(version())).ok()
    }

    /// As [`Self::find`]; when they are not there, one line on standard error says how many cases of which suite are not run.
    #[must_use]
    pub fn for_suite(suite: &str, cases: usize) -> Option<Self> {
        let found = Self::find();
        if found.is_none() {
            // Written past the macros, whose output the test runner keeps to itself when a test passes.
            let _ = writeln!(
                std::io::stderr(),
                "NOT RUN: {cases} cases of {suite} on a real control plane; `make kube-assets` builds it (needs Go)"
            );
        }
        found
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The version that `tools/kube` builds, as v1.36.3.
#[must_use]
pub fn version() -> &'static str {
    let required = GO_MOD.lines().find_map(|line| {
        line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes ")
    });
    required.expect("tools/kube/control-plane/go.mod requires k8s.io/kubernetes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        assert!(version().starts_with("v1."), "{}", version());
    }

    #[test]
    fn a_folder_without_programs_names_the_first_missing_one() {
        let nowhere = Path::new("/nonexistent");
        assert_eq!(Assets::at(nowhere).expect_err("nothing there"), "etcd");
    }
}
