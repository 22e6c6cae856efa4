//! Deployments in a line, plans in a line.

mod in_place;
mod reports;

use super::*;
use crate::machine_set;
use drover_api::{Condition, Machine, MachineSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;

const NOW: i64 = 1_800_000_000;

fn deployment(spec: Value) -> MachineDeployment {
    let mut deployment: MachineDeployment = serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "nodes", "namespace": "kube-system", "uid": "md", "generation": 1},
        "spec": {
            "selector": {"matchLabels": {"group": "nodes"}},
            "template": {
                "metadata": {"labels": {"group": "nodes"}},
                "spec": {"versions": {"kubelet": "1.30.3"}},
            },
        },
    }))
    .unwrap();
    let mut whole = serde_json::to_value(&deployment.spec).unwrap();
    let fields = spec.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    deployment.spec = serde_json::from_value(whole).unwrap();
    deployment.metadata.resource_version = Some("1".to_owned());
    deployment
}

fn rolling(replicas: u32, surge: Value, unavailable: Value) -> MachineDeployment {
    deployment(json!({
        "replicas": replicas,
        "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
    }))
}

/// The API server, the garbage collector and the set controller in their simplest form: what a
/// plan asks for is written, and sets have the machines they ask for.
struct World {
    deployment: MachineDeployment,
    sets: Vec<MachineSet>,
    /// What the sets have, where it is not what they are asked for.
    machines: BTreeMap<String, Herd>,
    strict_surge: bool,
    now: i64,
    log: Vec<String>,
}

impl World {
    fn of(deployment: MachineDeployment) -> Self {
        let machines = BTreeMap::new();
        Self {
            deployment,
            sets: Vec::new(),
            machines,
            strict_surge: false,
            now: NOW,
            log: Vec::new(),
        }
    }

    fn plan(&self) -> Plan {
        let sets: Vec<Arc<MachineSet>> = self.sets.iter().cloned().map(Arc::new).collect();
        let settings = Settings { strict_surge: self.strict_surge };
        let now = Timestamp::from_second(self.now).unwrap();
        let Self { deployment, machines, .. } = self;
        plan(&Observed {
            deployment,
            sets: &sets,
            machines,
            trouble: None,
            settings: &settings,
            now,
        })
    }

    /// One pass; answers whether anything was written besides the status.
    fn pass(&mut self) -> bool {
        let Plan { status, steps, wake: _ } = self.plan();
        self.deployment.status = Some(status);
        self.now += 1;
        for step in &steps {
            self.act(step);
        }
        !steps.is_empty()
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::CreateSet { set, why } => {
                self.log.push(format!("create {}: {}", set.spec.replicas, why.as_str()));
                let taken = self.sets.iter().any(|other| other.metadata.name == set.metadata.name);
                assert!(!taken, "the API server would refuse {:?}", set.name_any());
                let mut set = (**set).clone();
                set.metadata.uid = Some(format!("uid-{}", set.name_any()));
                set.metadata.resource_version = Some("1".to_owned());
                set.metadata.generation = Some(1);
                set.metadata.creation_timestamp =
                    Some(Time(Timestamp::from_second(self.now).unwrap()));
                self.sets.push(set);
            }
            Step::PatchSet { name, patch, resize, why } => {
                if let Some(Resize { from, to }) = resize {
                    self.log.push(format!("{from} to {to}: {}", why.as_str()));
                }
                let set = self.sets.iter_mut().find(|set| set.name_any() == *name).unwrap();
                assert_eq!(patch["metadata"]["uid"], json!(set.metadata.uid));
                let mut value = serde_json::to_value(&*set).unwrap();
                merge(&mut value, patch);
                *set = serde_json::from_value(value).unwrap();
            }
            Step::DeleteSet { name, uid, why } => {
                self.log.push(format!("delete: {}", why.as_str()));
                self.sets.retain(|set| set.name_any() != *name || set.uid().as_ref() != Some(uid));
            }
            Step::PatchDeployment { patch } => {
                let mut value = serde_json::to_value(&self.deployment).unwrap();
                merge(&mut value, patch);
                self.deployment = serde_json::from_value(value).unwrap();
            }
            Step::ReplaceDeployment { deployment, why } => {
                self.log.push(format!("replace: {}", why.as_str()));
                let status = self.deployment.status.take();
                self.deployment = MachineDeployment { status, ..(**deployment).clone() };
            }
        }
    }

    /// Every set has its machines, and all are available.
    fn settle(&mut self) {
        for set in &mut self.sets {
            let count = set.spec.replicas;
            set.status = Some(MachineSetStatus {
                replicas: count,
                ready_replicas: count,
                available_replicas: count,
                observed_generation: set.metadata.generation,
                ..MachineSetStatus::default()
            });
        }
    }

    fn run(&mut self) {
        for _ in 0..100 {
            self.settle();
            if !self.pass() {
                return;
            }
        }
        panic!("the deployment does not come to rest: {:?}", self.log);
    }

    fn change_template(&mut self, kubelet: &str) {
        self.deployment.spec.template.spec.versions.kubelet = kubelet.to_owned();
    }

    fn revisions(&self) -> Vec<String> {
        let revision = |set: &MachineSet| set.annotations()[labels::REVISION].clone();
        self.sets.iter().map(revision).collect()
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        let status = self.deployment.status.as_ref()?;
        status.conditions.iter().find(|condition| condition.type_ == kind)
    }

    fn reason(&self, kind: &str) -> &str {
        self.condition(kind).map_or("", |condition| &condition.reason)
    }
}

/// JSON merge patch, RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => merge(&mut target[key], value),
        }
    }
}

/// The sizes of old and new after each pass of a rollout in which new machines become available.
fn trace(replicas: u32, surge: Value, unavailable: Value) -> String {
    let mut world = World::of(rolling(replicas, surge, unavailable));
    world.run();
    world.change_template("1.31.0");
    let mut sizes: Vec<String> = Vec::new();
    loop {
        world.settle();
        if !world.pass() {
            break;
        }
        let new = world.sets.get(1).map_or(0, |set| set.spec.replicas);
        let line = format!("{},{new}", world.sets[0].spec.replicas);
        if sizes.last() != Some(&line) {
            sizes.push(line);
        }
    }
    assert_eq!(world.reason("Progressing"), "NewMachineSetAvailable");
    sizes.join(" > ")
}

#[test]
fn rollouts_go_step_by_step() {
    assert_eq!(trace(3, json!(1), json!(0)), "3,1 > 2,1 > 2,2 > 1,2 > 1,3 > 0,3");
    let quarter = json!("25%");
    assert_eq!(trace(10, quarter.clone(), quarter), "10,3 > 5,3 > 5,8 > 0,8 > 0,10");
    assert_eq!(trace(3, json!(0), json!("10%")), "2,0 > 2,1 > 1,1 > 1,2 > 0,2 > 0,3");
    assert_eq!(trace(2, json!("100%"), json!(0)), "2,2 > 0,2");
}

#[test]
fn a_deployment_gets_one_set_that_follows_it() {
    let mut world = World::of(deployment(json!({"replicas": 3})));
    world.run();
    assert_eq!(world.log, ["create 3: NewMachineSetCreated"]);
    assert_eq!(world.deployment.annotations()[labels::REVISION], "1");
    world.log.clear();
    for replicas in [5, 2, 0] {
        world.deployment.spec.replicas = replicas;
        world.run();
    }
    let sizes = [
        "3 to 5: NewMachineSetGrows",
        "5 to 2: NewMachineSetShrinks",
        "2 to 0: NewMachineSetShrinks",
    ];
    assert_eq!(world.log, sizes);
    assert_eq!(world.sets.len(), 1);
}

#[test]
fn a_set_is_born_complete() {
    let mut deployment = rolling(2, json!(1), json!(0));
    let annotations = [(labels::AUTOSCALER_MAX, "9"), (labels::LAST_APPLIED, "{}")];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    deployment.metadata.annotations = Some(BTreeMap::from(annotations));
    let plan = World::of(deployment).plan();
    let Step::CreateSet { set, .. } = &plan.steps[0] else { panic!("{:?}", plan.steps) };
    insta::assert_json_snapshot!(set, @r#"
    {
      "apiVersion": "cluster.k8s.io/v1alpha1",
      "kind": "MachineSet",
      "metadata": {
        "annotations": {
          "cluster.k8s.io/cluster-api-autoscaler-node-group-max-size": "9",
          "machinedeployment.clusters.k8s.io/desired-replicas": "2",
          "machinedeployment.clusters.k8s.io/max-replicas": "3",
          "machinedeployment.clusters.k8s.io/revision": "1"
        },
        "finalizers": [
          "foregroundDeletion"
        ],
        "labels": {
          "group": "nodes",
          "machine-template-hash": "2567605696"
        },
        "name": "nodes-69bcb49bfb",
        "namespace": "kube-system",
        "ownerReferences": [
          {
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "MachineDeployment",
            "name": "nodes",
            "uid": "md"
          }
        ]
      },
      "spec": {
        "replicas": 2,
        "minReadySeconds": 0,
        "selector": {
          "matchLabels": {
            "group": "nodes",
            "machine-template-hash": "2567605696"
          }
        },
        "template": {
          "metadata": {
            "labels": {
              "group": "nodes",
              "machine-template-hash": "2567605696"
            }
          },
          "spec": {
            "versions": {
              "kubelet": "1.30.3"
            }
          }
        }
      }
    }
    "#);
}

#[test]
fn a_stale_cache_makes_the_same_set_again() {
    let world = World::of(deployment(json!({"replicas": 3})));
    assert_eq!(world.plan().steps, world.plan().steps);
    let mut changed = World::of(world.deployment.clone());
    changed.change_template("1.31.0");
    assert_ne!(world.plan().steps, changed.plan().steps);
}

#[test]
fn the_hash_does_not_depend_on_the_order_of_keys() {
    let template = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        let mut template = deployment(json!({})).spec.template;
        template.spec.provider_spec.value = Some(value);
        template
    };
    let (a, b) = (template(r#"{"a": {"b": 1, "c": 2}}"#), template(r#"{"a": {"c": 2, "b": 1}}"#));
    assert!(template::is_same(&a, &b));
    assert_eq!(template::hash(&a, 0), template::hash(&b, 0));
    assert_ne!(template::hash(&a, 0), template::hash(&a, 1));
}

#[test]
fn only_a_change_of_the_template_rolls() {
    let mut world = World::of(deployment(json!({"replicas": 2})));
    world.run();
    world.deployment.spec.min_ready_seconds = 30;
    world.deployment.annotations_mut().insert("a".to_owned(), "b".to_owned());
    world.run();
    assert_eq!(world.sets.len(), 1);
    assert_eq!(world.sets[0].spec.min_ready_seconds, 30);
    assert_eq!(world.sets[0].annotations()["a"], "b");
    let restarted = "2026-11-21T10:00:00Z".to_owned();
    let template = &mut world.deployment.spec.template.metadata;
    template.annotations.insert(labels::RESTARTED_AT.to_owned(), restarted);
    world.run();
    let sizes: Vec<u32> = world.sets.iter().map(|set| set.spec.replicas).collect();
    assert_eq!(sizes, [0, 2]);
}

#[test]
fn going_back_to_a_template_uses_its_set_again() {
    let mut world = World::of(deployment(json!({"replicas": 2})));
    world.run();
    world.change_template("1.31.0");
    world.run();
    assert_eq!(world.revisions(), ["1", "2"]);
    world.change_template("1.30.3");
    world.run();
    assert_eq!(world.revisions(), ["3", "2"]);
    assert_eq!(world.sets[0].annotations()[labels::REVISION_HISTORY], "1");
    assert_eq!(world.sets[0].spec.replicas, 2);
    assert_eq!(world.deployment.annotations()[labels::REVISION], "3");
}

#[test]
fn a_rollback_is_asked_for_by_its_number() {
    let mut world = World::of(deployment(json!({"replicas": 2, "revisionHistoryLimit": 5})));
    for kubelet in ["1.30.3", "1.31.0", "1.32.0"] {
        world.change_template(kubelet);
        world.run();
    }
    for (revision, kubelet, revisions) in
        [(1, "1.30.3", ["4", "2", "3"]), (0, "1.32.0", ["4", "2", "5"])]
    {
        world.deployment.spec.rollback_to = Some(drover_api::RollbackTo { revision });
        world.run();
        assert_eq!(world.deployment.spec.rollback_to, None);
        assert_eq!(world.deployment.spec.template.spec.versions.kubelet, kubelet);
        assert_eq!(world.revisions(), revisions);
    }
    world.log.clear();
    world.deployment.spec.rollback_to = Some(drover_api::RollbackTo { revision: 17 });
    world.run();
    assert_eq!(world.log, ["replace: RollbackRevisionNotFound"]);
}

#[test]
fn only_so_many_empty_sets_are_kept() {
    for (limit, kept) in [(0, 1), (1, 2), (2, 3), (9, 4)] {
        let spec = json!({"replicas": 1, "revisionHistoryLimit": limit});
        let mut world = World::of(deployment(spec));
        for kubelet in ["1.30.3", "1.31.0", "1.32.0", "1.33.0"] {
            world.change_template(kubelet);
            world.run();
        }
        assert_eq!(world.sets.len(), kept, "limit {limit}");
        assert_eq!(world.sets.last().unwrap().spec.template.spec.versions.kubelet, "1.33.0");
    }
}

#[test]
fn recreation_lets_all_old_machines_go_first() {
    let mut world = World::of(deployment(json!({"replicas": 2, "strategy": {"type": "Recreate"}})));
    world.run();
    world.change_template("1.31.0");
    world.log.clear();
    assert!(world.pass());
    assert_eq!(world.log, ["2 to 0: OldMachineSetShrinks", "create 0: NewMachineSetCreated"]);
    world.settle();
    world.machines.insert(world.sets[0].name_any(), Herd { staying: 0, leaving: 1 });
    world.pass();
    assert_eq!(world.sets[1].spec.replicas, 0);
    world.machines.clear();
    world.run();
    assert_eq!(world.sets[1].spec.replicas, 2);
}

#[test]
fn machines_that_should_be_gone_hold_a_rollout_back() {
    let to_be_deleted = Herd { staying: 3, leaving: 0 };
    let being_deleted = Herd { staying: 2, leaving: 1 };
    for (strict_surge, old, grown) in [
        (false, to_be_deleted, 1),
        (false, being_deleted, 2),
        (true, being_deleted, 1),
        (true, Herd { staying: 2, leaving: 0 }, 2),
    ] {
        let mut world = World::of(rolling(3, json!(1), json!(0)));
        world.strict_surge = strict_surge;
        world.run();
        world.change_template("1.31.0");
        world.pass();
        world.settle();
        world.pass();
        world.machines.insert(world.sets[0].name_any(), old);
        world.settle();
        world.pass();
        assert_eq!(world.sets[1].spec.replicas, grown, "strict {strict_surge}, {old:?}");
    }
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::of(rolling(4, json!(1), json!(0)));
    world.run();
    world.change_template("1.31.0");
    world.pass();
    world.settle();
    world.pass();
    let sizes =
        |world: &World| -> Vec<u32> { world.sets.iter().map(|set| set.spec.replicas).collect() };
    assert_eq!(sizes(&world), [3, 1]);
    world.deployment.spec.paused = true;
    world.run();
    assert_eq!((sizes(&world), world.reason("Progressing")), (vec![3, 1], "DeploymentPaused"));
    world.deployment.spec.replicas = 8;
    world.run();
    assert_eq!(sizes(&world), [7, 2]);
    world.change_template("1.32.0");
    world.run();
    assert_eq!(world.sets.len(), 2);
    world.deployment.spec.paused = false;
    world.run();
    assert_eq!(sizes(&world).iter().sum::<u32>(), 8);
    assert_eq!(world.reason("Progressing"), "NewMachineSetAvailable");
    assert!(world.condition("Paused").is_none());
}

#[test]
fn a_name_that_is_taken_is_passed_over() {
    let mut world = World::of(deployment(json!({"replicas": 1})));
    world.run();
    world.sets[0].spec.template.spec.versions.kubelet = "edited by hand".to_owned();
    world.run();
    let status = world.deployment.status.as_ref().unwrap();
    assert_eq!(status.collision_count, Some(1));
    assert_eq!(world.sets.len(), 2);
    assert_eq!(world.sets[1].spec.replicas, 1);
}

#[test]
fn a_set_without_a_controller_is_adopted() {
    let mut world = World::of(deployment(json!({"replicas": 1})));
    world.run();
    world.sets[0].metadata.owner_references = None;
    world.run();
    assert_eq!(world.sets[0].owner_references()[0].uid, "md");
    world.sets[0].metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
    world.run();
    assert_eq!(world.sets[0].owner_references()[0].uid, "other");
    assert_eq!(world.sets.len(), 2);
}

/// A set of a deployment makes machines that the set's own plan is content with.
#[test]
fn a_set_made_here_makes_machines_there() {
    let mut world = World::of(deployment(json!({"replicas": 2})));
    world.pass();
    let (settings, deleted) = (machine_set::Settings::default(), BTreeSet::new());
    let see = |machines: &[Arc<Machine>]| {
        machine_set::plan(&machine_set::Observed {
            set: &world.sets[0],
            machines,
            deleted: &deleted,
            trouble: None,
            settings: &settings,
            now: Timestamp::from_second(NOW).unwrap(),
        })
    };
    let steps = see(&[]).steps;
    let machines = steps.into_iter().map(|step| match step {
        machine_set::Step::Create { machine, .. } => Arc::new(*machine),
        other => panic!("{other:?}"),
    });
    let machines: Vec<Arc<Machine>> = machines.collect();
    let hash = world.sets[0].labels()[labels::TEMPLATE_HASH].clone();
    assert!(machines.iter().all(|machine| machine.labels()[labels::TEMPLATE_HASH] == hash));
    let next = see(&machines);
    assert_eq!((next.steps, next.status.fully_labeled_replicas), (Vec::new(), 2));
}
