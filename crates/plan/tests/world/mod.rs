//! An API server in a nutshell: objects with versions, a history to lag behind, and fenced writes.

use drover_api::{
    Condition, ConditionStatus, Machine, MachineDeployment, MachineSet, MachineStatus, Phase,
};
use drover_plan::{machine_deployment, machine_set};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A kind whose cache lags on its own.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Deployment,
    Set,
    Machine,
}

/// The writes of a plan were cut short: refused, or the manager died.
struct Stopped;

/// The objects of one kind, their history, and what a lagging cache knows of it.
struct Shelf<K> {
    now: BTreeMap<String, K>,
    history: Vec<(String, Option<K>)>,
    seen: BTreeMap<String, Arc<K>>,
    cursor: usize,
    version: u64,
}

impl<K> Shelf<K>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned,
{
    fn new() -> Self {
        let (now, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { now, history: Vec::new(), seen, cursor: 0, version: 0 }
    }

    fn put(&mut self, mut object: K) {
        self.version += 1;
        let name = object.name_any();
        let version = self.version.to_string();
        object.meta_mut().uid.get_or_insert_with(|| format!("uid-{name}-{version}"));
        object.meta_mut().resource_version = Some(version);
        self.history.push((name.clone(), Some(object.clone())));
        self.now.insert(name, object);
    }

    fn remove(&mut self, name: &str) {
        self.history.push((name.to_owned(), None));
        self.now.remove(name);
    }

    fn catch(&mut self, count: usize) {
        let version = |object: &K| -> u64 {
            object.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        for (name, object) in self.history.iter().skip(self.cursor).take(count) {
            let newer = self.seen.get(name).is_some_and(|seen| match object {
                Some(object) => version(seen) > version(object),
                None => false,
            });
            match object {
                _ if newer => {}
                Some(object) => drop(self.seen.insert(name.clone(), Arc::new(object.clone()))),
                None => drop(self.seen.remove(name)),
            }
        }
        self.cursor = self.history.len().min(self.cursor.saturating_add(count));
    }

    /// The manager's caches of sets and deployments show its own writes at once.
    fn see_own(&mut self, name: &str) {
        match self.now.get(name) {
            Some(object) => drop(self.seen.insert(name.to_owned(), Arc::new(object.clone()))),
            None => drop(self.seen.remove(name)),
        }
    }

    fn all_seen(&self) -> Vec<Arc<K>> {
        self.seen.values().cloned().collect()
    }

    /// A JSON merge patch; a version in it must be the present one.
    fn patch(&mut self, name: &str, patch: &Value, changes_spec: bool) -> Result<(), Stopped> {
        let object = self.now.get(name).ok_or(Stopped)?;
        let version = &patch["metadata"]["resourceVersion"];
        if version.is_string() && *version != json!(object.meta().resource_version) {
            return Err(Stopped);
        }
        let mut value = serde_json::to_value(object).unwrap();
        merge(&mut value, patch);
        let mut next: K = serde_json::from_value(value).unwrap();
        if changes_spec {
            *next.meta_mut().generation.get_or_insert_default() += 1;
        }
        self.put(next);
        Ok(())
    }

    /// A status is written over the version it was drawn from, or not at all.
    fn put_status(&mut self, drawn_from: &K, set: impl FnOnce(&mut K)) -> Result<(), Stopped> {
        let object = self.now.get(&drawn_from.name_any()).ok_or(Stopped)?;
        if object.meta().resource_version != drawn_from.meta().resource_version {
            return Err(Stopped);
        }
        let mut next = object.clone();
        set(&mut next);
        self.put(next);
        Ok(())
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => merge(&mut target[key], value),
        }
    }
}

pub struct World {
    pub now: i64,
    deployments: Shelf<MachineDeployment>,
    sets: Shelf<MachineSet>,
    machines: Shelf<Machine>,
    /// What this manager deleted and has not seen go.
    deleted: BTreeSet<String>,
    surge: u32,
    most_wanted: u32,
    most_asked: BTreeMap<String, u32>,
}

impl World {
    pub fn new(replicas: u32, surge: u32, unavailable: u32) -> Self {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let mut world = Self {
            now: 1_800_000_000,
            deployments: Shelf::new(),
            sets: Shelf::new(),
            machines: Shelf::new(),
            deleted: BTreeSet::new(),
            surge,
            most_wanted: replicas,
            most_asked: BTreeMap::new(),
        };
        let deployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "nodes", "namespace": "kube-system", "generation": 1},
            "spec": {
                "replicas": replicas,
                "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
                "selector": {"matchLabels": {"group": "nodes"}},
                "template": {
                    "metadata": {"labels": {"group": "nodes"}},
                    "spec": {"versions": {"kubelet": "1.30.0"}},
                },
            },
        }));
        world.deployments.put(deployment.unwrap());
        world
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now).unwrap()
    }

    fn deployment(&self) -> &MachineDeployment {
        &self.deployments.now["nodes"]
    }

    pub fn most(&self) -> usize {
        let spec = &self.deployment().spec;
        (spec.replicas + spec.strategy.rolling().max_surge.round_up(spec.replicas)) as usize
    }

    pub fn fewest_available(&self) -> usize {
        let spec = &self.deployment().spec;
        let unavailable = spec.strategy.rolling().max_unavailable.round_down(spec.replicas);
        (spec.replicas - unavailable.min(spec.replicas)) as usize
    }

    pub fn catch(&mut self, kind: Kind, count: usize) {
        match kind {
            Kind::Deployment => self.deployments.catch(count),
            Kind::Set => self.sets.catch(count),
            Kind::Machine => self.machines.catch(count),
        }
    }

    pub fn see_all(&mut self) {
        for kind in [Kind::Deployment, Kind::Set, Kind::Machine] {
            self.catch(kind, usize::MAX);
        }
    }

    /// A new manager knows nothing and lists everything.
    fn restart(&mut self) {
        self.deleted.clear();
        self.see_all();
    }

    /// Looks at the deployment; the manager dies after so many writes.
    pub fn roll(&mut self, writes: usize) {
        let Some(deployment) = self.deployments.seen.get("nodes").cloned() else { return };
        let plan = machine_deployment::plan(&machine_deployment::Observed {
            deployment: &deployment,
            sets: &self.sets.all_seen(),
            machines: &self.herds(),
            trouble: None,
            settings: &machine_deployment::Settings::default(),
            now: self.time(),
        });
        let mut left = writes;
        if self.act_on_deployment(&deployment, plan, &mut left).is_err() && left == 0 {
            self.restart();
        }
    }

    /// The machines of each set, as this manager sees them.
    fn herds(&self) -> BTreeMap<String, machine_deployment::Herd> {
        let mut herds = BTreeMap::<String, machine_deployment::Herd>::new();
        for machine in self.machines.all_seen() {
            let owner = machine.owner_references().iter().find(|it| it.controller == Some(true));
            let Some(owner) = owner else { continue };
            let herd = herds.entry(owner.name.clone()).or_default();
            *if is_staying(&machine) { &mut herd.staying } else { &mut herd.leaving } += 1;
        }
        herds
    }

    fn act_on_deployment(
        &mut self,
        deployment: &MachineDeployment,
        plan: machine_deployment::Plan,
        left: &mut usize,
    ) -> Result<(), Stopped> {
        use machine_deployment::Step;
        if deployment.status.as_ref() != Some(&plan.status) {
            spend(left)?;
            self.deployments.put_status(deployment, |it| it.status = Some(plan.status))?;
            self.deployments.see_own("nodes");
        }
        for step in plan.steps {
            spend(left)?;
            match step {
                Step::CreateSet { set, .. } => {
                    if !self.sets.now.contains_key(&set.name_any()) {
                        let mut set = *set;
                        set.metadata.generation = Some(1);
                        set.metadata.creation_timestamp = Some(Time(self.time()));
                        let name = set.name_any();
                        self.sets.put(set);
                        self.sets.see_own(&name);
                    }
                }
                Step::PatchSet { name, patch, resize, .. } => {
                    self.sets.patch(&name, &patch, resize.is_some())?;
                    self.sets.see_own(&name);
                }
                Step::DeleteSet { name, uid, .. } => {
                    self.sets.remove(&name);
                    self.collect_garbage(&uid);
                }
                Step::PatchDeployment { patch } => {
                    self.deployments.patch("nodes", &patch, false)?
                }
                Step::ReplaceDeployment { .. } => panic!("nobody asked for a rollback"),
            }
        }
        Ok(())
    }

    fn collect_garbage(&mut self, owner: &str) {
        let owned = self.machines.now.values().filter(|it| it.owner_references()[0].uid == owner);
        for mut machine in owned.cloned().collect::<Vec<_>>() {
            let time = Time(self.time());
            machine.metadata.deletion_timestamp.get_or_insert(time);
            self.machines.put(machine);
        }
    }

    /// Looks at one set; the manager dies after so many writes.
    pub fn keep(&mut self, index: usize, writes: usize) {
        let sets = self.sets.all_seen();
        if sets.is_empty() {
            return;
        }
        let set = sets[index % sets.len()].clone();
        let machines = self.machines.all_seen();
        let plan = machine_set::plan(&machine_set::Observed {
            set: &set,
            machines: &machines,
            deleted: &self.deleted,
            trouble: None,
            settings: &machine_set::Settings::default(),
            now: self.time(),
        });
        let mut left = writes;
        if self.act_on_set(&set, plan, &mut left).is_err() && left == 0 {
            self.restart();
        }
    }

    fn act_on_set(
        &mut self,
        set: &MachineSet,
        plan: machine_set::Plan,
        left: &mut usize,
    ) -> Result<(), Stopped> {
        use machine_set::Step;
        if set.status.as_ref() != Some(&plan.status) {
            spend(left)?;
            self.sets.put_status(set, |it| it.status = Some(plan.status))?;
            self.sets.see_own(&set.name_any());
        }
        for step in plan.steps {
            spend(left)?;
            match step {
                Step::Create { machine, .. } => {
                    if !self.machines.now.contains_key(&machine.name_any()) {
                        let mut machine = *machine;
                        machine.metadata.creation_timestamp = Some(Time(self.time()));
                        self.machines.put(machine);
                    }
                }
                Step::Delete { name, uid, .. } => {
                    let Some(machine) = self.machines.now.get(&name) else { continue };
                    if machine.uid().as_ref() != Some(&uid) {
                        continue;
                    }
                    let mut machine = machine.clone();
                    let time = Time(self.time());
                    machine.metadata.deletion_timestamp.get_or_insert(time);
                    self.deleted.insert(uid);
                    self.machines.put(machine);
                }
                Step::Patch { name, patch, .. } | Step::Follow { name, patch } => {
                    self.machines.patch(&name, &patch, false)?;
                }
            }
        }
        Ok(())
    }

    /// Every set is looked at through fresh caches.
    pub fn keep_all(&mut self) {
        for index in 0..self.sets.now.len() {
            self.see_all();
            self.keep(index, usize::MAX);
        }
        self.see_all();
    }

    fn pick(&self, index: usize, of: impl Fn(&Machine) -> bool) -> Option<Machine> {
        let found: Vec<&Machine> = self.machines.now.values().filter(|it| of(it)).collect();
        found.get(index % found.len().max(1)).map(|&machine| machine.clone())
    }

    pub fn flip(&mut self, index: usize) {
        let Some(mut machine) = self.pick(index, is_staying) else { return };
        let is_ready = is_ready(&machine);
        let status = machine.status.get_or_insert_default();
        if status.phase == Some(Phase::Failed) {
            return;
        }
        status.node_ref = Some(ObjectReference::default());
        let (time, holds) = (self.now, !is_ready);
        status.conditions = vec![Condition {
            type_: "Ready".to_owned(),
            status: ConditionStatus::from(holds),
            last_transition_time: Some(Time(Timestamp::from_second(time).unwrap())),
            ..Condition::default()
        }];
        self.machines.put(machine);
    }

    pub fn fail(&mut self, index: usize) {
        let fresh = |machine: &Machine| {
            is_staying(machine) && machine.status.as_ref().is_none_or(|it| it.node_ref.is_none())
        };
        let Some(mut machine) = self.pick(index, fresh) else { return };
        machine.status = Some(MachineStatus { phase: Some(Phase::Failed), ..Default::default() });
        self.machines.put(machine);
    }

    pub fn leave(&mut self, index: usize) {
        if let Some(machine) = self.pick(index, |machine| !is_staying(machine)) {
            self.machines.remove(&machine.name_any());
        }
    }

    pub fn scale(&mut self, replicas: u32) {
        self.most_wanted = self.most_wanted.max(replicas);
        self.edit(&json!({ "spec": { "replicas": replicas } }));
    }

    pub fn change(&mut self, template: u8) {
        let kubelet = format!("1.30.{template}");
        self.edit(
            &json!({ "spec": { "template": { "spec": { "versions": { "kubelet": kubelet } } } } }),
        );
    }

    fn edit(&mut self, patch: &Value) {
        assert!(self.deployments.patch("nodes", patch, true).is_ok());
    }

    /// The machines that nobody deletes.
    pub fn staying(&self) -> impl Iterator<Item = &Machine> {
        self.machines.now.values().filter(|machine| is_staying(machine))
    }

    pub fn available(&self) -> usize {
        self.staying().filter(|machine| is_ready(machine)).count()
    }

    pub fn assert_within_bounds(&mut self) {
        let mut asked = 0;
        for (name, set) in &self.sets.now {
            let most = self.most_asked.entry(name.clone()).or_default();
            *most = (*most).max(set.spec.replicas);
            asked += set.spec.replicas;
            let owned = self.machines.now.values().filter(|machine| is_staying(machine));
            let owned = owned.filter(|it| it.owner_references()[0].uid == set.uid().unwrap());
            assert!(owned.count() <= *most as usize, "{name} was asked for {most} machines");
        }
        assert!(asked <= self.most_wanted + self.surge, "{asked} machines are asked for");
    }

    /// Heals everything and demands that the pool becomes what is wanted.
    pub fn come_to_rest(&mut self) {
        const ROUNDS_MAX: usize = 300;
        for _ in 0..ROUNDS_MAX {
            let before = self.deployments.version + self.sets.version + self.machines.version;
            self.restart();
            self.roll(usize::MAX);
            self.keep_all();
            for index in 0..self.machines.now.len() {
                self.leave(index);
            }
            let waiting = |it: &Machine| is_staying(it) && !is_ready(it);
            let waiting: Vec<String> =
                self.staying().filter(|it| waiting(it)).map(ResourceExt::name_any).collect();
            for name in waiting {
                let index = self.staying().position(|it| it.name_any() == name).unwrap();
                self.flip(index);
            }
            self.now += 100;
            let after = self.deployments.version + self.sets.version + self.machines.version;
            if before == after {
                return self.assert_wanted();
            }
        }
        panic!("the pool did not come to rest within {ROUNDS_MAX} rounds");
    }

    fn assert_wanted(&self) {
        let spec = &self.deployment().spec;
        let of_template = |machine: &&Machine| machine.spec.versions == spec.template.spec.versions;
        assert_eq!(self.staying().filter(of_template).count(), spec.replicas as usize);
        assert_eq!(self.available(), spec.replicas as usize);
        assert_eq!(self.machines.now.len(), spec.replicas as usize);
    }
}

fn spend(left: &mut usize) -> Result<(), Stopped> {
    *left = left.checked_sub(1).ok_or(Stopped)?;
    Ok(())
}

fn is_staying(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_none()
}

fn is_ready(machine: &Machine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|it| it.type_ == "Ready");
    ready.any(|it| it.status == ConditionStatus::True)
}
