//! What is fastened to a server once it runs: floating IP and volumes.

use crate::{
    create::{BUILD_POLL, Creation},
    fault::Fault,
    floating,
    wire::Server,
};
use drover_provider::{Created, Error};

/// Fastens what is missing. `Some` when something has to be waited for.
pub async fn finish(
    creation: &mut Creation<'_>,
    server: &Server,
) -> Result<Option<Created>, Error> {
    if let Some(pool) = creation.parameters.floating_ip_pool.clone()
        && creation.recall.floating_address.is_none()
    {
        let Some(port) = port(creation, server).await? else {
            return Err(Error::ServerFailed(format!(
                "server {} has lost its port, there is nothing for a floating IP to lead to",
                server.id
            )));
        };
        let address = floating::ensure(creation, &pool, &port).await?;
        creation.recall.floating_address = Some(address);
        creation.recall.port = Some(port);
    }
    volumes(creation, server).await
}

/// The port on the first network.
async fn port(creation: &Creation<'_>, server: &Server) -> Result<Option<String>, Fault> {
    if let Some(port) = &creation.recall.port {
        return Ok(Some(port.clone()));
    }
    let ports = creation.cloud.ports_of(&creation.marks).await?;
    let name = &creation.order.claim.owner.name;
    let ours = ports.into_iter().find(|it| it.device_id == server.id && it.name == *name);
    Ok(ours.map(|it| it.id))
}

async fn volumes(creation: &Creation<'_>, server: &Server) -> Result<Option<Created>, Error> {
    let wanted = &creation.parameters.additional_volumes;
    if wanted.is_empty() {
        return Ok(None);
    }
    let volumes = creation.cloud.volumes_of(&creation.marks).await?;
    let slots = crate::cloud::by_slot(&volumes);
    let mut pending = None;
    for volume in wanted {
        let found = slots.get(&volume.name).and_then(|id| volumes.iter().find(|it| it.id == *id));
        let Some(found) = found else {
            return Err(Error::ServerFailed(format!("volume {:?} is gone", volume.name)));
        };
        let (id, status) = (&found.id, &found.status);
        let there = server.volumes.iter().any(|it| it.id == *id)
            || found.attachments.iter().any(|it| it.server_id == server.id);
        match status.as_str() {
            "in-use" if there => continue,
            "available" if !there => creation.cloud.attach(&server.id, id).await?,
            "error" | "error_deleting" | "deleting" => {
                return Err(Error::ServerFailed(format!("volume {id} is {status}")));
            }
            _ => {}
        }
        // Nova accepts an attachment before it is made: the volume is reserved until then.
        pending = Some(format!("volume {id} to be attached, it is {status}"));
    }
    Ok(pending.map(|waits_for| creation.waiting(waits_for, BUILD_POLL)))
}
