//! Label selectors with bounds, so that rules over them have a bounded cost.

use crate::rules;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Which machines belong here. Kubernetes: a label selector; all of it must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::SELECTOR))]
pub struct Selector {
    /// Labels with exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "few_labels")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements with an operator: In, NotIn, Exists or DoesNotExist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "requirements")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

fn few_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 63 },
    })
}

fn requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 16,
        "items": {
            "type": "object", "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "description": "The label's key.", "maxLength": 317 },
                "operator": {
                    "type": "string", "description": "How the label relates to the values.",
                    "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                },
                "values": {
                    "type": "array", "description": "The values of In and NotIn.", "maxItems": 32,
                    "items": { "type": "string", "maxLength": 63 },
                },
            },
        },
    })
}

impl Selector {
    /// Whether these labels satisfy all of it. An empty selector matches nothing here: one that took
    /// every machine of a namespace could only be a mistake.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let empty = self.match_labels.is_empty() && self.match_expressions.is_empty();
        !empty
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|wanted| satisfies(wanted, labels))
    }
}

fn satisfies(wanted: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&wanted.key);
    let listed = || value.is_some_and(|value| wanted.values.iter().flatten().any(|it| it == value));
    match wanted.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

impl fmt::Display for Selector {
    /// As `status.selector` and `kubectl -l` want it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equal = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let others = self.match_expressions.iter().map(|it| {
            let values = it.values.as_deref().unwrap_or_default().join(",");
            match it.operator.as_str() {
                "In" => format!("{} in ({values})", it.key),
                "NotIn" => format!("{} notin ({values})", it.key),
                "DoesNotExist" => format!("!{}", it.key),
                _ => it.key.clone(),
            }
        });
        f.write_str(&equal.chain(others).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_matches_and_prints_as_kubernetes_does() {
        let selector: Selector = serde_json::from_value(json!({
            "matchLabels": {"group": "nodes"},
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(selector.to_string(), "group=nodes,zone in (a,b),!old");
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert!(selector.matches(&labels(&[("group", "nodes"), ("zone", "b")])));
        assert!(!selector.matches(&labels(&[("group", "nodes"), ("zone", "c")])));
        assert!(!selector.matches(&labels(&[("group", "nodes"), ("zone", "a"), ("old", "")])));
        assert!(!Selector::default().matches(&labels(&[("group", "nodes")])));
    }
}
