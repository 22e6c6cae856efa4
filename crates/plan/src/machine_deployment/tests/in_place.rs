//! A template that changes without another server.

use super::*;

fn relabel(world: &mut World, value: &str) {
    let metadata = &mut world.deployment.spec.template.spec.metadata;
    metadata.labels.insert("tier".to_owned(), value.to_owned());
}

fn in_place(mode: &str) -> World {
    let mut world = World::of(deployment(json!({"replicas": 3, "strategy": {"inPlace": mode}})));
    world.run();
    world.log.clear();
    world
}

/// Gardener 10.3 scenario 40.
#[test]
fn what_running_machines_can_take_over_makes_no_new_set() {
    let mut world = in_place("WhenPossible");
    let name = world.sets[0].name_any();
    relabel(&mut world, "gold");
    world.deployment.spec.template.spec.drain_timeout = Some("1h".parse().unwrap());
    world.run();
    assert_eq!((world.log.join("\n"), world.sets.len()), (String::new(), 1));
    let set = &world.sets[0];
    assert_eq!(set.name_any(), name);
    let template = &set.spec.template;
    assert_eq!(template.spec.metadata.labels["tier"], "gold");
    assert_eq!(template.spec.drain_timeout, world.deployment.spec.template.spec.drain_timeout);
    assert!(template.metadata.labels.contains_key(labels::TEMPLATE_HASH), "it keeps its hash");
    assert_eq!(set.annotations()[labels::IN_PLACE], "true");
    assert_eq!(world.deployment.status.as_ref().unwrap().updated_replicas, 3);
    assert!(!world.pass(), "and then there is nothing to do");
}

#[test]
fn what_changes_the_server_rolls_and_carries_the_rest() {
    let mut world = in_place("WhenPossible");
    relabel(&mut world, "gold");
    world.change_template("1.31.0");
    world.run();
    assert_eq!(world.sets.len(), 2);
    assert_eq!(world.sets[1].spec.template.spec.metadata.labels["tier"], "gold");
    assert_eq!(world.sets[1].spec.replicas, 3);
}

/// MetaKube: any change of the template rolls.
#[test]
fn without_the_wish_a_label_rolls() {
    let mut world = in_place("Never");
    relabel(&mut world, "gold");
    world.run();
    assert_eq!(world.sets.len(), 2);
    assert_eq!(world.sets[1].spec.replicas, 3);
    // An old set of the same servers is not gone back to when the strategy changes.
    world.deployment.spec.strategy.in_place = Some(drover_api::InPlace::WhenPossible);
    world.log.clear();
    world.run();
    assert_eq!((world.log.join("\n"), world.sets[1].spec.replicas), (String::new(), 3));
}

#[test]
fn machines_of_a_class_take_over_what_they_can_unless_told_otherwise() {
    let class = json!({"metadata": {"labels": {"group": "nodes"}},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}}});
    let mut world = World::of(deployment(json!({"replicas": 1, "template": class})));
    world.run();
    assert!(
        !world.sets[0].annotations().contains_key(labels::IN_PLACE),
        "the default is not noted"
    );
    relabel(&mut world, "gold");
    world.run();
    assert_eq!(world.sets.len(), 1);
    world.deployment.spec.strategy.in_place = Some(drover_api::InPlace::Never);
    world.run();
    assert_eq!(world.sets[0].annotations()[labels::IN_PLACE], "false");
    relabel(&mut world, "silver");
    world.run();
    assert_eq!(world.sets.len(), 2);
}
