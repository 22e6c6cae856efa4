//! `drover dev --os-cloud`: an OpenStack that is there already, and a pool that fits it.

use super::demo::EXAMPLE;
use anyhow::{Context, bail};
use drover_lab::openstack::{Access, Client, Service};
use drover_lab::world::Foreign;
use drover_openstack::OpenStack;
use drover_provider::Credentials;
use serde_json::{Value, json};

/// What a node should have that is to be of use, unless the user says otherwise.
const MEMORY_MIB: u64 = 2048;
/// In GB.
const DISK: u64 = 10;
/// How many names an error lists.
const LISTED: usize = 12;

#[derive(clap::Args)]
pub struct Choice {
    /// Use this cloud of clouds.yaml (OS_CLIENT_CONFIG_FILE, ./clouds.yaml, ~/.config/openstack, /etc/openstack) in place of
    /// the embedded one: servers are made there, and may cost money
    #[arg(long, value_name = "NAME", conflicts_with = "cloud_port")]
    os_cloud: Option<String>,
    /// Simulate the nodes of its servers, as for a cloud without hypervisors: this cloud of clouds.yaml, an administrator's,
    /// tells what they boot from. Without it servers boot by themselves
    #[arg(long, value_name = "NAME", requires = "os_cloud")]
    os_admin_cloud: Option<String>,
    /// The pool's image, by name or id; the newest Ubuntu by default
    #[arg(long, value_name = "IMAGE", requires = "os_cloud")]
    os_image: Option<String>,
    /// The pool's flavor, by name or id; the smallest that is of use by default
    #[arg(long, value_name = "FLAVOR", requires = "os_cloud")]
    os_flavor: Option<String>,
    /// The pool's network, by name or id; the project's only one by default
    #[arg(long, value_name = "NETWORK", requires = "os_cloud")]
    os_network: Option<String>,
    /// The external network of which each server gets a floating IP; none by default
    #[arg(long, value_name = "NETWORK", requires = "os_cloud")]
    os_floating_ip_pool: Option<String>,
}

/// A cloud that is there, as its clouds.yaml names it.
pub struct OsCloud {
    pub name: String,
    pub credentials: Credentials,
    /// The example, made to fit the cloud.
    pub pool: Value,
    account: Access,
    admin: Option<(String, Access)>,
}

impl Choice {
    /// Finds the cloud, if one is named, and what a pool in it can be made of.
    pub async fn find(&self) -> anyhow::Result<Option<OsCloud>> {
        let Some(name) = &self.os_cloud else { return Ok(None) };
        let (credentials, account) = look_up("--os-cloud", name)?;
        let admin = match &self.os_admin_cloud {
            None => None,
            Some(name) => Some((name.clone(), look_up("--os-admin-cloud", name)?.1)),
        };
        let offer = Offer::of(&Client::new(account.clone())).await;
        let offer = offer.with_context(|| format!("--os-cloud {name}"))?;
        let pool = self.fit(&offer).with_context(|| format!("--os-cloud {name}"))?;
        Ok(Some(OsCloud { name: name.clone(), credentials, pool, account, admin }))
    }

    fn fit(&self, offer: &Offer) -> anyhow::Result<Value> {
        let image = offer.image(self.os_image.as_deref())?;
        let flavor = offer.flavor(self.os_flavor.as_deref(), image)?;
        let network = offer.network(self.os_network.as_deref())?;
        let mut server = json!({
            "image": reference(image, &offer.images),
            "flavor": reference(flavor, &offer.flavors),
            "network": reference(network, &offer.networks),
        });
        if flavor["disk"] == 0 {
            server["rootDiskSizeGB"] = number(image, "min_disk").max(DISK).into();
        }
        if let Some(pool) = &self.os_floating_ip_pool {
            let pool = pick("external network", "--os-floating-ip-pool", pool, &offer.pools)?;
            server["floatingIpPool"] = reference(pool, &offer.pools).into();
        }
        let mut manifest: Value = serde_saphyr::from_str(EXAMPLE).context("reading the example")?;
        manifest["spec"]["template"]["spec"]["providerSpec"]["value"] = json!({
            "cloudProvider": "openstack",
            "cloudProviderSpec": server,
            "operatingSystem": if is_of(image, "flatcar") { "flatcar" } else { "ubuntu" },
            "operatingSystemSpec": {},
        });
        Ok(manifest)
    }
}

impl OsCloud {
    pub fn foreign(&self) -> Foreign {
        let admin = self.admin.as_ref().map(|(_, access)| access.clone());
        Foreign { account: self.account.clone(), admin }
    }

    /// Where its nodes come from.
    pub fn nodes(&self, api_url: &str) -> String {
        match &self.admin {
            Some((admin, _)) => {
                format!("simulated: they boot from the user-data that {admin} of clouds.yaml reads")
            }
            None => format!(
                "not simulated: the servers boot by themselves and must reach {api_url}; \
                 --os-admin-cloud NAME simulates them"
            ),
        }
    }
}

fn look_up(flag: &str, name: &str) -> anyhow::Result<(Credentials, Access)> {
    let found = OpenStack::credentials_from_environment(Some(name));
    let found = found.with_context(|| format!("{flag} {name}"))?;
    let credentials = found.with_context(|| format!("{flag} {name}: there is no clouds.yaml"))?;
    let access = Access::of(credentials.iter()).with_context(|| format!("{flag} {name}"))?;
    Ok((credentials, access))
}

/// What a pool can be made of.
struct Offer {
    images: Vec<Value>,
    flavors: Vec<Value>,
    networks: Vec<Value>,
    /// External networks.
    pools: Vec<Value>,
}

impl Offer {
    async fn of(cloud: &Client) -> anyhow::Result<Self> {
        let images = cloud.list(Service::Image, "/images?status=active&limit=100", "images");
        let flavors = cloud.list(Service::Compute, "/flavors/detail", "flavors");
        let networks = cloud.list(Service::Network, "/networks", "networks");
        let project = cloud.project().await?;
        let (images, flavors, networks) = futures::try_join!(images, flavors, networks)?;
        let (pools, mut networks): (Vec<_>, Vec<_>) =
            networks.into_iter().partition(|network| network["router:external"] == true);
        // One's own comes before what others share.
        if networks.iter().any(|network| network["tenant_id"] == *project) {
            networks.retain(|network| network["tenant_id"] == *project);
        }
        Ok(Self { images, flavors, networks, pools })
    }

    fn image(&self, wanted: Option<&str>) -> anyhow::Result<&Value> {
        if let Some(wanted) = wanted {
            return pick("active image", "--os-image", wanted, &self.images);
        }
        let ubuntu = self.images.iter().filter(|image| is_of(image, "ubuntu"));
        ubuntu.max_by_key(|image| text(image, "created_at")).with_context(|| {
            let names = names(&self.images);
            format!("none of its active images says that it is an Ubuntu; name one with --os-image: {names}")
        })
    }

    fn flavor(&self, wanted: Option<&str>, image: &Value) -> anyhow::Result<&Value> {
        if let Some(wanted) = wanted {
            return pick("flavor", "--os-flavor", wanted, &self.flavors);
        }
        let memory = number(image, "min_ram").max(MEMORY_MIB);
        let disk = number(image, "min_disk").max(DISK);
        let size = |flavor: &&Value| {
            (number(flavor, "ram"), number(flavor, "vcpus"), number(flavor, "disk"))
        };
        let fits = |flavor: &&Value| size(flavor).0 >= memory && size(flavor).2 >= disk;
        self.flavors.iter().filter(fits).min_by_key(size).with_context(|| {
            let names = names(&self.flavors);
            format!(
                "no flavor has {memory} MiB of memory and a disk of {disk} GB; name one with --os-flavor, where one without \
                 a disk boots from a volume: {names}"
            )
        })
    }

    fn network(&self, wanted: Option<&str>) -> anyhow::Result<&Value> {
        match (wanted, self.networks.as_slice()) {
            (Some(wanted), all) => pick("network", "--os-network", wanted, all),
            (None, [one]) => Ok(one),
            (None, []) => bail!(
                "the project sees no network for servers; make one with a subnet and a router (openstack network create, \
                 subnet create, router create)"
            ),
            (None, several) => {
                bail!("it has several networks; name one with --os-network: {}", names(several))
            }
        }
    }
}

fn pick<'a>(what: &str, flag: &str, wanted: &str, all: &'a [Value]) -> anyhow::Result<&'a Value> {
    if let Some(found) = all.iter().find(|thing| thing["id"] == *wanted) {
        return Ok(found);
    }
    let found: Vec<&Value> = all.iter().filter(|thing| thing["name"] == *wanted).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => bail!("{flag} {wanted:?}: there is no {what} of that name or id, but {}", names(all)),
        several => {
            let ids: Vec<&str> = several.iter().map(|thing| text(thing, "id")).collect();
            bail!("{flag} {wanted:?}: there are several; give one of the ids {}", ids.join(", "))
        }
    }
}

/// Its name where that is clear, else its id.
fn reference(thing: &Value, all: &[Value]) -> String {
    let name = text(thing, "name");
    let is_clear = all.iter().filter(|other| text(other, "name") == name).count() == 1;
    text(thing, if is_clear && !name.is_empty() { "name" } else { "id" }).to_owned()
}

fn names(all: &[Value]) -> String {
    let mut names: Vec<&str> = all.iter().map(|thing| text(thing, "name")).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    match (names.as_slice(), more) {
        ([], _) => "it has none".to_owned(),
        (names, 0) => names.join(", "),
        (names, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// Glance: `os_distro` says what an image is of; where it is not set, the name does.
fn is_of(image: &Value, system: &str) -> bool {
    match text(image, "os_distro") {
        "" => text(image, "name").to_lowercase().contains(system),
        distribution => distribution.eq_ignore_ascii_case(system),
    }
}

fn text<'a>(thing: &'a Value, field: &str) -> &'a str {
    thing[field].as_str().unwrap_or_default()
}

fn number(thing: &Value, field: &str) -> u64 {
    thing[field].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Choice = Choice {
        os_cloud: None,
        os_admin_cloud: None,
        os_image: None,
        os_flavor: None,
        os_network: None,
        os_floating_ip_pool: None,
    };

    fn offer() -> Offer {
        let image = |id: &str, name: &str, made: &str, distribution: &str| {
            json!({"id": id, "name": name, "created_at": made,
            "os_distro": distribution, "min_disk": 12, "min_ram": 0})
        };
        let flavor = |name: &str, ram: u64, disk: u64| json!({"id": name, "name": name, "ram": ram, "vcpus": 1, "disk": disk});
        let network = |id: &str, name: &str| json!({"id": id, "name": name});
        Offer {
            images: vec![
                image("i1", "Ubuntu 24.04", "2026-01-01", ""),
                image("i2", "Ubuntu 24.04", "2026-02-01", ""),
                image("i3", "jammy", "2025-01-01", "ubuntu"),
                image("i4", "Flatcar", "2026-03-01", "flatcar"),
            ],
            flavors: vec![
                flavor("tiny", 512, 20),
                flavor("big", 8192, 80),
                flavor("small", 2048, 20),
                flavor("bare", 2048, 0),
            ],
            networks: vec![network("n1", "nodes")],
            pools: vec![network("x1", "ext-net")],
        }
    }

    fn server(choice: &Choice) -> anyhow::Result<Value> {
        Ok(choice.fit(&offer())?["spec"]["template"]["spec"]["providerSpec"]["value"].clone())
    }

    #[test]
    fn a_pool_is_made_of_what_the_cloud_has() {
        let made = server(&NONE).unwrap();
        let expected = json!({"image": "i2", "flavor": "small", "network": "nodes"});
        assert_eq!(
            (&made["cloudProviderSpec"], &made["operatingSystem"]),
            (&expected, &json!("ubuntu"))
        );
        let named = Choice {
            os_image: Some("Flatcar".into()),
            os_flavor: Some("bare".into()),
            os_floating_ip_pool: Some("x1".into()),
            ..NONE
        };
        let made = server(&named).unwrap();
        let expected = json!({"image": "Flatcar", "flavor": "bare", "network": "nodes", "rootDiskSizeGB": 12,
            "floatingIpPool": "ext-net"});
        assert_eq!(
            (&made["cloudProviderSpec"], &made["operatingSystem"]),
            (&expected, &json!("flatcar"))
        );
    }

    #[test]
    fn what_the_cloud_lacks_is_named_with_the_way_out() {
        let wish = |text: &str| Some(text.to_owned());
        for (args, part) in [
            (
                Choice { os_image: wish("Debian"), ..NONE },
                "--os-image \"Debian\": there is no active image",
            ),
            (Choice { os_image: wish("Ubuntu 24.04"), ..NONE }, "give one of the ids i1, i2"),
            (Choice { os_flavor: wish("m1"), ..NONE }, "but bare, big, small, tiny"),
            (
                Choice { os_floating_ip_pool: wish("pub"), ..NONE },
                "no external network of that name or id, but ext-net",
            ),
        ] {
            let error = server(&args).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let mut empty = offer();
        empty.networks.clear();
        assert!(NONE.fit(&empty).unwrap_err().to_string().contains("make one with a subnet"));
        empty.images.remove(0);
        empty.images.retain(|image| !is_of(image, "ubuntu"));
        assert!(NONE.fit(&empty).unwrap_err().to_string().contains("--os-image: Flatcar"));
    }
}
