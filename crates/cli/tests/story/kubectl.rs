//! The real kubectl, if there is one.

use drover_lab::kube::version;
use std::process::{Command, Stdio};

/// The example; for a real control plane with a kubelet of its version, for the example's would be too old
/// (Kubernetes: version skew policy).
pub fn example(is_real: bool) -> String {
    let example = include_str!("../../../../examples/metakube/machinedeployment.yaml");
    if !is_real {
        return example.to_owned();
    }
    let fitting = format!("kubelet: {}", version().trim_start_matches('v'));
    let text = example.replace("kubelet: 1.30.3", &fitting);
    assert_ne!(text, example, "the example has another kubelet now");
    text
}

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
