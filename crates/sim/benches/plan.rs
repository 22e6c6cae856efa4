//! How long the decision about a large set takes. Prints; asserts nothing about time.

use drover_api::{Machine, MachineSet, MachineStatus, Phase};
use drover_plan::machine_set::{Observed, Settings, plan};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const MACHINES: usize = 10_000;
const ROUNDS: usize = 20;

fn main() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a timestamp");
    for (what, replicas) in [("steady", MACHINES), ("shrinks to half", MACHINES / 2)] {
        let set = set(replicas);
        let machines = machines(&set);
        let settings = Settings::default();
        let mut took: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                let plan = plan(&Observed {
                    set: &set,
                    machines: &machines,
                    deleted: &BTreeSet::new(),
                    trouble: None,
                    settings: &settings,
                    now,
                });
                let _ = black_box(plan);
                began.elapsed().as_secs_f64() * 1000.0
            })
            .collect();
        took.sort_by(f64::total_cmp);
        println!(
            "plan of a MachineSet with {MACHINES} machines, {what}: {:.2} ms median, {:.2} to {:.2} of {ROUNDS}",
            took[ROUNDS / 2],
            took[0],
            took[ROUNDS - 1],
        );
    }
}

fn set(replicas: usize) -> MachineSet {
    serde_json::from_value(json!({
        "metadata": { "name": "pool", "namespace": "kube-system", "uid": "set", "generation": 1 },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "group": "pool" } },
            "template": { "metadata": { "labels": { "group": "pool" } }, "spec": {} },
        },
    }))
    .expect("a set")
}

fn machines(set: &MachineSet) -> Vec<Arc<Machine>> {
    let owner = json!([{
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "controller": true,
        "name": "pool", "uid": set.metadata.uid,
    }]);
    (0..MACHINES)
        .map(|serial| {
            let mut machine: Machine = serde_json::from_value(json!({
                "metadata": {
                    "name": format!("pool-{serial:05}"), "namespace": "kube-system",
                    "uid": format!("uid-{serial:05}"), "labels": { "group": "pool" },
                    "ownerReferences": owner, "creationTimestamp": "2025-12-01T00:00:00Z",
                },
                "spec": {},
            }))
            .expect("a machine");
            machine.status =
                Some(MachineStatus { phase: Some(Phase::Running), ..MachineStatus::default() });
            Arc::new(machine)
        })
        .collect()
}
