//! Lists: how they are asked for and read to their end.

use crate::{
    fault::Fault,
    keystone::Service,
    session::{Call, Session},
};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most pages of one list: a thousand items each, more than any project has.
const PAGES: usize = 200;

/// A query string with its question mark; empty for no pairs.
#[must_use]
pub fn query(pairs: &[(&str, &str)]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut text = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
    text.extend_pairs(pairs).finish()
}

impl Session {
    /// Everything of a list, page by page. `key` is the list's name in the answer.
    ///
    /// # Errors
    /// [`Fault`], also when a page cannot be read: half a list is none.
    pub async fn list<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        key: &str,
        pairs: &[(&str, &str)],
    ) -> Result<Vec<T>, Fault> {
        let mut found = Vec::new();
        let mut page = query(pairs);
        let mut fresh_starts = 1;
        for _ in 0..PAGES {
            let call = Call::new(service, Method::GET, format!("{path}{page}"));
            let mut answer = match self.send(&call).await {
                // What the marker named is gone (Nova 400, Neutron 404): start over, once.
                Err(fault) if !found.is_empty() && fresh_starts > 0 && marker_gone(&fault) => {
                    fresh_starts -= 1;
                    found.clear();
                    page = query(pairs);
                    continue;
                }
                outcome => outcome?,
            };
            let items = answer.get_mut(key).map(Value::take).unwrap_or_default();
            let items: Vec<T> = serde_json::from_value(items).map_err(|error| Fault::Lost {
                call: format!("GET {path} of {}", service.word()),
                why: format!("{key} cannot be read ({error})"),
            })?;
            let was_empty = items.is_empty();
            found.extend(items);
            match next(&answer, key) {
                Some(next) if next != page && !was_empty => page = next,
                _ => return Ok(found),
            }
        }
        Err(Fault::Lost {
            call: format!("GET {path} of {}", service.word()),
            why: format!("the list has more than {PAGES} pages"),
        })
    }

    /// One object; `None` when the cloud does not have it.
    ///
    /// # Errors
    /// [`Fault`], but for 404.
    pub async fn fetch<T: DeserializeOwned>(
        &self,
        service: Service,
        path: &str,
        key: &str,
    ) -> Result<Option<T>, Fault> {
        match self.send(&Call::new(service, Method::GET, path)).await {
            Ok(mut answer) => {
                // Glance writes its objects without a key around them.
                let inner = answer.get_mut(key).filter(|it| it.is_object()).map(Value::take);
                let object = inner.unwrap_or(answer);
                read(service, path, object).map(Some)
            }
            Err(fault) if fault.is_not_found() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Makes or changes something and reads what came of it.
    ///
    /// # Errors
    /// [`Fault`]; see [`Fault::surely_nothing_done`].
    pub async fn create<T: DeserializeOwned>(&self, call: Call, key: &str) -> Result<T, Fault> {
        let mut answer = self.send(&call).await?;
        let object = answer.get_mut(key).map(Value::take).unwrap_or_default();
        read(call.service, &call.path, object)
    }

    /// Deletes something. What is not there is deleted.
    ///
    /// # Errors
    /// [`Fault`], but for 404.
    pub async fn delete(&self, service: Service, path: String) -> Result<(), Fault> {
        match self.send(&Call::new(service, Method::DELETE, path)).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.is_not_found() => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

fn read<T: DeserializeOwned>(service: Service, path: &str, object: Value) -> Result<T, Fault> {
    serde_json::from_value(object).map_err(|error| Fault::Lost {
        call: format!("{path} of {}", service.word()),
        why: format!("the answer cannot be read ({error})"),
    })
}

fn marker_gone(fault: &Fault) -> bool {
    matches!(fault.status(), Some(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND))
}

/// The query of the next page. Only the query is taken: behind a proxy the address in the link may
/// lead elsewhere.
fn next(answer: &Value, key: &str) -> Option<String> {
    let links = answer.get(format!("{key}_links")).and_then(Value::as_array).into_iter().flatten();
    let link = links
        .filter(|link| link["rel"] == "next")
        .find_map(|link| link["href"].as_str())
        // Glance.
        .or_else(|| answer.get("next").and_then(Value::as_str))?;
    let (_, query) = link.split_once('?')?;
    Some(format!("?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn next_pages_of_all_services() {
        let nova =
            json!({"servers_links": [{"rel": "next", "href": "http://x/s?limit=1&marker=a"}]});
        assert_eq!(next(&nova, "servers").as_deref(), Some("?limit=1&marker=a"));
        let neutron = json!({"ports_links": [{"rel": "previous", "href": "http://x/p?a=1"}]});
        assert_eq!(next(&neutron, "ports"), None);
        let glance = json!({"next": "/v2/images?marker=b"});
        assert_eq!(next(&glance, "images").as_deref(), Some("?marker=b"));
    }

    #[test]
    fn values_are_quoted() {
        assert_eq!(query(&[("name", "a b&c"), ("x", "/")]), "?name=a+b%26c&x=%2F");
        assert_eq!(query(&[]), "");
    }
}
