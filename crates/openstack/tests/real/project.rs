//! A project of its own for each test, in which nothing may be left behind and nothing else be touched.

use crate::rest::{Rest, id, network};
use crate::wire::Wire;
use drover_openstack::{OpenStack, Setup};
use drover_provider::{
    Claim, Clock, Created, Credentials, Deleted, Error, Instance, Memory, Order, Owner, Provider,
    Retry, UserData,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Write as _, sync::Arc, sync::Once, time::Duration};

pub const CLUSTER: &str = "3f6d5b1c-0000-4000-8000-00000000000c";
pub const IMAGE: &str = "Ubuntu Noble 24.04 (2024-08-01)";
const PASSWORD: &str = "test-secret";
/// Calls of one drive at most.
const STEPS: usize = 400;
/// Where the services' clouds.yaml is; it has the clouds `admin` and `drover`.
const VARIABLE: &str = "DROVER_TEST_CLOUDS";
static SKIPPED: Once = Once::new();

/// A project with network, router and security group, its user, and the administrator.
pub struct Project {
    pub name: String,
    pub id: String,
    pub user: String,
    pub admin: Rest,
    pub member: Rest,
    auth_url: String,
    network: String,
    subnet: String,
    router: String,
    /// A port of somebody else that carries our cluster's tag and nothing more.
    foreign: String,
    before: BTreeMap<&'static str, Value>,
}

/// What a project can hold; whatever can be told of it without a clock.
const COLLECTIONS: [(&str, &str, &str); 6] = [
    ("compute", "/servers/detail", "servers"),
    ("network", "/ports", "ports"),
    ("network", "/floatingips", "floatingips"),
    ("network", "/security-groups", "security_groups"),
    ("block-storage", "/volumes/detail", "volumes"),
    ("compute", "/os-server-groups", "server_groups"),
];

impl Project {
    /// `None` when there are no services to test against, said once and loudly.
    pub async fn new(name: &str) -> Option<Self> {
        let Ok(path) = std::env::var(VARIABLE) else {
            SKIPPED.call_once(|| {
                let told =
                    "NOT RUN: 30 tests on real OpenStack services; make test-openstack runs them";
                writeln!(std::io::stderr(), "{told}").expect("stderr takes a line");
            });
            return None;
        };
        let yaml = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let admin = OpenStack::credentials_of(&yaml, "admin").unwrap();
        let given =
            |key: &str| admin.get(key).unwrap_or_else(|| panic!("{key} of admin")).to_owned();
        let auth_url = given("auth_url");
        let admin = Rest::log_in(&auth_url, &given("username"), &given("password"), "admin").await;
        let name = format!("drover-test-{name}-{:08x}", fastrand::u32(..));
        let made = json!({"name": name, "domain_id": "default"});
        let project = id(&admin.post("identity /projects", "project", made).await);
        let user = user(&admin, &name, &project, "member").await;
        let member = Rest::log_in(&auth_url, &name, PASSWORD, &name).await;
        let (network, subnet, router) = wire_up(&admin, &member).await;
        let port = json!({"name": "somebody", "network_id": network});
        let foreign = id(&member.post("network /ports", "port", port).await);
        let tag = format!("network /ports/{foreign}/tags/drover.cluster.{CLUSTER}");
        assert_eq!(member.call("PUT", &tag, None).await.status, 201);
        let before = BTreeMap::new();
        let mut project = Self {
            name,
            id: project,
            user,
            admin,
            member,
            auth_url,
            network,
            subnet,
            router,
            foreign,
            before,
        };
        project.before = project.inventory().await;
        Some(project)
    }

    /// A user of this project who has only this role, as credentials.
    pub async fn with_role(&self, role: &str) -> Credentials {
        let name = format!("{}-{role}", self.name);
        user(&self.admin, &name, &self.id, role).await;
        self.credentials(&name, Some(&self.name))
    }

    pub fn credentials(&self, user: &str, project: Option<&str>) -> Credentials {
        let mut pairs = vec![
            ("auth_url", self.auth_url.as_str()),
            ("username", user),
            ("password", PASSWORD),
            ("user_domain_name", "Default"),
            ("project_domain_name", "Default"),
            ("region_name", "RegionOne"),
        ];
        pairs.extend(project.map(|name| ("project_name", name)));
        pairs.into_iter().collect()
    }

    /// An application credential of the project's user that lives so long.
    pub async fn application_credential(&self, life: Duration) -> Credentials {
        let expires = Timestamp::now() + SignedDuration::try_from(life).unwrap();
        let expires = expires.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let body = json!({"name": expires, "expires_at": expires});
        let path = format!("identity /users/{}/application_credentials", self.user);
        let made = self.member.post(&path, "application_credential", body).await;
        [
            ("auth_url", self.auth_url.as_str()),
            ("auth_type", "v3applicationcredential"),
            ("application_credential_id", &id(&made)),
            ("application_credential_secret", made["secret"].as_str().unwrap()),
            ("region_name", "RegionOne"),
        ]
        .into_iter()
        .collect()
    }

    pub fn provider(&self) -> OpenStack {
        self.over(&Arc::default())
    }

    pub fn over(&self, wire: &Arc<Wire>) -> OpenStack {
        self.later(wire, SignedDuration::ZERO)
    }

    /// A provider that believes it is so much later: what may still be on its way need not be waited for.
    pub fn later(&self, wire: &Arc<Wire>, by: SignedDuration) -> OpenStack {
        let credentials = self.credentials(&self.name, Some(&self.name));
        let setup = Setup::new(Some(credentials))
            .over(wire.over(network()))
            .clock(Clock::of(move || Timestamp::now() + by));
        OpenStack::new(setup)
    }

    /// A machine with one port and a floating IP.
    pub fn parameters(&self) -> Value {
        json!({
            "image": IMAGE,
            "flavor": "m1.small",
            "networks": [{"network": self.network, "subnet": self.subnet}],
            "securityGroups": ["workers"],
            "floatingIpPool": "ext-net",
            "tags": ["kube"],
            "metadata": {"pool": "nodes"},
        })
    }

    /// The order of the machine of this number, with these parameters beside the usual ones.
    pub fn order(&self, number: usize, more: Value) -> Order {
        let mut parameters = self.parameters();
        for (field, value) in more.as_object().unwrap() {
            parameters[field] = value.clone();
        }
        let owner = Owner {
            cluster: CLUSTER.into(),
            machine: format!("3f6d5b1c-0000-4000-8000-{number:012}"),
            name: "nodes-1".into(),
        };
        let claim = Claim { owner, credentials: Credentials::default(), parameters, place: None };
        Order { claim, user_data: UserData(b"#cloud-config\n".to_vec()) }
    }

    pub async fn list(&self, kind: &str) -> Vec<Value> {
        let (service, path, name) = COLLECTIONS.iter().find(|it| it.2 == kind).unwrap();
        let scope =
            if *service == "network" { format!("?project_id={}", self.id) } else { String::new() };
        match self.member.get(&format!("{service} {path}{scope}"), name).await {
            Value::Array(things) => things,
            other => panic!("{kind} is {other}"),
        }
    }

    async fn inventory(&self) -> BTreeMap<&'static str, Value> {
        let mut all = BTreeMap::new();
        for (_, _, kind) in COLLECTIONS {
            let mut things = self.list(kind).await;
            things.sort_by_key(id);
            // Times and the order in lists change by themselves; these change when somebody touches the thing.
            for thing in &mut things {
                let telling =
                    ["id", "name", "status", "device_id", "port_id", "metadata", "revision_number"];
                thing.as_object_mut().unwrap().retain(|field, _| telling.contains(&field.as_str()));
            }
            all.insert(kind, Value::from(things));
        }
        all
    }

    /// What others made is there from now on, to be found unchanged at the end.
    pub async fn keep_what_is_there(&mut self) {
        self.before = self.inventory().await;
    }

    pub async fn quota(&self, of: &str, value: i64) {
        let (path, name) = match of {
            "instances" | "cores" | "ram" => ("compute /os-quota-sets", "quota_set"),
            "volumes" | "gigabytes" => ("block-storage /os-quota-sets", "quota_set"),
            _ => ("network /quotas", "quota"),
        };
        let path = format!("{path}/{}", self.id);
        let answer = self.admin.call("PUT", &path, Some(json!({name: {of: value}}))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Nothing is left, nothing else was touched; takes the project away.
    pub async fn end(self) {
        // Cinder and Neutron tell of a volume or an address let go a moment later.
        let mut after = self.inventory().await;
        for _ in 0..20 {
            if after == self.before {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            after = self.inventory().await;
        }
        for (kind, before) in &self.before {
            assert_eq!(&after[kind], before, "{kind} of {}", self.name);
        }
        let admin = &self.admin;
        let gateway = json!({"subnet_id": self.subnet});
        let path = format!("network /routers/{}/remove_router_interface", self.router);
        admin.call("PUT", &path, Some(gateway)).await;
        admin.delete(&format!("network /routers/{}", self.router)).await;
        admin.delete(&format!("network /ports/{}", self.foreign)).await;
        admin.delete(&format!("network /networks/{}", self.network)).await;
        for group in self.list("security_groups").await {
            admin.delete(&format!("network /security-groups/{}", id(&group))).await;
        }
        let users = admin.get("identity /users", "users").await;
        let of_project = |user: &&Value| user["name"].as_str().unwrap().starts_with(&self.name);
        for user in users.as_array().unwrap().iter().filter(of_project) {
            admin.delete(&format!("identity /users/{}", id(user))).await;
        }
        admin.delete(&format!("identity /projects/{}", self.id)).await;
    }
}

async fn user(admin: &Rest, name: &str, project: &str, role: &str) -> String {
    let made = json!({"name": name, "password": PASSWORD, "domain_id": "default"});
    let user = id(&admin.post("identity /users", "user", made).await);
    let roles = admin.get("identity /roles", "roles").await;
    let role = roles.as_array().unwrap().iter().find(|it| it["name"] == role).unwrap();
    let path = format!("identity /projects/{project}/users/{user}/roles/{}", id(role));
    assert_eq!(admin.call("PUT", &path, None).await.status, 204);
    user
}

/// Network, subnet and router; the names are the same in every project.
async fn wire_up(admin: &Rest, member: &Rest) -> (String, String, String) {
    let network = member.post("network /networks", "network", json!({"name": "nodes"})).await;
    let subnet = json!({"name": "nodes", "network_id": id(&network), "ip_version": 4, "cidr": "10.9.0.0/24"});
    let subnet = member.post("network /subnets", "subnet", subnet).await;
    let external = admin.get("network /networks?name=ext-net", "networks").await;
    let gateway =
        json!({"name": "nodes", "external_gateway_info": {"network_id": id(&external[0])}});
    let router = member.post("network /routers", "router", gateway).await;
    let interface = json!({"subnet_id": id(&subnet)});
    let path = format!("network /routers/{}/add_router_interface", id(&router));
    assert_eq!(member.call("PUT", &path, Some(interface)).await.status, 200);
    let group = json!({"name": "workers"});
    member.post("network /security-groups", "security_group", group).await;
    (id(&network), id(&subnet), id(&router))
}

async fn pause(error: &Error) -> Result<(), Error> {
    let wait = match error.retry() {
        Retry::After(wait) if wait < Duration::from_secs(60) => wait,
        Retry::Backoff if !matches!(error, Error::ServerFailed(_)) => Duration::from_secs(1),
        _ => return Err(error.clone()),
    };
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Creates until done or until waiting has no sense, writing every memory down before the next call.
pub async fn create(
    provider: &OpenStack,
    order: &Order,
    memory: &mut Memory,
) -> Result<Instance, Error> {
    for _ in 0..STEPS {
        match Provider::create(provider, order, memory).await {
            Ok(Created::Record(next)) => *memory = next,
            Ok(Created::Waiting { memory: next, after, .. }) => {
                *memory = next;
                tokio::time::sleep(after).await;
            }
            Ok(Created::Done { memory: next, instance }) => {
                *memory = next;
                return Ok(instance);
            }
            Err(error) => pause(&error).await?,
        }
    }
    panic!("no end of the creation after {STEPS} calls");
}

/// Deletes until gone.
pub async fn delete(provider: &OpenStack, claim: &Claim, memory: &Memory) -> Result<(), Error> {
    for _ in 0..STEPS {
        match Provider::delete(provider, claim, memory).await {
            Ok(Deleted::Gone) => return Ok(()),
            Ok(Deleted::Waiting { after, .. }) => tokio::time::sleep(after).await,
            Err(error) => pause(&error).await?,
        }
    }
    panic!("no end of the deletion after {STEPS} calls");
}
