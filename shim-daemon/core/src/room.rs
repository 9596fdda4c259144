//! Amounts of a device's memory in its two sums: taken and firm.

use gpushare_protocol::units::Bytes;
use std::ops::{Add, AddAssign, Sub};

/// An amount in both sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Memory that is or may be used now.
    pub(crate) taken: Bytes,
    /// Memory that may not be taken back.
    pub(crate) firm: Bytes,
}

impl Room {
    /// The same amount in both sums.
    pub(crate) fn both(bytes: Bytes) -> Self {
        Self {
            taken: bytes,
            firm: bytes,
        }
    }

    /// Whether both amounts are zero.
    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Whether it fits into `other` in both sums.
    pub(crate) fn within(self, other: Self) -> bool {
        self.taken <= other.taken && self.firm <= other.firm
    }

    /// The smaller amount in each book.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            taken: self.taken.min(other.taken),
            firm: self.firm.min(other.firm),
        }
    }
}

impl Add for Room {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            firm: self.firm + other.firm,
        }
    }
}

impl AddAssign for Room {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Room {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            taken: self.taken - other.taken,
            firm: self.firm - other.firm,
        }
    }
}
