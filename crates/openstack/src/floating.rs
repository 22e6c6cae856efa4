//! The floating IP of a machine: borrowed when the pool has one that nobody uses, else allocated; and given back.
//!
//! MetaKube: a floating IP that was there before is borrowed, and outlives the machine; one that was made for it goes
//! with it. Which of the two it is stands in its description, so that no crash forgets it.

use crate::{
    cloud::{Cloud, Lead},
    create::Creation,
    fault::Fault,
    marks::Marks,
    wire::FloatingIp,
};
use http::StatusCode;
use serde_json::json;

/// How many free floating IPs are tried that others take at the same moment, before one is allocated.
const BORROW_TRIES: usize = 4;

/// The address that leads to the port. The port is the fence: Neutron refuses a second floating IP for it, so no look
/// is needed before the first.
pub async fn ensure(creation: &Creation<'_>, pool: &str, port: &str) -> Result<String, Fault> {
    let Creation { cloud, marks, .. } = creation;
    let network = cloud.lookups.pool(&cloud.session, pool).await?;
    let led = match borrow(creation, &network, port).await {
        Ok(Some(borrowed)) => Ok(borrowed),
        Ok(None) => allocate(creation, &network, port).await,
        Err(fault) => Err(fault),
    };
    let found = match led {
        Ok(found) => found,
        Err(fault) if fault.status() == Some(StatusCode::CONFLICT) => {
            there_already(creation, port).await?.ok_or(fault)?
        }
        Err(fault) => return Err(fault),
    };
    // One that somebody else led here serves as well, and stays theirs.
    if marks.on_floating_ip(&found) {
        let tags = marks.tags(&creation.parameters.tags);
        if !tags.iter().all(|tag| found.tags.contains(tag)) {
            cloud.tag("floatingips", &found.id, &tags).await?;
        }
    }
    Ok(found.floating_ip_address)
}

/// One that is there and leads nowhere, if there is one. Its revision is the fence: of two that take it at once Neutron
/// refuses one.
async fn borrow(
    creation: &Creation<'_>,
    network: &str,
    port: &str,
) -> Result<Option<FloatingIp>, Fault> {
    let Creation { cloud, marks, .. } = creation;
    for _ in 0..BORROW_TRIES {
        let idle = cloud.idle_floating_ips(network).await?;
        let mut free = idle.iter().filter(|it| marks.may_borrow(it));
        let Some(free) = free.find(|it| cloud.picks(&it.id)) else { return Ok(None) };
        let lead = Lead { to: Some(port), description: &marks.loan };
        match cloud.lead(free, lead).await {
            Err(fault) if is_outrun(&fault) => {}
            led => return led.map(Some),
        }
    }
    Ok(None)
}

async fn allocate(creation: &Creation<'_>, network: &str, port: &str) -> Result<FloatingIp, Fault> {
    let body = json!({
        "floating_network_id": network,
        "port_id": port,
        "description": creation.marks.description,
    });
    creation.cloud.create_floating_ip(body).await
}

async fn there_already(creation: &Creation<'_>, port: &str) -> Result<Option<FloatingIp>, Fault> {
    let found = creation.cloud.floating_ips(&[("port_id", port)]).await?;
    Ok(found.into_iter().find(|it| it.port_id == port))
}

/// Somebody else changed or deleted it since it was listed.
fn is_outrun(fault: &Fault) -> bool {
    matches!(fault.status(), Some(StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND))
}

/// Deletes what was allocated for a machine and leaves what it borrowed as it was found. Answers whether there was
/// anything to give back.
pub async fn give_back(cloud: &Cloud, marks: &Marks) -> Result<bool, Fault> {
    let found = cloud.floating_ips_of(marks).await?;
    for address in &found {
        if marks.on_floating_ip(address) {
            cloud.delete_floating_ip(&address.id).await?;
            continue;
        }
        match cloud.lead(address, Lead { to: None, description: "" }).await {
            // The next look shows whose it is now.
            Err(fault) if is_outrun(&fault) => {}
            outcome => drop(outcome?),
        }
    }
    Ok(!found.is_empty())
}
