//! Sizes as text: our grammar, and those of the systems whose variables we also read.
//!
//! All arithmetic is on integers and rounds down; a value that does not fit in 64 bits is refused.

use crate::units::{Bytes, GIB, KIB, MIB, TIB};
use std::fmt;

/// Sizes that our own grammar accepts, for messages.
pub const ACCEPTED: &str = "bytes (4294967296), 512Mi or 512MiB, 4Gi or 4GiB (powers of two), 4G or 4GB (powers of ten), \
     decimals (1.5GiB), or a part of the device (50%); more than zero, upper and lower case as written here";

/// Requests that are accepted, for messages.
pub const REQUESTED: &str = "0 for no guarantee, bytes (4294967296), 512Mi or 512MiB, 4Gi or 4GiB (powers of two), \
     4G or 4GB (powers of ten), decimals (1.5GiB), or a part of the device (50%); upper and lower case as written here";

/// Units of our grammar. Case matters: `m` is no mega, and `g` in other systems means two different
/// things.
const UNITS: [(&str, u64); 16] = [
    ("Ki", KIB),
    ("KiB", KIB),
    ("Mi", MIB),
    ("MiB", MIB),
    ("Gi", GIB),
    ("GiB", GIB),
    ("Ti", TIB),
    ("TiB", TIB),
    ("K", 1_000),
    ("KB", 1_000),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A whole device, in millionths of a percent.
const WHOLE: u64 = 100_000_000;

/// An amount of device memory: fixed, or a part of whichever device it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes; at least one, but for [`Size::parse_request`].
    Bytes(u64),
    /// Millionths of a percent of the device, 1 to 100,000,000.
    Percent(u64),
}

/// Why a text is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSize {
    /// It is not written in this grammar.
    Grammar,
    /// It comes to less than one byte, or to no part of the device.
    Zero,
    /// It is more than 64 bits of bytes, or more than 100 %.
    TooLarge,
}

impl Size {
    /// Reads our grammar ([`ACCEPTED`]).
    pub fn parse(text: &str) -> Result<Self, BadSize> {
        let (number, unit) = split_unit(text);
        let decimal = Decimal::parse(number)?;
        if unit == "%" {
            let part = decimal.times(1_000_000)?;
            return match part {
                0 => Err(BadSize::Zero),
                1..=WHOLE => Ok(Self::Percent(part)),
                _ => Err(BadSize::TooLarge),
            };
        }
        let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() && !decimal.fractional() => 1,
            None => return Err(BadSize::Grammar),
        };
        match decimal.times(factor)? {
            0 => Err(BadSize::Zero),
            bytes => Ok(Self::Bytes(bytes)),
        }
    }

    /// Reads what is guaranteed ([`REQUESTED`]): our grammar, or `0` for nothing.
    pub fn parse_request(text: &str) -> Result<Self, BadSize> {
        match text {
            "0" => Ok(Self::Bytes(0)),
            _ => Self::parse(text),
        }
    }

    /// The bytes it comes to on a device of `capacity` bytes, rounded down.
    pub fn on(self, capacity: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(part) => {
                u64::try_from(u128::from(capacity) * u128::from(part) / u128::from(WHOLE))
                    .unwrap_or(capacity)
            }
        }
    }
}

/// The form that reads back as the same size.
impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => Bytes(bytes).fmt(out),
            Self::Percent(part) => {
                let (whole, millionths) = (part / 1_000_000, part % 1_000_000);
                match millionths {
                    0 => write!(out, "{whole}%"),
                    _ => write!(
                        out,
                        "{whole}.{}%",
                        format!("{millionths:06}").trim_end_matches('0')
                    ),
                }
            }
        }
    }
}

/// The size that a text which is none was perhaps meant to be: its unit in another case, with
/// spaces, or with a comma for the point.
///
/// ```
/// use gpushare_protocol::size::perhaps;
/// assert_eq!(perhaps("1,5 gib").as_deref(), Some("1.5GiB"));
/// assert_eq!(perhaps("plenty"), None);
/// ```
pub fn perhaps(text: &str) -> Option<String> {
    let text: String = text.split_whitespace().collect();
    let text = text.replace(',', ".");
    let (number, unit) = split_unit(&text);
    let names = UNITS.iter().map(|(name, _)| *name).chain(["%"]);
    let mut names = names.filter(|name| name.eq_ignore_ascii_case(unit));
    let meant = format!("{number}{}", names.next()?);
    Size::parse(&meant).is_ok().then_some(meant)
}

/// HAMi's and MPS's grammar: digits and at most one letter of either case, `k`, `m` and `g` being
/// powers of two. With `byte_suffix` a `B` may follow the letter (MPS). `None`, which both take for
/// "no limit", if empty or zero.
pub fn parse_letters(text: &str, byte_suffix: bool) -> Result<Option<u64>, BadSize> {
    if text.is_empty() {
        return Ok(None);
    }
    let (number, mut unit) = split_unit(text);
    if byte_suffix && unit.len() == 2 {
        unit = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
    }
    let factor = match unit {
        "" => 1,
        "k" | "K" => KIB,
        "m" | "M" => MIB,
        "g" | "G" => GIB,
        _ => return Err(BadSize::Grammar),
    };
    whole(number, factor)
}

/// The r615 toolkit's grammar: whole mebibytes. `None` if empty or zero.
pub fn parse_mebibytes(text: &str) -> Result<Option<u64>, BadSize> {
    if text.is_empty() {
        Ok(None)
    } else {
        whole(text, MIB)
    }
}

fn whole(number: &str, factor: u64) -> Result<Option<u64>, BadSize> {
    let decimal = Decimal::parse(number)?;
    if decimal.fractional() {
        return Err(BadSize::Grammar);
    }
    Ok(Some(decimal.times(factor)?).filter(|bytes| *bytes != 0))
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    )
}

/// A decimal number as digits over a power of ten.
struct Decimal {
    digits: u64,
    scale: u64,
}

impl Decimal {
    /// Digits, then if there is a point at least one and at most nine more. No sign, no exponent,
    /// no spaces.
    fn parse(text: &str) -> Result<Self, BadSize> {
        let (whole, fraction) = text
            .split_once('.')
            .map_or((text, None), |(whole, rest)| (whole, Some(rest)));
        let all_digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || fraction.is_some_and(|part| !all_digits(part) || part.len() > 9) {
            return Err(BadSize::Grammar);
        }
        let fraction = fraction.unwrap_or("");
        let scale = (0..fraction.len()).fold(1, |scale, _| scale * 10);
        let digits = format!("{whole}{fraction}")
            .parse()
            .map_err(|_| BadSize::TooLarge)?;
        Ok(Self { digits, scale })
    }

    fn fractional(&self) -> bool {
        self.scale != 1
    }

    fn times(&self, factor: u64) -> Result<u64, BadSize> {
        let exact = u128::from(self.digits) * u128::from(factor) / u128::from(self.scale);
        u64::try_from(exact).map_err(|_| BadSize::TooLarge)
    }
}

#[cfg(test)]
mod tests;
