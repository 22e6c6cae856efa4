//! Pods with volumes of their own go one after another.

use super::*;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;

const NOBODY: [&str; 0] = [];

/// A pod of a StatefulSet with a claim of this name.
fn holder(name: &str, claim: &str, priority: i32) -> Arc<Pod> {
    pod(name, |pod| {
        pod["spec"]["priority"] = json!(priority);
        pod["spec"]["volumes"] =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": true,
        }]);
    })
}

fn claim(name: &str, mode: &str) -> Arc<PersistentVolumeClaim> {
    let value = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": format!("pv-{name}"), "accessModes": [mode]},
    });
    Arc::new(from_value(value).unwrap())
}

fn attached(volume: &str, node: &str, attached: bool) -> Arc<VolumeAttachment> {
    let value = json!({
        "metadata": {"name": format!("{volume}-{node}")},
        "spec": {"attacher": "a", "nodeName": node, "source": {"persistentVolumeName": volume}},
        "status": {"attached": attached},
    });
    Arc::new(from_value(value).unwrap())
}

/// What is planned, and what is written down of it.
struct Stage {
    pods: Vec<Arc<Pod>>,
    claims: Vec<Arc<PersistentVolumeClaim>>,
    attachments: Vec<Arc<VolumeAttachment>>,
    moving: Option<MovingVolumes>,
    now: i64,
}

impl Stage {
    fn plan(&mut self) -> Plan {
        let volumes =
            Volumes { node: "here", claims: &self.claims, attachments: &self.attachments };
        let moving = self.moving.as_ref();
        let plan = plan(&Observed { volumes, moving, now: at(self.now), ..seen(&self.pods) });
        self.moving.clone_from(&plan.moving);
        plan
    }

    fn terminate(&mut self, name: &str) {
        for pod in self.pods.iter_mut().filter(|pod| pod.name_any() == name) {
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(self.now));
            Arc::make_mut(pod).metadata.deletion_timestamp = Some(time);
        }
    }
}

fn two() -> Stage {
    Stage {
        pods: vec![plain("web"), holder("db-0", "a", 1), holder("db-1", "b", 5)],
        claims: vec![claim("a", "ReadWriteOnce"), claim("b", "ReadWriteOncePod")],
        attachments: vec![attached("pv-a", "here", true), attached("pv-b", "here", true)],
        moving: None,
        now: 0,
    }
}

/// Gardener's scenario 19: two pods with exclusive volumes drain serially.
#[test]
fn the_next_pod_waits_for_the_volume_of_the_last_to_arrive() {
    let mut stage = two();
    let plan = stage.plan();
    assert_eq!(leaving(&plan), ["db-1", "web"], "those without volumes need not wait");
    assert_eq!(stage.moving.as_ref().unwrap().pod, "default/db-1", "higher priority first");
    stage.terminate("db-1");
    stage.pods.remove(0);
    stage.now = 20;
    let plan = stage.plan();
    assert_eq!(leaving(&plan), NOBODY);
    assert_eq!(plan.next, Some(at(150)), "30 s of grace and 2 min to detach");
    assert!(plan.story().ends_with("volume pv-b of pod default/db-1 is to leave the node"));

    stage.pods.retain(|pod| pod.name_any() != "db-1");
    assert_eq!(leaving(&stage.plan()), NOBODY, "the volume is still here");
    stage.attachments.pop();
    stage.now = 40;
    let plan = stage.plan();
    assert_eq!((leaving(&plan), plan.next), (vec![], Some(at(130))), "90 s to attach elsewhere");
    assert!(plan.story().ends_with("is to be attached elsewhere"), "{}", plan.story());
    stage.attachments.push(attached("pv-b", "there", false));
    assert_eq!(leaving(&stage.plan()), NOBODY, "it is only about to be attached");
    stage.attachments.pop();
    stage.attachments.push(attached("pv-b", "there", true));
    assert_eq!(leaving(&stage.plan()), ["db-0"]);

    stage.pods.clear();
    stage.attachments.clear();
    assert!(!stage.plan().is_done(), "the last volume has not arrived either");
    stage.attachments.push(attached("pv-a", "there", true));
    assert!(stage.plan().is_done());
}

#[test]
fn a_volume_that_does_not_move_holds_the_others_only_so_long() {
    let mut stage = two();
    drop(stage.plan());
    stage.terminate("db-1");
    stage.now = 149;
    assert_eq!(leaving(&stage.plan()), ["web"]);
    stage.now = 150;
    let plan = stage.plan();
    assert!(plan.late.as_ref().is_some_and(|late| late.contains("pv-b")), "{:?}", plan.late);
    assert_eq!(leaving(&plan), ["db-0", "web"]);

    let mut stage = two();
    drop(stage.plan());
    stage.pods.retain(|pod| pod.name_any() == "db-0");
    stage.attachments.pop();
    drop(stage.plan());
    stage.now = 90;
    let plan = stage.plan();
    assert!(plan.late.is_some());
    assert_eq!(leaving(&plan), ["db-0"]);
}

#[test]
fn a_refused_pod_gives_its_turn_to_the_next() {
    let mut stage = two();
    drop(stage.plan());
    let refusal = Refusal { message: "no".into(), at: at(0), times: 1, pause: Duration::default() };
    let refused = BTreeMap::from([(PodKey::of(&stage.pods[2]), refusal)]);
    let volumes = Volumes { node: "here", claims: &stage.claims, attachments: &stage.attachments };
    let moving = stage.moving.as_ref();
    let plan = plan(&Observed { volumes, moving, refused: &refused, ..seen(&stage.pods) });
    assert_eq!(leaving(&plan), ["db-0", "web"]);
}

/// Gardener's scenario 20: two pods on the node use one volume.
#[test]
fn shared_volumes_are_not_waited_for() {
    let mut stage = two();
    stage.pods = vec![holder("db-0", "a", 1), holder("db-1", "a", 1)];
    let plan = stage.plan();
    assert_eq!(leaving(&plan), ["db-0", "db-1"]);
    assert_eq!(plan.moving, None);

    let mut stage = two();
    stage.claims = vec![claim("a", "ReadWriteMany"), claim("b", "ReadOnlyMany")];
    assert_eq!(leaving(&stage.plan()).len(), 3);
    let mut stage = two();
    stage.attachments.clear();
    assert_eq!(leaving(&stage.plan()).len(), 3, "what is not attached need not move");
}

#[test]
fn a_pod_that_nobody_makes_anew_is_not_awaited_elsewhere() {
    let mut stage = two();
    for pod in &mut stage.pods {
        Arc::make_mut(pod).metadata.owner_references = None;
    }
    drop(stage.plan());
    stage.pods.retain(|pod| pod.name_any() == "db-0");
    stage.attachments.pop();
    assert_eq!(leaving(&stage.plan()), ["db-0"]);
}
