//! Sums and differences of amounts stop at the ends of the range instead of wrapping: numbers may
//! come from a tenant, and a hostile one must neither panic a daemon nor turn a large claim into a
//! small one.

use super::{Bytes, GIB, MIB};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The end of the range.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(MIB))
    }

    /// `count` gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(GIB))
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The next multiple of `step`; the amount itself if it is one already, if `step` is nothing,
    /// or at the end of the range.
    pub fn round_up(self, step: Self) -> Self {
        Self(self.0.checked_next_multiple_of(step.0).unwrap_or(self.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_stop_at_the_ends_of_the_range() {
        assert_eq!(Bytes::MAX + Bytes(1), Bytes::MAX);
        assert_eq!(Bytes(1) - Bytes(2), Bytes::ZERO);
        assert_eq!(
            [Bytes::MAX, Bytes(7)].into_iter().sum::<Bytes>(),
            Bytes::MAX
        );
        assert_eq!(Bytes::gib(u64::MAX), Bytes::MAX);
    }

    #[test]
    fn rounding_goes_up_to_a_whole_step_and_no_further() {
        assert_eq!(Bytes(1).round_up(Bytes(64)), Bytes(64));
        assert_eq!(Bytes(64).round_up(Bytes(64)), Bytes(64));
        assert_eq!(Bytes(65).round_up(Bytes::ZERO), Bytes(65));
        assert_eq!(Bytes::MAX.round_up(Bytes(64)), Bytes::MAX);
    }
}
