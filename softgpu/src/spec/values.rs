//! The values of SPEC: numbers, sizes, rates, times.

pub(super) fn name(value: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = (1..=64).contains(&value.len()) && !value.starts_with('.');
    (fits && value.bytes().all(legal)).then(|| value.to_owned())
}

pub(super) fn number(value: &str, least: u32, most: u32) -> Option<u32> {
    value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
}

pub(super) fn rate(value: &str) -> Option<u64> {
    size(value.strip_suffix("/s")?).filter(|bytes| *bytes > 0)
}

pub(super) const MICROSECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const UP_TO_100_MS: &str = "a time up to 100ms, such as 50us";

pub(super) fn at_most(value: &str, most: u64) -> Option<u64> {
    time(value).filter(|time| *time <= most)
}

/// A time in nanoseconds: 0, or a whole number and `ns`, `us`, `ms` or `s`.
pub(super) fn time(value: &str) -> Option<u64> {
    let split = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(split.unwrap_or(value.len()));
    let number: u64 = number.parse().ok()?;
    let scale = match unit {
        "ns" => 1,
        "us" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => 1000 * MILLISECOND,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Bytes: a whole number or a decimal with up to three places, and a unit (`KiB` … `TiB` or `Ki` …
/// for powers of two, `KB` … `TB` or `K` … for powers of ten, no unit for bytes). A decimal must
/// give whole bytes.
pub(super) fn size(value: &str) -> Option<u64> {
    let split = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let unit = unit
        .strip_suffix('B')
        .filter(|rest| !rest.is_empty())
        .unwrap_or(unit);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    let (whole, places) = number.split_once('.').unwrap_or((number, "0"));
    if places.is_empty() || places.len() > 3 {
        return None;
    }
    let tenth_power = 10_u64.pow(u32::try_from(places.len()).ok()?);
    let thousandths = scale.checked_mul(places.parse().ok()?)?;
    let part = (thousandths % tenth_power == 0).then(|| thousandths / tenth_power)?;
    scale.checked_mul(whole.parse().ok()?)?.checked_add(part)
}

/// Whether something is there.
pub(super) fn is_on(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off"),
    }
}
