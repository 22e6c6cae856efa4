//! The real kubectl, if there is one.

use drover_lab::kube::version;
use drover_plan::skew::misfit;
use std::process::{Command, Stdio};

/// The kubelet of the example.
const KUBELET: &str = "1.30.3";

/// The example; for a real control plane with a kubelet that goes with it.
pub fn example(is_real: bool) -> String {
    let example = include_str!("../../../../examples/metakube/machinedeployment.yaml");
    assert!(example.contains(KUBELET), "the example has another kubelet now");
    match misfit(KUBELET, version()).filter(|_| is_real) {
        Some(misfit) => example.replace(KUBELET, &misfit.instead),
        None => example.to_owned(),
    }
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
