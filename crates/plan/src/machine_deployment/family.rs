//! The sets of a deployment: which one has the present template, and what is to change of each.

use super::rollout::{Bounds, Share, Size};
use super::{Observed, Resize, Step, fenced, template};
use crate::in_place;
use crate::machine_set::owner_reference;
use crate::reason::Reason;
use drover_api::{MachineSet, labels};
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A set with what is to change of it.
pub(super) struct Member<'a> {
    pub set: &'a MachineSet,
    pub change: Change,
}

#[derive(Default)]
pub(super) struct Change {
    pub replicas: Option<u32>,
    pub min_ready_seconds: Option<u32>,
    pub annotations: BTreeMap<String, String>,
    pub owners: Option<Value>,
    /// A merge patch of the template.
    pub template: Option<Value>,
    pub why: Option<Reason>,
}

impl<'a> Member<'a> {
    pub fn name(&self) -> &'a str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    /// Machines beyond the asked size are on their way out and none of them is relied on.
    pub fn size(&self) -> Size {
        let spec = self.set.spec.replicas;
        let available = self.set.status.as_ref().map_or(0, |status| status.available_replicas);
        Size { spec, available: available.min(spec) }
    }

    /// How many machines it was last seen to have.
    pub fn replicas(&self) -> u32 {
        self.set.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub fn share(&self) -> Share {
        let most_then = self.number(labels::MAX_REPLICAS).unwrap_or(self.replicas());
        Share { spec: self.set.spec.replicas, most_then }
    }

    /// Whether its status was written after its spec last changed.
    pub fn is_observed(&self) -> bool {
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation);
        observed >= self.set.metadata.generation
    }

    pub fn is_empty(&self) -> bool {
        self.set.spec.replicas == 0 && self.replicas() == 0 && self.is_observed()
    }

    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        self.set.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The annotation as it will be.
    pub fn next_annotation(&self, key: &str) -> Option<&str> {
        self.change.annotations.get(key).map(String::as_str).or(self.annotation(key))
    }

    pub fn number(&self, key: &str) -> Option<u32> {
        self.annotation(key)?.parse().ok()
    }

    /// Counted from 1; 0 when it has none.
    pub fn revision(&self) -> u64 {
        self.annotation(labels::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    pub fn annotate(&mut self, key: &str, value: String) {
        if self.annotation(key) != Some(&value) {
            self.change.annotations.insert(key.to_owned(), value);
        }
    }

    pub fn resize(&mut self, replicas: u32, bounds: &Bounds, why: Reason) {
        if replicas != self.set.spec.replicas {
            self.change.replicas = Some(replicas);
        }
        self.change.why = Some(why);
        for (key, value) in sizing(bounds) {
            self.annotate(&key, value);
        }
    }

    fn step(&self) -> Option<Step> {
        let Change { replicas, min_ready_seconds, annotations, owners, template, why } =
            &self.change;
        let (mut metadata, mut spec) = (Map::new(), Map::new());
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(annotations));
        }
        if let Some(owners) = owners {
            metadata.insert("ownerReferences".to_owned(), owners.clone());
        }
        if let Some(replicas) = replicas {
            spec.insert("replicas".to_owned(), json!(replicas));
        }
        if let Some(seconds) = min_ready_seconds {
            spec.insert("minReadySeconds".to_owned(), json!(seconds));
        }
        if let Some(template) = template {
            spec.insert("template".to_owned(), template.clone());
        }
        if metadata.is_empty() && spec.is_empty() {
            return None;
        }
        let from = self.set.spec.replicas;
        Some(Step::PatchSet {
            name: self.name().to_owned(),
            patch: fenced(self.set, metadata, spec),
            resize: replicas.map(|to| Resize { from, to }),
            why: why.unwrap_or(Reason::MachineSetUpdated),
        })
    }
}

/// The sets that the deployment controls, from the oldest to the youngest.
pub(super) struct Family<'a> {
    pub members: Vec<Member<'a>>,
    /// The oldest of those that have the present template, as an index.
    pub new: Option<usize>,
    /// How often the hash of the present template met another set, when that is news.
    pub collisions: Option<u32>,
}

impl<'a> Family<'a> {
    pub fn gather(seen: &Observed<'a>) -> Self {
        let uid = seen.deployment.metadata.uid.as_deref().unwrap_or_default();
        let mut members = Vec::new();
        for set in seen.sets {
            let set: &'a MachineSet = set;
            if set.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let owner = set.owner_references().iter().find(|owner| owner.controller == Some(true));
            let mut change = Change::default();
            match owner {
                Some(owner) if owner.uid == uid => {}
                None if seen.deployment.spec.selector.matches(set.labels()) => {
                    let mut owners = set.owner_references().to_vec();
                    owners.push(owner_reference(seen.deployment));
                    change.owners = Some(json!(owners));
                    change.why = Some(Reason::MachineSetAdopted);
                }
                _ => continue,
            }
            members.push(Member { set, change });
        }
        members.sort_by(|a, b| {
            let age = |member: &Member<'a>| {
                (member.set.metadata.creation_timestamp.as_ref().map(|time| time.0), member.name())
            };
            age(a).cmp(&age(b))
        });
        let new = present(seen, &members);
        let mut family = Self { members, new, collisions: None };
        if new.is_none() {
            family.collisions = family.count_collisions(seen);
        }
        family
    }

    /// A set that has the name but not the template, or not this owner, or is on its way out, must
    /// not keep the new template waiting for ever.
    fn count_collisions(&self, seen: &Observed) -> Option<u32> {
        let past = seen.deployment.status.as_ref().and_then(|status| status.collision_count);
        let mut collisions = past.unwrap_or_default();
        loop {
            let hash = template::hash(&seen.deployment.spec.template, collisions);
            let name = template::set_name(&seen.deployment.name_any(), &hash);
            if !seen.sets.iter().any(|set| set.metadata.name.as_deref() == Some(&name)) {
                return (collisions > 0).then_some(collisions);
            }
            collisions += 1;
        }
    }

    pub fn new_set(&self) -> Option<&Member<'a>> {
        self.new.map(|index| &self.members[index])
    }

    pub fn new_set_mut(&mut self) -> Option<&mut Member<'a>> {
        self.new.map(|index| &mut self.members[index])
    }

    pub fn old(&self) -> impl Iterator<Item = &Member<'a>> {
        let new = self.new;
        self.members.iter().enumerate().filter(move |(i, _)| Some(*i) != new).map(|(_, m)| m)
    }

    pub fn old_mut(&mut self) -> impl Iterator<Item = &mut Member<'a>> {
        let new = self.new;
        self.members.iter_mut().enumerate().filter(move |(i, _)| Some(*i) != new).map(|(_, m)| m)
    }

    /// The revision that the present template has or gets.
    pub fn next_revision(&self) -> u64 {
        let old = self.old().map(Member::revision).max().unwrap_or_default();
        old + 1
    }

    pub fn steps(&self) -> Vec<Step> {
        self.members.iter().filter_map(Member::step).collect()
    }
}

/// The set of the present template: the oldest that has it; where machines take over what they can, the
/// last one used whose servers serve it.
fn present(seen: &Observed, members: &[Member]) -> Option<usize> {
    let present = &seen.deployment.spec.template;
    if in_place::is_wanted(seen.deployment) {
        let fits = |m: &Member| in_place::is_same_server(&m.set.spec.template, present);
        let fitting = (0..members.len()).filter(|&index| fits(&members[index]));
        return fitting.max_by_key(|&index| members[index].revision());
    }
    members.iter().position(|m| template::is_same(&m.set.spec.template, present))
}

/// The annotations that tell a set how its deployment was sized.
pub(super) fn sizing(bounds: &Bounds) -> BTreeMap<String, String> {
    let most = bounds.replicas.saturating_add(bounds.surge);
    BTreeMap::from([
        (labels::DESIRED_REPLICAS.to_owned(), bounds.replicas.to_string()),
        (labels::MAX_REPLICAS.to_owned(), most.to_string()),
    ])
}
