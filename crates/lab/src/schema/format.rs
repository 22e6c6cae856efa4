//! The string formats that Kubernetes checks; others say nothing.

use base64::Engine as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a text is of that format. An unknown format fits every text.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" => is_time(text),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "email" => text.split_once('@').is_some_and(|(who, at)| !who.is_empty() && !at.is_empty()),
        "hostname" => is_hostname(text),
        "uri" => text.contains(':') || text.starts_with('/'),
        _ => true,
    }
}

/// RFC 3339, as `2024-08-01T12:00:00Z`.
pub(super) fn is_time(text: &str) -> bool {
    text.len() >= 20
        && matches!(text.as_bytes()[10], b'T' | b't')
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// `192.0.2.0/24`, `2001:db8::/64`.
pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// Go's durations (`1h30m`) and the long units of the schema library (`2 days`).
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 24] = [
        "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "nano", "micro", "milli", "sec", "second",
        "seconds", "min", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks",
    ];
    let mut rest = text.trim().trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let number =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        if number == 0 {
            return false;
        }
        rest = rest[number..].trim_start();
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == ' ').unwrap_or(rest.len());
        if !UNITS.contains(&&rest[..unit]) {
            return false;
        }
        rest = rest[unit..].trim_start();
    }
    !text.trim().is_empty()
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    parts.len() == 6
        && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uuid(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && plain.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_hostname(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn texts_of_each_format() {
        for (format, good, bad) in [
            ("date-time", "2020-01-01T00:00:00Z", "yesterday"),
            ("date-time", "2020-01-01T00:00:00.123456+02:00", "2020-01-01"),
            ("duration", "1h30m", "7x"),
            ("duration", "2 days", ""),
            ("ipv4", "192.0.2.1", "1.2"),
            ("ipv6", "2001:db8::1", "192.0.2.1"),
            ("cidr", "192.0.2.0/24", "192.0.2.0/33"),
            ("mac", "fa:16:3e:00:00:01", "fa:16"),
            ("uuid", "05e1b0f8-82db-4838-9478-a7dbd3287356", "x"),
            ("byte", "YQ==", "!"),
            ("date", "2020-02-29", "2021-02-29"),
        ] {
            assert!(fits(format, good), "{good} is a {format}");
            assert!(!fits(format, bad), "{bad} is no {format}");
        }
        assert!(fits("made-up", "anything"));
    }
}
