//! What the description of a running machine can ask for and take back (Mirantis): its deletion, or
//! maintenance.

use super::Step;
use super::draft::Draft;
use super::evacuate::{self, Purpose};
use crate::reason::Reason;
use drover_api::{ConditionType, DeletionPolicy, labels};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

/// What is asked for, if anything.
pub fn asked(draft: &Draft) -> Option<Reason> {
    let description = draft.seen.description.ok()?;
    if description.delete {
        Some(Reason::DeletionRequested)
    } else {
        description.maintenance.then_some(Reason::Maintenance)
    }
}

/// Drains the node and, when its deletion was asked for, deletes the machine then, as soon as nothing holds its server. That
/// is the point of no return, for what follows is the first call that destroys something: until then the request can be
/// withdrawn.
pub fn fulfil(draft: &mut Draft, node: &Node, why: Reason) {
    if why == Reason::Maintenance {
        let evacuated = evacuate::is_evacuated(draft, Purpose::Maintenance);
        if phase(draft).is_some() {
            set_phase(draft, None);
        }
        draft.status.provider_status.get_or_insert_default().maintenance = Some(evacuated);
        return;
    }
    if node.metadata.deletion_timestamp.is_some() {
        // The machine is deleted already, and for good.
        return;
    }
    let policy = draft.status.deletion_policy;
    let evacuated =
        policy != Some(DeletionPolicy::Graceful) || evacuate::is_evacuated(draft, Purpose::Request);
    let prepared = evacuated && (policy == Some(DeletionPolicy::Forced) || !is_held(draft));
    let failed = draft.seen.trouble.is_some() && !prepared;
    let is_new = phase(draft).is_none();
    set_phase(
        draft,
        Some(if prepared {
            "completed"
        } else if failed {
            "failed"
        } else {
            "started"
        }),
    );
    let status = draft.status.provider_status.get_or_insert_default();
    status.delete = Some(true);
    status.maintenance = None;
    if is_new {
        draft.tell(why, why.sentence().to_owned());
        draft.promise();
    }
    if prepared {
        draft.promise();
        draft.step(Step::DeleteMachine { why });
    }
}

/// Whether a hook keeps the server.
fn is_held(draft: &mut Draft) -> bool {
    let type_ = ConditionType::ServerDeleted;
    let held = evacuate::waits_for_hook(draft, labels::HOOK_PRE_TERMINATE, type_);
    if !held {
        draft.forget(type_);
    }
    held
}

/// Undoes what an evacuation did that nobody asks for any more: only a Node that Drover cordoned is
/// uncordoned.
pub fn withdraw(draft: &mut Draft, node: &Node) {
    let deletes = phase(draft).is_some();
    if node.annotations().contains_key(labels::NODE_CORDONED) {
        let patch = json!({
            "metadata": { "uid": node.metadata.uid, "annotations": { labels::NODE_CORDONED: null } },
            "spec": { "unschedulable": null },
        });
        let why = Reason::MaintenanceEnded;
        draft.step(Step::PatchNode { name: node.name_any(), patch, why });
        draft.tell(why, why.sentence().to_owned());
        if deletes {
            let failed = draft.seen.trouble.is_some();
            set_phase(draft, Some(if failed { "failed" } else { "aborting" }));
        }
    } else if deletes {
        set_phase(draft, None);
        draft.status.provider_status.get_or_insert_default().delete = Some(false);
    }
    draft.forget(ConditionType::Drained);
    draft.forget(ConditionType::VolumesDetached);
    draft.forget(ConditionType::ServerDeleted);
    draft.status.drain = None;
    if let Some(status) = &mut draft.status.provider_status {
        status.maintenance = None;
    }
}

fn phase<'a>(draft: &'a Draft) -> Option<&'a str> {
    draft.status.provider_status.as_ref()?.prepare_deletion_phase.as_deref()
}

fn set_phase(draft: &mut Draft, phase: Option<&str>) {
    let status = draft.status.provider_status.get_or_insert_default();
    status.prepare_deletion_phase = phase.map(str::to_owned);
}
