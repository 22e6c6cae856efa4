//! The `timeout` of a request: a duration as Go writes them.

use super::Status;

/// 400 for a timeout that is no duration.
pub(super) fn check(text: &str) -> Result<(), Status> {
    match mistake(text) {
        None => Ok(()),
        Some(why) => Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: {why}"
        ))),
    }
}

/// What Go's `time.ParseDuration` says of a text; the empty one stands for none.
fn mistake(text: &str) -> Option<String> {
    let invalid = || Some(format!("invalid duration {text:?}"));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" || text.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if rest[..number].parse::<f64>().is_err() {
            return invalid();
        }
        rest = &rest[number..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        match &rest[..end] {
            "" => return Some(format!("missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = &rest[end..],
            unit => return Some(format!("unknown unit {unit:?} in duration {text:?}")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for fine in ["", "0", "30s", "1m30s", "1.5h", "-2ms"] {
            assert_eq!(mistake(fine), None, "{fine}");
        }
        assert_eq!(mistake("invalid").as_deref(), Some("invalid duration \"invalid\""));
        assert_eq!(mistake("3").as_deref(), Some("missing unit in duration \"3\""));
        let odd = "unknown unit \"d\" in duration \"3d\"";
        assert_eq!(mistake("3d").as_deref(), Some(odd));
    }
}
