//! Quantities: `100m`, `1.5Gi`, `2e3`.

use std::cmp::Ordering;
use std::fmt;

/// A parsed quantity. Compares by value, whatever the suffix; displays in Kubernetes' canonical
/// form.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// In billionths, the finest the format has.
    nano: i128,
    format: Format,
}

/// Which family of suffixes a quantity was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
/// Kubernetes: quantities stop at 2^63-1.
const MOST: i128 = i64::MAX as i128 * NANO;

impl Quantity {
    /// The value, rounded up to a whole number.
    #[must_use]
    pub fn ceil(&self) -> i128 {
        self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) != 0)
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

/// Reads a quantity; `None` for what Kubernetes would refuse.
#[must_use]
pub fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (format, multiplier, divisor) = scale(suffix)?;
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let unit = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
    let scaled = digits.checked_mul(NANO)?.checked_mul(multiplier)?;
    // Finer than a billionth rounds away from zero.
    let nano = (scaled.checked_add(unit - 1)? / unit).min(MOST);
    Some(Quantity { nano: if negative { -nano } else { nano }, format })
}

fn scale(suffix: &str) -> Option<(Format, i128, i128)> {
    let decimal = |power: u32| Some((Format::Decimal, 10_i128.pow(power), 1));
    let binary = |power: u32| Some((Format::Binary, 1_i128 << power, 1));
    match suffix {
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "m" => Some((Format::Decimal, 1, 1_000)),
        "u" => Some((Format::Decimal, 1, 1_000_000)),
        "n" => Some((Format::Decimal, 1, NANO)),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs().min(18))?;
            Some(if power < 0 {
                (Format::Exponent, 1, factor)
            } else {
                (Format::Exponent, factor, 1)
            })
        }
    }
}

/// Compares two quantities by value; `None` where one cannot be read.
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    Some(parse(a)?.cmp(&parse(b)?))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nano > -1024 * NANO && self.nano < 1024 * NANO;
        if self.format == Format::Binary && !small {
            let mut number = self.ceil();
            let mut step = 0;
            const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            while number % 1024 == 0 && step + 1 < SUFFIXES.len() {
                number /= 1024;
                step += 1;
            }
            return write!(f, "{number}{}", SUFFIXES[step]);
        }
        if self.nano == 0 {
            return f.write_str("0");
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let mut number = self.nano;
        let mut step = 0;
        while number % 1000 == 0 && step + 1 < SUFFIXES.len() {
            number /= 1000;
            step += 1;
        }
        if self.format == Format::Exponent {
            let power = i32::try_from(step).unwrap_or_default() * 3 - 9;
            return if power == 0 { write!(f, "{number}") } else { write!(f, "{number}e{power}") };
        }
        write!(f, "{number}{}", SUFFIXES[step])
    }
}

#[cfg(test)]
mod tests {
    use super::{compare, parse};
    use std::cmp::Ordering;

    #[test]
    fn canonical_forms_are_those_of_the_real_server() {
        for (given, canonical) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1e3", "1e3"),
            ("2000m", "2"),
            ("1.5Gi", "1536Mi"),
            ("1000Ki", "1000Ki"),
            ("100", "100"),
            ("0", "0"),
            ("-1500m", "-1500m"),
            ("1000k", "1M"),
            ("512Ki", "512Ki"),
        ] {
            assert_eq!(parse(given).map(|q| q.to_string()).as_deref(), Some(canonical), "{given}");
        }
    }

    #[test]
    fn order_goes_by_value() {
        assert_eq!(compare("1Gi", "1G"), Some(Ordering::Greater));
        assert_eq!(compare("1", "1000m"), Some(Ordering::Equal));
        assert_eq!(compare("1e3", "1k"), Some(Ordering::Equal));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "lots", "1Zi", "1.2.3", "-", "1 Gi", "m"] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }
}
