//! Label and field selectors.

use super::builtin::meta;
use super::error::FieldError;
use super::jsonpath;
use serde_json::{Value, json};

/// A label selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
}

/// Why a selector cannot be read, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl LabelSelector {
    /// Reads kubectl's syntax: `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// In the words of Kubernetes' parser.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Parser { tokens: tokens(text), at: 0 }.selector()
    }

    /// Reads a `metav1.LabelSelector` (`matchLabels`, `matchExpressions`).
    ///
    /// # Errors
    /// For an unknown operator.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in
            object.get("matchLabels").and_then(Value::as_object).into_iter().flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for one in object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| one.get(name).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Absent,
                other => {
                    return Err(SelectorError(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            let values = super::node::texts(one.get("values"));
            requirements.push(Requirement { key: text("key").to_owned(), operator, values });
        }
        Ok(Self { requirements })
    }

    /// Whether these labels (an object of strings, or null) match.
    #[must_use]
    pub fn matches(&self, labels: &Value) -> bool {
        self.requirements
            .iter()
            .all(|one| one.matches(labels.get(&one.key).and_then(Value::as_str)))
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = |than: fn(i64, i64) -> bool| {
            let given = label.and_then(number);
            let bound = self.values.first().and_then(|v| number(v));
            given.zip(bound).is_some_and(|(given, bound)| than(given, bound))
        };
        match self.operator {
            Operator::In => label.is_some_and(|label| self.values.iter().any(|v| v == label)),
            Operator::NotIn => label.is_none_or(|label| self.values.iter().all(|v| v != label)),
            Operator::Exists => label.is_some(),
            Operator::Absent => label.is_none(),
            Operator::Greater => compared(|given, bound| given > bound),
            Operator::Less => compared(|given, bound| given < bound),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

/// The words and signs of a selector; it always ends with `End`.
fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 9] = ["!=", "==", "!", "=", ",", "(", ")", "<", ">"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest
                .find(|c: char| {
                    c.is_whitespace() || matches!(c, '!' | '=' | ',' | '(' | ')' | '<' | '>')
                })
                .unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Sign("!") => {
                    let one = self.requirement().map_err(|why| {
                        SelectorError(format!("unable to parse requirement: {why}"))
                    })?;
                    requirements.push(one);
                    match self.next() {
                        Token::End => break,
                        Token::Sign(",") => match self.peek() {
                            Token::Word(_) | Token::Sign("!") => {}
                            other => {
                                let found = other.text();
                                return Err(SelectorError(format!(
                                    "found '{found}', expected: identifier after ','"
                                )));
                            }
                        },
                        other => {
                            let found = other.text();
                            return Err(SelectorError(format!(
                                "found '{found}', expected: ',' or 'end of string'"
                            )));
                        }
                    }
                }
                Token::End => break,
                other => {
                    let found = other.text();
                    return Err(SelectorError(format!(
                        "found '{found}', expected: !, identifier, or 'end of string'"
                    )));
                }
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = *self.peek() == Token::Sign("!");
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check("<nil>", &json!(key), &meta::qualified(&key))?;
        if negated {
            return Ok(Requirement { key, operator: Operator::Absent, values: Vec::new() });
        }
        let (operator, many) = match self.peek() {
            Token::End | Token::Sign(",") => {
                return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
            }
            Token::Sign("=" | "==") => (Operator::In, false),
            Token::Sign("!=") => (Operator::NotIn, false),
            Token::Sign(">") => (Operator::Greater, false),
            Token::Sign("<") => (Operator::Less, false),
            Token::Word(word) if word == "in" => (Operator::In, true),
            Token::Word(word) if word == "notin" => (Operator::NotIn, true),
            other => {
                let known = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{}', expected: {known}", other.text()));
            }
        };
        self.at += 1;
        let values = if many { self.values()? } else { vec![self.value()?] };
        for (i, value) in values.iter().enumerate() {
            check(&format!("values[{i}][{key}]"), &json!(value), &meta::label_value(value))?;
        }
        Ok(Requirement { key, operator, values })
    }

    /// One value; `a=` means the empty one.
    fn value(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word);
                    match self.next() {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                Token::Sign(",") => values.push(String::new()),
                Token::Sign(")") => {
                    values.push(String::new());
                    break;
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

fn check(field: &str, value: &Value, wrong: &[String]) -> Result<(), String> {
    wrong.first().map_or(Ok(()), |why| Err(FieldError::invalid(field, value, why).to_string()))
}

/// A field selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// What is asked, in order.
    pub terms: Vec<FieldTerm>,
}

/// `field = value` or `field != value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// As `metadata.name`.
    pub field: String,
    /// Whether the field must differ.
    pub not: bool,
    /// What it is compared with.
    pub value: String,
    /// What a missing field counts as: mostly the empty text.
    pub absent: &'static str,
    /// The field that is looked at in place of a missing one.
    pub instead: Option<&'static str>,
}

impl FieldSelector {
    /// Reads `metadata.name=a,status.phase!=Running`.
    ///
    /// # Errors
    /// In the words of Kubernetes' parser.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some(at) = part
                .find(['=', '!'])
                .filter(|at| part[*at..].starts_with("!=") || part[*at..].starts_with('='))
            else {
                return Err(SelectorError(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let (field, rest) = part.split_at(at);
            let (not, value) = match rest.strip_prefix("!=") {
                Some(value) => (true, value),
                None => (
                    false,
                    rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).unwrap_or_default(),
                ),
            };
            let (field, value) = (field.to_owned(), unescape(value));
            terms.push(FieldTerm { field, not, value, absent: "", instead: None });
        }
        Ok(Self { terms })
    }

    /// Whether the object matches.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let find = |field: &str| {
                let found = jsonpath::find(&format!(".{field}"), object).into_iter().next();
                found.filter(|value| !value.is_null())
            };
            let text = match find(&term.field).or_else(|| find(term.instead?)) {
                None => term.absent.to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            (text == term.value) != term.not
        })
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{FieldSelector, LabelSelector};
    use serde_json::json;

    fn check(selector: &str, expect: &[&str]) {
        let objects = [
            ("c0", json!({"tier": "web"})),
            ("c1", json!({"tier": "web", "extra": "yes"})),
            ("c2", json!({"tier": "db"})),
            ("c3", json!({"tier": "db", "extra": "yes"})),
            ("c4", json!({"tier": "cache", "n": "7"})),
            ("c5", json!(null)),
        ];
        let selector = LabelSelector::parse(selector).expect(selector);
        let found: Vec<_> =
            objects.iter().filter(|(_, l)| selector.matches(l)).map(|(n, _)| *n).collect();
        assert_eq!(found, expect, "{selector:?}");
    }

    #[test]
    fn label_selectors_choose_as_kubectl_means() {
        check("tier=web", &["c0", "c1"]);
        check("tier==web,!extra", &["c0"]);
        check("tier!=web,tier", &["c2", "c3", "c4"]);
        check("tier in (db,cache)", &["c2", "c3", "c4"]);
        check("tier notin (web),!extra", &["c2", "c4", "c5"]);
        check("extra", &["c1", "c3"]);
        check("!tier", &["c5"]);
        check("n>6", &["c4"]);
        check("n<7", &[]);
        check("", &["c0", "c1", "c2", "c3", "c4", "c5"]);
        check("tier=", &[]);
    }

    #[test]
    fn label_selector_errors_are_those_of_the_real_server() {
        let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        for (selector, text) in [
            ("tier in web", "unable to parse requirement: found 'web' expected: '('".to_owned()),
            ("a=b=c", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("-x=1", format!("unable to parse requirement: <nil>: Invalid value: \"-x\": {name}")),
            (
                "x in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier"
                    .to_owned(),
            ),
            ("=", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ] {
            assert_eq!(LabelSelector::parse(selector).expect_err(selector).to_string(), text);
        }
        let error = LabelSelector::parse("x=-1-").expect_err("a bad value").to_string();
        assert!(error.starts_with(
            "unable to parse requirement: values[0][x]: Invalid value: \"-1-\": a valid label"
        ));
    }

    #[test]
    fn selectors_of_objects() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}))
        .expect("a good selector");
        assert!(selector.matches(&json!({"a": "b"})));
        assert!(!selector.matches(&json!({"a": "b", "c": "d"})));
        let bad = json!({"matchExpressions": [{"key": "c", "operator": "Near"}]});
        assert!(LabelSelector::from_object(&bad).is_err());
    }

    #[test]
    fn field_selectors_take_a_missing_field_for_empty() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending"}});
        for (selector, expect) in [
            ("metadata.name=p", true),
            ("metadata.name==p,status.phase!=Running", true),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("spec.nodeName=a", false),
        ] {
            assert_eq!(
                FieldSelector::parse(selector).expect(selector).matches(&pod),
                expect,
                "{selector}"
            );
        }
        let error = FieldSelector::parse("abc").expect_err("no sign").to_string();
        assert_eq!(error, "invalid selector: 'abc'; can't understand 'abc'");
    }
}
