//! What goes wrong on purpose: rules that match calls, and what they do to them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One rule. The first one that matches a call and strikes decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The calls it is about: words that a call's name begins with, as `compute POST /servers`; `*` stands for any
    /// word, and empty for every call.
    #[serde(default)]
    pub call: String,
    /// Lets so many matching calls pass first.
    #[serde(default)]
    pub skip: u64,
    /// Strikes every so manieth matching call; 0 leaves it to `rate`.
    #[serde(default)]
    pub every: u64,
    /// The chance from 0 to 1 that a matching call is struck, when `every` is 0.
    #[serde(default = "always")]
    pub rate: f64,
    /// Strikes at most so often; absent is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// What happens.
    pub effect: Effect,
}

fn always() -> f64 {
    1.0
}

impl Fault {
    /// This effect on every matching call.
    #[must_use]
    pub fn on(call: &str, effect: Effect) -> Self {
        Self { call: call.to_owned(), skip: 0, every: 0, rate: 1.0, times: None, effect }
    }

    /// At most so often.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Only every so manieth call.
    #[must_use]
    pub fn every(self, every: u64) -> Self {
        Self { every, ..self }
    }

    /// With this chance.
    #[must_use]
    pub fn rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    /// Not before so many calls have passed.
    #[must_use]
    pub fn skip(self, skip: u64) -> Self {
        Self { skip, ..self }
    }
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Effect {
    /// A proxy in front answers in HTML with this status.
    Status {
        /// 429, 500, 502, 503, 504.
        code: u16,
        /// Seconds in `Retry-After`; absent leaves the header out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
        /// The service did what it was asked before the proxy gave up.
        #[serde(default)]
        acted: bool,
    },
    /// The connection breaks within the answer.
    Cut {
        /// The service did what it was asked.
        #[serde(default)]
        acted: bool,
    },
    /// The service acts at once, its answer comes so much later (milliseconds, not paced).
    Slow {
        /// Milliseconds.
        millis: u64,
    },
    /// A list leaves out what is younger than this (milliseconds, not paced).
    Lag {
        /// Milliseconds.
        millis: u64,
    },
    /// `POST /servers`: the server stays in BUILD for ever.
    StuckBuild,
    /// `POST /servers`: a later DELETE is accepted and never done.
    StuckDeleting,
    /// `POST /servers`: three hypervisors fail, the server ends in ERROR.
    BootFailure {
        /// What the hypervisor says; the fault shows it for servers with a volume only, as in life.
        message: String,
    },
    /// `POST /servers`: the server disappears so long after it became ACTIVE (milliseconds, not paced).
    Vanish {
        /// Milliseconds.
        millis: u64,
    },
    /// `POST /servers`: it becomes ACTIVE and shows no address.
    NoAddresses,
    /// `POST /servers` or `/ports`: a bound port stays DOWN.
    PortDown,
    /// `POST /volumes`: the volume ends in `error`.
    VolumeError,
    /// `POST /volumes`: a later DELETE ends in `error_deleting`.
    VolumeErrorDeleting,
}

impl Effect {
    /// A proxy's answer, the request not having reached the service.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Status { code, retry_after: None, acted: false }
    }
}

/// The rules in force and how often each matched and struck.
#[derive(Debug)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    rng: fastrand::Rng,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    matched: u64,
    struck: u64,
}

impl Faults {
    pub(super) fn new(rules: Vec<Fault>, rng: fastrand::Rng) -> Self {
        let mut faults = Self { rules: Vec::new(), rng };
        faults.set(rules);
        faults
    }

    /// Replaces all rules; counting begins anew.
    pub(super) fn set(&mut self, rules: Vec<Fault>) {
        self.rules = rules.into_iter().map(|fault| Rule { fault, matched: 0, struck: 0 }).collect();
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.rules.push(Rule { fault, matched: 0, struck: 0 });
    }

    pub(super) fn list(&self) -> Vec<Fault> {
        self.rules.iter().map(|rule| rule.fault.clone()).collect()
    }

    /// For how many calls each rule was asked, and how many it struck.
    pub(super) fn score(&self) -> Vec<Value> {
        let score = self.rules.iter().map(
            |rule| json!({"call": rule.fault.call, "matched": rule.matched, "struck": rule.struck}),
        );
        score.collect()
    }

    /// What strikes this call, named as `compute POST /servers`.
    pub(super) fn strike(&mut self, call: &str) -> Option<Effect> {
        for rule in &mut self.rules {
            let fault = &rule.fault;
            if !matches(&fault.call, call) || fault.times.is_some_and(|max| rule.struck >= max) {
                continue;
            }
            rule.matched += 1;
            let turn = rule.matched.saturating_sub(fault.skip);
            let strikes = turn > 0
                && match fault.every {
                    0 => fault.rate >= 1.0 || self.rng.f64() < fault.rate,
                    every => turn.is_multiple_of(every),
                };
            if strikes {
                rule.struck += 1;
                return Some(fault.effect.clone());
            }
        }
        None
    }
}

fn matches(pattern: &str, call: &str) -> bool {
    let mut words = call.split(' ');
    pattern
        .split(' ')
        .filter(|word| !word.is_empty())
        .all(|wanted| words.next().is_some_and(|word| wanted == "*" || wanted == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(fault: Fault, calls: &[&str]) -> Vec<bool> {
        let mut faults = Faults::new(vec![fault], fastrand::Rng::with_seed(1));
        calls.iter().map(|call| faults.strike(call).is_some()).collect()
    }

    #[test]
    fn matches_by_words_from_the_left() {
        let on = |pattern| {
            struck(Fault::on(pattern, Effect::status(500)), &["compute POST /servers"])[0]
        };
        assert!(on("") && on("compute") && on("* POST") && on("compute POST /servers"));
        assert!(!on("network") && !on("compute GET") && !on("compute POST /servers/{id}"));
    }

    #[test]
    fn counts_from_the_first_call_it_does_not_skip() {
        let calls = ["compute GET /servers"; 6];
        let every = Fault::on("", Effect::status(500)).every(3);
        assert_eq!(struck(every.clone(), &calls), [false, false, true, false, false, true]);
        assert_eq!(
            struck(every.skip(1).times(1), &calls),
            [false, false, false, true, false, false]
        );
    }
}
