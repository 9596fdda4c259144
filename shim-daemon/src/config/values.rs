//! The forms of single values in the file.

use gpushare_core::Nanos;
use gpushare_journal::Bounds;
use gpushare_protocol::limits;
use gpushare_protocol::size::Size;
use gpushare_protocol::units::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::nanos;

/// An amount of memory as people write it.
#[derive(Debug)]
pub(super) struct Amount(pub(super) Bytes);

/// The accepted form of an amount.
const AMOUNT: &str = "an amount of bytes, more than zero, such as 512MiB, 4GiB or 1.5GB";

/// Reads an amount of bytes, which is more than zero and no part of a device.
fn amount(text: &str) -> Option<Bytes> {
    match Size::parse(text) {
        Ok(Size::Bytes(bytes)) => Some(Bytes(bytes)),
        _ => None,
    }
}

/// An amount of a flag.
///
/// # Errors
/// The accepted form.
pub fn given_amount(text: &str) -> Result<Bytes, String> {
    amount(text).ok_or_else(|| format!("accepted: {AMOUNT}"))
}

/// An amount of a flag, or nothing.
///
/// # Errors
/// The accepted form.
pub fn given_amount_or_nothing(text: &str) -> Result<Bytes, String> {
    match text {
        "0" => Ok(Bytes::ZERO),
        _ => amount(text).ok_or_else(|| format!("accepted: 0, or {AMOUNT}")),
    }
}

/// The accepted form of a span of time.
const SPAN: &str =
    "a whole number with ms, s, m, h, d or w, more than zero, at most a year, such as 10s";

/// The size of the journal as people write it.
#[derive(Debug)]
pub(super) struct Journal(pub(super) Bounds);

/// Smaller, an event that says much would not fit.
const SMALLEST_JOURNAL: u64 = 64 << 10;

impl<'de> Deserialize<'de> for Journal {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        match Size::parse(&text) {
            Ok(Size::Bytes(bytes)) if bytes >= SMALLEST_JOURNAL => Ok(Self(Bounds { bytes })),
            _ => Err(D::Error::custom(format!(
                "{text:?} is refused; accepted: an amount of bytes from 64KiB on, such as 16MiB"
            ))),
        }
    }
}

/// A span of time as people write it.
#[derive(Debug)]
pub(super) struct Span(pub(super) Nanos);

/// A driver's time slice as people write it.
#[derive(Debug)]
pub(super) struct Slice(pub(super) Nanos);

/// The device's time for a change of contexts as people write it.
#[derive(Debug)]
pub(super) struct Change(pub(super) Nanos);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let bytes = amount(&text).map(Self);
        bytes.ok_or_else(|| D::Error::custom(format!("{text:?} is refused; accepted: {AMOUNT}")))
    }
}

/// The shortest accepted value of a driver's time slice.
const SHORTEST_SLICE: Nanos = Nanos::millis(1);
const LONGEST_SLICE: Nanos = Nanos::millis(100);

impl<'de> Deserialize<'de> for Slice {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let span = limits::span(&text).map(nanos);
        let slice = span.filter(|span| (SHORTEST_SLICE..=LONGEST_SLICE).contains(span));
        slice.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is refused; accepted: the driver's time slice in whole ms, 1ms to 100ms"
            ))
        })
    }
}

/// The longest accepted time of a change of contexts.
const LONGEST_SWITCH: Nanos = Nanos::millis(10);

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let digits = text.strip_suffix("us").filter(|text| {
            let is_digit = |byte: u8| byte.is_ascii_digit();
            !text.is_empty() && text.len() <= 5 && text.bytes().all(is_digit)
        });
        let micros = digits.and_then(|text| text.parse().ok());
        let switch = micros
            .map(Nanos::micros)
            .filter(|switch| *switch <= LONGEST_SWITCH);
        switch.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is refused; accepted: the device's time for a change of contexts in whole us, 0us to 10000us"
            ))
        })
    }
}

/// As an amount, or `"0"`.
pub(super) fn amount_or_nothing<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Amount>, D::Error> {
    let text = String::deserialize(source)?;
    let bytes = match &*text {
        "0" => Some(Bytes::ZERO),
        text => amount(text),
    };
    match bytes {
        Some(bytes) => Ok(Some(Amount(bytes))),
        None => Err(D::Error::custom(format!(
            "{text:?} is refused; accepted: 0, or {AMOUNT}"
        ))),
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let span = limits::span(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is refused; accepted: {SPAN}")))?;
        Ok(Self(nanos(span)))
    }
}
