//! Time. Amounts of memory are the protocol's [`Bytes`](gpushare_protocol::units::Bytes); both stop
//! at the ends of their range instead of wrapping.

use std::ops::{Add, Sub};

/// A point in time or a span of it, in nanoseconds. Points count from any fixed origin of a clock
/// that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time, or the origin.
    pub const ZERO: Self = Self(0);
    /// The end of the range.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` microseconds.
    pub const fn micros(count: u64) -> Self {
        Self(count.saturating_mul(1_000))
    }

    /// `count` milliseconds.
    pub const fn millis(count: u64) -> Self {
        Self(count.saturating_mul(1_000_000))
    }

    /// `count` seconds.
    pub const fn secs(count: u64) -> Self {
        Self(count.saturating_mul(1_000_000_000))
    }

    /// A span as text for people: `300 ms`, `90 s`, `30 min`, `2 h`, in whole units, rounded down.
    #[must_use]
    pub fn human(self) -> String {
        let millis = self.0 / 1_000_000;
        let units = [
            (7_200_000, 3_600_000, "h"),
            (120_000, 60_000, "min"),
            (1_000, 1_000, "s"),
        ];
        let unit = units.into_iter().find(|(from, ..)| millis >= *from);
        let (_, length, name) = unit.unwrap_or((0, 1, "ms"));
        format!("{} {name}", millis / length)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_the_unit_people_use() {
        for (span, told) in [
            (Nanos::millis(300), "300 ms"),
            (Nanos::secs(90), "90 s"),
            (Nanos::secs(119), "119 s"),
            (Nanos::secs(30 * 60), "30 min"),
            (Nanos::secs(2 * 3600), "2 h"),
            (Nanos::ZERO, "0 ms"),
        ] {
            assert_eq!(span.human(), told);
        }
    }
}
