//! What of a template its running machines can take over, so that no server is replaced for it.

#[cfg(test)]
mod tests;

use drover_api::{
    InPlace, Machine, MachineDeployment, MachineSet, MachineSpec, MachineTemplate, class_reference,
    labels,
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// What of Mirantis' description says nothing of the server.
const IN_VALUE: [&str; 3] = ["nodeLabels", "deletionPolicy", "upgradeIndex"];

/// Whether the machines of this deployment take over what they can. Gardener: those of a MachineClass
/// always did; MetaKube: any change of a template replaces the machines.
#[must_use]
pub fn is_wanted(deployment: &MachineDeployment) -> bool {
    let spec = &deployment.spec;
    spec.strategy
        .in_place
        .map_or_else(|| by_default(&spec.template), |it| it == InPlace::WhenPossible)
}

/// Whether the machines of this set do: as its deployment noted, else as their description has it.
#[must_use]
pub fn is_on(set: &MachineSet) -> bool {
    noted(set).unwrap_or_else(|| by_default(&set.spec.template))
}

/// What a set is to note so that [`is_on`] answers this, if anything.
#[must_use]
pub fn note(set: &MachineSet, wanted: bool) -> Option<String> {
    (is_on(set) != wanted).then(|| wanted.to_string())
}

fn noted(set: &MachineSet) -> Option<bool> {
    set.annotations().get(labels::IN_PLACE)?.parse().ok()
}

fn by_default(template: &MachineTemplate) -> bool {
    class_reference(&template.spec).is_some()
}

/// Whether the servers of one template serve the other as well.
#[must_use]
pub fn is_same_server(a: &MachineTemplate, b: &MachineTemplate) -> bool {
    let bare = |template: &MachineTemplate| {
        let mut bare = template.clone();
        bare.spec = taken_over(&bare.spec, &MachineSpec::default());
        bare.metadata.annotations.retain(|key, _| !is_hook(key));
        bare.metadata.labels.remove(labels::TEMPLATE_HASH);
        bare
    };
    bare(a) == bare(b)
}

/// A merge patch of a machine's metadata and spec by which it takes over what it can of a template, or none
/// when it has. A hook that left the template stays on machines that have it: whether it came from there
/// or from somebody who still waits is not known.
#[must_use]
pub fn follow(machine: &Machine, template: &MachineTemplate) -> Option<Value> {
    let next = taken_over(&machine.spec, &template.spec);
    let spec = (next != machine.spec).then(|| merge_patch(&plain(&machine.spec), &plain(&next)));
    let has = machine.annotations();
    let hooks: Map<String, Value> = template
        .metadata
        .annotations
        .iter()
        .filter(|(key, value)| is_hook(key) && has.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    if spec.is_none() && hooks.is_empty() {
        return None;
    }
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(machine.metadata.uid));
    metadata.insert("resourceVersion".to_owned(), json!(machine.metadata.resource_version));
    if !hooks.is_empty() {
        metadata.insert("annotations".to_owned(), hooks.into());
    }
    let mut patch = json!({ "metadata": metadata });
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    Some(patch)
}

/// Cluster API: what the deletion of a machine waits for.
fn is_hook(key: &str) -> bool {
    key.starts_with(labels::HOOK_PRE_DRAIN) || key.starts_with(labels::HOOK_PRE_TERMINATE)
}

/// A spec with all of another that says nothing of the server. A new field has to be put on one side.
fn taken_over(spec: &MachineSpec, from: &MachineSpec) -> MachineSpec {
    let MachineSpec {
        metadata,
        taints,
        provider_spec,
        versions: _,
        class: _,
        provider_id: _,
        node_template,
        creation_timeout,
        health_timeout,
        drain_timeout,
        on_drain_timeout,
        deletion_policy,
        in_place_update_timeout,
        disable_health_timeout,
        max_evict_retries,
        node_conditions,
        machine_preserve_timeout,
        config_source: _,
    } = from.clone();
    let mut next = MachineSpec {
        taints,
        node_template,
        creation_timeout,
        health_timeout,
        drain_timeout,
        on_drain_timeout,
        deletion_policy,
        in_place_update_timeout,
        disable_health_timeout,
        max_evict_retries,
        node_conditions,
        machine_preserve_timeout,
        ..spec.clone()
    };
    next.metadata.labels = metadata.labels;
    next.metadata.annotations = metadata.annotations;
    if let Some(Value::Object(value)) = &mut next.provider_spec.value {
        for name in IN_VALUE {
            match provider_spec.value.as_ref().and_then(|from| from.get(name)) {
                Some(wish) => value.insert(name.to_owned(), wish.clone()),
                None => value.remove(name),
            };
        }
    }
    next
}

fn plain(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("a spec is plain data")
}

/// The JSON merge patch (RFC 7396) that makes the second value of the first.
#[must_use]
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone =
        from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed =
        to.iter().filter(|(key, value)| from.get(*key) != Some(value)).map(|(key, value)| {
            let patch =
                from.get(key).map_or_else(|| value.clone(), |from| merge_patch(from, value));
            (key.clone(), patch)
        });
    gone.chain(changed).collect::<Map<_, _>>().into()
}
