//! Sends pods away from a node.

use super::Error;
use crate::context::Context;
use crate::write::Error as WriteError;
use drover_api::Machine;
use drover_plan::drain::{Departure, PodKey, Refusal};
use drover_plan::reason::Reason;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::Value;
use std::time::Duration;

/// Evictions of one node that are under way at once.
const AT_ONCE: usize = 16;

/// Evicts or deletes each pod; a refusal to evict is remembered and is no failure.
pub async fn send_off(
    machine: &Machine,
    departures: Vec<Departure>,
    ctx: &Context,
) -> Result<(), Error> {
    let mut answers = stream::iter(departures)
        .map(|departure| async move {
            let answer = send(&departure, ctx).await;
            (departure.pod, answer)
        })
        .buffer_unordered(AT_ONCE);
    let mut failed = None;
    while let Some((pod, answer)) = answers.next().await {
        match answer {
            Ok(refusal) => ctx.minds.refuse(machine, &pod, refusal),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn send(departure: &Departure, ctx: &Context) -> Result<Option<Refusal>, Error> {
    let Departure { pod, uid, grace, why } = departure;
    ctx.metrics.step(why.as_str());
    let pods = Api::<Pod>::namespaced(ctx.client.clone(), &pod.namespace);
    let answer = if *why == Reason::PodEvicted {
        evict(&pods, departure).await
    } else {
        let only_this_one = DeleteParams {
            grace_period_seconds: grace.and_then(|seconds| u32::try_from(seconds).ok()),
            preconditions: Some(kube::api::Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        pods.delete(&pod.name, &only_this_one).await.map(drop)
    };
    judge(pod, answer, ctx)
}

/// By hand, for `Api::evict` of kube 5 sends `delete_options`, which Kubernetes does not know: neither the grace nor the
/// precondition would count.
async fn evict(pods: &Api<Pod>, departure: &Departure) -> Result<(), kube::Error> {
    let (name, params) = (&departure.pod.name, PostParams::default());
    let answer = pods.create_subresource("eviction", name, &params, &eviction(departure)).await;
    answer.map(|_: Value| ())
}

fn eviction(Departure { pod, uid, grace, .. }: &Departure) -> Eviction {
    Eviction {
        metadata: ObjectMeta { name: Some(pod.name.clone()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: *grace,
            preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

/// Gone, or another pod of the name: as good as evicted. An answer is a refusal, silence a failure.
fn judge(
    pod: &PodKey,
    answer: Result<(), kube::Error>,
    ctx: &Context,
) -> Result<Option<Refusal>, Error> {
    match answer {
        Ok(()) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(None),
        Err(kube::Error::Api(status)) => {
            let message = status.message.clone();
            let asked = status.details.as_ref().map_or(0, |it| it.retry_after_seconds);
            let pause = Duration::from_secs(asked.into());
            Ok(Some(Refusal { message, at: ctx.clock.now(), times: 1, pause }))
        }
        Err(source) => Err(WriteError::new("evict", "Pod", pod, source).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_eviction_means_one_pod_and_says_its_grace() {
        let pod = PodKey { namespace: "default".into(), name: "db-0".into() };
        let departure =
            Departure { pod, uid: "u-1".into(), grace: Some(42), why: Reason::PodEvicted };
        let sent = serde_json::to_value(eviction(&departure)).unwrap();
        let options = json!({ "gracePeriodSeconds": 42, "preconditions": { "uid": "u-1" } });
        let expected = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "db-0" },
            "deleteOptions": options,
        });
        assert_eq!(sent, expected);
    }
}
