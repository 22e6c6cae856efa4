//! What a deployment says of itself.

use super::*;

#[test]
fn a_rollout_that_does_not_move_says_so() {
    let mut world = World::of(rolling(3, json!(1), json!(0)));
    world.run();
    assert_eq!(world.reason("Progressing"), "NewMachineSetAvailable");
    world.change_template("1.31.0");
    world.pass();
    assert_eq!(world.reason("Progressing"), "NewMachineSetCreated");
    // The new machine never becomes available.
    world.sets[1].status =
        Some(MachineSetStatus { replicas: 1, observed_generation: Some(1), ..Default::default() });
    world.pass();
    assert_eq!(world.reason("Progressing"), "RolloutProgressing");
    let Wake::After(delay) = world.plan().wake else { panic!("no wake for the deadline") };
    assert!((590..=600).contains(&delay.as_secs()), "{delay:?}");
    world.now += 601;
    for _ in 0..3 {
        assert!(!world.pass());
        assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
    }
    assert_eq!(world.reason("Available"), "MinimumReplicasAvailable");
    world.run();
    assert_eq!(world.reason("Progressing"), "NewMachineSetAvailable");
}

#[test]
fn a_pool_says_why_its_machines_do_not_come_up() {
    let mut world = World::of(rolling(1, json!(1), json!(0)));
    world.pass();
    let why = "machine nodes-1: quota exceeded".to_owned();
    world.sets[0].status = Some(MachineSetStatus {
        replicas: 1,
        observed_generation: Some(1),
        error_message: Some(why.clone()),
        ..Default::default()
    });
    world.pass();
    let status = world.deployment.status.clone().unwrap();
    let messages: Vec<&str> = status.conditions.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            format!("0 of 1 machines are available, 1 must be; {why}"),
            format!("the machines of the present template come up: 0 of 1 are available; {why}"),
        ]
    );
    world.run();
    let status = serde_json::to_string(&world.deployment.status).unwrap();
    assert!(!status.contains("quota"), "{status}");
}

#[test]
fn the_status_adds_the_sets_up() {
    let mut world = World::of(rolling(3, json!(1), json!(0)));
    world.run();
    world.change_template("1.31.0");
    world.pass();
    world.settle();
    world.sets[1].status.as_mut().unwrap().available_replicas = 0;
    world.pass();
    insta::assert_json_snapshot!(world.deployment.status, @r#"
    {
      "observedGeneration": 1,
      "replicas": 4,
      "updatedReplicas": 1,
      "readyReplicas": 4,
      "availableReplicas": 3,
      "unavailableReplicas": 1,
      "selector": "group=nodes",
      "conditions": [
        {
          "type": "Available",
          "status": "True",
          "reason": "MinimumReplicasAvailable",
          "message": "3 of 3 machines are available, 3 must be",
          "lastTransitionTime": "2027-01-15T08:00:01Z"
        },
        {
          "type": "Progressing",
          "status": "True",
          "reason": "RolloutProgressing",
          "message": "machines of an earlier template are being replaced: 1 of 4 machines are of the present template",
          "lastTransitionTime": "2027-01-15T08:00:00Z",
          "lastUpdateTime": "2027-01-15T08:00:03Z"
        }
      ]
    }
    "#);
    let status = world.deployment.status.clone().unwrap();
    assert_eq!(world.plan().status, status);
}

#[test]
fn bounds_that_no_autoscaler_can_use_are_reported() {
    let (min, max) = (labels::AUTOSCALER_MIN, labels::AUTOSCALER_MAX);
    for (annotations, expected) in [
        (vec![(min, "1"), (max, "5")], None),
        (vec![], None),
        (vec![(min, "6"), (max, "5")], Some("min-size\": 6 is above 5 of annotation")),
        (vec![(min, "x"), (max, "5")], Some("\"x\" is no number of machines")),
        (vec![(min, "1")], Some("is missing")),
    ] {
        let mut deployment = deployment(json!({"replicas": 1}));
        let annotations = annotations.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        deployment.metadata.annotations = Some(annotations.collect());
        let mut world = World::of(deployment);
        world.pass();
        let message = world.condition("AutoscalerBounds").map(|it| it.message.as_str());
        match expected {
            None => assert_eq!(message, None),
            Some(expected) => assert!(message.unwrap().contains(expected), "{message:?}"),
        }
    }
}

#[test]
fn what_cannot_be_owned_is_not_made() {
    let mut world = World::of(deployment(json!({"replicas": 1})));
    world.deployment.spec.template.metadata.labels.clear();
    assert!(!world.pass());
    assert_eq!(world.reason("ReplicaFailure"), "SelectorMismatch");
    let mut world = World::of(deployment(json!({"replicas": 1})));
    world.run();
    world.deployment.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(NOW).unwrap()));
    world.deployment.spec.replicas = 5;
    assert!(!world.pass());
}
