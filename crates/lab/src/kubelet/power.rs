//! The power of servers on a cloud that tells nobody of it: looked at again and again.

use crate::cloud::Power;
use crate::openstack::nova::{self, Server};
use crate::openstack::{Client, Error};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between two looks at the servers; who is switched off and on again in between was not off.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looking takes no more than one part in so many of the time: a cloud that is slow has others to serve.
const LOOK_SHARE: u32 = 10;
/// The longest pause that comes of it.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What happens to the servers of `project`, until stopped; `admin` may read what they boot from.
#[must_use]
pub fn follow(project: Client, admin: Client, stop: CancellationToken) -> UnboundedReceiver<Power> {
    let (tell, told) = unbounded_channel();
    let watch = Watch { project, admin, tell, is_on: BTreeMap::new() };
    tokio::spawn(async move { stop.run_until_cancelled(watch.run()).await });
    told
}

struct Watch {
    project: Client,
    admin: Client,
    tell: UnboundedSender<Power>,
    /// Of every server that was ever on and is still there.
    is_on: BTreeMap<String, bool>,
}

impl Watch {
    async fn run(mut self) {
        let mut is_blind = false;
        loop {
            let began = Instant::now();
            match self.look().await {
                Ok(()) => is_blind = false,
                // Said once: a cloud may be away for long.
                Err(error) if is_blind => tracing::debug!("power of servers: {error}"),
                Err(error) => {
                    tracing::warn!("the power of the servers cannot be seen: {error}");
                    is_blind = true;
                }
            }
            let pause = began.elapsed() * (LOOK_SHARE - 1);
            tokio::time::sleep(pause.clamp(LOOK_EVERY, LOOK_MAX)).await;
        }
    }

    async fn look(&mut self) -> Result<(), Error> {
        let servers = nova::servers(&self.project).await?;
        let gone: Vec<String> =
            self.is_on.keys().filter(|id| !servers.contains_key(*id)).cloned().collect();
        for server in gone {
            self.is_on.remove(&server);
            self.say(Power::Gone { server });
        }
        for (id, server) in &servers {
            match (self.is_on.get(id), is_on(server)) {
                (Some(true), false) => {
                    self.is_on.insert(id.clone(), false);
                    self.say(Power::Off { server: id.clone() });
                }
                (None | Some(false), true) => {
                    if let Some(guest) = nova::guest(&self.admin, id).await? {
                        self.is_on.insert(id.clone(), true);
                        self.say(Power::On(Box::new(guest)));
                    }
                }
                (Some(true), true) | (None | Some(false), false) => {}
            }
        }
        Ok(())
    }

    fn say(&self, power: Power) {
        // Whoever listened has ended, and so shall this.
        let _ = self.tell.send(power);
    }
}

/// Nova: a server that is built anew or started again shows that it runs until it does not.
fn is_on(server: &Server) -> bool {
    let is_between =
        matches!(server.status.as_str(), "BUILD" | "REBUILD" | "REBOOT" | "HARD_REBOOT");
    server.power == 1 && !is_between
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cloud::{Cloud, Config};
    use crate::dial;
    use crate::openstack::{Access, Service};
    use http::Method;
    use jiff::Timestamp;
    use serde_json::json;

    fn client(cloud: &Cloud, user: &str) -> Client {
        let access = Access::of([
            ("auth_url", "http://cloud.lab/identity/v3"),
            ("username", user),
            ("password", "password"),
            ("project_name", user),
        ]);
        Client::new(access.unwrap().over(dial::in_process(cloud.router())))
    }

    async fn server(member: &Client) -> String {
        let first = async |service, path: &str, name: &str, wanted: &str| {
            let all = member.list(service, path, name).await.unwrap();
            let found = all.iter().find(|it| it["name"].as_str().unwrap().starts_with(wanted));
            found.unwrap_or_else(|| panic!("{wanted}: {all:?}"))["id"].clone()
        };
        let network = "/networks?router:external=false";
        let server = json!({
            "name": "Node_1", "user_data": "I2Nsb3VkLWNvbmZpZwo=",
            "flavorRef": first(Service::Compute, "/flavors", "flavors", "m1.small").await,
            "imageRef": first(Service::Image, "/images", "images", "Ubuntu").await,
            "networks": [{"uuid": first(Service::Network, network, "networks", "").await}],
        });
        let made = member.post(Service::Compute, "/servers", "server", server).await.unwrap();
        made["id"].as_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_cloud_does_not_tell_is_seen() {
        let cloud = Cloud::new(Config::demo(Clock::start(Timestamp::UNIX_EPOCH)));
        let (member, admin) = (client(&cloud, "drover"), client(&cloud, "admin"));
        let mut told = follow(member.clone(), admin, CancellationToken::new());
        let id = server(&member).await;
        let Some(Power::On(guest)) = told.recv().await else { panic!("it is not on") };
        assert_eq!((&guest.server, guest.host_name.as_str()), (&id, "node-1"));
        assert_eq!((guest.user_data.as_slice(), guest.fixed.len()), (&b"#cloud-config\n"[..], 1));
        assert!(guest.vcpus > 0 && guest.ram > 0, "{guest:?}");

        let action = format!("/servers/{id}/action");
        for (verb, is_on) in [("os-stop", false), ("os-start", true)] {
            let body = json!({verb: null});
            member.call(Method::POST, Service::Compute, &action, Some(&body)).await.unwrap();
            let power = told.recv().await;
            assert_eq!(matches!(power, Some(Power::On(_))), is_on, "{verb}: {power:?}");
        }
        member.delete(Service::Compute, &format!("/servers/{id}")).await.unwrap();
        assert!(matches!(told.recv().await, Some(Power::Gone { server }) if server == id));
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_read_user_data_boots_nothing() {
        let cloud = Cloud::new(Config::demo(Clock::start(Timestamp::UNIX_EPOCH)));
        let member = client(&cloud, "drover");
        let id = server(&member).await;
        let error = nova::guest(&member, &id).await.unwrap_err().to_string();
        assert!(error.contains("name an administrator"), "{error}");
    }
}
