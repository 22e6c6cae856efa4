//! What the cloud has in it when it begins.

use super::compute::{Flavor, Group};
use super::identity::{ApplicationCredential, Project, User, names};
use super::image::Image;
use super::network::{ensure_default, plant_group, topology};
use super::state::State;
use serde_json::Value;

/// The name of the documentation's network, subnet, router, security group and server group.
const CLUSTER: &str = "metakube-mmxfcmgjkx";
/// The subnet and the server group of the documentation's manifest.
const SUBNET: &str = "2969ae04-a429-4c1b-83e3-2f76fc3a342a";
const SERVER_GROUP: &str = "fe9dcd44-f08a-492a-9e64-4e38e1d51573";

/// Name, virtual CPUs, MiB, GiB.
const FLAVORS: [(&str, u64, u64, u64); 4] = [
    ("m1.small", 1, 2_048, 20),
    ("m1.medium", 2, 4_096, 40),
    // Boots from a volume only.
    ("kaas.small", 2, 4_096, 0),
    // Fits no host.
    ("m1.impossible", 1, 2_000_000, 20),
];

/// Name, distribution, version, MiB, GiB.
const IMAGES: [(&str, &str, &str, u64, u64); 2] = [
    ("Ubuntu Noble 24.04 (2024-08-01)", "ubuntu", "24.04", 512, 1),
    ("Flatcar Stable 3975.2.1", "flatcar", "3975.2.1", 512, 1),
];

/// Fills an empty cloud.
pub(super) fn plant(state: &mut State) {
    let (project, operator) = people(state);
    describe(state, &operator);
    network(state, &project, &operator);
    let user = state.identity.users.first().map(|user| user.id.clone()).unwrap_or_default();
    let group = Group {
        id: SERVER_GROUP.to_owned(),
        name: CLUSTER.to_owned(),
        policy: "soft-anti-affinity".to_owned(),
        max_per_host: None,
        project,
        user,
    };
    state.compute.groups.insert(group.id.clone(), group);
}

/// Makes the users and their projects; returns the ids of the projects `drover` and `admin`.
fn people(state: &mut State) -> (String, String) {
    for name in names() {
        let id = state.hex();
        state.identity.ids.insert(name, id);
    }
    // Nobody asks for these: drawn from others, they change no other id.
    for name in ["", "/internal", "/public"] {
        let of = state.identity.ids.get(&format!("block-storage{name}"));
        let id = of.map(|id| id.chars().rev().collect()).unwrap_or_default();
        state.identity.ids.insert(format!("placement{name}"), id);
    }
    let mut projects = Vec::new();
    for (name, role) in [("drover", "member"), ("admin", "admin")] {
        let project =
            Project { id: state.hex(), name: name.to_owned(), description: String::new() };
        projects.push(project.id.clone());
        let user = User {
            id: state.hex(),
            name: name.to_owned(),
            password: "password".to_owned(),
            project: project.id.clone(),
        };
        let grant = (user.id.clone(), project.id.clone(), role.to_owned());
        state.identity.grants.insert(grant);
        state.identity.projects.push(project);
        state.identity.users.push(user);
    }
    let credential = ApplicationCredential {
        id: state.hex(),
        name: "drover".to_owned(),
        secret: state.hex(),
        user: state.identity.users[0].id.clone(),
        project: projects[0].clone(),
        roles: vec!["reader".to_owned(), "member".to_owned()],
        description: Some("machine manager".to_owned()),
        expires: None,
    };
    state.identity.credentials.push(credential);
    let admin = projects.pop().unwrap_or_default();
    (projects.pop().unwrap_or_default(), admin)
}

fn describe(state: &mut State, operator: &str) {
    for (name, vcpus, ram, disk) in FLAVORS {
        let id = state.uuid();
        state.compute.flavors.push(Flavor { id, name: name.to_owned(), vcpus, ram, disk });
    }
    for (name, distribution, version, min_ram, min_disk) in IMAGES {
        let properties = [("os_distro", distribution), ("os_version", version)];
        let (id, now) = (state.uuid(), state.now());
        let mut image = Image::planted(&id, name, operator, now);
        (image.min_ram, image.min_disk) = (min_ram, min_disk);
        image.properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        state.images.all.insert(image.id.clone(), image);
    }
    for name in ["ssd", "__DEFAULT__"] {
        let id = state.uuid();
        state.volumes.types.push((name.to_owned(), id));
    }
}

fn network(state: &mut State, project: &str, operator: &str) {
    let id = |value: &Value| value["id"].as_str().unwrap_or_default().to_owned();
    let external = id(&topology::plant_network(state, operator, "ext-net", true));
    let subnet = topology::Subnet::new(None, "ext-subnet", &external, "100.64.0.0/16");
    subnet.map(|subnet| topology::plant_subnet(state, operator, &subnet));
    let inner = id(&topology::plant_network(state, project, CLUSTER, false));
    let subnet = topology::Subnet::new(Some(SUBNET), CLUSTER, &inner, "192.168.48.0/20");
    subnet.map(|subnet| topology::plant_subnet(state, project, &subnet));
    let router = id(&topology::plant_router(state, project, CLUSTER, Some(&external)));
    topology::plant_interface(state, &router, SUBNET);
    ensure_default(state, project);
    plant_group(state, project, CLUSTER, "worker nodes");
}

/// The credentials, as the command line reads them.
pub(super) fn clouds_yaml(state: &State) -> String {
    let base = &state.config.base_url;
    let credential = state.identity.credentials.first();
    let (id, secret) = credential.map_or(("", ""), |one| (one.id.as_str(), one.secret.as_str()));
    let login = |name: &str, user: &str| {
        format!(
            "  {name}:
    region_name: dbl
    identity_api_version: 3
    auth:
      auth_url: {base}/identity/v3
      username: {user}
      password: password
      project_name: {user}
      user_domain_name: Default
      project_domain_name: Default
"
        )
    };
    format!(
        "clouds:
{}{}  drover-appcred:
    region_name: dbl
    identity_api_version: 3
    auth_type: v3applicationcredential
    auth:
      auth_url: {base}/identity/v3
      application_credential_id: {id}
      application_credential_secret: {secret}
",
        login("drover", "drover"),
        login("admin", "admin"),
    )
}
