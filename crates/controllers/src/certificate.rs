//! Decides on the certificate requests of kubelets.

use crate::cache::Key;
use crate::context::Context;
use crate::queue::Outcome;
use crate::write::Error as WriteError;
use crate::{events::Tone, token};
use drover_api::Machine;
use drover_plan::certificate::{self, Asker, Decision, KnownMachine, Observed};
use drover_plan::machine::Certificate;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Request, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::sync::Arc;

/// Why a request could not be decided on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to find out whose token asks in certificate request {request:?}")]
    WhoAsks { request: String, source: token::Error },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Looks at one request.
///
/// # Errors
/// When the API server does not let it be read or decided.
pub async fn reconcile(key: Key, ctx: Arc<Context>) -> Result<Outcome, Error> {
    let Some(request) = ctx.caches.requests.get(&key) else { return Ok(Outcome::Settled) };
    let machines = observe(&request, &ctx).await?;
    let known: Vec<KnownMachine> = machines.iter().map(|machine| known(machine)).collect();
    let seen = Observed { request: &request, machines: &known, now: ctx.clock.now() };
    let decision = certificate::decide(&seen);
    let fate = fate(&request, &decision);
    let outcome = act(&request, decision, &ctx).await?;
    if let (Some(fate), [machine]) = (fate, machines.as_slice()) {
        ctx.minds.certificate(machine, fate);
    }
    Ok(outcome)
}

/// What a machine without a Node shows of its request.
fn fate(request: &Request, decision: &Decision) -> Option<Certificate> {
    if !matches!(certificate::asker(request), Asker::BootstrapToken(_)) {
        return None;
    }
    match decision {
        Decision::Approve { .. } => Some(Certificate::Approved),
        Decision::Deny { why } => Some(Certificate::Denied(why.to_string())),
        Decision::Wait { why, .. } => Some(Certificate::Waits(why.to_string())),
        Decision::Ignore { .. } => None,
    }
}

/// Whose machine asks: by its token, read live because tokens are not cached, or by its Node.
async fn observe(request: &Request, ctx: &Context) -> Result<Vec<Arc<Machine>>, Error> {
    if certificate::is_decided(request) {
        return Ok(Vec::new());
    }
    let machines = match certificate::asker(request) {
        Asker::BootstrapToken(id) => {
            let uid = token::bearer_of(&ctx.client, &id)
                .await
                .map_err(|source| Error::WhoAsks { request: request.name_any(), source })?;
            uid.and_then(|uid| ctx.caches.machine_by_uid(&uid)).into_iter().collect()
        }
        Asker::Node(name) => ctx.caches.machines_of_node_name(&name),
        Asker::Stranger => Vec::new(),
    };
    let complete = |machine: &Arc<Machine>| ctx.minds.of(machine).complete(machine);
    Ok(machines.iter().map(complete).collect())
}

fn known(machine: &Machine) -> KnownMachine {
    let status = machine.status.clone().unwrap_or_default();
    let name = machine.spec.metadata.name.clone().unwrap_or_else(|| machine.name_any());
    KnownMachine {
        name: machine.name_any(),
        node_name: name,
        has_node: status.node_ref.is_some(),
        is_deleting: machine.metadata.deletion_timestamp.is_some(),
        addresses: status.addresses.into_iter().map(|address| address.address).collect(),
    }
}

async fn act(request: &Request, decision: Decision, ctx: &Context) -> Result<Outcome, Error> {
    match decision {
        Decision::Approve { why } => {
            decide(request, "Approved", "DroverApproved", &why.to_string(), ctx).await
        }
        Decision::Deny { why } => {
            decide(request, "Denied", "DroverDenied", &why.to_string(), ctx).await
        }
        Decision::Ignore { why: _ } => Ok(Outcome::Settled),
        Decision::Wait { why: _, after } => Ok(Outcome::WakeAfter(after)),
    }
}

/// Writes a decision with the resource version it was drawn from; an undecided request has no
/// conditions yet, so the one written is the whole list.
async fn decide(
    request: &Request,
    type_: &str,
    reason: &str,
    message: &str,
    ctx: &Context,
) -> Result<Outcome, Error> {
    let now = Time(ctx.clock.now());
    let decision = CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": request.metadata.resource_version },
        "status": { "conditions": [decision] },
    }));
    let requests = Api::<Request>::all(ctx.client.clone());
    let name = request.name_any();
    match requests.patch_approval(&name, &PatchParams::default(), &patch).await {
        Ok(written) => ctx.caches.requests.saw(written),
        // Signed, decided or gone in the meantime: the next look sees it.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
            return Ok(Outcome::Settled);
        }
        Err(source) => {
            return Err(
                WriteError::new("decide on", "CertificateSigningRequest", name, source).into()
            );
        }
    }
    ctx.metrics.step(reason);
    if type_ == "Denied" {
        ctx.tell(request, Tone::Warning, reason, "Approve", message);
    }
    Ok(Outcome::Settled)
}
