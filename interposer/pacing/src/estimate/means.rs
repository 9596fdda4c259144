//! The arithmetic of running means.

use super::LEARNED;

/// `value * part / whole` without overflow.
pub(super) fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// A mean after one more measurement. A bound that was measured is believed at once while little is
/// known. What grew counts for more than what shrank a little: a drain that is too long is worse
/// than a window that is too small for a while.
pub(super) fn moved(mean: u64, told: u64, seen: u8) -> u64 {
    match seen {
        0..LEARNED => told,
        _ if told >= mean || told < mean / 2 => {
            mean / 2 + told / 2 + (mean % 2 + told % 2).div_ceil(2)
        }
        _ => mean - (mean - told).div_ceil(4),
    }
}
