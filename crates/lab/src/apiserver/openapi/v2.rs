//! OpenAPI v2, one document of everything, made of those of version 3.

use serde_json::{Map, Value, json};

/// What a document of version 3 contributes.
#[derive(Clone, Default)]
pub(super) struct Part {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

impl Part {
    /// Of this document.
    pub fn of(mut document: Value) -> Self {
        let mut part = Self::default();
        if let Value::Object(schemas) = document["components"]["schemas"].take() {
            let converted = schemas.into_iter().map(|(name, schema)| (name, converted(schema)));
            part.definitions.extend(converted);
        }
        if let Value::Object(found) = document["paths"].take() {
            part.paths.extend(found.into_iter().map(|(path, operations)| {
                let Value::Object(operations) = operations else { return (path, operations) };
                let operations = operations.into_iter().map(|(verb, it)| (verb, operation(it)));
                (path, Value::Object(operations.collect()))
            }));
        }
        part
    }

    /// Takes in another part.
    pub fn extend(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.definitions.extend(other.definitions);
    }

    /// The document of everything that was taken in.
    pub fn document(self) -> Value {
        json!({
            "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.33.0"},
            "paths": self.paths, "definitions": self.definitions,
        })
    }
}

/// A schema without what version 2 has no word for.
fn converted(schema: Value) -> Value {
    let mut map = match schema {
        Value::Object(map) => map,
        Value::Array(list) => return list.into_iter().map(converted).collect(),
        other => return other,
    };
    if let Some(Value::Array(parts)) = map.get("allOf")
        && let [part] = parts.as_slice()
        && let Some(target) = part["$ref"].as_str()
    {
        // A reference beside other words stands in `allOf` in version 3 alone.
        let target = target.to_owned();
        map.retain(|word, _| word == "description");
        map.insert("$ref".to_owned(), target.into());
    }
    if map.contains_key("oneOf") && !map.contains_key("type") {
        // Kubernetes: its types of more than one form were texts in version 2.
        map.insert("type".to_owned(), "string".into());
    }
    ["allOf", "oneOf", "anyOf", "not"].into_iter().for_each(|word| drop(map.remove(word)));
    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
        let target = target.replace("#/components/schemas/", "#/definitions/");
        map.insert("$ref".to_owned(), target.into());
    }
    let verbatim = ["default", "enum", "example", "x-kubernetes-validations"];
    let fields = map.into_iter().map(|(word, value)| match word.as_str() {
        word_of if verbatim.contains(&word_of) => (word, value),
        "properties" => {
            let Value::Object(fields) = value else { return (word, value) };
            let fields = fields.into_iter().map(|(name, schema)| (name, converted(schema)));
            (word, Value::Object(fields.collect()))
        }
        _ => (word, converted(value)),
    });
    Value::Object(fields.collect())
}

/// The schema of a custom kind without what old clients stumble over; the kind itself if `root`.
///
/// Kubernetes: `ToStructuralOpenAPIV2`, and nothing but the type where the root keeps unknown fields.
pub(super) fn structural(schema: &Value, root: bool) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    let is = |word: &str| map.get(word) == Some(&Value::Bool(true));
    let keeps = is("x-kubernetes-preserve-unknown-fields");
    if root && keeps {
        return json!({"type": "object"});
    }
    let nullable = is("nullable");
    let mut out = map.clone();
    ["allOf", "oneOf", "anyOf", "not", "nullable"].into_iter().for_each(|w| drop(out.remove(w)));
    if nullable || keeps {
        out.remove("items");
        out.remove("properties");
    }
    let listless = out.get("type") == Some(&json!("array")) && !out.contains_key("items");
    let open = out.get("type") == Some(&json!("object")) && keeps;
    if nullable || listless || open {
        out.remove("type");
    }
    if let Some(Value::Object(fields)) = out.get("properties") {
        let may_be_null = |name: &str| fields.get(name).is_some_and(|f| f["nullable"] == true);
        let fields: Map<String, Value> =
            fields.iter().map(|(name, field)| (name.clone(), structural(field, false))).collect();
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<&Value> =
            required.filter(|name| !name.as_str().is_some_and(may_be_null)).collect();
        match required.is_empty() {
            true => drop(out.remove("required")),
            false => drop(out.insert("required".to_owned(), json!(required))),
        }
        out.insert("properties".to_owned(), fields.into());
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = out.get(word).map(|inner| structural(inner, false)) {
            out.insert(word.to_owned(), inner);
        }
    }
    Value::Object(out)
}

fn operation(it: Value) -> Value {
    let Value::Object(mut it) = it else { return it };
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(Value::Array(list)) = it.remove("parameters") {
        parameters.extend(list.into_iter().map(|mut parameter| {
            if let Value::Object(schema) = parameter["schema"].take()
                && let Some(map) = parameter.as_object_mut()
            {
                map.remove("schema");
                map.extend(schema);
            }
            parameter
        }));
    }
    if let Some(body) = it.remove("requestBody") {
        let forms = body["content"].as_object();
        let names: Vec<&String> = forms.into_iter().flat_map(Map::keys).collect();
        it.insert("consumes".into(), json!(names));
        let schema = forms.and_then(|forms| forms.values().next()).map(|form| &form["schema"]);
        let schema = converted(schema.cloned().unwrap_or_default());
        parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
    }
    it.insert("parameters".into(), parameters.into());
    it.insert("produces".into(), json!(["application/json", "application/yaml"]));
    for (code, answer) in it["responses"].as_object_mut().into_iter().flatten() {
        let schema = answer["content"]["application/json"]["schema"].take();
        *answer = json!({"description": if code == "401" { "Unauthorized" } else { "OK" }});
        if !schema.is_null() {
            answer["schema"] = converted(schema);
        }
    }
    Value::Object(it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_schemas_lose_what_old_clients_stumble_over() {
        let schema = json!({
            "type": "object", "required": ["may", "must"],
            "properties": {
                "may": {"type": "string", "nullable": true}, "must": {"type": "integer"},
                "open": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"a": {"type": "string"}},
                },
            },
            "oneOf": [{"required": ["may"]}],
        });
        let want = json!({
            "type": "object", "required": ["must"],
            "properties": {
                "may": {}, "must": {"type": "integer"},
                "open": {"x-kubernetes-preserve-unknown-fields": true},
            },
        });
        assert_eq!(structural(&schema, true), want);
    }

    #[test]
    fn references_need_no_list_around_them() {
        let field = json!({
            "default": {}, "description": "spec", "allOf": [{"$ref": "#/components/schemas/Spec"}],
        });
        assert_eq!(
            converted(json!({"properties": {"spec": field}})),
            json!({"properties": {"spec": {"$ref": "#/definitions/Spec", "description": "spec"}}})
        );
    }
}
