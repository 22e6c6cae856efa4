//! The power of servers on a cloud that tells nobody of it: looked at again and again.

use crate::cloud::Power;
use crate::openstack::nova::{self, Server};
use crate::openstack::{Client, Error};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

/// Between two looks at the servers; who is switched off and on again in between was not off.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
            match self.look().await {
                Ok(()) => is_blind = false,
                // Said once: a cloud may be away for long.
                Err(error) if is_blind => tracing::debug!("power of servers: {error}"),
                Err(error) => {
                    tracing::warn!("the power of the servers cannot be seen: {error}");
                    is_blind = true;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
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
