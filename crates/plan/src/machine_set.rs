//! Which machines a set gains and loses, and what its status says.

mod choice;
mod circuit;
mod status;
#[cfg(test)]
mod tests;

pub use circuit::Settings as CircuitSettings;
pub(crate) use status::with_trouble;

use crate::Wake;
use crate::in_place;
use crate::machine::Event;
use crate::reason::Reason;
use choice::View;
use drover_api::{Machine, MachineSet, MachineSetSpec, MachineSetStatus, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Most failed machines that a status names.
pub const FAILED_MACHINES_MAX: usize = 10;

/// What the manager was told about sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most machines created in one pass. A pass writes its names down first, and a status holds
    /// no more of them than this.
    pub create_burst_max: usize,
    /// Most machines deleted in one pass.
    pub delete_burst_max: usize,
    /// A machine that failed before it had a Node is replaced when it is this old: a cloud out of
    /// quota is asked once a minute for each missing machine, not as fast as it can refuse.
    pub failed_age_min: Duration,
    /// Most such machines that are replaced within that time, in percent of the replicas; three
    /// always are.
    pub failed_percent_max: usize,
    /// When the set stops trying for a while.
    pub circuit: CircuitSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            create_burst_max: 100,
            delete_burst_max: 500,
            failed_age_min: Duration::from_secs(60),
            failed_percent_max: 10,
            circuit: CircuitSettings::default(),
        }
    }
}

/// A set and its machines, as the caches show them.
pub struct Observed<'a> {
    /// What this manager wrote of its status must show at once; the machines may lag.
    pub set: &'a MachineSet,
    /// Every Machine of the set's namespace that the set controls, or that its selector matches and
    /// nobody controls, or whose name the set has promised; in any order.
    pub machines: &'a [Arc<Machine>],
    /// UIDs of machines that were deleted since the cache last saw them. Forgotten with the process:
    /// a fresh cache shows the deletion itself.
    pub deleted: &'a BTreeSet<String>,
    /// Why the last attempt to create, delete or adopt a machine of this set was refused.
    pub trouble: Option<&'a str>,
    pub settings: &'a Settings,
    pub now: Timestamp,
}

/// What becomes of a set. The status is written first, with the resource version of
/// [`Observed::set`]: it holds the names of the machines the steps create.
#[must_use = "a plan does nothing until it is acted on"]
#[derive(Debug)]
pub struct Plan {
    pub status: MachineSetStatus,
    pub steps: Vec<Step>,
    /// To be told once the status is written.
    pub events: Vec<Event>,
    pub wake: Wake,
}

impl Plan {
    fn idle(status: MachineSetStatus) -> Self {
        Self { status, steps: Vec::new(), events: Vec::new(), wake: Wake::OnChange }
    }
}

/// One write. Each may be repeated: a Machine that exists already or is gone already is a success.
#[derive(Debug, PartialEq)]
pub enum Step {
    Create {
        machine: Box<Machine>,
        why: Reason,
    },
    /// With the UID as a precondition.
    Delete {
        name: String,
        uid: String,
        why: Reason,
    },
    /// Takes or gives up control by a JSON merge patch, which carries UID and resource version.
    Patch {
        name: String,
        patch: Value,
        why: Reason,
    },
    /// Has a machine take over what it can of the template, by such a patch.
    Follow {
        name: String,
        patch: Value,
    },
}

/// What the set should do now.
pub fn plan(seen: &Observed) -> Plan {
    let past = seen.set.status.clone().unwrap_or_default();
    if seen.set.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes the machines and then the set.
        return Plan::idle(past);
    }
    let spec = &seen.set.spec;
    if !spec.selector.matches(&spec.template.metadata.labels) {
        // Should the schema's rule ever be passed by, such a set would make machines without end.
        return Plan::idle(status::misfit(seen));
    }
    let claim = Claim::sort(seen);
    let mut staying: Vec<View> = claim.staying.iter().map(|m| View::of(m, seen)).collect();
    staying.sort_by(|a, b| a.rank.cmp(&b.rank));

    let mut circuit = circuit::judge(&staying, seen);
    let losses = choice::losses(&staying, circuit.replacements, seen);
    let replaced = losses.deletes.iter().filter(|(_, why)| *why == Reason::MachineFailed);
    circuit.replaced(replaced.map(|(view, _)| *view), seen);
    // A machine that goes now has its replacement when it was seen to go: not both of them count.
    let have = staying.len();

    // A name is promised in the status before it is created and until it is seen, so that neither
    // a crash nor a lagging cache brings up a second machine in its place. A promise beyond the
    // wanted number stays open: whether its machine exists is not known.
    let mut promised = past.promised.clone();
    promised.retain(|name| !claim.names.contains(name.as_str()));
    let burst = seen.settings.create_burst_max.saturating_sub(promised.len());
    let births = losses.target.saturating_sub(have + promised.len()).min(burst);
    let minted = mint(seen.set, past.minted, births, &claim.names, &mut promised);

    let wanted = promised.iter().take(losses.target.saturating_sub(have));
    let creates = wanted.map(|name| Step::Create {
        machine: Box::new(newborn(seen.set, name)),
        why: Reason::MachineMissing,
    });
    let deletes = losses.deletes.iter().take(seen.settings.delete_burst_max);
    let deletes = deletes.map(|(view, why)| Step::Delete {
        name: view.name.to_owned(),
        uid: view.machine.uid().unwrap_or_default(),
        why: *why,
    });
    let steps: Vec<Step> = claim.patches.into_iter().chain(creates).chain(deletes).collect();
    let wake = wake(&staying, losses.next.into_iter().chain(circuit.next), seen);
    let events = std::mem::take(&mut circuit.events);
    let status = status::status(seen, &staying, status::Names { minted, promised }, circuit);
    Plan { status, steps, events, wake }
}

/// Which machines count, and who is to be told so.
struct Claim<'a> {
    staying: Vec<&'a Machine>,
    /// Every name that is in use, by whomever.
    names: BTreeSet<&'a str>,
    patches: Vec<Step>,
}

impl<'a> Claim<'a> {
    fn sort(seen: &Observed<'a>) -> Self {
        let mut claim = Self { staying: Vec::new(), names: BTreeSet::new(), patches: Vec::new() };
        let follows = in_place::is_on(seen.set);
        for machine in seen.machines {
            let machine: &'a Machine = machine;
            claim.names.insert(machine.metadata.name.as_deref().unwrap_or_default());
            // MetaKube: a machine being deleted leaves its set at once.
            let uid = machine.metadata.uid.as_deref().unwrap_or_default();
            if machine.metadata.deletion_timestamp.is_some() || seen.deleted.contains(uid) {
                continue;
            }
            let matches = seen.set.spec.selector.matches(machine.labels());
            match (controller(machine), matches) {
                (Some(owner), true) if owner == uid_of(seen.set) => {
                    claim.staying.push(machine);
                    let patch = follows.then(|| in_place::follow(machine, &seen.set.spec.template));
                    let name = machine.name_any();
                    claim.patches.extend(patch.flatten().map(|patch| Step::Follow { name, patch }));
                }
                (Some(owner), false) if owner == uid_of(seen.set) => {
                    claim.patches.push(ownership(machine, owners_without(machine, owner)));
                }
                (None, true) => {
                    claim.staying.push(machine);
                    let mut owners = machine.owner_references().to_vec();
                    owners.push(owner_reference(seen.set));
                    claim.patches.push(ownership(machine, owners));
                }
                _ => {}
            }
        }
        claim
    }
}

fn uid_of(set: &MachineSet) -> &str {
    set.metadata.uid.as_deref().unwrap_or_default()
}

fn controller(machine: &Machine) -> Option<&str> {
    let owner = machine.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

fn owners_without(machine: &Machine, uid: &str) -> Vec<OwnerReference> {
    machine.owner_references().iter().filter(|owner| owner.uid != uid).cloned().collect()
}

fn ownership(machine: &Machine, owners: Vec<OwnerReference>) -> Step {
    let adopted = owners.len() > machine.owner_references().len();
    let why = if adopted { Reason::MachineAdopted } else { Reason::MachineReleased };
    let patch = json!({ "metadata": {
        "uid": machine.metadata.uid,
        "resourceVersion": machine.metadata.resource_version,
        "ownerReferences": owners,
    }});
    Step::Patch { name: machine.name_any(), patch, why }
}

/// The reference of a dependent to the set that controls it.
pub(crate) fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Promises `births` names that nobody uses; answers how many were ever minted.
fn mint(
    set: &MachineSet,
    mut minted: u64,
    births: usize,
    used: &BTreeSet<&str>,
    promised: &mut Vec<String>,
) -> u64 {
    let mut open: BTreeSet<String> = promised.iter().cloned().collect();
    let enough = promised.len() + births;
    while promised.len() < enough {
        let name = machine_name(set, minted);
        minted += 1;
        if !used.contains(name.as_str()) && open.insert(name.clone()) {
            promised.push(name);
        }
    }
    minted
}

/// A name that follows from the set's UID and a serial. A set that is made anew under an old name
/// thus does not run into the machines of its predecessor, and a lost status not into its own.
fn machine_name(set: &MachineSet, serial: u64) -> String {
    // Kubernetes: no vowels and nothing that looks like one, lest a name becomes a word.
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const SUFFIX_CHARS: usize = 5;
    let digest = Sha256::digest(format!("{}/{serial}", uid_of(set)));
    let suffix = digest.iter().take(SUFFIX_CHARS).map(|byte| {
        let index = usize::from(*byte) % ALPHABET.len();
        char::from(ALPHABET[index])
    });
    format!("{}-{}", set.name_any(), suffix.collect::<String>())
}

/// A Machine as it is when it is born: with both finalizers, so that no server can outlive it.
fn newborn(set: &MachineSet, name: &str) -> Machine {
    let MachineSetSpec { template, .. } = &set.spec;
    let mut machine = Machine::new(name, template.spec.clone());
    machine.metadata.namespace = set.namespace();
    machine.metadata.labels = Some(template.metadata.labels.clone());
    // Also when there are none: `new` puts the annotations of the definition on the object.
    let mut annotations = template.metadata.annotations.clone();
    // Gardener: the pool's word on how long its machines may take.
    let timeout = set.annotations().get_key_value(labels::CREATION_TIMEOUT);
    annotations.extend(timeout.map(|(key, value)| (key.clone(), value.clone())));
    machine.metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
    machine.metadata.owner_references = Some(vec![owner_reference(set)]);
    let finalizers = [labels::FINALIZER_SERVER, labels::FINALIZER_NODE];
    machine.metadata.finalizers = Some(finalizers.map(str::to_owned).to_vec());
    machine
}

fn wake(staying: &[View], others: impl Iterator<Item = Timestamp>, seen: &Observed) -> Wake {
    let available = staying.iter().filter_map(|view| view.available_at);
    let next = available.chain(others).filter(|at| *at > seen.now).min();
    Wake::at(next, seen.now)
}
