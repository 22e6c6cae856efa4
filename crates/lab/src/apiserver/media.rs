//! In what form an answer is wanted: the `Accept` header.

use super::status::Status;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// What an answer is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The object itself.
    Object,
    /// `meta.k8s.io/v1 Table`.
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`.
    Partial,
    /// `meta.k8s.io/v1 PartialObjectMetadataList`.
    PartialList,
    /// `apidiscovery.k8s.io/v2 APIGroupDiscoveryList`.
    Discovery,
}

/// The form a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// How it is written.
    pub encoding: Encoding,
    /// What is written.
    pub shape: Shape,
    /// The version of a table or of bare metadata: `meta.k8s.io/v1`, or `v1beta1` for old clients.
    pub version: &'static str,
}

impl Accept {
    /// JSON, as it is.
    pub const PLAIN: Self = Self::json(Shape::Object);

    /// JSON of this shape.
    #[must_use]
    pub const fn json(shape: Shape) -> Self {
        Self { encoding: Encoding::Json, shape, version: META }
    }

    /// `Content-Type` of the answer.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match (self.encoding, self.shape) {
            (_, Shape::Discovery) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Encoding::Json, _) => "application/json",
            (Encoding::Yaml, _) => "application/yaml",
        }
    }
}

const META: &str = "meta.k8s.io/v1";

struct Range<'a> {
    media: &'a str,
    form: Option<&'a str>,
    group: &'a str,
    version: &'a str,
    quality: f64,
}

fn range(text: &str) -> Range<'_> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let mut range = Range { media, form: None, group: "", version: "", quality: 1.0 };
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "as" => range.form = Some(value),
            "g" => range.group = value,
            "v" => range.version = value,
            "q" => range.quality = value.parse().unwrap_or(1.0),
            _ => {}
        }
    }
    range
}

fn encoding(media: &str) -> Option<Encoding> {
    match media {
        "*/*" | "application/json" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        _ => None,
    }
}

/// What a range asks for, and in which version of it.
fn shape(range: &Range<'_>) -> Option<(Shape, &'static str)> {
    let version = match (range.form, range.group, range.version) {
        (None, ..) => return Some((Shape::Object, META)),
        (Some("APIGroupDiscoveryList"), "apidiscovery.k8s.io", "v2") => {
            return Some((Shape::Discovery, META));
        }
        (_, "meta.k8s.io", "v1") => META,
        (_, "meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
        _ => return None,
    };
    let shape = match range.form? {
        "Table" => Shape::Table,
        "PartialObjectMetadata" => Shape::Partial,
        "PartialObjectMetadataList" => Shape::PartialList,
        _ => return None,
    };
    Some((shape, version))
}

/// Chooses among the forms a client accepts; 406 when none of them is spoken here.
/// `tables` is false for what is never shown as one (Kubernetes: reviews).
pub fn negotiate(header: &str, tables: bool) -> Result<Accept, Status> {
    if header.trim().is_empty() {
        return Ok(Accept::PLAIN);
    }
    let mut ranges: Vec<Range<'_>> = header.split(',').map(|text| range(text.trim())).collect();
    ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    let found = ranges.iter().find_map(|range| {
        let (shape, version) = shape(range).filter(|(one, _)| tables || *one != Shape::Table)?;
        Some(Accept { encoding: encoding(range.media)?, shape, version })
    });
    if let Some(accept) = found {
        return Ok(accept);
    }
    let known = ranges.iter().any(|range| encoding(range.media).is_some());
    let offered = "application/json, application/yaml";
    Err(if known {
        let text = format!("only the following media types are accepted: {offered}");
        Status::new(406, "NotAcceptable", text)
    } else {
        let text = format!("406: Not Acceptable\n\nAvailable representations: {offered}");
        Status::new(406, "NotAcceptable", text).with(serde_json::json!({}))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_spoken_here_is_taken() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(kubectl, true).expect("accepted").shape, Shape::Table);
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(typed, true).expect("accepted"), Accept::PLAIN);
        assert_eq!(negotiate("*/*", true).expect("accepted"), Accept::PLAIN);
        assert_eq!(negotiate("text/csv", true).expect_err("refused").code, 406);
        let old = negotiate("application/json;as=Table;v=v1beta1;g=meta.k8s.io", true);
        assert_eq!(old.expect("accepted").version, "meta.k8s.io/v1beta1");
        assert_eq!(negotiate(kubectl, false).expect("accepted"), Accept::PLAIN);
        let unknown = "application/json;as=Foo;g=meta.k8s.io;v=v1";
        assert_eq!(negotiate(unknown, true).expect_err("refused").code, 406);
    }
}
