//! Which sets of a deployment grow, shrink, come and go, and what its status says.

mod family;
mod rollout;
mod status;
mod template;
#[cfg(test)]
mod tests;

use crate::Wake;
use crate::in_place;
use crate::machine_set::owner_reference;
use crate::reason::Reason;
use drover_api::{
    MachineDeployment, MachineDeploymentStatus, MachineSet, MachineSetSpec, StrategyType, labels,
};
use family::{Family, Member};
use jiff::Timestamp;
use kube::ResourceExt;
use rollout::{Bounds, Move, Share, Size};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// What the manager was told about deployments.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether machines that are being deleted count against the surge. MetaKube: they do not, so
    /// that slow drains do not hold a rollout up; with little quota they should.
    pub strict_surge: bool,
}

/// The machines that a set has, whatever size it is asked to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Herd {
    pub staying: u32,
    /// Those that are being deleted.
    pub leaving: u32,
}

/// A deployment and its sets, as the caches show them.
pub struct Observed<'a> {
    pub deployment: &'a MachineDeployment,
    /// At least every MachineSet of the namespace that the deployment controls, that its selector
    /// matches, or whose name begins with its own; in any order. Others are passed over. What
    /// this manager wrote of them must show at once: the bounds hold over all sets together.
    pub sets: &'a [Arc<MachineSet>],
    /// By the name of their set.
    pub machines: &'a BTreeMap<String, Herd>,
    /// Why the last write for this deployment was refused.
    pub trouble: Option<&'a str>,
    pub settings: &'a Settings,
    pub now: Timestamp,
}

/// What becomes of a deployment. The status is written first, with the resource version of
/// [`Observed::deployment`].
#[must_use = "a plan does nothing until it is acted on"]
#[derive(Debug)]
pub struct Plan {
    pub status: MachineDeploymentStatus,
    pub steps: Vec<Step>,
    pub wake: Wake,
}

/// One write. Each may be repeated: a set that exists already or is gone already is a success, and
/// a patch of a set carries the resource version it was drawn from.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Its name follows from the template, so making it twice makes it once.
    CreateSet { set: Box<MachineSet>, why: Reason },
    /// A JSON merge patch.
    PatchSet { name: String, patch: Value, resize: Option<Resize>, why: Reason },
    /// With the UID as a precondition.
    DeleteSet { name: String, uid: String, why: Reason },
    /// A JSON merge patch of the deployment's metadata; to be sent with the resource version of the
    /// status just written.
    PatchDeployment { patch: Value },
    /// Replaces the deployment by this one, resource version included.
    ReplaceDeployment { deployment: Box<MachineDeployment>, why: Reason },
}

/// A set's size before and after, for the Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    pub from: u32,
    pub to: u32,
}

/// What the deployment should do now.
pub fn plan(seen: &Observed) -> Plan {
    let past = seen.deployment.status.clone().unwrap_or_default();
    if seen.deployment.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes the sets and their machines, and then the deployment.
        return Plan { status: past, steps: Vec::new(), wake: Wake::OnChange };
    }
    let mut family = Family::gather(seen);
    if let Some(step) = rollback(seen, &family) {
        return Plan { status: past, steps: vec![step], wake: Wake::OnChange };
    }
    let bounds = Bounds::of(&seen.deployment.spec);
    let mut created = None;
    if seen.deployment.spec.paused {
        scale(&bounds, &mut family);
    } else if is_sound(seen) {
        let moved = next_move(seen, &bounds, &family);
        created = roll(seen, &bounds, &mut family, moved);
        follow(seen, &bounds, &mut family);
    }
    let mut progress = status::status(seen, &bounds, &family, created.is_some());
    progress.status.collision_count = family.collisions.or(past.collision_count);

    let mut steps: Vec<Step> = family.steps();
    steps.extend(created);
    steps.extend(forget(seen, &family, progress.is_complete));
    steps.extend(mark(seen, &family));
    Plan { status: progress.status, steps, wake: Wake::at(progress.deadline, seen.now) }
}

/// Whether a set of the template would own the machines it makes. Should the schema's rule ever be
/// passed by, a set that does not would make machines without end.
fn is_sound(seen: &Observed) -> bool {
    let spec = &seen.deployment.spec;
    spec.selector.matches(&spec.template.metadata.labels)
}

/// Which sizes come next, by the strategy.
fn next_move(seen: &Observed, bounds: &Bounds, family: &Family) -> Move {
    let old: Vec<Size> = family.old().map(Member::size).collect();
    let new = family.new_set().map(Member::size).unwrap_or_default();
    let herd = |member: &Member| seen.machines.get(member.name()).copied().unwrap_or_default();
    match seen.deployment.spec.strategy.type_ {
        StrategyType::Recreate => {
            let remaining = |member: &Member| {
                let Herd { staying, leaving } = herd(member);
                member.replicas().max(staying).saturating_add(leaving)
            };
            rollout::recreate(bounds, family.old().map(remaining).sum(), new, &old)
        }
        StrategyType::RollingUpdate | StrategyType::InPlaceUpdate => {
            let beyond = |member: &Member| {
                let Herd { staying, leaving } = herd(member);
                let leaving = if seen.settings.strict_surge { leaving } else { 0 };
                staying.saturating_add(leaving).saturating_sub(member.set.spec.replicas)
            };
            rollout::roll(bounds, family.members.iter().map(beyond).sum(), new, &old)
        }
    }
}

/// Enters a move into the family; a template without a set gets one.
fn roll(seen: &Observed, bounds: &Bounds, family: &mut Family, moved: Move) -> Option<Step> {
    let replicas = match &moved {
        Move::New(replicas) => *replicas,
        Move::Stay | Move::Old(_) => 0,
    };
    if family.new.is_none() {
        let set = Box::new(new_set(seen, bounds, family, replicas));
        // A set whose birth changes nothing yet may come together with the old ones' first step.
        if let Move::Old(sizes) = moved {
            resize_old(family, bounds, &sizes);
        }
        return Some(Step::CreateSet { set, why: Reason::NewMachineSetCreated });
    }
    match moved {
        Move::Stay => {}
        Move::New(replicas) => {
            let new = family.new_set_mut().expect("there is a new set: looked up just above");
            let grows = replicas > new.set.spec.replicas;
            let why = if grows { Reason::NewMachineSetGrows } else { Reason::NewMachineSetShrinks };
            new.resize(replicas, bounds, why);
        }
        Move::Old(sizes) => resize_old(family, bounds, &sizes),
    }
    None
}

fn resize_old(family: &mut Family, bounds: &Bounds, sizes: &[u32]) {
    for (member, replicas) in family.old_mut().zip(sizes) {
        if member.set.spec.replicas != *replicas {
            member.resize(*replicas, bounds, Reason::OldMachineSetShrinks);
        }
    }
}

/// A set of the present template.
fn new_set(seen: &Observed, bounds: &Bounds, family: &Family, replicas: u32) -> MachineSet {
    let deployment = &seen.deployment.spec;
    let hash = template::hash(&deployment.template, family.collisions.unwrap_or_default());
    let name = template::set_name(&seen.deployment.name_any(), &hash);
    let mark = |labels: &mut BTreeMap<String, String>| {
        labels.insert(labels::TEMPLATE_HASH.to_owned(), hash.clone());
    };
    let (mut selector, mut template) = (deployment.selector.clone(), deployment.template.clone());
    mark(&mut selector.match_labels);
    mark(&mut template.metadata.labels);
    let labels = template.metadata.labels.clone();
    let spec = MachineSetSpec {
        replicas,
        min_ready_seconds: deployment.min_ready_seconds,
        selector,
        template,
        ..MachineSetSpec::default()
    };
    let mut set = MachineSet::new(&name, spec);
    set.metadata.namespace = seen.deployment.namespace();
    set.metadata.labels = Some(labels);
    let mut annotations = inherited(seen.deployment);
    annotations.insert(labels::REVISION.to_owned(), family.next_revision().to_string());
    annotations.extend(family::sizing(bounds));
    set.metadata.annotations = Some(annotations);
    set.metadata.owner_references = Some(vec![owner_reference(seen.deployment)]);
    if let Some(note) = in_place::note(&set, in_place::is_wanted(seen.deployment)) {
        set.annotations_mut().insert(labels::IN_PLACE.to_owned(), note);
    }
    // MetaKube: however a set is deleted, it stays until its machines are gone.
    set.metadata.finalizers = Some(vec![labels::FINALIZER_FOREGROUND.to_owned()]);
    set
}

/// The annotations that a set takes over from its deployment, the autoscaler's bounds among them.
fn inherited(deployment: &MachineDeployment) -> BTreeMap<String, String> {
    const OWN: [&str; 6] = [
        labels::LAST_APPLIED,
        labels::IN_PLACE,
        labels::REVISION,
        labels::REVISION_HISTORY,
        labels::DESIRED_REPLICAS,
        labels::MAX_REPLICAS,
    ];
    let annotations = deployment.annotations().clone();
    annotations.into_iter().filter(|(key, _)| !OWN.contains(&key.as_str())).collect()
}

/// Lets the new set follow what its deployment says besides the template.
fn follow(seen: &Observed, bounds: &Bounds, family: &mut Family) {
    let next = family.next_revision();
    let Some(new) = family.new_set_mut() else { return };
    let mut wanted = inherited(seen.deployment);
    wanted.extend(family::sizing(bounds));
    if new.revision() < next {
        if new.revision() > 0 {
            let mut history: Vec<String> = new
                .annotation(labels::REVISION_HISTORY)
                .map(|past| past.split(',').map(str::to_owned).collect())
                .unwrap_or_default();
            history.push(new.revision().to_string());
            wanted.insert(labels::REVISION_HISTORY.to_owned(), history.join(","));
        }
        wanted.insert(labels::REVISION.to_owned(), next.to_string());
    }
    if let Some(note) = in_place::note(new.set, in_place::is_wanted(seen.deployment)) {
        wanted.insert(labels::IN_PLACE.to_owned(), note);
    }
    for (key, value) in wanted {
        new.annotate(&key, value);
    }
    if new.set.spec.min_ready_seconds != seen.deployment.spec.min_ready_seconds {
        new.change.min_ready_seconds = Some(seen.deployment.spec.min_ready_seconds);
    }
    new.change.template =
        template::taken_over(&new.set.spec.template, &seen.deployment.spec.template);
}

/// Scales a paused deployment: no set comes, and all keep their proportions.
fn scale(bounds: &Bounds, family: &mut Family) {
    let wanted = bounds.replicas;
    let is_active = |member: &Member| member.set.spec.replicas > 0;
    let active: Vec<usize> =
        (0..family.members.len()).rev().filter(|&i| is_active(&family.members[i])).collect();
    if let [] | [_] = active[..] {
        // Without an active set the youngest takes it all.
        let last = family.members.len().checked_sub(1);
        let only = active.first().copied().or(family.new).or(last);
        if let Some(member) = only.map(|index| &mut family.members[index])
            && member.set.spec.replicas != wanted
        {
            member.resize(wanted, bounds, Reason::MachineSetScaled);
        }
        return;
    }
    let desired = |member: &Member| member.number(labels::DESIRED_REPLICAS);
    let is_saturated = |member: &Member| {
        let size = member.size();
        (size.spec, size.available, desired(member)) == (wanted, wanted, Some(wanted))
    };
    if family.new_set().is_some_and(is_saturated) {
        let none = vec![0; family.members.len()];
        return resize_old(family, bounds, &none);
    }
    if active.iter().all(|&index| desired(&family.members[index]) == Some(wanted)) {
        return;
    }
    let shares: Vec<Share> = active.iter().map(|&index| family.members[index].share()).collect();
    for (index, size) in active.into_iter().zip(rollout::spread(bounds, &shares)) {
        family.members[index].resize(size, bounds, Reason::MachineSetScaled);
    }
}

/// Deletes the oldest empty sets beyond the limit, once all machines are of the present template.
fn forget(seen: &Observed, family: &Family, is_complete: bool) -> Vec<Step> {
    if !is_complete {
        return Vec::new();
    }
    let empty: Vec<&Member> = family.old().filter(|member| member.is_empty()).collect();
    let surplus = empty.len().saturating_sub(seen.deployment.spec.revision_history_limit as usize);
    let surplus = empty.into_iter().take(surplus).map(|member| Step::DeleteSet {
        name: member.name().to_owned(),
        uid: member.set.uid().unwrap_or_default(),
        why: Reason::HistoryLimitReached,
    });
    surplus.collect()
}

/// Shows the present revision on the deployment, and holds it until its machines are gone.
fn mark(seen: &Observed, family: &Family) -> Option<Step> {
    let mut metadata = Map::new();
    let revision = revision_of(seen, family);
    if let Some(revision) = revision
        && seen.deployment.annotations().get(labels::REVISION) != Some(&revision)
    {
        metadata.insert("annotations".to_owned(), json!({ labels::REVISION: revision }));
    }
    // MetaKube: a deployment that is deleted without a propagation policy stays until its machines
    // are gone.
    let held = seen.deployment.finalizers();
    if is_sound(seen) && !held.iter().any(|it| it == labels::FINALIZER_FOREGROUND) {
        let finalizers = held.iter().map(String::as_str).chain([labels::FINALIZER_FOREGROUND]);
        metadata.insert("finalizers".to_owned(), finalizers.collect());
    }
    let patch = json!({ "metadata": metadata });
    (patch["metadata"] != json!({})).then_some(Step::PatchDeployment { patch })
}

fn revision_of(seen: &Observed, family: &Family) -> Option<String> {
    match family.new_set() {
        Some(new) => new.next_annotation(labels::REVISION).map(str::to_owned),
        None if seen.deployment.spec.paused || !is_sound(seen) => None,
        None => Some(family.next_revision().to_string()),
    }
}

/// Gardener: `spec.rollbackTo` puts the template of a revision back, once.
fn rollback(seen: &Observed, family: &Family) -> Option<Step> {
    let wanted = seen.deployment.spec.rollback_to?.revision;
    let mut deployment = seen.deployment.clone();
    deployment.spec.rollback_to = None;
    deployment.status = None;
    let found = match wanted {
        0 => family.old().max_by_key(|member| member.revision()),
        _ => family.members.iter().find(|member| i64::try_from(member.revision()) == Ok(wanted)),
    };
    let why = match found {
        None => Reason::RollbackRevisionNotFound,
        Some(member) => {
            deployment.spec.template = member.set.spec.template.clone();
            deployment.spec.template.metadata.labels.remove(labels::TEMPLATE_HASH);
            Reason::RolledBack
        }
    };
    Some(Step::ReplaceDeployment { deployment: Box::new(deployment), why })
}

/// A patch of a set that is refused when the set is no longer the one that was looked at.
fn fenced(set: &MachineSet, mut metadata: Map<String, Value>, spec: Map<String, Value>) -> Value {
    metadata.insert("uid".to_owned(), json!(set.metadata.uid));
    metadata.insert("resourceVersion".to_owned(), json!(set.metadata.resource_version));
    let mut patch = json!({ "metadata": metadata });
    if !spec.is_empty() {
        patch["spec"] = Value::Object(spec);
    }
    patch
}
