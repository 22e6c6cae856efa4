//! The CustomResourceDefinitions as they are installed, and the rules an API server holds objects to.

use drover_api::crds;
use kube_cel::Validator;
use serde_json::{Value, json};

fn schema(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("the kind exists");
    let schema = crd.spec.versions[0].schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.expect("the version has a schema")).unwrap()
}

/// What the rules say of an object, defaulted as an API server does, one line each.
fn verdict(kind: &str, object: &Value, old: Option<&Value>) -> String {
    match Validator::new().validate_with_defaults(&schema(kind), object, old) {
        Ok(()) => "ok".to_owned(),
        Err(errors) => errors
            .iter()
            .map(|it| format!("{}: {}", it.field_path, it.message))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "nodes"},
        "spec": {
            "selector": {"matchLabels": {"group": "nodes"}},
            "template": {
                "metadata": {"labels": {"group": "nodes"}},
                "spec": {"providerSpec": {"value": {"cloudProvider": "openstack"}}},
            },
        },
    })
}

fn machine() -> Value {
    json!({
        "metadata": {"name": "m"},
        "spec": {
            "metadata": {"labels": {"a": "b"}},
            "versions": {"kubelet": "1.30.3"},
            "creationTimeout": "20m",
            "providerSpec": {"value": {
                "cloudProvider": "openstack",
                "cloudProviderSpec": {"image": "i", "flavor": "f"},
                "sshPublicKeys": ["ssh-ed25519 AAAA"],
                "maintenance": false,
            }},
        },
    })
}

fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    let parent = value.pointer_mut(parent).expect("the parent exists");
    let parent = parent.as_object_mut().expect("the parent is an object");
    match field {
        Value::Null => parent.remove(name),
        field => parent.insert(name.to_owned(), field),
    };
    value
}

#[test]
fn the_definitions_are_as_reviewed() {
    for crd in crds() {
        let name = crd.spec.names.plural.clone();
        insta::assert_yaml_snapshot!(name, crd);
    }
}

#[test]
fn no_schema_takes_null_but_where_go_writes_it() {
    fn walk(path: &str, value: &Value) {
        let Some(object) = value.as_object() else { return };
        let excused = path.ends_with("/creationTimestamp");
        assert!(excused || !object.contains_key("nullable"), "{path} takes null");
        assert!(
            path.contains("x-kubernetes") || object.get("default") != Some(&Value::Null),
            "{path}"
        );
        object.iter().for_each(|(name, value)| walk(&format!("{path}/{name}"), value));
    }
    for crd in crds() {
        walk(&crd.spec.names.kind, &schema(&crd.spec.names.kind));
    }
}

#[test]
fn every_field_tells_what_it_is() {
    fn walk(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let foreign =
                ["nodeRef", "taints", "ownerRef", "metadata"].iter().any(|it| path.contains(it));
            assert!(
                foreign || property["description"].is_string() || path.ends_with(".status"),
                "{path}"
            );
            walk(&path, property);
            walk(&format!("{path}[]"), &property["items"]);
        }
    }
    for crd in crds() {
        walk(&crd.spec.names.kind, &schema(&crd.spec.names.kind));
    }
}

#[test]
fn what_is_omitted_reads_as_metakube_documents() {
    let read = kube_cel::apply_defaults(&schema("MachineDeployment"), &deployment());
    let spec = &read["spec"];
    assert_eq!(
        json!([
            spec["replicas"],
            spec["minReadySeconds"],
            spec["revisionHistoryLimit"],
            spec["progressDeadlineSeconds"],
            spec["paused"],
            spec["strategy"]
        ]),
        json!([1, 0, 1, 600, false, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}])
    );
}

#[test]
fn rules_of_deployments() {
    let check = |pointer: &str, field: Value| {
        verdict("MachineDeployment", &with(deployment(), pointer, field), None)
    };
    assert_eq!(verdict("MachineDeployment", &deployment(), None), "ok");
    assert_eq!(
        check("/spec/strategy", json!({"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}})),
        "ok"
    );
    assert_eq!(
        check("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "5%"}})),
        "ok"
    );
    let both_zero = "spec.strategy.rollingUpdate: maxSurge and maxUnavailable are both zero: the rollout could not move; raise one of them";
    for bounds in [
        json!({"maxSurge": 0}),
        json!({"maxSurge": "0%", "maxUnavailable": 0}),
        json!({"maxSurge": 0, "maxUnavailable": "0%"}),
    ] {
        assert_eq!(check("/spec/strategy", json!({"rollingUpdate": bounds})), both_zero);
    }
    assert_eq!(
        check("/spec/strategy", json!({"type": "InPlaceUpdate"})),
        "spec.strategy: strategy.type InPlaceUpdate needs strategy.inPlaceUpdate"
    );
    assert_eq!(
        check("/spec/selector", json!({})),
        "spec.selector: the selector is empty: it would take every machine of the namespace; give matchLabels"
    );
    let no_match = "spec: the selector does not match the template: give template.metadata.labels all of selector.matchLabels";
    assert_eq!(check("/spec/selector/matchLabels/group", json!("other")), no_match);
    assert_eq!(check("/spec/template/metadata", json!({})), no_match);
    assert_eq!(
        check("/metadata/name", json!("n".repeat(47))),
        ": the name of a MachineDeployment, a hash and a serial become a host name: at most 46 characters"
    );
    let rolled =
        with(deployment(), "/spec/template/spec/providerSpec/value/cloudProvider", json!("x"));
    assert_eq!(verdict("MachineDeployment", &rolled, Some(&deployment())), "ok");
}

#[test]
fn a_machine_takes_the_changes_it_can_live_with_and_no_others() {
    let change = |pointer: &str, field: Value| {
        verdict("Machine", &with(machine(), pointer, field), Some(&machine()))
    };
    let value = "/spec/providerSpec/value";
    for (pointer, field) in [
        ("/spec/metadata/labels".to_owned(), json!({"c": "d"})),
        ("/spec/metadata/annotations".into(), json!({"c": "d"})),
        ("/spec/taints".into(), json!([{"key": "k", "effect": "NoSchedule"}])),
        ("/spec/creationTimeout".into(), json!("30m")),
        ("/spec/drainTimeout".into(), json!("30m")),
        ("/spec/providerID".into(), json!("openstack:///1")),
        ("/spec/metadata/name".into(), json!("m")),
        (format!("{value}/maintenance"), json!(true)),
        (format!("{value}/delete"), json!(true)),
        (format!("{value}/upgradeIndex"), json!(2)),
        (format!("{value}/deletionPolicy"), json!("unsafe")),
    ] {
        assert_eq!(change(&pointer, field), "ok", "{pointer}");
    }
}

#[test]
fn what_makes_a_server_is_fixed_for_its_machine() {
    let change = |pointer: &str, field: Value| {
        verdict("Machine", &with(machine(), pointer, field), Some(&machine()))
    };
    let value = "/spec/providerSpec/value";
    let fixed = |name: &str| {
        format!(
            "{name} cannot change on a Machine; change the template of its MachineDeployment, it replaces the machines"
        )
    };
    for (pointer, field, said) in [
        (
            "/spec/versions/kubelet".to_owned(),
            json!("1.31.0"),
            format!("spec: {}", fixed("versions")),
        ),
        ("/spec/versions".into(), Value::Null, format!("spec: {}", fixed("versions"))),
        (
            "/spec/class".into(),
            json!({"kind": "MachineClass", "name": "c"}),
            format!("spec: {}", fixed("class")),
        ),
        (
            format!("{value}/cloudProviderSpec/flavor"),
            json!("g"),
            format!("spec.providerSpec.value: {}", fixed("cloudProviderSpec")),
        ),
        (
            format!("{value}/cloudProviderSpec/tags"),
            json!(["t"]),
            format!("spec.providerSpec.value: {}", fixed("cloudProviderSpec")),
        ),
        (
            format!("{value}/sshPublicKeys"),
            json!([]),
            format!("spec.providerSpec.value: {}", fixed("sshPublicKeys")),
        ),
        (
            format!("{value}/operatingSystem"),
            json!("flatcar"),
            format!("spec.providerSpec.value: {}", fixed("operatingSystem")),
        ),
        ("/spec/providerSpec".into(), Value::Null, format!("spec: {}", fixed("providerSpec"))),
    ] {
        assert_eq!(change(&pointer, field), said);
    }
    assert!(
        change("/spec/metadata/name", json!("other"))
            .contains("spec.metadata.name is the name of the server")
    );
    let born = with(machine(), "/spec/providerID", json!("openstack:///1"));
    let moved = with(machine(), "/spec/providerID", json!("openstack:///2"));
    assert_eq!(
        verdict("Machine", &moved, Some(&born)),
        "spec: providerID is set once and cannot change"
    );
    assert_eq!(
        verdict("Machine", &machine(), Some(&born)),
        "spec: providerID is set once and cannot change"
    );
}

#[test]
fn machines_that_could_never_be_are_refused() {
    let check =
        |pointer: &str, field: Value| verdict("Machine", &with(machine(), pointer, field), None);
    assert_eq!(
        check("/spec/configSource", json!({})),
        "spec: configSource: dynamic kubelet configuration is gone from Kubernetes; leave it out"
    );
    assert_eq!(
        check("/spec/providerSpec/valueFrom", json!({"machineClass": {"name": "c"}})),
        "spec.providerSpec: give providerSpec.value or providerSpec.valueFrom, not both"
    );
    assert_eq!(
        check("/metadata/name", json!("n".repeat(64))),
        ": the name of a Machine becomes a host name: at most 63 characters"
    );
}
