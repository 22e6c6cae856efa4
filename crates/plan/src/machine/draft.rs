//! A plan in the making: the status as it will be, and what is done.

use super::{Answer, Event, Heard, Observed, Plan, Question, Refused, Retry, Step, objection};
use crate::Wake;
use crate::node;
use crate::reason::Reason;
use crate::time::{later, whole_seconds};
use drover_api::{
    Condition, ConditionStatus, ConditionType, CredentialsSource, CurrentStatus, DeletionPolicy,
    LastOperation, MachineStatus, OperationState, OperationType, Phase, ProviderStatus,
    find_condition, labels, policy_of, set_condition,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The first pause after a refusal; it doubles with each.
const BACKOFF_FIRST: Duration = Duration::from_secs(2);
/// The longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How long a refusal is believed that only a change can lift: what changed may be in the cloud.
const CHANGE_UNSEEN: Duration = Duration::from_secs(600);
/// The same for a deletion, and for what is missing in the cluster.
const MISSING_AGAIN: Duration = Duration::from_secs(30);

pub struct Draft<'a> {
    pub seen: &'a Observed<'a>,
    pub status: MachineStatus,
    /// In whole seconds, as the API server keeps times.
    pub now: Time,
    steps: Vec<Step>,
    events: Vec<Event>,
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
    wake: Option<Timestamp>,
    /// What a step that has much to tell waits for, in one phrase.
    pub brief: Option<String>,
    /// The status stays as it is.
    is_silent: bool,
    promises: bool,
}

impl<'a> Draft<'a> {
    pub fn of(seen: &'a Observed<'a>) -> Self {
        let second = whole_seconds(seen.now);
        let mut status = seen.machine.status.clone().unwrap_or_default();
        status.observed_generation = seen.machine.metadata.generation;
        status.deletion_policy = Some(policy(seen));
        Self {
            seen,
            status,
            now: Time(second),
            steps: vec![],
            events: vec![],
            metadata: Map::new(),
            spec: Map::new(),
            wake: None,
            brief: None,
            is_silent: false,
            promises: false,
        }
    }

    /// The machine's Node, when it has one.
    pub fn node(&self) -> Option<&'a Arc<Node>> {
        let joins = self.seen.settings.joins;
        joins.then(|| node::of_machine(self.seen.machine, self.seen.nodes)).flatten()
    }

    /// The pods on a node.
    pub fn pods_on(&self, node: &Node) -> Vec<Arc<Pod>> {
        self.pods_named(&node.name_any())
    }

    /// The pods on the node of this name.
    pub fn pods_named(&self, node: &str) -> Vec<Arc<Pod>> {
        let on_it = |pod: &&Arc<Pod>| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node))
        };
        self.seen.pods.iter().filter(on_it).cloned().collect()
    }

    pub fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Leaves a newborn's status to the pass that has the cloud's first answer, which follows at once unless
    /// there is trouble.
    pub fn say_nothing_yet(&mut self) {
        let past = self.seen.machine.status.as_ref();
        let is_newborn = past.is_none_or(|status| status.phase.is_none());
        self.is_silent |= is_newborn && self.seen.trouble.is_none();
    }

    pub fn tell(&mut self, why: Reason, note: String) {
        self.events.push(Event { why, note, is_warning: false });
    }

    pub fn warn(&mut self, why: Reason, note: String) {
        self.events.push(Event { why, note, is_warning: true });
    }

    pub fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |other| other.min(time)));
    }

    pub fn wake_after(&mut self, wait: Duration) {
        self.wake_at(later(self.seen.now, wait));
    }

    /// Sets a condition; an empty message becomes the reason's sentence. Answers whether its status or
    /// its reason is new.
    pub fn condition(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        why: Reason,
        message: &str,
    ) -> bool {
        let message = if message.is_empty() { why.sentence() } else { message };
        let old = find_condition(&self.status.conditions, type_);
        let is_new = old.is_none_or(|old| old.status != status || old.reason != why.as_str());
        let next = Condition {
            type_: type_.as_str().to_owned(),
            status,
            reason: why.as_str().to_owned(),
            message: message.to_owned(),
            ..Condition::default()
        };
        set_condition(&mut self.status.conditions, next, &self.now);
        is_new
    }

    /// A step of a birth is behind the machine. Without words, for every machine keeps it for life.
    pub fn passed(&mut self, type_: ConditionType, why: Reason) {
        if !self.holds(type_) {
            let next = Condition {
                type_: type_.as_str().to_owned(),
                status: ConditionStatus::True,
                reason: why.as_str().to_owned(),
                ..Condition::default()
            };
            set_condition(&mut self.status.conditions, next, &self.now);
        }
    }

    pub fn find(&self, type_: ConditionType) -> Option<&Condition> {
        find_condition(&self.status.conditions, type_)
    }

    pub fn holds(&self, type_: ConditionType) -> bool {
        find_condition(&self.status.conditions, type_)
            .is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Since when a condition has its status.
    pub fn since(&self, type_: ConditionType) -> Option<Timestamp> {
        let condition = find_condition(&self.status.conditions, type_)?;
        condition.last_transition_time.as_ref().map(|time| time.0)
    }

    /// Whether a condition was given this reason when it was last planned.
    pub fn was(&self, type_: ConditionType, why: Reason) -> bool {
        let conditions = self.seen.machine.status.as_ref().map(|it| it.conditions.as_slice());
        find_condition(conditions.unwrap_or_default(), type_)
            .is_some_and(|condition| condition.reason == why.as_str())
    }

    pub fn forget(&mut self, type_: ConditionType) {
        self.status.conditions.retain(|condition| condition.type_ != type_.as_str());
    }

    pub fn phase(&mut self, phase: Phase) {
        if self.status.phase != Some(phase) || self.status.current_status.is_none() {
            self.status.current_status = Some(CurrentStatus {
                phase: Some(phase),
                timeout_active: Some(matches!(phase, Phase::Pending | Phase::CrashLoopBackOff)),
                last_update_time: Some(self.now.clone()),
                preserve_expiry_time: None,
            });
        }
        self.status.phase = Some(phase);
        if phase != Phase::Failed {
            self.status.failure_reason = None;
            self.status.failure_message = None;
        }
    }

    pub fn operation(&mut self, type_: OperationType, state: OperationState, description: &str) {
        self.operation_with(type_, state, description, None);
    }

    pub fn operation_with(
        &mut self,
        type_: OperationType,
        state: OperationState,
        description: &str,
        error_code: Option<&str>,
    ) {
        let mut next = LastOperation {
            type_,
            state,
            description: description.to_owned(),
            error_code: error_code.map(str::to_owned),
            last_update_time: None,
        };
        if let Some(old) = &self.status.last_operation {
            next.last_update_time = old.last_update_time.clone();
            if next == *old {
                return;
            }
        }
        next.last_update_time = Some(self.now.clone());
        self.status.last_operation = Some(next);
    }

    pub fn error(&mut self, reason: &str, message: &str) {
        self.status.error_reason = Some(reason.to_owned());
        self.status.error_message = Some(message.to_owned());
    }

    pub fn no_error(&mut self) {
        self.status.error_reason = None;
        self.status.error_message = None;
    }

    /// Marks the machine as lost for good: its set replaces it.
    pub fn fail(&mut self, reason: &str, why: Reason, message: &str) {
        if self.status.phase != Some(Phase::Failed) {
            self.warn(why, message.to_owned());
        }
        self.phase(Phase::Failed);
        self.error(reason, message);
        self.status.failure_reason = Some(reason.to_owned());
        self.status.failure_message = Some(message.to_owned());
        self.condition(ConditionType::Ready, ConditionStatus::False, why, message);
    }

    /// The notes of the provider.
    pub fn memory(&self) -> BTreeMap<String, String> {
        self.status.provider_status.as_ref().map(|it| it.memory.clone()).unwrap_or_default()
    }

    /// The status must be written before the steps are taken.
    pub fn promise(&mut self) {
        self.promises = true;
    }

    pub fn remember(&mut self, memory: &BTreeMap<String, String>) {
        if !memory.is_empty() || self.status.provider_status.is_some() {
            let status = self.status.provider_status.get_or_insert_with(ProviderStatus::default);
            status.memory.clone_from(memory);
        }
    }

    pub fn spec(&mut self, field: &str, value: Value) {
        self.spec.insert(field.to_owned(), value);
    }

    /// Whether the description can be used, and where its error is shown.
    pub fn configured(&mut self) {
        let type_ = ConditionType::Configured;
        let described = self.seen.description;
        match described {
            Ok(_) if objection::raised(self) => {}
            Ok(description) => {
                let why = Reason::DescriptionUnderstood;
                let idle = description.without_effect.join(", ");
                let idle = (!idle.is_empty()).then(|| format!("without effect here: {idle}"));
                let notes = [shared(&description.credentials), idle].into_iter().flatten();
                let message =
                    notes.fold(why.sentence().to_owned(), |all, note| format!("{all}; {note}"));
                self.condition(type_, ConditionStatus::True, why, &message);
                if self.status.error_reason.as_deref() == Some("InvalidConfiguration") {
                    self.no_error();
                }
            }
            Err(error) => {
                let why = Reason::DescriptionInvalid;
                if self.condition(type_, ConditionStatus::False, why, error) {
                    self.warn(why, error.to_owned());
                }
                self.error("InvalidConfiguration", error);
            }
        }
    }

    /// What the API server refused, as long as it does.
    pub fn troubled(&mut self) {
        match self.seen.trouble {
            Some(trouble) => self.error("ReconcileError", trouble),
            None if self.status.error_reason.as_deref() == Some("ReconcileError") => {
                self.no_error();
            }
            None => {}
        }
    }

    /// Both finalizers, before anything exists that they protect.
    pub fn hold(&mut self) {
        let mut finalizers = self.seen.machine.finalizers().to_vec();
        let had = finalizers.len();
        for ours in [labels::FINALIZER_SERVER, labels::FINALIZER_NODE] {
            if !finalizers.iter().any(|it| it == ours) {
                finalizers.push(ours.to_owned());
            }
        }
        if finalizers.len() > had {
            self.metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
    }

    /// The last step: nothing holds the machine any more.
    pub fn release(&mut self) {
        let ours = [labels::FINALIZER_SERVER, labels::FINALIZER_NODE, labels::FINALIZER_MIRANTIS];
        let mut left = self.seen.machine.finalizers().to_vec();
        left.retain(|finalizer| !ours.contains(&finalizer.as_str()));
        if left.len() < self.seen.machine.finalizers().len() {
            let mut metadata = self.fence();
            metadata.insert("finalizers".to_owned(), json!(left));
            self.step(Step::Release { patch: json!({ "metadata": metadata }) });
        }
        // The object goes with the last step; nobody will read its status any more.
        self.is_silent = true;
    }

    fn fence(&self) -> Map<String, Value> {
        let metadata = &self.seen.machine.metadata;
        let mut fence = Map::new();
        fence.insert("uid".to_owned(), json!(metadata.uid));
        fence.insert("resourceVersion".to_owned(), json!(metadata.resource_version));
        fence
    }

    /// What the cloud said to a question, unless it is time to ask again. That the server was made
    /// also answers where it is.
    pub fn heard(&mut self, to: Question) -> Option<&'a Answer> {
        let heard = self.seen.heard?;
        let made = to == Question::Look && matches!(heard.answer, Answer::Created { .. });
        if heard.to != to && !made {
            return None;
        }
        let wait = match &heard.answer {
            Answer::Waiting { after, .. } | Answer::Deleting { after, .. } => *after,
            Answer::Refused(refused) => {
                let changed = heard.generation != self.seen.machine.metadata.generation;
                if changed { Duration::ZERO } else { pause(refused, heard) }
            }
            Answer::Seen(Some(_)) => self.seen.settings.look_interval,
            Answer::Created { .. } if made => self.seen.settings.look_interval,
            Answer::Record { .. } | Answer::Created { .. } | Answer::Seen(None) | Answer::Gone => {
                return Some(&heard.answer);
            }
        };
        let again = later(heard.at, wait);
        if again <= self.seen.now {
            return None;
        }
        self.wake_at(again);
        Some(&heard.answer)
    }

    pub fn done(mut self) -> Plan {
        let place = |it: &Condition| {
            let of_ours = ConditionType::OF_MACHINE.iter();
            of_ours.clone().position(|type_| type_.as_str() == it.type_).unwrap_or(usize::MAX)
        };
        self.status.conditions.sort_by_key(place);
        if !self.spec.is_empty() {
            // Kubernetes: a change of the spec is the next generation. The patch is fenced, so this is
            // the one that it makes, and no second write has to say so.
            let generation = self.seen.machine.metadata.generation;
            self.status.observed_generation = generation.map(|generation| generation + 1);
        }
        let past = self.seen.machine.status.clone().unwrap_or_default();
        if self.is_silent {
            self.status = past;
        } else {
            self.status.last_updated.clone_from(&past.last_updated);
            if self.status != past {
                self.status.last_updated = Some(self.now.clone());
            }
        }
        let mut patch = Map::new();
        if !self.spec.is_empty() {
            patch.insert("spec".to_owned(), std::mem::take(&mut self.spec).into());
        }
        if !self.metadata.is_empty() || !patch.is_empty() {
            let mut metadata = self.fence();
            metadata.append(&mut self.metadata);
            patch.insert("metadata".to_owned(), metadata.into());
        }
        Plan {
            patch: (!patch.is_empty()).then(|| patch.into()),
            status: self.status,
            promises: self.promises,
            steps: self.steps,
            events: self.events,
            wake: Wake::at(self.wake, self.seen.now),
        }
    }
}

fn policy(seen: &Observed) -> DeletionPolicy {
    let status = seen.machine.status.as_ref();
    let shown = status.and_then(|status| status.deletion_policy);
    let said = policy_of(&seen.machine.spec);
    let said = said.unwrap_or(seen.settings.deletion_policy);
    let prepares = status
        .and_then(|status| status.provider_status.as_ref())
        .is_some_and(|status| status.prepare_deletion_phase.is_some());
    let is_asked = seen.description.is_ok_and(|description| description.delete);
    let begun = status.is_some_and(|status| status.phase == Some(Phase::Terminating));
    // Mirantis: once a deletion began it only becomes less careful.
    let began = begun || (prepares && is_asked);
    shown.filter(|_| began).map_or(said, |shown| shown.max(said))
}

/// What of the credentials is the description's when the rest is the manager's: by names and places, never by value.
fn shared(source: &CredentialsSource) -> Option<String> {
    let own: Vec<String> =
        source.values.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
    let own = own.join(", ");
    (source.are_completed && !own.is_empty())
        .then(|| format!("of the credentials it has {own}, the rest is the manager's"))
}

fn pause(refused: &Refused, heard: &Heard) -> Duration {
    match refused.retry {
        // It is often in a Secret, whose change nobody sees.
        Retry::OnChange if heard.to == Question::Delete => MISSING_AGAIN,
        Retry::OnChange if refused.why == Reason::CredentialsMissing => MISSING_AGAIN,
        Retry::OnChange => CHANGE_UNSEEN,
        Retry::After(wait) => wait,
        Retry::Backoff => {
            let doublings = heard.refusals.saturating_sub(1).min(16);
            BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX)
        }
    }
}
