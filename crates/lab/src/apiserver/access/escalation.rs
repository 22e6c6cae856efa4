//! Nobody grants what he does not hold: writes of roles and bindings.

use super::rbac::{GROUP, Rights, Rule, covers_resource, covers_url, text};
use super::{Attributes, MASTERS, User, decide};
use crate::apiserver::{ApiServer, Key, Status};
use serde_json::Value;
use std::collections::BTreeMap;

/// Refuses a role or binding that would give more than its writer has.
pub(super) fn admit(
    server: &ApiServer,
    user: &User,
    ask: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let Some(new) = new else { return Ok(()) };
    if user.is_in(MASTERS) || !ask.subresource.is_empty() {
        return Ok(());
    }
    let same = |field: &str| old.is_some_and(|old| old.get(field) == new.get(field));
    let wanted = match ask.resource {
        "roles" | "clusterroles" if !same("rules") => {
            if decide(server, user, &Attributes { verb: "escalate", ..*ask }).allowed {
                return Ok(());
            }
            Rule::all_of(new)
        }
        "rolebindings" | "clusterrolebindings" if !same("subjects") || !same("roleRef") => {
            let kind = text(&new["roleRef"]["kind"]);
            let name = text(&new["roleRef"]["name"]);
            let (resource, home) =
                if kind == "Role" { ("roles", ask.namespace) } else { ("clusterroles", "") };
            let bind = Attributes { verb: "bind", resource, name, ..*ask };
            if decide(server, user, &bind).allowed {
                return Ok(());
            }
            let Some(role) = server.store().get(&Key::new(GROUP, resource, home, name)) else {
                return Err(Status::not_found(GROUP, ask.resource, ask.name));
            };
            Rule::all_of(&role)
        }
        _ => return Ok(()),
    };
    let rights = super::rights(server);
    let missing = not_held(&rights, user, ask.namespace, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        list(&user.groups),
        missing.join("\n")
    );
    Err(Status::forbidden(GROUP, ask.resource, ask.name, &why))
}

/// The wanted rules that the user does not hold, in Kubernetes' notation.
fn not_held(rights: &Rights, user: &User, namespace: &str, wanted: &[Rule]) -> Vec<String> {
    let own = rights.rules(user, namespace);
    // Rules of one resource are told together: their verbs, in the order they were found.
    let mut missing: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    for single in wanted.iter().flat_map(singles) {
        if own.iter().any(|rule| covers(rule, &single)) {
            continue;
        }
        let verbs = single.verbs.clone();
        let known = missing.entry(Rule { verbs: Vec::new(), ..single }).or_default();
        verbs.into_iter().for_each(|verb| {
            if !known.contains(&verb) {
                known.push(verb);
            }
        });
    }
    let mut texts: Vec<String> =
        missing.into_iter().map(|(rule, verbs)| notation(&Rule { verbs, ..rule })).collect();
    texts.sort();
    texts
}

/// A rule taken apart: one verb on one resource, name or URL each.
fn singles(rule: &Rule) -> Vec<Rule> {
    let one = |word: &String| vec![word.clone()];
    let mut all = Vec::new();
    for (group, resource) in
        rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |r| (group, r)))
    {
        for verb in &rule.verbs {
            let single = Rule {
                verbs: one(verb),
                api_groups: one(group),
                resources: one(resource),
                ..Rule::default()
            };
            if rule.resource_names.is_empty() {
                all.push(single);
                continue;
            }
            let named = |name: &String| Rule { resource_names: one(name), ..single.clone() };
            all.extend(rule.resource_names.iter().map(named));
        }
    }
    for url in &rule.urls {
        all.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: one(verb),
            urls: one(url),
            ..Rule::default()
        }));
    }
    all
}

/// Whether a rule gives all that a single one gives.
fn covers(own: &Rule, single: &Rule) -> bool {
    let all = |own: &[String], wanted: &[String]| {
        wanted.iter().all(|word| own.iter().any(|have| have == word || have == "*"))
    };
    let resource = |wanted: &String| {
        let (whole, part) = wanted.split_once('/').unwrap_or((wanted, ""));
        own.resources.iter().any(|have| have == wanted || covers_resource(have, whole, part))
    };
    let names = own.resource_names.is_empty()
        || (!single.resource_names.is_empty()
            && single.resource_names.iter().all(|name| own.resource_names.contains(name)));
    all(&own.verbs, &single.verbs)
        && all(&own.api_groups, &single.api_groups)
        && single.resources.iter().all(resource)
        && names
        && single.urls.iter().all(|url| own.urls.iter().any(|have| covers_url(have, url)))
}

/// `["a" "b"]`, as Go prints a list.
fn list(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn notation(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let told = fields.iter().filter(|(_, words)| !words.is_empty());
    let parts: Vec<String> = told.map(|(name, words)| format!("{name}:{}", list(words))).collect();
    format!("{{{}}}", parts.join(", "))
}
