//! Time. Amounts of memory are the protocol's [`Bytes`](gpushare_protocol::units::Bytes); both stop at the ends of
//! their range instead of wrapping.

use std::ops::{Add, Sub};

/// A point in time or a span of it, in nanoseconds. Points count from any fixed origin of a clock that never goes back.
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
