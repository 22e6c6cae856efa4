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

/// `spec` of a Machine, never of a template: what may not change while the server runs.
pub const MACHINE_UPDATE: &[Rule] = &[
    Rule {
        rule: "!has(oldSelf.providerID) || oldSelf.providerID == '' \
               || (has(self.providerID) && self.providerID == oldSelf.providerID)",
        message: "providerID is set once and cannot change",
    },
    Rule {
        rule: "has(self.versions) == has(oldSelf.versions) \
               && (!has(self.versions) || self.versions == oldSelf.versions)",
        message: "versions cannot change on a Machine; change the template of its MachineDeployment, it replaces the machines",
    },
    Rule {
        rule: "has(self.class) == has(oldSelf.class) \
               && (!has(self.class) || self.class == oldSelf.class)",
        message: "class cannot change on a Machine; change the template of its MachineDeployment, it replaces the machines",
    },
    Rule {
        rule: "has(self.providerSpec) == has(oldSelf.providerSpec)",
        message: "providerSpec cannot come or go on a Machine; change the template of its MachineDeployment, it replaces the machines",
    },
];
