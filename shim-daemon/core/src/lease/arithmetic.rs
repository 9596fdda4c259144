//! Spans and parts of them, without overflow.

use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// A part of a span of time.
pub(super) fn part_of(part: Permille, time: Nanos) -> Nanos {
    Nanos(part.of(time.0))
}

/// A span as a signed number of nanoseconds.
pub(super) fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// `value * part / whole`; saturating.
pub(super) fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The part of a time in which one of two is so or the other, each for its own part and independent
/// of the other; in thousandths.
pub(super) fn any_of(one: u64, other: u64) -> u64 {
    1000 - (1000 - one) * (1000 - other) / 1000
}
