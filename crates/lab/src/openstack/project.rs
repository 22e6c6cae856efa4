//! A project of its own on an OpenStack that is there: nothing may be left in it, and what others have in it stays as it is.

use super::{Access, Client, Error, Service, nova};
use crate::cloud::{Entry, Ledger};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;
use tokio::time::Instant;

/// Names the clouds.yaml of services to test on, with the cloud `admin`.
const VARIABLE: &str = "DROVER_TEST_CLOUDS";
const PASSWORD: &str = "test-secret";
const IMAGE: &str = "Ubuntu Noble 24.04 (2024-08-01)";
const FLAVOR: &str = "m1.small";
const POOL: &str = "ext-net";
/// What servers of others are called here.
const BYSTANDER: &str = "somebody-elses";
/// How long the cloud may take to finish what it was asked for: services on a busy machine take minutes.
const SETTLED_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a project can hold: service, collection, the list's name.
const COLLECTIONS: [(Service, &str, &str); 6] = [
    (Service::Compute, "/servers/detail", "servers"),
    (Service::Network, "/ports", "ports"),
    (Service::Network, "/floatingips", "floatingips"),
    (Service::Network, "/security-groups", "security_groups"),
    (Service::Volume, "/volumes/detail", "volumes"),
    (Service::Compute, "/os-server-groups", "server_groups"),
];
/// What changes when somebody touches a thing; times and the order in lists change by themselves.
const TELLING: [&str; 7] =
    ["id", "name", "status", "device_id", "port_id", "metadata", "revision_number"];

type Inventory = BTreeMap<&'static str, BTreeMap<String, Value>>;

/// A project with a network and with things of somebody else's in it: a server, a port and a security group.
pub struct Project {
    name: String,
    id: String,
    user: String,
    admin: Client,
    member: Client,
    clouds_yaml: String,
    access: (Access, Access),
    topology: Topology,
    /// The bystanders.
    before: Inventory,
    server: String,
    port: String,
}

struct Topology {
    network: String,
    subnet: String,
    router: String,
}

impl Project {
    /// One on the services that `DROVER_TEST_CLOUDS` names; when it names none, one line on standard error says how many
    /// cases of which suite are not run.
    ///
    /// # Errors
    /// When the services refuse it.
    pub async fn for_suite(suite: &str, cases: usize) -> Result<Option<Self>, Error> {
        let Ok(path) = std::env::var(VARIABLE) else {
            // Written past the macros, whose output the test runner keeps to itself when a test passes.
            let _ = writeln!(
                std::io::stderr(),
                "NOT RUN: {cases} cases of {suite} on real OpenStack services; `make test-openstack` starts them"
            );
            return Ok(None);
        };
        let unfit = |why: String| Error::Project { project: suite.to_owned(), why };
        let text =
            std::fs::read_to_string(&path).map_err(|error| unfit(format!("{path}: {error}")))?;
        Self::make(&text, suite).await.map(Some)
    }

    /// One on the cloud to which `admin` of this clouds.yaml leads.
    ///
    /// # Errors
    /// When the cloud refuses it.
    pub async fn make(clouds_yaml: &str, suite: &str) -> Result<Self, Error> {
        let name = format!("drover-{suite}-{:08x}", fastrand::u32(..));
        let unfit = |why: &str| Error::Project { project: name.clone(), why: why.to_owned() };
        let yaml: Value =
            serde_saphyr::from_str(clouds_yaml).map_err(|_| unfit("clouds.yaml is no YAML"))?;
        let mut clouds = yaml["clouds"].clone();
        let of_admin = clouds["admin"].take();
        let mut of_member = of_admin.clone();
        for (field, value) in
            [("username", name.as_str()), ("password", PASSWORD), ("project_name", &name)]
        {
            of_member["auth"][field] = value.into();
        }
        let access = (read(&of_member)?, read(&of_admin)?);
        let admin = Client::new(access.1.clone());
        let project = json!({"name": name, "domain_id": "default"});
        let id = id(&admin.post(Service::Identity, "/projects", "project", project).await?);
        let user = user(&admin, &name, &id).await?;
        let member = Client::new(access.0.clone());
        let topology = Topology::make(&admin, &member).await?;
        let port = port(&member, &topology).await?;
        let server = server(&member, &port).await?;
        let clouds = json!({"clouds": {"drover": of_member, "admin": of_admin}});
        let before = Inventory::new();
        let mut project = Self {
            name,
            id,
            user,
            admin,
            member,
            // YAML is a superset of JSON.
            clouds_yaml: clouds.to_string(),
            access,
            topology,
            before,
            server,
            port,
        };
        project.settled().await?;
        project.before = project.inventory().await?;
        Ok(project)
    }

    /// A clouds.yaml with `drover`, a member of the project, and `admin`.
    #[must_use]
    pub fn clouds_yaml(&self) -> &str {
        &self.clouds_yaml
    }

    /// The member and the administrator.
    #[must_use]
    pub fn access(&self) -> (Access, Access) {
        self.access.clone()
    }

    /// MetaKube's description of a server here.
    #[must_use]
    pub fn description(&self) -> Value {
        json!({
            "image": IMAGE, "flavor": FLAVOR, "floatingIpPool": POOL,
            "network": self.topology.network, "subnet": self.topology.subnet, "securityGroups": ["workers"],
        })
    }

    /// What is there and was not before, and how many servers were ever made. Those of a machine are told by its name, for
    /// a server that is gone has no tags.
    ///
    /// # Errors
    /// When the cloud does not answer.
    pub async fn ledger(&self) -> Result<Ledger, Error> {
        let entry = |thing: &Value, name: &str, owner: &str| Entry {
            id: text(thing, "id"),
            name: text(thing, name),
            status: text(thing, "status"),
            owner: Some(text(thing, owner)).filter(|owner| !owner.is_empty()),
            description: text(thing, "description"),
            tags: serde_json::from_value(thing["tags"].clone()).unwrap_or_default(),
            metadata: serde_json::from_value(thing["metadata"].clone()).unwrap_or_default(),
        };
        let all = |kind: &'static str, name: &'static str, owner: &'static str| async move {
            let things = self.list(kind).await?;
            let is_new = |thing: &&Value| !self.before[kind].contains_key(&text(thing, "id"));
            Ok::<_, Error>(things.iter().filter(is_new).map(|it| entry(it, name, owner)).collect())
        };
        // Nova: those that are gone too.
        let ever = "/servers/detail?changes-since=2000-01-01T00:00:00Z";
        let ever = self.member.list(Service::Compute, ever, "servers").await?;
        let mut made = BTreeMap::new();
        for server in ever.iter().filter(|it| it["id"] != *self.server) {
            *made.entry(format!("drover.machine.{}", text(server, "name"))).or_default() += 1;
        }
        Ok(Ledger {
            servers: all("servers", "name", "").await?,
            ports: all("ports", "name", "device_id").await?,
            volumes: all("volumes", "name", "").await?,
            server_groups: all("server_groups", "name", "").await?,
            floating_ips: all("floatingips", "floating_ip_address", "port_id").await?,
            servers_made: made.values().sum(),
            made,
            calls: BTreeMap::new(),
        })
    }

    /// Nothing is left and nothing else was touched; takes the project away. One that is not as it was stays, to be looked at.
    ///
    /// # Errors
    /// When something is left or was touched, by its name.
    pub async fn end(self) -> Result<(), Error> {
        let until = Instant::now() + SETTLED_MAX;
        let mut changed = self.changed().await?;
        while !changed.is_empty() && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
            changed = self.changed().await?;
        }
        if !changed.is_empty() {
            return Err(self.wrong(&changed.join("; ")));
        }
        let Self { admin, member, topology, .. } = &self;
        member.delete(Service::Compute, &format!("/servers/{}", self.server)).await?;
        let until = Instant::now() + SETTLED_MAX;
        while nova::exists(member, &self.server).await? && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        member.delete(Service::Network, &format!("/ports/{}", self.port)).await?;
        topology.remove(admin).await?;
        // Neutron keeps the groups of a project that is no more.
        let groups = format!("/security-groups?project_id={}", self.id);
        for group in admin.list(Service::Network, &groups, "security_groups").await? {
            admin.delete(Service::Network, &format!("/security-groups/{}", id(&group))).await?;
        }
        admin.delete(Service::Identity, &format!("/users/{}", self.user)).await?;
        admin.delete(Service::Identity, &format!("/projects/{}", self.id)).await
    }

    async fn changed(&self) -> Result<Vec<String>, Error> {
        let mut changed = Vec::new();
        for (kind, now) in self.inventory().await? {
            let before = &self.before[kind];
            let ids: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for id in ids {
                match (before.get(id), now.get(id)) {
                    (Some(was), Some(is)) if was == is => {}
                    (None, Some(is)) => changed.push(format!("{kind}: {is} is left")),
                    (Some(was), is) => changed.push(format!("{kind}: {was} was touched: {is:?}")),
                    (None, None) => {}
                }
            }
        }
        Ok(changed)
    }

    /// Waits until the bystanders are as they will stay.
    async fn settled(&self) -> Result<(), Error> {
        let until = Instant::now() + SETTLED_MAX;
        loop {
            let servers = nova::servers(&self.member).await?;
            let ports = self.list("ports").await?;
            let is_up = |port: &&Value| port["id"] == *self.port && port["status"] == "ACTIVE";
            let is_done = servers.get(&self.server).is_some_and(|it| it.status == "ACTIVE");
            if is_done && ports.iter().any(|port| is_up(&port)) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(self.wrong("its first server does not come up"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn wrong(&self, why: &str) -> Error {
        Error::Project { project: self.name.clone(), why: why.to_owned() }
    }

    async fn list(&self, kind: &str) -> Result<Vec<Value>, Error> {
        let known = COLLECTIONS.iter().find(|(_, _, name)| *name == kind);
        let Some((service, path, name)) = known else { return Err(self.wrong(kind)) };
        let path = match service {
            Service::Network => format!("{path}?project_id={}", self.id),
            _ => (*path).to_owned(),
        };
        self.member.list(*service, &path, name).await
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        let mut all = BTreeMap::new();
        for (_, _, kind) in COLLECTIONS {
            let mut things = self.list(kind).await?;
            for thing in things.iter_mut().filter_map(Value::as_object_mut) {
                thing.retain(|field, _| TELLING.contains(&field.as_str()));
            }
            all.insert(kind, things.into_iter().map(|thing| (text(&thing, "id"), thing)).collect());
        }
        Ok(all)
    }
}

impl Topology {
    /// Network, subnet, router and security group, as a project has them before its first node comes.
    async fn make(admin: &Client, member: &Client) -> Result<Self, Error> {
        let make = |path: &'static str, name: &'static str, thing: Value| async move {
            member.post(Service::Network, path, name, thing).await.map(|made| id(&made))
        };
        let network = make("/networks", "network", json!({"name": "nodes"})).await?;
        let subnet =
            json!({"name": "nodes", "network_id": network, "ip_version": 4, "cidr": "10.9.0.0/24"});
        let subnet = make("/subnets", "subnet", subnet).await?;
        let external = format!("/networks?name={POOL}");
        let external = admin.list(Service::Network, &external, "networks").await?;
        let outside = external.first().map(id).unwrap_or_default();
        let router = json!({"name": "nodes", "external_gateway_info": {"network_id": outside}});
        let router = make("/routers", "router", router).await?;
        let interface = json!({"subnet_id": subnet});
        let path = format!("/routers/{router}/add_router_interface");
        member.call(Method::PUT, Service::Network, &path, Some(&interface)).await?;
        make("/security-groups", "security_group", json!({"name": "workers"})).await?;
        Ok(Self { network, subnet, router })
    }

    async fn remove(&self, admin: &Client) -> Result<(), Error> {
        let Self { network, subnet, router } = self;
        let interface = json!({"subnet_id": subnet});
        let path = format!("/routers/{router}/remove_router_interface");
        admin.call(Method::PUT, Service::Network, &path, Some(&interface)).await?;
        admin.delete(Service::Network, &format!("/routers/{router}")).await?;
        admin.delete(Service::Network, &format!("/networks/{network}")).await
    }
}

async fn user(admin: &Client, name: &str, project: &str) -> Result<String, Error> {
    let user = json!({"name": name, "password": PASSWORD, "domain_id": "default"});
    let user = id(&admin.post(Service::Identity, "/users", "user", user).await?);
    let roles = admin.list(Service::Identity, "/roles?name=member", "roles").await?;
    let role = roles.first().map(id).unwrap_or_default();
    let path = format!("/projects/{project}/users/{user}/roles/{role}");
    admin.call(Method::PUT, Service::Identity, &path, None).await?;
    Ok(user)
}

async fn port(member: &Client, topology: &Topology) -> Result<String, Error> {
    let port = json!({"name": BYSTANDER, "network_id": topology.network});
    Ok(id(&member.post(Service::Network, "/ports", "port", port).await?))
}

async fn server(member: &Client, port: &str) -> Result<String, Error> {
    let flavors = member.list(Service::Compute, "/flavors/detail", "flavors").await?;
    let flavor = flavors.iter().find(|it| it["name"] == FLAVOR).map(id).unwrap_or_default();
    let image = form_urlencoded::Serializer::new(String::new()).append_pair("name", IMAGE).finish();
    let images = member.list(Service::Image, &format!("/images?{image}"), "images").await?;
    let image = images.first().map(id).unwrap_or_default();
    let server = json!({
        "name": BYSTANDER, "flavorRef": flavor, "imageRef": image, "networks": [{"port": port}],
        "metadata": {"owner": BYSTANDER},
    });
    Ok(id(&member.post(Service::Compute, "/servers", "server", server).await?))
}

fn read(cloud: &Value) -> Result<Access, Error> {
    let rest = cloud.as_object().into_iter().flatten();
    let auth = cloud["auth"].as_object().into_iter().flatten();
    let texts = rest.chain(auth).filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    Access::of(texts)
}

fn id(thing: &Value) -> String {
    text(thing, "id")
}

fn text(thing: &Value, field: &str) -> String {
    thing[field].as_str().unwrap_or_default().to_owned()
}
