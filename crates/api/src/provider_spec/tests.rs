//! What the dialects read, and what they say of descriptions they cannot use.

use super::*;
use crate::{ClassReference, Machine, MachineDeployment, ProviderSpec, Versions};
use serde_json::json;

fn spec(value: Value) -> MachineSpec {
    MachineSpec {
        provider_spec: ProviderSpec { value: Some(value), value_from: None },
        versions: Versions { kubelet: "1.30.3".into(), control_plane: None },
        ..MachineSpec::default()
    }
}

fn metakube() -> Value {
    json!({
        "cloudProvider": "openstack",
        "cloudProviderSpec": { "image": "Ubuntu", "flavor": "m1.small", "network": "net" },
        "operatingSystem": "ubuntu",
    })
}

fn mirantis() -> Value {
    json!({
        "apiVersion": "openstackproviderconfig.k8s.io/v1alpha1",
        "kind": "OpenstackMachineProviderSpec",
        "image": "bionic", "flavor": "kaas.small",
    })
}

fn class(provider_spec: Value) -> MachineClass {
    let mut class = MachineClass::new("small", provider_spec);
    class.metadata.namespace = Some("shoot".into());
    class.provider = Some("OpenStack".into());
    class
}

fn gardener() -> Value {
    json!({ "imageName": "flatcar", "flavorName": "m1.small", "networkID": "n-1" })
}

/// `value` with the field at the JSON pointer set.
fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    let parent = value.pointer_mut(parent).expect("the parent exists");
    parent.as_object_mut().expect("the parent is an object").insert(name.to_owned(), field);
    value
}

fn read(value: Value) -> Result<ServerDescription, DescriptionError> {
    describe(&spec(value), None, &Resolved::new())
}

fn refusal(value: Value) -> String {
    read(value).expect_err("refused").to_string()
}

#[test]
fn the_example_is_the_server_it_says() {
    let text = include_str!("../../../../examples/metakube/machinedeployment.yaml");
    let deployment: MachineDeployment = serde_saphyr::from_str(text).unwrap();
    assert_eq!(deployment.spec.replicas, 2);
    assert_eq!(deployment.spec.selector.to_string(), "group=nodes");
    let description = describe(&deployment.spec.template.spec, None, &Resolved::new()).unwrap();
    assert_eq!(
        serde_json::to_value(&description.server).unwrap(),
        json!({
            "image": "Ubuntu Noble 24.04 (2024-08-01)", "flavor": "m1.small",
            "availabilityZone": "dbl1", "region": "dbl",
            "networks": [{
                "network": "metakube-mmxfcmgjkx", "subnet": "2969ae04-a429-4c1b-83e3-2f76fc3a342a",
            }],
            "securityGroups": ["metakube-mmxfcmgjkx"], "floatingIpPool": "ext-net",
            "serverGroup": "fe9dcd44-f08a-492a-9e64-4e38e1d51573",
        })
    );
    assert_eq!(description.kubelet, Some(semver::Version::new(1, 30, 3)));
    assert_eq!(description.os, OperatingSystem::Ubuntu { dist_upgrade_on_boot: false });
}

#[test]
fn metakube_aliases_and_volumes_are_read() {
    let mut value = metakube();
    value["operatingSystem"] = "flatcar".into();
    value["operatingSystemSpec"] = json!({"disableLocksmithD": true, "unknown": 1});
    value["cloudProviderSpec"] = json!({
        "image": "flatcar", "flavor": "m1", "network": "a", "networks": ["b", "a"], "subnet": "s",
        "serverGroup": "g", "rootDiskSizeGB": 20, "rootDiskVolumeType": "ssd",
        "disablePortSecurity": true, "configDrive": false, "tags": {"team": "blue"},
    });
    let read = read(value).unwrap();
    assert_eq!(
        serde_json::to_value(&read.server).unwrap(),
        json!({
            "image": "flatcar", "flavor": "m1",
            "networks": [{"network": "a", "subnet": "s"}, {"network": "b"}],
            "serverGroup": "g", "rootVolume": {"sizeGiB": 20, "volumeType": "ssd"},
            "portSecurity": false, "configDrive": false, "metadata": {"team": "blue"},
        })
    );
    assert!(matches!(read.os, OperatingSystem::Flatcar { disable_locksmith_d: true, .. }));
    let tagged = with(metakube(), "/cloudProviderSpec/tags", json!(["a", "b"]));
    assert_eq!(
        super::describe(&spec(tagged), None, &Resolved::new()).unwrap().server.tags,
        ["a", "b"]
    );
}

#[test]
fn references_are_asked_for_resolved_and_never_printed() {
    let reference = json!({"secretKeyRef": {"namespace": "n", "name": "cloud", "key": "flavor"}});
    let mut value = with(metakube(), "/cloudProviderSpec/flavor", reference);
    value["cloudProviderSpec"]["password"] = json!("hunter2");
    let spec = spec(value);
    let error = describe(&spec, None, &Resolved::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.providerSpec.value.cloudProviderSpec.flavor: key flavor of Secret n/cloud does not exist; create it"
    );
    let DescriptionError::Unresolved { reference, .. } = error else { panic!("{error}") };
    let resolved = [(reference, "m1.big".to_owned())].into();
    let description = describe(&spec, None, &resolved).unwrap();
    assert_eq!(description.server.flavor, "m1.big");
    assert!(!format!("{description:?}").contains("hunter2"));
    assert!(description.credentials.values.contains_key("password"));
}

#[test]
fn mirantis_is_read() {
    let mut value = mirantis();
    value["apiVersion"] = "openstackproviderconfig.k8s.io/v1alpha".into();
    for (name, field) in [
        ("bootFromVolume", json!({"enabled": true, "volumeSize": 120})),
        ("nodeLabels", json!([{"key": "stacklight", "value": "enabled"}])),
        ("deletionPolicy", json!("unsafe")),
        ("delete", json!(true)),
        ("upgradeIndex", json!(3)),
        ("networks", json!([{"uuid": "n-1", "fixed_ip": "10.0.0.7"}])),
        ("additionalVolumes", json!([{"name": "data", "size": 5}])),
    ] {
        value[name] = field;
    }
    assert_eq!(policy_of(&spec(value.clone())), Some(DeletionPolicy::Unsafe));
    let read = read(value).unwrap();
    assert_eq!((read.delete, read.upgrade_index), (true, Some(3)));
    assert_eq!(read.node_labels["stacklight"], "enabled");
    assert_eq!(read.server.root_volume, Some(RootVolume { size_gib: 120, volume_type: None }));
    assert_eq!(read.server.networks[0].fixed_ip, Some("10.0.0.7".parse().unwrap()));
    assert_eq!(read.server.additional_volumes[0].name, "data");
}

#[test]
fn a_class_is_read_with_its_secrets() {
    let mut class = class(json!({
        "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
        "spec": {
            "imageID": "i-1", "imageName": "ignored", "flavorName": "m1", "region": "r",
            "availabilityZone": "z", "keyName": "k", "securityGroups": ["s"], "networkID": "n",
            "subnetIDs": ["sub", "six"], "podNetworkCIDRs": ["100.64.0.0/12"], "rootDiskSize": 50,
            "tags": {"kubernetes.io-cluster-x": "1", "kubernetes.io-role-node": "1"},
        },
    }));
    class.secret_ref = Some(SecretReference { name: "user-data".into(), namespace: None });
    let reference =
        ClassReference { kind: "MachineClass".into(), name: "small".into(), api_group: None };
    let spec = MachineSpec { class: Some(reference), ..MachineSpec::default() };
    let read = describe(&spec, Some(&class), &Resolved::new()).unwrap();
    assert_eq!((read.server.image.as_str(), read.server.key_name.as_deref()), ("i-1", Some("k")));
    assert_eq!(read.server.networks[0].subnet.as_deref(), Some("sub"));
    assert_eq!(read.server.networks[0].more_subnets, ["six"]);
    assert_eq!(read.server.allowed_address_pairs, ["100.64.0.0/12"]);
    let secret = SecretReference { name: "user-data".into(), namespace: Some("shoot".into()) };
    assert_eq!(read.user_data, UserDataSource::Secret(secret.clone()));
    assert_eq!(read.credentials.secrets, [secret]);
    assert_eq!(
        describe(&spec, None, &Resolved::new()).unwrap_err().to_string(),
        "spec.class: MachineClass small does not exist in the namespace; create it"
    );
}

#[test]
fn the_ranges_of_pods_belong_to_the_networks_that_say_so() {
    let pods = |networks: Value| -> Vec<Option<bool>> {
        let mut class = gardener();
        class.as_object_mut().unwrap().remove("networkID");
        class["networks"] = networks;
        let read = super::machine_class::read(&self::class(class), &Resolved::new()).unwrap();
        read.server.networks.iter().map(|network| network.pods).collect()
    };
    let said = pods(json!([{"id": "a", "podNetwork": true}, {"name": "b"}]));
    assert_eq!(said, [Some(true), Some(false)]);
    assert_eq!(pods(json!([{"id": "a"}, {"name": "b"}])), [None, None], "nobody says: on all");
}

#[test]
fn wrong_descriptions_are_refused_with_field_value_and_way_out() {
    let cloud = |name: &str, value: Value| {
        refusal(with(metakube(), &format!("/cloudProviderSpec/{name}"), value))
    };
    let top = |name: &str, value: Value| refusal(with(metakube(), &format!("/{name}"), value));
    let lines = [
        top("cloudprovider", json!("openstack")),
        top("surprise", json!(1)),
        top("cloudProvider", json!("aws")),
        top("cloudProvider", json!(7)),
        top("cloudProvider", json!("")),
        top("cloudProviderSpec", json!(null)),
        top("cloudProviderSpec", json!([])),
        top("operatingSystem", json!("rhel")),
        top("operatingSystem", json!(null)),
        top("operatingSystemSpec", json!({"distUpgradeOnBoot": "yes"})),
        top("sshPublicKeys", json!(["ssh-ed25519 nonsense"])),
        top("sshPublicKeys", json!("ssh-ed25519")),
        top("network", json!({"cidr": "10.0.0.1/24"})),
        top("network", json!({"ipFamily": "IPv5"})),
        cloud("flavour", json!("m1")),
        cloud("flavor", json!("")),
        cloud("flavor", json!({"secretKeyRef": {"name": "a"}})),
        cloud("image", json!({"env": "IMAGE"})),
        cloud("image", json!(24.04)),
        cloud("password", json!(12345)),
        cloud("rootDiskSizeGB", json!(0)),
        cloud("rootDiskSizeGB", json!("20")),
        cloud("rootDiskVolumeType", json!("ssd")),
        cloud("tags", json!(["a,b"])),
        cloud("tags", json!({"machine-uid": "x"})),
        cloud("tags", json!({"count": 1})),
        cloud("tags", json!("a")),
        cloud("configDrive", json!("true")),
        cloud("computeAPIVersion", json!("1.1")),
        cloud("instanceReadyCheckTimeout", json!("10")),
        cloud("securityGroups", json!("default")),
        refusal(with(
            with(metakube(), "/cloudProviderSpec/serverGroup", json!("a")),
            "/cloudProviderSpec/serverGroupID",
            json!("b"),
        )),
    ];
    insta::assert_snapshot!(lines.join("\n").replace(VALUE, "v"));
}

#[test]
fn wrong_descriptions_of_the_other_dialects_are_refused_likewise() {
    let other = |name: &str, value: Value| refusal(with(mirantis(), &format!("/{name}"), value));
    let of_class = |name: &str, value: Value| {
        let class = class(with(gardener(), &format!("/{name}"), value));
        super::machine_class::read(&class, &Resolved::new()).expect_err("refused").to_string()
    };
    let mut version = spec(metakube());
    version.versions.kubelet = "1.30".into();
    let mut none = spec(metakube());
    none.versions.kubelet = String::new();
    let mut aws = class(gardener());
    aws.provider = Some("AWS".into());
    let read = |spec: &MachineSpec| describe(spec, None, &Resolved::new()).unwrap_err().to_string();
    let lines = [
        other("kind", json!("BareMetalMachineProviderSpec")),
        other("apiVersion", json!("openstackproviderconfig.k8s.io/v1")),
        other("bootFromVolume", json!({"enabled": true})),
        other("deletionPolicy", json!("gentle")),
        other("upgradeIndex", json!(-1)),
        other("nodeLabels", json!([{"value": "x"}])),
        other("networks", json!([{"uuid": "n", "fixed_ip": "300.1.1.1"}])),
        other("floatingIP", json!("1.2.3.4")),
        other("distribution", json!("rhel/8")),
        other("maintenence", json!(true)),
        of_class("networks", json!([{"id": "n-2"}])),
        of_class("subnetIDs", json!("a")),
        of_class("rootDiskSize", json!(-5)),
        of_class("flavorName", json!(null)),
        super::machine_class::read(&aws, &Resolved::new()).unwrap_err().to_string(),
        read(&MachineSpec::default()),
        read(&version),
        read(&none),
    ];
    insta::assert_snapshot!(lines.join("\n").replace(VALUE, "v"));
}

#[test]
fn no_null_is_ever_written() {
    let mut machine = Machine::new("m", spec(metakube()));
    machine.status = Some(crate::MachineStatus::default());
    let text = serde_json::to_string(&machine).unwrap();
    assert!(!text.contains("null"), "{text}");
    let text = serde_json::to_string(&class(gardener())).unwrap();
    assert!(!text.contains("null"), "{text}");
}

#[test]
fn what_a_deletion_needs_is_read_also_from_what_is_broken() {
    let mut value = metakube();
    value["typo"] = json!(1);
    value["cloudProviderSpec"]["region"] = json!("r");
    value["cloudProviderSpec"]["flavor"] = json!(7);
    value["cloudProviderSpec"]["password"] =
        json!({"secretKeyRef": {"namespace": "n", "name": "s", "key": "k"}});
    assert!(read(value.clone()).is_err());
    let (credentials, region) = credentials_of(&spec(value), None).unwrap();
    assert!(credentials.values.contains_key("password"));
    assert_eq!(region.as_deref(), Some("r"));

    let reference =
        ClassReference { api_group: None, kind: "MachineClass".into(), name: "c".into() };
    let of_class = MachineSpec { class: Some(reference), ..MachineSpec::default() };
    let error = credentials_of(&of_class, None).unwrap_err().to_string();
    assert!(error.contains("MachineClass c does not exist"), "{error}");
    let mut class = class(json!({"spec": {"region": "r", "typo": 1}}));
    class.secret_ref = Some(SecretReference { name: "s".into(), namespace: None });
    let (credentials, region) = credentials_of(&of_class, Some(&class)).unwrap();
    assert_eq!((credentials.secrets.len(), region.as_deref()), (1, Some("r")));
}

/// What is accepted for the sake of other systems' manifests is told of.
#[test]
fn fields_without_effect_are_told_of() {
    let value = with(metakube(), "/cloudProviderSpec/computeAPIVersion", json!("2.60"));
    let value = with(value, "/cloudProviderSpec/trustDevicePath", json!(false));
    let value = with(value, "/caPublicKey", json!("ssh-rsa AAAA"));
    let spec = MachineSpec { max_evict_retries: Some(3), ..spec(value) };
    assert_eq!(
        describe(&spec, None, &Resolved::new()).unwrap().without_effect,
        [
            "spec.providerSpec.value.caPublicKey",
            "spec.providerSpec.value.cloudProviderSpec.computeAPIVersion",
            "spec.providerSpec.value.cloudProviderSpec.trustDevicePath",
            "spec.maxEvictRetries",
        ]
    );
    let class = class(with(gardener(), "/rootDiskType", json!("ssd")));
    let spec = MachineSpec { class: Some(of_class("MachineClass")), ..MachineSpec::default() };
    let versions = Versions { kubelet: "1.30.3".into(), control_plane: None };
    let spec = MachineSpec { versions, ..spec };
    let idle = describe(&spec, Some(&class), &Resolved::new()).unwrap().without_effect;
    assert_eq!(idle, ["MachineClass small: providerSpec.rootDiskType"]);
}

fn of_class(kind: &str) -> ClassReference {
    ClassReference { api_group: None, kind: kind.into(), name: "small".into() }
}

#[test]
fn a_class_of_another_kind_is_refused_by_name() {
    let class = class(gardener());
    let spec =
        MachineSpec { class: Some(of_class("OpenStackMachineClass")), ..MachineSpec::default() };
    let error = describe(&spec, Some(&class), &Resolved::new()).unwrap_err().to_string();
    assert_eq!(
        error,
        "spec.class.kind: \"OpenStackMachineClass\" cannot be used; give MachineClass"
    );
}

#[test]
fn a_network_family_and_a_cloud_config_are_read_and_the_latter_is_never_printed() {
    let value = with(metakube(), "/network", json!({"ipFamily": "IPv6+IPv4"}));
    let read =
        read(with(value, "/overwriteCloudConfig", json!("[Global]\npassword=pw\n"))).unwrap();
    assert_eq!(read.ip_family, Some(IpFamily::V6V4));
    assert_eq!(read.cloud_config, Some(SecretText("[Global]\npassword=pw\n".into())));
    assert!(!format!("{read:?}").contains("password="));
}
