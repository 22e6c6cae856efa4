//! The real kubectl, if there is one.

use std::process::{Command, Stdio};

/// Whether kubectl is installed; one loud line when it is not.
pub fn has_kubectl() -> bool {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("SKIPPED: kubectl is not installed, what goes through it was not tried");
    }
    found
}
