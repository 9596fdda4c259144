//! Parts of a whole, in thousandths.

use std::fmt;

/// A part of a device's time: 1 to 1000 thousandths.
///
/// `Display` is in percent, with a decimal only where there is one: `30%`, `12.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permille(u16);

impl Permille {
    /// The whole.
    pub const WHOLE: Self = Self(1000);

    /// `thousandths`, if there is such a part.
    pub const fn new(thousandths: u16) -> Option<Self> {
        if thousandths >= 1 && thousandths <= 1000 {
            Some(Self(thousandths))
        } else {
            None
        }
    }

    /// Thousandths, 1 to 1000.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// This part of `whole`, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        // In two steps, so that no product overflows.
        let (thousands, rest) = (whole / 1000, whole % 1000);
        thousands * self.0 as u64 + rest * self.0 as u64 / 1000
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(out, "{}%", self.0 / 10),
            tenths => write!(out, "{}.{tenths}%", self.0 / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_a_whole_are_parts() {
        assert_eq!(Permille::new(0), None);
        assert_eq!(Permille::new(1001), None);
        assert_eq!(Permille::new(1000), Some(Permille::WHOLE));
        assert_eq!(Permille::new(1).map(Permille::get), Some(1));
    }

    #[test]
    fn a_part_prints_in_percent() {
        for (thousandths, text) in [(1000, "100%"), (300, "30%"), (125, "12.5%"), (1, "0.1%")] {
            assert_eq!(Permille::new(thousandths).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_part_of_an_amount_is_exact_and_never_overflows() {
        let third = Permille::new(333).unwrap();
        assert_eq!(third.of(1_000_000_000), 333_000_000);
        assert_eq!(third.of(10), 3);
        assert_eq!(Permille::WHOLE.of(u64::MAX), u64::MAX);
    }
}
