//! What a schema cannot say, in CEL: the rules an API server holds objects to.

use serde::Serialize;

/// A rule over a part of an object. With `oldSelf` in it, it is asked on updates only.
#[derive(Serialize)]
pub struct Rule {
    /// The CEL expression; it must be true.
    pub rule: &'static str,
    /// What to do when it is not.
    pub message: &'static str,
}

/// `spec` of a deployment or a set.
pub const SELECTION: &[Rule] = &[Rule {
    rule: "!has(self.selector.matchLabels) || (has(self.template.metadata) \
           && has(self.template.metadata.labels) && self.selector.matchLabels.all(k, \
           k in self.template.metadata.labels \
           && self.template.metadata.labels[k] == self.selector.matchLabels[k]))",
    message: "the selector does not match the template: give template.metadata.labels all of selector.matchLabels",
}];

/// `selector`.
pub const SELECTOR: &[Rule] = &[Rule {
    rule: "(has(self.matchLabels) && size(self.matchLabels) > 0) \
           || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
    message: "the selector is empty: it would take every machine of the namespace; give matchLabels",
}];

/// `strategy`.
pub const STRATEGY: &[Rule] = &[Rule {
    rule: "!has(self.type) || self.type != 'InPlaceUpdate' || has(self.inPlaceUpdate)",
    message: "strategy.type InPlaceUpdate needs strategy.inPlaceUpdate",
}];

/// `strategy.rollingUpdate` and `strategy.inPlaceUpdate`: with both at zero a rollout could never move.
pub const BOUNDS: &[Rule] = &[Rule {
    rule: "!((!has(self.maxSurge) || self.maxSurge == 0 || self.maxSurge == '0%') \
           && (!has(self.maxUnavailable) || self.maxUnavailable == 0 || self.maxUnavailable == '0%'))",
    message: "maxSurge and maxUnavailable are both zero: the rollout could not move; raise one of them",
}];

/// `spec` of a Machine or of a template.
pub const MACHINE: &[Rule] = &[Rule {
    rule: "!has(self.configSource)",
    message: "configSource: dynamic kubelet configuration is gone from Kubernetes; leave it out",
}];

/// `providerSpec` of a Machine or a template.
pub const PROVIDER_SPEC: &[Rule] = &[Rule {
    rule: "!(has(self.value) && has(self.valueFrom))",
    message: "give providerSpec.value or providerSpec.valueFrom, not both",
}];

/// `spec.providerSpec.value` of a Machine: what describes the server.
const FIXED: [&str; 16] = [
    "cloudProvider",
    "cloudProviderSpec",
    "operatingSystem",
    "operatingSystemSpec",
    "sshPublicKeys",
    "network",
    "apiVersion",
    "kind",
    "availabilityZone",
    "flavor",
    "image",
    "securityGroups",
    "networks",
    "bootFromVolume",
    "additionalVolumes",
    "serverMetadata",
];

/// The rules about changes of a Machine: where, the expression and the message. A Machine's spec is also
/// the spec of a template, which may change; hence they are not part of the type.
pub fn of_changes() -> Vec<(&'static str, String, String)> {
    let same = |name: &str| {
        format!(
            "has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        )
    };
    let fixed = |name: &str| {
        format!(
            "{name} cannot change on a Machine; change the template of its MachineDeployment, it replaces the machines"
        )
    };
    let once = "!has(oldSelf.providerID) || oldSelf.providerID == '' \
                || (has(self.providerID) && self.providerID == oldSelf.providerID)";
    let rank = |of: &str| {
        let given =
            |policy: &str| format!("has({of}.deletionPolicy) && {of}.deletionPolicy == '{policy}'");
        format!("({} ? 2 : {} ? 1 : 0)", given("forced"), given("unsafe"))
    };
    let asked = |of: &str| format!("has({of}.delete) && {of}.delete");
    let relaxed = format!(
        "!({}) || !({}) || {} >= {}",
        asked("oldSelf"),
        asked("self"),
        rank("self"),
        rank("oldSelf"),
    );
    let only_relaxed = "deletionPolicy can only become less careful once delete is true: graceful, unsafe, \
                        forced; withdraw delete first";
    let mut rules = vec![("spec", once.into(), "providerID is set once and cannot change".into())];
    rules.push(("spec.providerSpec.value", relaxed, only_relaxed.into()));
    for name in ["versions", "class"] {
        rules.push(("spec", same(name), fixed(name)));
    }
    let has = "has(self.providerSpec) == has(oldSelf.providerSpec)";
    rules.push(("spec", has.into(), fixed("providerSpec")));
    let has = "has(self.value) == has(oldSelf.value)";
    rules.push(("spec.providerSpec", has.into(), fixed("value")));
    rules.push(("spec.providerSpec", same("valueFrom"), fixed("valueFrom")));
    for name in FIXED {
        rules.push(("spec.providerSpec.value", same(name), fixed(name)));
    }
    rules
}
