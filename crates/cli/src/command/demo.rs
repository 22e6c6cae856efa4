//! The story of a pool, told by doing it: apply, scale, roll, lose a machine, and be whole again.
//!
//! Everything goes through the API server as a user's kubectl would do it.

use super::narrate::say;
use anyhow::{Context, bail};
use drover_api::{Machine, MachineDeployment};
use drover_plan::skew::{Misfit, misfit};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The manifest of the documentation, built in.
pub const EXAMPLE: &str = include_str!("../../../../examples/metakube/machinedeployment.yaml");

/// How long each chapter may take before the story is given up.
const CHAPTER_MAX: Duration = Duration::from_secs(600);
/// How often the pool is looked at while a chapter runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells the story with this pool, in its own namespace; `file` is where the user finds it.
///
/// # Errors
/// When a chapter does not end well in ten minutes, with what the pool looked like then.
pub async fn tell(client: Client, mut manifest: Value, file: &str) -> anyhow::Result<()> {
    let server = client.apiserver_version().await.context("reading the API server's version")?;
    let story = Story::of(client, &manifest).await?;

    if let Some(why) = fit(&mut manifest, &server.git_version) {
        say(&format!("\n# {why}"))?;
    }
    say(&format!("\n$ kubectl apply -f {file}"))?;
    let apply = PatchParams::apply("kubectl").force();
    story.pools.patch(&story.name, &apply, &Patch::Apply(&manifest)).await?;
    story.whole("the pool is up", 2, &BTreeSet::new()).await?;

    say("\n$ kubectl -n kube-system scale md nodes --replicas=5")?;
    let scale = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    story.pools.patch_scale(&story.name, &PatchParams::default(), &scale).await?;
    story.whole("the pool has grown", 5, &BTreeSet::new()).await?;

    say(
        "\n$ kubectl -n kube-system patch md nodes --type merge -p '{\"spec\": {\"template\": ..restartedAt..}}'",
    )?;
    let old = story.machine_uids().await?;
    let restart = Patch::Merge(json!({ "spec": { "template": { "metadata": { "annotations": {
        "kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string(),
    }}}}}));
    story.pools.patch(&story.name, &PatchParams::default(), &restart).await?;
    story.whole("every machine was replaced", 5, &old).await?;

    let victim = story.machines().await?.into_iter().next().context("a pool of five has none")?;
    let name = victim.name_any();
    say(&format!("\n$ kubectl -n kube-system delete machine {name}"))?;
    story.machines.delete(&name, &DeleteParams::default()).await?;
    story.whole("its replacement is there", 5, &victim.uid().into_iter().collect()).await?;

    say("\nThe pool is healthy.")?;
    say("\n$ kubectl -n kube-system delete md nodes --cascade=foreground")?;
    story.pools.delete(&story.name, &DeleteParams::foreground()).await?;
    story.whole("nothing is left", 0, &BTreeSet::new()).await
}

struct Story {
    name: String,
    pools: Api<MachineDeployment>,
    machines: Api<Machine>,
    nodes: Api<Node>,
    /// Nodes that were there before the story.
    others: BTreeSet<String>,
}

/// Has the example take a kubelet that the API server's version allows, and says so.
fn fit(manifest: &mut Value, server: &str) -> Option<String> {
    let kubelet = manifest.pointer_mut("/spec/template/spec/versions/kubelet")?;
    let Misfit { why, instead, .. } = misfit(kubelet.as_str()?, server)?;
    let said =
        format!("the example's kubelet {} is {why}; the story takes {instead}", kubelet.as_str()?);
    *kubelet = instead.into();
    Some(said)
}

impl Story {
    async fn of(client: Client, manifest: &Value) -> anyhow::Result<Self> {
        let text = |at: &str| manifest.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let name = text("/metadata/name").context("the example has no name")?;
        let namespace = text("/metadata/namespace").context("the example has no namespace")?;
        let nodes = Api::<Node>::all(client.clone());
        let others = nodes.list(&ListParams::default()).await?.items;
        Ok(Self {
            name,
            pools: Api::namespaced(client.clone(), &namespace),
            machines: Api::namespaced(client, &namespace),
            nodes,
            others: others.iter().map(ResourceExt::name_any).collect(),
        })
    }

    async fn machines(&self) -> anyhow::Result<Vec<Machine>> {
        Ok(self.machines.list(&ListParams::default()).await?.items)
    }

    async fn machine_uids(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.machines().await?.iter().filter_map(ResourceExt::uid).collect())
    }

    /// Waits until the pool has exactly `replicas` machines, none of `old`, each a Ready node, and
    /// nothing else is left.
    async fn whole(
        &self,
        what: &str,
        replicas: usize,
        old: &BTreeSet<String>,
    ) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + CHAPTER_MAX;
        loop {
            let is_over = tokio::time::Instant::now() > deadline;
            match self.state(old).await {
                Ok(state) if state.is_whole(replicas) => {
                    return say(&format!("  {what}: {state}"));
                }
                Ok(state) if is_over => {
                    bail!("gave up waiting until {what}: {state}, wanted {replicas}")
                }
                // An API server that is busy or restarts is no reason to end a story.
                Err(error) if is_over => {
                    return Err(error).with_context(|| format!("gave up waiting until {what}"));
                }
                _ => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn state(&self, old: &BTreeSet<String>) -> anyhow::Result<State> {
        let pool = self.pools.get_opt(&self.name).await?;
        let generation = pool.as_ref().and_then(|pool| pool.metadata.generation);
        let status = serde_json::to_value(pool.and_then(|pool| pool.status))?;
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        let current = status["observedGeneration"].as_i64() == generation;
        let machines = self.machines().await?;
        let mut nodes = self.nodes.list(&ListParams::default()).await?.items;
        nodes.retain(|node| !self.others.contains(&node.name_any()));
        Ok(State {
            machines: machines.len(),
            old: machines.iter().filter_map(ResourceExt::uid).filter(|it| old.contains(it)).count(),
            nodes: nodes.len(),
            ready: nodes.iter().filter(|node| is_ready(node)).count(),
            updated: if current { count("updatedReplicas") } else { 0 },
            available: if current { count("availableReplicas") } else { 0 },
        })
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

struct State {
    machines: usize,
    old: usize,
    nodes: usize,
    ready: usize,
    updated: u64,
    available: u64,
}

impl State {
    fn is_whole(&self, replicas: usize) -> bool {
        let all = replicas as u64;
        (self.machines, self.nodes, self.ready, self.old) == (replicas, replicas, replicas, 0)
            && (self.updated, self.available) == (all, all)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { machines, old, nodes, ready, updated, available } = self;
        write!(
            f,
            "{machines} machines ({updated} updated, {available} available), {ready} of {nodes} nodes Ready"
        )?;
        if *old > 0 {
            write!(f, ", {old} still to be replaced")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_takes_a_kubelet_that_fits_the_server() {
        let example = || serde_json::json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.30.3"}}}}});
        for (server, taken, word) in [
            ("v1.33.0+drover-lab", "1.30.3", ""),
            ("v1.30.0", "1.30.3", ""),
            ("v1.36.3", "1.36.3", "too old"),
            ("v1.29.1-rc.1", "1.29.1", "newer"),
        ] {
            let mut manifest = example();
            let said = fit(&mut manifest, server).unwrap_or_default();
            assert_eq!(manifest["spec"]["template"]["spec"]["versions"]["kubelet"], taken);
            assert!(said.contains(word) && said.is_empty() == word.is_empty(), "{server}: {said}");
        }
    }
}
