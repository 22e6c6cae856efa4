//! Pods with volumes of their own leave one after another: the next waits until the volumes of the last
//! one have left the node and are attached where its successor runs.

use super::{PodKey, later};
use drover_api::MovingVolumes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long volumes may take to be attached elsewhere; then the next pod goes all the same. Gardener: 90 s.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(90);

/// What pods claim and what is attached where.
#[derive(Clone, Copy, Default)]
pub struct Volumes<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The claims of the pods' namespaces; needed are those the pods name.
    pub claims: &'a [Arc<PersistentVolumeClaim>],
    /// What is attached to the node, and where else what left it is attached.
    pub attachments: &'a [Arc<VolumeAttachment>],
}

impl<'a> Volumes<'a> {
    /// The volumes that a pod claims: each with whether several nodes may have it at once.
    pub fn of(&self, pod: &Pod) -> BTreeMap<&'a str, bool> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        let names = volumes.unwrap_or_default().iter().filter_map(|volume| {
            // Kubernetes: the claim of an ephemeral volume is named after pod and volume.
            let ephemeral = volume.ephemeral.as_ref();
            let made = ephemeral.map(|_| format!("{}-{}", pod.name_any(), volume.name));
            volume.persistent_volume_claim.as_ref().map(|it| it.claim_name.clone()).or(made)
        });
        names.filter_map(|name| self.claimed(pod, &name)).collect()
    }

    fn claimed(&self, pod: &Pod, name: &str) -> Option<(&'a str, bool)> {
        let claim = self.claims.iter().find(|claim| {
            claim.namespace() == pod.namespace() && claim.metadata.name.as_deref() == Some(name)
        })?;
        let spec = claim.spec.as_ref()?;
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let shared = modes.iter().any(|mode| mode.ends_with("Many"));
        Some((spec.volume_name.as_deref()?, shared))
    }

    /// The volumes that only this pod uses, that only one node can have, and that are attached to it: those
    /// that are waited for. Gardener: a volume of two pods of the node is not.
    pub fn exclusive(&self, pod: &Pod, all: &[Arc<Pod>]) -> Vec<String> {
        if self.of(pod).is_empty() {
            return vec![];
        }
        let others = all.iter().filter(|other| other.metadata.uid != pod.metadata.uid);
        let others: Vec<_> = others.map(|other| self.of(other)).collect();
        let own = self.of(pod).into_iter();
        own.filter(|(volume, shared)| !shared && self.is_here(volume))
            .filter(|(volume, _)| !others.iter().any(|it| it.contains_key(volume)))
            .map(|(volume, _)| volume.to_owned())
            .collect()
    }

    fn is_here(&self, volume: &str) -> bool {
        self.attachments_of(volume).any(|it| it.spec.node_name == self.node)
    }

    fn is_elsewhere(&self, volume: &str) -> bool {
        self.attachments_of(volume).any(|it| {
            it.spec.node_name != self.node && it.status.as_ref().is_some_and(|it| it.attached)
        })
    }

    fn attachments_of(&self, volume: &str) -> impl Iterator<Item = &'a Arc<VolumeAttachment>> {
        let volume = volume.to_owned();
        self.attachments
            .iter()
            .filter(move |it| it.spec.source.persistent_volume_name.as_ref() == Some(&volume))
    }
}

/// The volumes on their way, as they are now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What the next pod waits for.
    pub moving: Option<MovingVolumes>,
    /// What was waited for in vain.
    pub late: Option<String>,
}

impl Line {
    /// How far the volumes of the last pod are.
    pub fn of(
        last: Option<&MovingVolumes>,
        pods: &[Arc<Pod>],
        volumes: &Volumes,
        now: Timestamp,
    ) -> Self {
        let Some(last) = last else { return Self::default() };
        let pod = pods.iter().find(|pod| PodKey::of(pod).to_string() == last.pod);
        if pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
            // The promise was not kept: the eviction was refused, or never asked for.
            return Self::default();
        }
        let is_past = |by: &Option<Time>| by.as_ref().is_none_or(|by| by.0 <= now);
        let named = last.volumes.join(", ");
        if pod.is_some() || last.volumes.iter().any(|volume| volumes.is_here(volume)) {
            return if is_past(&last.detach_by) {
                let late =
                    format!("volume {named} of pod {} did not leave the node in time", last.pod);
                Self { moving: None, late: Some(late) }
            } else {
                Self { moving: Some(last.clone()), late: None }
            };
        }
        if !last.returns || last.volumes.iter().all(|volume| volumes.is_elsewhere(volume)) {
            return Self::default();
        }
        let attach_by = last.attach_by.clone().unwrap_or(Time(later(now, ATTACH_TIMEOUT)));
        let attach_by = Some(attach_by);
        if is_past(&attach_by) {
            let late =
                format!("volume {named} of pod {} was not attached elsewhere in time", last.pod);
            return Self { moving: None, late: Some(late) };
        }
        Self { moving: Some(MovingVolumes { attach_by, ..last.clone() }), late: None }
    }

    /// A pod with volumes of its own leaves now.
    pub fn send(&mut self, pod: &Pod, volumes: Vec<String>, detach_by: Timestamp) {
        let returns = pod.owner_references().iter().any(|owner| owner.controller == Some(true));
        self.moving = Some(MovingVolumes {
            pod: PodKey::of(pod).to_string(),
            volumes,
            returns,
            detach_by: Some(Time(detach_by)),
            attach_by: None,
        });
    }

    /// Until when it is waited at most.
    pub fn until(&self) -> Option<Timestamp> {
        let moving = self.moving.as_ref()?;
        moving.attach_by.as_ref().or(moving.detach_by.as_ref()).map(|time| time.0)
    }

    /// What is waited for.
    pub fn story(&self) -> Option<String> {
        let MovingVolumes { pod, volumes, attach_by, .. } = self.moving.as_ref()?;
        let how = if attach_by.is_some() { "be attached elsewhere" } else { "leave the node" };
        Some(format!("volume {} of pod {pod} is to {how}", volumes.join(", ")))
    }
}
