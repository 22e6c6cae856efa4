//! Names become ids: looked up once a minute for all machines, and never guessed.

use crate::{
    fault::Fault,
    flight::Flight,
    keystone::Service,
    parameters::{NetworkParameters, Parameters},
    session::Session,
    wire::Thing,
};
use drover_provider::Error;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long an answer is used. An image may be replaced under its name at any time.
const KEPT: Duration = Duration::from_secs(60);
/// Answers kept at most; beyond it all are forgotten.
const ANSWERS: usize = 1000;

/// What can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Flavor,
    Image,
    Network,
    /// All networks of the project's own, to see whether there is only one.
    AnyNetwork,
    ExternalNetwork,
    Subnet,
    SecurityGroup,
    ServerGroup,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Flavor => "flavor",
            Self::Image => "image",
            Self::Network | Self::AnyNetwork => "network",
            Self::ExternalNetwork => "external network",
            Self::Subnet => "subnet",
            Self::SecurityGroup => "security group",
            Self::ServerGroup => "server group",
        }
    }

    /// How OpenStack's client lists what there is.
    fn listing(self) -> &'static str {
        match self {
            Self::Flavor => "openstack flavor list",
            Self::Image => "openstack image list",
            Self::Network | Self::AnyNetwork => "openstack network list",
            Self::ExternalNetwork => "openstack network list --external",
            Self::Subnet => "openstack subnet list",
            Self::SecurityGroup => "openstack security group list",
            Self::ServerGroup => "openstack server group list",
        }
    }

    /// Service, path and the list's name.
    fn place(self) -> (Service, &'static str, &'static str) {
        match self {
            Self::Flavor => (Service::Compute, "/flavors/detail", "flavors"),
            Self::Image => (Service::Image, "/images", "images"),
            Self::Network | Self::AnyNetwork | Self::ExternalNetwork => {
                (Service::Network, "/networks", "networks")
            }
            Self::Subnet => (Service::Network, "/subnets", "subnets"),
            Self::SecurityGroup => (Service::Network, "/security-groups", "security_groups"),
            Self::ServerGroup => (Service::Compute, "/os-server-groups", "server_groups"),
        }
    }

    /// Whether the service can be asked for one name. Nova lists all, and then one answer serves all.
    fn by_name(self) -> bool {
        !matches!(self, Self::Flavor | Self::ServerGroup | Self::AnyNetwork)
    }
}

type Answers = BTreeMap<(Kind, String), Arc<Flight<Arc<Vec<Thing>>>>>;

/// The answers of one session.
pub struct Lookups {
    answers: Mutex<Answers>,
    /// Patterns of the names of flavors whose servers keep their disk on their host.
    local_storage: Arc<[String]>,
}

/// Parameters with every reference turned into an id.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub image: String,
    pub flavor: String,
    pub networks: Vec<ResolvedNetwork>,
    pub security_groups: Vec<String>,
    pub server_group: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ResolvedNetwork {
    pub id: String,
    pub subnets: Vec<String>,
    pub fixed_ip: Option<IpAddr>,
    /// Whether the allowed address pairs go onto its port.
    pub pods: bool,
}

/// The most of several ids that a note holds, in characters: a memory is to stay small.
const NOTE_CHARACTERS: usize = 160;

impl Resolved {
    /// What was resolved, for people and for whoever goes on after a restart.
    #[must_use]
    pub fn notes(&self) -> BTreeMap<String, String> {
        let networks = self.networks.iter().map(|it| {
            let parts: Vec<&str> =
                [&it.id].into_iter().chain(&it.subnets).map(String::as_str).collect();
            parts.join("/")
        });
        let notes = [
            ("image", Some(self.image.clone())),
            ("flavor", Some(self.flavor.clone())),
            ("networks", list(networks.collect())),
            ("securityGroups", list(self.security_groups.clone())),
            ("serverGroup", self.server_group.clone()),
        ];
        notes.into_iter().filter_map(|(key, note)| Some((key.to_owned(), note?))).collect()
    }
}

fn list(ids: Vec<String>) -> Option<String> {
    let mut note = String::new();
    for (at, id) in ids.iter().enumerate() {
        if !note.is_empty() && note.len() + id.len() > NOTE_CHARACTERS {
            return Some(format!("{note} and {} more", ids.len() - at));
        }
        if at > 0 {
            note.push_str(", ");
        }
        note.push_str(id);
    }
    (!note.is_empty()).then_some(note)
}

impl Lookups {
    #[must_use]
    pub fn new(local_storage: Arc<[String]>) -> Self {
        Self { answers: Mutex::default(), local_storage }
    }

    /// Forgets everything: the cloud refused what these answers said.
    pub fn forget(&self) {
        self.answers.lock().expect("nobody panics with this lock").clear();
    }

    /// Turns all references into ids.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is not there or not clear, with field, value and the ids.
    pub async fn resolve(
        &self,
        session: &Session,
        parameters: &Parameters,
    ) -> Result<Resolved, Fault> {
        let one = |kind, field: &'static str, value: &'_ str| {
            let value = value.to_owned();
            async move { self.one(session, kind, field, &value).await }
        };
        let (image, flavor) = futures::try_join!(
            one(Kind::Image, "image", &parameters.image),
            one(Kind::Flavor, "flavor", &parameters.flavor)
        )?;
        self.check_root(parameters, &flavor, &image)?;
        let mut networks = Vec::new();
        let only = [NetworkParameters::default()];
        let wanted = if parameters.networks.is_empty() { &only[..] } else { &parameters.networks };
        for network in wanted {
            networks.push(self.network(session, network).await?);
        }
        let mut security_groups = Vec::new();
        for group in &parameters.security_groups {
            security_groups.push(one(Kind::SecurityGroup, "securityGroups", group).await?.id);
        }
        let server_group = match &parameters.server_group {
            Some(group) => Some(one(Kind::ServerGroup, "serverGroup", group).await?.id),
            None => None,
        };
        // Looked up for its own sake: a pool that is not there is better known before the server is.
        if let Some(pool) = &parameters.floating_ip_pool {
            self.pool(session, pool).await?;
        }
        Ok(Resolved { image: image.id, flavor: flavor.id, networks, security_groups, server_group })
    }

    /// Whether a server of this flavor can boot this image from a volume, when it is to.
    fn check_root(
        &self,
        parameters: &Parameters,
        flavor: &Thing,
        image: &Thing,
    ) -> Result<(), Fault> {
        let Some(root) = &parameters.root_volume else { return Ok(()) };
        let refuse = |why: String| Err(Fault::Setup(Error::Invalid(why)));
        let name = flavor.name.as_str();
        if let Some(pattern) = self.local_storage.iter().find(|it| matches(it, name)) {
            return refuse(format!(
                "rootVolume: flavor {name:?} has its disk on the host (it matches {pattern:?} of the flavors with \
                 local storage) and cannot boot from a volume; leave the size of the root disk out, or take another \
                 flavor"
            ));
        }
        if u64::from(root.size_gib) < image.min_disk {
            return refuse(format!(
                "rootVolume: {} GiB are too few for image {:?}, which needs {}",
                root.size_gib, image.name, image.min_disk
            ));
        }
        Ok(())
    }

    /// The id of the external network that floating IPs come from.
    ///
    /// # Errors
    /// As [`Lookups::resolve`].
    pub async fn pool(&self, session: &Session, pool: &str) -> Result<String, Fault> {
        let found = self.one(session, Kind::ExternalNetwork, "floatingIpPool", pool).await?;
        Ok(found.id)
    }

    async fn network(
        &self,
        session: &Session,
        wanted: &NetworkParameters,
    ) -> Result<ResolvedNetwork, Fault> {
        let NetworkParameters { fixed_ip, pods, .. } = *wanted;
        let pods = pods.unwrap_or(true);
        let names: Vec<&String> = wanted.subnet.iter().chain(&wanted.more_subnets).collect();
        let id = match (wanted.network.as_str(), names.first()) {
            ("", Some(subnet)) => {
                let found = self.one(session, Kind::Subnet, "networks.subnet", subnet).await?;
                found.network_id
            }
            ("", None) => self.only_network(session).await?,
            (name, _) => self.one(session, Kind::Network, "networks.network", name).await?.id,
        };
        let mut subnets = Vec::new();
        for name in names {
            let found = self.candidates(session, Kind::Subnet, name).await?;
            let (on_it, elsewhere): (Vec<Thing>, Vec<Thing>) =
                found.into_iter().partition(|it| it.network_id == id);
            if let (true, Some(other)) = (on_it.is_empty(), elsewhere.first()) {
                return Err(Fault::Setup(Error::Invalid(format!(
                    "networks.subnet: subnet {name:?} is one of network {}, and not of {id}; give a subnet of that one",
                    other.network_id
                ))));
            }
            subnets.push(only(Kind::Subnet, "networks.subnet", name, on_it)?.id);
        }
        Ok(ResolvedNetwork { id, subnets, fixed_ip, pods })
    }

    /// MetaKube: a project with one network needs not name it.
    async fn only_network(&self, session: &Session) -> Result<String, Fault> {
        let found = self.all(session, Kind::AnyNetwork, "").await?;
        match found.as_slice() {
            [one] => Ok(one.id.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|it| it.name.as_str()).collect();
                Err(Fault::Setup(Error::Invalid(format!(
                    "networks is empty and there is not exactly one network but {}: {}; name one",
                    names.len(),
                    names.join(", ")
                ))))
            }
        }
    }

    async fn one(
        &self,
        session: &Session,
        kind: Kind,
        field: &str,
        wanted: &str,
    ) -> Result<Thing, Fault> {
        only(kind, field, wanted, self.candidates(session, kind, wanted).await?)
    }

    /// What has this id, else what has this name.
    async fn candidates(
        &self,
        session: &Session,
        kind: Kind,
        wanted: &str,
    ) -> Result<Vec<Thing>, Fault> {
        let found = self.all(session, kind, wanted).await?;
        let by_id: Vec<Thing> = found.iter().filter(|it| it.id == wanted).cloned().collect();
        if !by_id.is_empty() {
            return Ok(by_id);
        }
        // Neutron compares names without case; we do not.
        Ok(found.iter().filter(|it| it.name == wanted).cloned().collect())
    }

    /// What the cloud lists for this name, or all of the kind.
    async fn all(
        &self,
        session: &Session,
        kind: Kind,
        wanted: &str,
    ) -> Result<Arc<Vec<Thing>>, Fault> {
        let key = if kind.by_name() { wanted } else { "" };
        let flight = {
            let mut answers = self.answers.lock().expect("nobody panics with this lock");
            if answers.len() >= ANSWERS {
                answers.clear();
            }
            answers.entry((kind, key.to_owned())).or_default().clone()
        };
        let fetch = async {
            let (service, path, list) = kind.place();
            if kind.by_name() && is_uuid(wanted) {
                let one = format!("{path}/{wanted}");
                let singular = list.trim_end_matches('s');
                if let Some(found) = session.fetch::<Thing>(service, &one, singular).await? {
                    return Ok(Arc::new(vec![found]));
                }
            }
            let mut pairs = Vec::new();
            if kind.by_name() {
                pairs.push(("name", wanted));
            }
            match kind {
                Kind::Image => pairs.push(("status", "active")),
                Kind::AnyNetwork => pairs.push(("router:external", "false")),
                Kind::ExternalNetwork => pairs.push(("router:external", "true")),
                _ => {}
            }
            session.list(service, path, list, &pairs).await.map(Arc::new)
        };
        flight.get(KEPT, fetch).await
    }
}

fn only(kind: Kind, field: &str, wanted: &str, mut found: Vec<Thing>) -> Result<Thing, Fault> {
    let refuse = |why: String| Err(Fault::Setup(Error::Invalid(why)));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => refuse(format!(
            "{field}: the cloud has no {} named {wanted:?}, nor one of that id; give one of `{}`",
            kind.word(),
            kind.listing()
        )),
        count => {
            let mut ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).collect();
            ids.sort_unstable();
            let ids = ids.join(", ");
            let word = kind.word();
            refuse(format!(
                "{field}: the cloud has {count} {word}s named {wanted:?}; give one of the ids {ids}"
            ))
        }
    }
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest, &name[at..]))
        }),
    }
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| {
            if dashes.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_a_family_of_flavors() {
        for (pattern, name, fits) in [
            ("l1.*", "l1.large", true),
            ("l1.*", "xl1.large", false),
            ("*-ssd", "scs-4-ssd", true),
            ("*-ssd", "scs-4-ssd-2", false),
            ("m1.small", "m1.small", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} and {name}");
        }
    }

    #[test]
    fn notes_tell_what_was_resolved_and_stay_small() {
        let network = |id: &str| ResolvedNetwork {
            id: id.into(),
            subnets: vec![],
            fixed_ip: None,
            pods: true,
        };
        let id = "2969ae04-a429-4c1b-83e3-2f76fc3a342a";
        let resolved = Resolved {
            image: "i".into(),
            flavor: "f".into(),
            networks: vec![
                ResolvedNetwork { subnets: vec!["s".into()], ..network("n") },
                network("m"),
            ],
            security_groups: vec![id.into(); 9],
            server_group: None,
        };
        let notes = resolved.notes();
        assert_eq!(notes["networks"], "n/s, m");
        assert!(notes["securityGroups"].ends_with("and 5 more"), "{notes:?}");
        assert!(!notes.contains_key("serverGroup"));
    }
}
